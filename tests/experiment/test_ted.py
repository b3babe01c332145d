"""The TED tables: which rows give a pair, wherever the corpus lies and whatever is in a cell."""

import gzip
import io
import tarfile
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qknorm_fairseq.experiment import archive
from qknorm_fairseq.experiment.corpus import SPLITS, Split
from qknorm_fairseq.experiment.errors import UserError
from qknorm_fairseq.experiment.ted import Extraction, extract, find, inputs

HEADER = b"talk_name\ten\tfr\tgl\n"
ROW = b"talk\tone\tun\tunha\n"


def write(folder: Path, train: bytes, rest: bytes = HEADER + ROW) -> Path:
    """A folder of tables: ``train``, and dev and test alike."""
    folder.mkdir(exist_ok=True)
    for split in SPLITS:
        content = train if split == "train" else rest
        (folder / f"all_talks_{split}.tsv").write_bytes(content)
    return folder


def read(path: Path, source: str = "gl", target: str = "en") -> Extraction:
    location = find(path)
    assert location is not None
    return extract(location, source, target)


def train(folder: Path, rows: bytes) -> tuple[Split, dict[str, int]]:
    """What comes of rows of the training table."""
    found = read(write(folder, HEADER + rows))
    return found.splits["train"], found.counts["train"]


@pytest.fixture(scope="module")
def sample(corpora: Path) -> Path:
    return corpora / "ted_talks_sample.tar.gz"


@pytest.fixture(scope="module")
def unpacked(sample: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    with tarfile.open(sample) as tar:
        tar.extractall(folder, filter="data")
    return folder


def test_gl_en_of_the_sample_is_the_published_split(sample: Path, corpora: Path) -> None:
    found, swapped = read(sample, "gl", "en"), read(sample, "en", "gl")
    assert {split: len(pairs) for split, pairs in found.splits.items()} == {
        "train": 10_017,
        "dev": 682,
        "test": 1_007,
    }
    for split, pairs in found.splits.items():
        for language, side in (("gl", pairs.source), ("en", pairs.target)):
            expected = (corpora / "ted_gl_en" / f"{split}.{language}").read_bytes()
            assert "".join(f"{line}\n" for line in side).encode() == expected
        assert swapped.splits[split] == Split(pairs.target, pairs.source)
    assert swapped.counts == found.counts
    assert found.counts["dev"] == {
        "rows": 1590,
        "pairs": 682,
        "missing": 848,
        "partly_missing": 60,
        "malformed": 0,
    }


@pytest.mark.parametrize("language", ["az", "be"])
def test_other_languages_of_the_sample_are_as_another_reader_has_them(
    sample: Path, unpacked: Path, language: str
) -> None:
    found = read(sample, language, "en")
    for split in SPLITS:
        data = (unpacked / f"all_talks_{split}.tsv").read_bytes()
        header, *rows = [line.split(b"\t") for line in data.split(b"\n")[:-1]]
        columns = header.index(language.encode()), header.index(b"en")
        pairs = [(row[columns[0]], row[columns[1]]) for row in rows]
        kept = [pair for pair in pairs if all(b"NULL" not in cell for cell in pair)]
        sides = found.splits[split].source, found.splits[split].target
        assert [(x.encode(), y.encode()) for x, y in zip(*sides, strict=True)] == kept
        assert found.counts[split]["rows"] == len(rows)
        assert found.counts[split]["missing"] == len(rows) - len(kept)


def test_an_archive_a_folder_with_it_and_a_folder_of_tables_are_the_same(
    sample: Path, unpacked: Path, tmp_path: Path
) -> None:
    (tmp_path / "ted.tgz").symlink_to(sample)
    (tmp_path / "README").write_bytes(b"text")
    with tarfile.open(tmp_path / "other.tar", "w") as tar:
        tar.add(tmp_path / "README", "README")
    expected = read(sample)
    assert read(tmp_path) == read(unpacked) == expected
    tables = [unpacked / f"all_talks_{split}.tsv" for split in SPLITS]
    for path, files in (
        (sample, [sample]),
        (tmp_path, [tmp_path / "ted.tgz"]),
        (unpacked, tables),
    ):
        location = find(path)
        assert location is not None and inputs(location) == files


def test_tables_go_before_an_archive_and_may_be_packed(tmp_path: Path) -> None:
    write(tmp_path, HEADER + ROW)
    (tmp_path / "ted.tar.gz").write_bytes(b"not opened")
    (tmp_path / "all_talks_train.tsv").unlink()
    packed = tmp_path / "all_talks_train.tsv.gz"
    packed.write_bytes(gzip.compress(HEADER + ROW * 3))
    assert len(read(tmp_path).splits["train"]) == 3
    location = find(tmp_path)
    assert location is not None and inputs(location)[0] == packed
    (tmp_path / "all_talks_train.tsv").write_bytes(HEADER + ROW)
    with pytest.raises(UserError, match=r"both all_talks_train\.tsv and all_talks_train\.tsv\.gz"):
        find(tmp_path)


def test_what_is_no_ted_corpus_is_not_found(tmp_path: Path) -> None:
    assert find(tmp_path) is None
    assert find(tmp_path / "nowhere") is None
    for name in ("train.xx", "train.yy", "broken.tar.gz"):
        (tmp_path / name).write_bytes(b"text\n")
    assert find(tmp_path) is None


def test_an_archive_that_cannot_be_read_is_said_where_nothing_else_is(tmp_path: Path) -> None:
    (tmp_path / "ted.tar.gz").write_bytes(b"<html>gone</html>")
    with pytest.raises(UserError, match=r"ted\.tar\.gz: cannot be read \(it is an HTML page"):
        find(tmp_path)


def test_two_ted_archives_in_a_folder_are_refused(tmp_path: Path) -> None:
    for name in ("a.tar", "b.tar"):
        with tarfile.open(tmp_path / name, "w") as tar:
            tar.addfile(tarfile.TarInfo("all_talks_dev.tsv"), io.BytesIO())
    with pytest.raises(UserError, match=r"more than one TED archive \(a\.tar, b\.tar\)"):
        find(tmp_path)


def test_rows_left_out_are_counted_by_one_reason_each(tmp_path: Path) -> None:
    rows = [
        ROW,
        b"talk\t__NULL__\tun\tunha\n",
        b"talk\tone\tun\t_ _ NULL _ _\n",
        b"talk\t \tun\tunha\n",
        b"talk\tone\tun\t\n",
        b"talk\tone\tun\t__NULL__ _ _ NULL _ _ \n",
        b"talk\tone two _ _ NULL _ _ three\tun\t__NULL__\n",  # missing on the other side
        b"talk\tone _ _ NULL _ _ two\tun\tunha\n",
        b"talk\tone\tun\tunha__NULL__\n",
        b"talk\tone\ttwo\tun\tunha\n",  # a tab too many
        b"talk\tone\tunha\n",
        b"\n",
        b"talk\tNULL\t__NULL__\t_NULL_ _ NULL _\n",  # the plain word; a third language's mark
    ]
    pairs, counts = train(tmp_path, b"".join(rows))
    assert pairs == Split(["unha", "_NULL_ _ NULL _"], ["one", "NULL"])
    assert counts == {
        "rows": 13,
        "pairs": 2,
        "missing": 6,
        "partly_missing": 2,
        "malformed": 3,
    }


def test_cells_come_as_they_are(tmp_path: Path) -> None:
    cells = ['"open', "a \"b\" 'c'", " a ", "\u2028b\u2029", "c\u0085d", "e\x0cf\x0b\x1c", "g\rh"]
    rows = "".join(f"talk\t{cell}\t{cell}\t{cell}!\n" for cell in cells)
    pairs, counts = train(tmp_path, rows.encode())
    assert pairs == Split([f"{cell}!" for cell in cells], cells)
    assert counts["rows"] == len(cells)


def test_a_carriage_return_at_the_end_of_a_line_is_no_text(tmp_path: Path) -> None:
    tables = (HEADER + ROW + ROW[:-1] + b"\r\n").replace(b"\n", b"\r\n")[:-1]
    found = read(write(tmp_path, b"\xef\xbb\xbf" + tables))  # with the mark Windows begins with
    assert found.splits["train"].source == ["unha", "unha\r"]


CELLS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\t\0"), min_size=1)
PAIRS = st.lists(
    st.tuples(CELLS, CELLS).filter(
        lambda pair: all(cell.strip() and "NULL" not in cell for cell in pair)
    ),
    min_size=1,
)


@given(pairs=PAIRS)
def test_any_cells_come_back_in_order(
    pairs: list[tuple[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    rows = "".join(f"talk\t{target}\t{target}\t{source}\t\n" for source, target in pairs)
    header = HEADER[:-1] + b"\tpt\n"  # a last column, lest a cell's \r end the line
    found = read(write(tmp_path_factory.getbasetemp() / "any", header + rows.encode()))
    split = found.splits["train"]
    assert list(zip(split.source, split.target, strict=True)) == pairs


@pytest.mark.parametrize(
    ("languages", "message"),
    [
        (("sk", "en"), r"all_talks_train\.tsv: no column 'sk'; .* en fr gl$"),
        (("en", "talk_name"), r"no column 'talk_name'; .* en fr gl$"),
        (("en", "en"), "en-en: a pair needs two languages"),
        (("gl", "fr"), r"all_talks_test\.tsv: no row has both gl and fr"),
    ],
)
def test_languages_that_give_no_pair_are_refused(
    tmp_path: Path, languages: tuple[str, str], message: str
) -> None:
    write(tmp_path, HEADER + ROW)
    (tmp_path / "all_talks_test.tsv").write_bytes(HEADER + b"talk\tone\t__NULL__\tunha\n")
    with pytest.raises(UserError, match=message):
        read(tmp_path, *languages)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (b"", r"all_talks_train\.tsv, line 1: no header"),
        (ROW, r"all_talks_train\.tsv, line 1: no header"),
        (b"talk_name\ten\tgl\ten\n" + ROW, "line 1: column 'en' is there twice"),
        (HEADER + b"\xc3\xa9\n\xc3\xa9\t\xff\n", r"train\.tsv, line 3: byte 25 is not UTF-8"),
        (HEADER + ROW + b"x\ty\0\t\t\n", r"train\.tsv, line 3: byte 39 is NUL"),
    ],
)
def test_what_is_wrong_with_a_table_is_located(tmp_path: Path, table: bytes, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read(write(tmp_path, table))


def test_a_missing_table_is_named_before_any_is_read(tmp_path: Path) -> None:
    write(tmp_path, b"no table")
    (tmp_path / "all_talks_dev.tsv").unlink()
    with pytest.raises(UserError, match=rf"{tmp_path}: there is no all_talks_dev\.tsv in it"):
        read(tmp_path)


def test_a_line_that_is_too_long_is_refused_and_not_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "MAX_LINE", 1000)
    line = ROW.removesuffix(b"\n").ljust(999, b"x")
    assert len(train(tmp_path, ROW + line + b"\n")[0]) == 2
    for end in (b"x\n", b"x" * 5_000_000):
        write(tmp_path, HEADER + ROW + line + end)
        tracemalloc.start()
        try:
            with pytest.raises(UserError, match=r"train\.tsv, line 3: over 1,000 bytes"):
                read(tmp_path)
            assert tracemalloc.get_traced_memory()[1] < 1_000_000
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("packed", [False, True])
def test_memory_does_not_grow_with_rows_that_give_no_pair(tmp_path: Path, packed: bool) -> None:
    def peak(copies: int) -> int:
        folder = write(tmp_path / str(copies), HEADER + ROW + block * copies)
        if packed:
            with tarfile.open(tmp_path / f"{copies}.tar.gz", "w:gz") as tar:
                tar.add(folder, "ted")
            folder = tmp_path / f"{copies}.tar.gz"
        tracemalloc.start()
        read(folder)
        try:
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    block = b"talk\tone and two and three and four and five\tun\t__NULL__\n" * 2000
    peak(1)  # what is imported and cached once
    assert peak(20) < peak(1) + 50_000  # one block is of twice as many bytes
