"""Corpora that can be fetched: data in ``configs/corpora``, files in a folder, checked."""

import fcntl
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from qknorm_fairseq.experiment import settings
from qknorm_fairseq.experiment.console import say
from qknorm_fairseq.experiment.corpus import SPLITS
from qknorm_fairseq.experiment.download import RemoteFile, download
from qknorm_fairseq.experiment.errors import UserError
from qknorm_fairseq.experiment.workspace import sha256

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
    folder = settings.CONFIGS / "corpora"
    path = folder / f"{name}.yaml"
    known = sorted(file.stem for file in folder.glob("*.yaml"))
    if name not in known:
        raise UserError(f"unknown corpus {name!r}; known: {', '.join(known)}; or add {path}")
    try:
        values = yaml.safe_load(path.read_text("utf-8"))
        if "files" in values:
            values["files"] = [RemoteFile(**file) for file in values["files"]]
        corpus = Corpus(name=name, **values)
    except (TypeError, ValueError, yaml.YAMLError) as error:
        raise UserError(f"{path}: {' '.join(str(error).split())}; mend that file") from error
    for what in _faults(corpus):
        raise UserError(f"{path}: {what}; mend that file")
    return corpus


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


def fetch(corpus: Corpus, folder: Path) -> Path:
    """Make sure that all files of ``corpus`` are in ``folder``, each with the right sha256.

    Interrupted, it goes on where it stopped when called again.

    Raises:
        UserError: when a file there is another one, or no address gives it.
        OSError: when the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for file in corpus.files:
        path = folder / file.name
        if not path.exists():
            with _turn(folder):
                if not path.exists():  # else another process has fetched it meanwhile
                    download(file, path)
        found = sha256(path)
        if found != file.sha256:
            raise UserError(
                f"{path}: its sha256 is {found}, not {file.sha256}; remove it, and it is "
                "fetched anew, or put the right one there"
            )
    return folder


@contextmanager
def _turn(folder: Path) -> Iterator[None]:
    """Wait until no other process fetches into ``folder``, and keep others waiting."""
    with (folder / ".fetching").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"{folder}: another process fetches into it; waiting for that")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
