"""Raw parallel text: found, read and checked. Only a line feed ends a line."""

import gzip
import zlib
from dataclasses import dataclass
from pathlib import Path

from qknorm_fairseq.experiment.errors import UserError

SPLITS = ("train", "dev", "test")


@dataclass(frozen=True)
class Split:
    """The two sides of one split, line i of one translating line i of the other."""

    source: list[str]
    target: list[str]

    def __len__(self) -> int:
        return len(self.source)


def find_files(raw_dir: Path, source: str, target: str) -> dict[tuple[str, str], Path]:
    """The six files of a pair in ``raw_dir``: (split, language) to path.

    Raises:
        UserError: when the folder or a file is not there.
    """
    if not raw_dir.is_dir():
        raise UserError(
            f"{raw_dir}: no such folder; --raw-dir names the one that holds "
            f"train.{source}, train.{target}, dev.{source} … (plain or .gz)"
        )
    return {
        (split, language): _find(raw_dir, f"{split}.{language}")
        for split in SPLITS
        for language in (source, target)
    }


def _find(raw_dir: Path, name: str) -> Path:
    for path in (raw_dir / name, raw_dir / f"{name}.gz"):
        if path.is_file():
            return path
    raise UserError(f"{raw_dir / name}: no such file, nor {name}.gz; put it there")


def read_lines(path: Path) -> list[str]:
    """The lines of a UTF-8 file, unpacked if its name ends in ``.gz``.

    Raises:
        UserError: for an empty or broken file, one that is not UTF-8, or a carriage return
            within a line (at its end, as Windows has it, it is dropped).
    """
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"{path}, line {number}: byte {error.start} is not UTF-8; convert the file"
        ) from error
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such file") from error
    except (EOFError, OSError, zlib.error) as error:
        raise UserError(f"{path}: cannot be read ({error}); fetch it again") from error
    if not text.strip():
        raise UserError(f"{path}: the file is empty; put the text there")
    lines = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
    for number, line in enumerate(lines, 1):
        if "\r" in line:  # fairseq would end the line there
            raise UserError(f"{path}, line {number}: a carriage return in the line; take it out")
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
            f"{len(sides.target):,}; line i of one must translate line i of the other"
        )
    return sides


def clean(train: Split, max_words: int) -> tuple[Split, dict[str, int]]:
    """Training pairs fit to learn from, and how many each rule dropped.

    The published practice: pairs with an empty side, or a side of more than ``max_words``
    words before BPE, are left out. Dev and test are never touched.
    """
    dropped = {"empty_side": 0, "too_long": 0}
    kept = Split([], [])
    for source, target in zip(train.source, train.target, strict=True):
        lengths = len(source.split()), len(target.split())
        if min(lengths) == 0:
            dropped["empty_side"] += 1
        elif max(lengths) > max_words:
            dropped["too_long"] += 1
        else:
            kept.source.append(source)
            kept.target.append(target)
    return kept, dropped
