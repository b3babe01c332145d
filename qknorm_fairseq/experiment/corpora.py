"""Corpora that can be fetched: data in ``configs/corpora``."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from qknorm_fairseq.experiment import settings
from qknorm_fairseq.experiment.corpus import SPLITS
from qknorm_fairseq.experiment.download import RemoteFile
from qknorm_fairseq.experiment.errors import UserError

FORMS = ("ted", "parallel")


@dataclass(frozen=True)
class Corpus:
    """Files to fetch, and what is in them."""

    name: str
    description: str
    licence: str
    form: str  # "ted": an archive of talks in many languages; "parallel": two files a split
    files: list[RemoteFile]
    splits: dict[str, str] = field(default_factory=lambda: {split: split for split in SPLITS})


def load_corpus(name: str) -> Corpus:
    """The corpus called ``name``.

    Raises:
        UserError: when there is none, or its file is wrong.
    """
    corpus = settings.load(_corpus, "corpora", name)
    for what in _faults(corpus):
        path = settings.CONFIGS / "corpora" / f"{name}.yaml"
        raise UserError(f"{path}: {what}; mend that file")
    return corpus


def _corpus(files: list[dict[str, Any]] | None = None, **values: Any) -> Corpus:
    if files is not None:
        values["files"] = [RemoteFile(**file) for file in files]
    return Corpus(**values)


def _faults(corpus: Corpus) -> Iterator[str]:
    if not (_is_text(corpus.description) and _is_text(corpus.licence)):
        yield "description and licence must be text"
    if corpus.form not in FORMS:
        yield f"form is {corpus.form!r}, but must be {' or '.join(FORMS)}"
    splits = corpus.splits if isinstance(corpus.splits, dict) else {}
    if set(splits) != set(SPLITS) or not all(_is_text(stem) for stem in splits.values()):
        yield f"splits must name a file stem for each of {', '.join(SPLITS)}"
    if corpus.form == "ted" and any(split != stem for split, stem in splits.items()):
        yield "splits are for the form parallel alone"
    if not corpus.files:
        yield "files must list at least one file"
    for file in corpus.files:
        yield from (f"{file.name}: {what}" for what in _file_faults(file))


def _file_faults(file: RemoteFile) -> Iterator[str]:
    if not _is_text(file.name, r"\w[\w.-]*"):
        yield "name must be that of a file, without a folder"
    if type(file.bytes) is not int or file.bytes <= 0:
        yield "bytes must be a whole number above 0"
    if not _is_text(file.sha256, "[0-9a-f]{64}"):
        yield "sha256 must be 64 of 0-9 and a-f, in quotes where YAML reads a number"
    urls = file.urls if isinstance(file.urls, list) else []
    if not urls or not all(_is_text(url, "https?://.+") for url in urls):
        yield "urls must list addresses that begin with http:// or https://"


def _is_text(value: Any, pattern: str = ".*") -> bool:
    return isinstance(value, str) and re.fullmatch(pattern, value, re.DOTALL) is not None
