"""The TED corpus (Qi et al. 2018): pairs taken from its tables of talks.

Each split is a table ``all_talks_SPLIT.tsv``: a header, a row a sentence, a column a language,
cells kept apart by tabs alone, without any quoting. Only a line feed ends a row.
"""

from collections import Counter
from collections.abc import Container
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import IO

from qknorm_fairseq.experiment import archive
from qknorm_fairseq.experiment.corpus import SPLITS, Split
from qknorm_fairseq.experiment.errors import UserError

TABLES = {f"all_talks_{split}.tsv": split for split in SPLITS}
ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
TALK = "talk_name"  # the one column that is no language
MARKS = ("__NULL__", "_ _ NULL _ _")  # no translation; the second as a tokeniser leaves it
REASONS = ("missing", "partly_missing", "malformed")


@dataclass(frozen=True)
class Location:
    """Where the corpus lies: an archive, or a folder with a file for each split."""

    place: Path
    tables: dict[str, Path] | None  # split to file; None for an archive


@dataclass(frozen=True)
class Extraction:
    """The pairs of each split, and of each how many rows, pairs and rows left out by reason."""

    splits: dict[str, Split]
    counts: dict[str, dict[str, int]]


def find(path: Path) -> Location | None:
    """The corpus in ``path``: an archive, a folder with the tables, or with an archive of them.

    None when ``path`` is not there, or a folder with neither. A file is taken for the archive;
    archives in a folder are opened, those beside tables are not.

    Raises:
        UserError: for a single table, when a folder has two of something, or an archive in it
            cannot be read and nothing else in it could be meant.
    """
    if path.name.endswith((".tsv", ".tsv.gz")):
        raise UserError(f"{path}: one table of three; name the folder that holds them")
    if path.is_file():
        return Location(path, None)
    if not path.is_dir():
        return None
    tables = _tables(path)
    if tables:
        return Location(path, tables)
    found, broken = _archives(path)
    if len(found) > 1:
        names = ", ".join(file.name for file in found)
        raise UserError(f"{path}: more than one TED archive ({names}); name the one to read")
    if found:
        return Location(found[0], None)
    if broken and not any(path.glob("train.*")):  # beside plain text it may be anything
        raise broken
    return None


def _tables(folder: Path) -> dict[str, Path]:
    tables = {}
    for name, split in TABLES.items():
        found = [path for path in (folder / name, folder / f"{name}.gz") if path.is_file()]
        if len(found) > 1:
            raise UserError(f"{folder}: both {name} and {name}.gz; take one away")
        if found:
            tables[split] = found[0]
    return tables


def _archives(folder: Path) -> tuple[list[Path], UserError | None]:
    """The TED archives of a folder, and what is wrong with one that cannot be read."""
    found: list[Path] = []
    broken = None
    for path in sorted(folder.iterdir()):
        if path.name.endswith(ARCHIVES) and not path.name.startswith(".") and path.is_file():
            try:
                if archive.holds(path, set(TABLES)):
                    found.append(path)
            except UserError as error:
                broken = error
    return found, broken


def inputs(location: Location) -> list[Path]:
    """The files that ``extract`` reads."""
    return [location.place] if location.tables is None else list(location.tables.values())


def extract(
    location: Location, source: str, target: str, max_bytes: int = archive.MAX_BYTES
) -> Extraction:
    """The pairs of two languages: those rows in which neither cell is missing.

    Rows are read one by one, so that memory holds the pairs alone; nothing is written.
    ``max_bytes`` is for an archive in all, or for each file of a folder.

    Raises:
        UserError: for a language that is not there, a split that is missing or without a pair,
            text that is not UTF-8, or a file that is broken or unpacks to over ``max_bytes``.
    """
    if source == target:
        raise UserError(f"{source}-{target}: a pair needs two languages; name another")
    found = _read(location, source, target, max_bytes)
    return Extraction(
        {split: found[split][0] for split in SPLITS}, {split: found[split][1] for split in SPLITS}
    )


Table = tuple[Split, dict[str, int]]  # what is taken from a table: pairs and counts


def _read(location: Location, source: str, target: str, max_bytes: int) -> dict[str, Table]:
    place, tables = location.place, location.tables
    read = {}
    if tables is None:
        with archive.unpacked(place, max_bytes) as stream:
            for name, file in archive.members(place, stream, set(TABLES), max_bytes):
                read[TABLES[name]] = _read_table(file, f"{place}: {name}", source, target)
        _check_all_there(place, read, "fetch it again")
    else:
        _check_all_there(place, tables, "put it there")
        for split, path in tables.items():
            with archive.unpacked(path, max_bytes) as stream:
                read[split] = _read_table(BufferedReader(stream), str(path), source, target)
    return read


def _check_all_there(place: Path, splits: Container[str], mend: str) -> None:
    for name, split in TABLES.items():
        if split not in splits:
            raise UserError(f"{place}: there is no {name} in it; {mend}")


def _read_table(file: IO[bytes], label: str, source: str, target: str) -> Table:
    lines = archive.lines(file, label)
    columns = _columns(next(lines, ""), label, (source, target))
    source_column, target_column = columns.index(source), columns.index(target)
    pairs = Split([], [])
    counts = dict.fromkeys(("rows", "pairs", *REASONS), 0)
    for line in lines:
        counts["rows"] += 1
        cells = line.split("\t")
        if len(cells) != len(columns):  # a tab in a cell has moved those after it
            counts["malformed"] += 1
            continue
        pair = cells[source_column], cells[target_column]
        reason = _reason(*pair)
        counts[reason or "pairs"] += 1
        if reason is None:
            pairs.source.append(pair[0])
            pairs.target.append(pair[1])
    if len(pairs) == 0:
        raise UserError(f"{label}: no row has both {source} and {target}; choose other languages")
    return pairs, counts


def _reason(source: str, target: str) -> str | None:
    """Why a row gives no pair, if so: a side is missing, or (only) part of a side is."""
    partly = False
    for cell in (source, target):
        rest = cell
        for mark in MARKS:
            rest = rest.replace(mark, "")
        if not rest.strip():
            return "missing"
        partly = partly or rest != cell
    return "partly_missing" if partly else None


def _columns(header: str, label: str, languages: tuple[str, str]) -> list[str]:
    """The columns of a table, which must have those of the languages."""
    columns = header.removeprefix("\ufeff").split("\t")
    if TALK not in columns:
        raise UserError(f"{label}, line 1: no header (no column {TALK}); fetch it again")
    twice = [column for column, count in Counter(columns).items() if count > 1]
    if twice:
        raise UserError(f"{label}, line 1: column {twice[0]!r} is there twice; fetch it again")
    there = [column for column in columns if column != TALK]
    for language in languages:
        if language not in there:
            raise UserError(
                f"{label}: no column {language!r}; choose of those it has: {' '.join(there)}"
            )
    return columns
