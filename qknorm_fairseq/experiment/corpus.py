"""Parallel text in files, a sentence a line: found, read and checked. Only a line feed ends one."""

import gzip
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from qknorm_fairseq.experiment.errors import UserError
from qknorm_fairseq.experiment.text import normalise

SPLITS = ("train", "dev", "test")


@dataclass(frozen=True)
class Split:
    """The two sides of one split, line i of one translating line i of the other."""

    source: list[str]
    target: list[str]

    def __len__(self) -> int:
        return len(self.source)

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Source and target, line by line."""
        return zip(self.source, self.target, strict=True)

    def map(self, step: Callable[[str], str]) -> "Split":
        """The same pairs with ``step`` taken on each line."""
        return Split([step(line) for line in self.source], [step(line) for line in self.target])

    def sides(self, source: str, target: str) -> list[tuple[str, list[str]]]:
        """Each language with its lines."""
        return [(source, self.source), (target, self.target)]


def find_files(
    folder: Path, source: str, target: str, stems: dict[str, str] | None = None
) -> dict[tuple[str, str], Path]:
    """The six files of a pair: (split, language) to path.

    Args:
        stems: what the files of a split are called, where that is not its own name.

    Raises:
        UserError: when the folder or a file is not there.
    """
    if not folder.is_dir():
        raise UserError(
            f"{folder}: no such folder; --raw-dir names the one that holds "
            f"train.{source}, train.{target}, dev.{source} … (plain or .gz)"
        )
    return {
        (split, language): _find(folder, split, (stems or {}).get(split, split), language)
        for split in SPLITS
        for language in (source, target)
    }


def _find(folder: Path, split: str, stem: str, language: str) -> Path:
    names = [f"{name}.{language}" for name in dict.fromkeys((split, stem))]
    for name in names:
        found = [path for path in (folder / name, folder / f"{name}.gz") if path.is_file()]
        if len(found) > 1:
            raise UserError(f"{folder}: both {name} and {name}.gz are there; take one away")
        if found:
            return found[0]
    others = ", ".join(["", *names[1:], f"{names[0]}.gz"])
    raise UserError(
        f"{folder / names[0]}: no such file{others.replace(', ', ', nor ')}; put it there"
    )


def read_bytes(path: Path) -> bytes:
    """A file's bytes, unpacked if its name ends in ``.gz``.

    Raises:
        UserError: for one that is not there or cannot be unpacked.
    """
    try:
        data = path.read_bytes()
        return gzip.decompress(data) if path.suffix == ".gz" else data
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such file") from error
    except (EOFError, OSError, zlib.error) as error:
        raise UserError(f"{path}: cannot be read ({error}); fetch it again") from error


def decode(line: bytes, where: str, number: int, offset: int) -> str:
    """A line of a file as text.

    Args:
        where: the file. number: of the line, from 1. offset: of its first byte.

    Raises:
        UserError: for bytes that are not UTF-8, or a NUL.
    """
    position = line.find(b"\0")
    if position >= 0:
        raise UserError(
            f"{where}, line {number}: byte {offset + position} is NUL; take it out of the file"
        )
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{where}, line {number}: byte {offset + error.start} is not UTF-8; convert the file"
        ) from error


def read_lines(path: Path) -> list[str]:
    """The lines of a UTF-8 file, plain or ``.gz``, their white space made plain.

    Raises:
        UserError: for a broken file, one that is not UTF-8 or holds a NUL, or has no text.
    """
    lines = split_lines(read_bytes(path), str(path))
    if not any(lines):
        raise UserError(f"{path}: the file is empty; put the text there")
    return lines


def split_lines(data: bytes, where: str) -> list[str]:
    """The lines of UTF-8 bytes, which may all be empty; see :func:`read_lines`."""
    lines = []
    offset = 0
    for number, line in enumerate(data.removesuffix(b"\n").split(b"\n"), 1):
        lines.append(normalise(decode(line, where, number, offset)))
        offset += len(line) + 1
    return lines


def read_split(files: dict[tuple[str, str], Path], split: str, source: str, target: str) -> Split:
    """Both sides of a split.

    Raises:
        UserError: when they have different numbers of lines.
    """
    source_path, target_path = files[split, source], files[split, target]
    sides = Split(read_lines(source_path), read_lines(target_path))
    if len(sides.source) != len(sides.target):
        raise UserError(
            f"{source_path} has {len(sides.source):,} lines, {target_path} "
            f"{len(sides.target):,}; line i of one must translate line i of the other, and by "
            f"their lengths they part at about line {parting(sides.source, sides.target):,}: "
            "look there"
        )
    return sides


def parting(one: list[str], other: list[str]) -> int:
    """The line, from 1, from which two texts of different line counts are out of step.

    Of all places where the longer text can have its surplus lines in one piece, it is the one
    at which the lengths before and after fit best: the sum of |log ratio| is least.
    """
    longer, shorter = (np.log1p([len(line) for line in x]) for x in _by_length(one, other))
    surplus = len(longer) - len(shorter)
    before = np.abs(longer[: len(shorter)] - shorter)
    after = np.abs(longer[surplus:] - shorter)
    costs = np.concatenate([[0.0], before.cumsum()]) + np.concatenate(
        [after[::-1].cumsum()[::-1], [0.0]]
    )
    return int(costs.argmin()) + 1


def _by_length(one: list[str], other: list[str]) -> tuple[list[str], list[str]]:
    return (one, other) if len(one) > len(other) else (other, one)
