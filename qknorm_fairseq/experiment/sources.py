"""Where a pair's raw text comes from: a folder of lines, or the TED talks in any form."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from qknorm_fairseq.experiment import ted
from qknorm_fairseq.experiment.corpus import SPLITS, Split, find_files, read_split
from qknorm_fairseq.experiment.text import normalise

Counts = dict[str, dict[str, int]]  # split -> what was found there -> how often


@dataclass(frozen=True)
class RawText:
    """The raw text of a pair, found but not read yet.

    ``read`` gives the splits, and for each what was found in its file and left out.
    """

    inputs: list[Path]
    read: Callable[[], tuple[dict[str, Split], Counts]]


def locate(path: Path, source: str, target: str, stems: dict[str, str] | None = None) -> RawText:
    """The text in ``path``: a folder of ``train.xx train.yy …``, else the TED talks in any form.

    Args:
        stems: what the files of a split are called, where that is not its own name.

    Raises:
        UserError: when something is missing.
    """
    own = [path / f"train.{source}{packed}" for packed in ("", ".gz")]
    talks = None if any(file.is_file() for file in own) else ted.find(path)
    if talks is None:
        files = find_files(path, source, target, stems)
        return RawText(
            list(files.values()),
            lambda: ({split: read_split(files, split, source, target) for split in SPLITS}, {}),
        )

    def read() -> tuple[dict[str, Split], Counts]:
        found = ted.extract(talks, source, target)
        return {split: sides.map(normalise) for split, sides in found.splits.items()}, found.counts

    return RawText(ted.inputs(talks), read)
