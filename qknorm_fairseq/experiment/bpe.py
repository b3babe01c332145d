"""Joint byte-pair encoding by subword-nmt, with its progress shown."""

from collections.abc import Iterable
from contextlib import redirect_stderr
from pathlib import Path
from typing import TextIO

from subword_nmt.apply_bpe import BPE
from subword_nmt.learn_bpe import learn_bpe

from qknorm_fairseq.experiment.console import Progress
from qknorm_fairseq.experiment.errors import UserError


def learn(lines: Iterable[str], merges: int, path: Path) -> BPE:
    """Learn ``merges`` merges from ``lines``, keep them in ``path`` and load them.

    Raises:
        UserError: when there is nothing to merge.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    log = path.with_name("learn.log")
    with (
        Progress("learning BPE", merges, "merges") as progress,
        path.open("w", encoding="utf-8") as file,
        log.open("w") as err,
        redirect_stderr(err),  # subword-nmt draws a bar of its own
    ):
        try:
            learn_bpe(lines, _CountedLines(file, progress), merges)
        except ValueError as error:  # not one pair of symbols
            raise UserError("the training text has no words to learn BPE from") from error
    with path.open(encoding="utf-8") as file:
        return BPE(file)


def apply(bpe: BPE, lines: list[str], label: str) -> list[str]:
    """Each line in BPE pieces, those that go on marked by ``@@``."""
    pieces = []
    with Progress(f"BPE {label}", len(lines), "lines") as progress:
        for line in lines:
            pieces.append(bpe.process_line(line))
            if len(pieces) % 1000 == 0:
                progress.update(len(pieces))
    return pieces


class _CountedLines:
    """A text file that shows how many lines have been written to it."""

    def __init__(self, file: TextIO, progress: Progress) -> None:
        self.file, self.progress, self.count = file, progress, 0

    def write(self, text: str) -> None:
        self.file.write(text)
        self.count += text.count("\n")
        self.progress.update(self.count)
