"""Raw text: only a line feed ends a line, and what is wrong is said in one line."""

import gzip
from pathlib import Path

import pytest

from qknorm_fairseq.experiment.corpus import Split, clean, find_files, read_lines, read_split
from qknorm_fairseq.experiment.errors import UserError


def test_only_a_line_feed_ends_a_line(tmp_path: Path) -> None:
    lines = ["a\u2028b", "c\u0085d", "e\x0cf", "", "i\u2029"]
    (tmp_path / "x").write_bytes("\n".join(lines).encode() + b"\n")
    assert read_lines(tmp_path / "x") == lines
    (tmp_path / "y").write_bytes("\n".join(lines).encode())  # without a last line feed
    assert read_lines(tmp_path / "y") == lines


def test_a_carriage_return_is_dropped_at_the_end_and_refused_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"one\r\ntwo\r\n")
    assert read_lines(tmp_path / "x") == ["one", "two"]
    (tmp_path / "x").write_bytes(b"one\ntwo\rthree\n")
    with pytest.raises(UserError, match="x, line 2: a carriage return in the line"):
        read_lines(tmp_path / "x")


def test_packed_files_are_found_and_read(tmp_path: Path) -> None:
    for split in ("train", "dev", "test"):
        for language in ("xx", "yy"):
            path = tmp_path / f"{split}.{language}.gz"
            path.write_bytes(gzip.compress(b"one\ntwo\n"))
    files = find_files(tmp_path, "xx", "yy")
    assert len(files) == 6
    assert read_split(files, "dev", "xx", "yy") == Split(["one", "two"], ["one", "two"])


def test_a_missing_folder_or_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nowhere: no such folder"):
        find_files(tmp_path / "nowhere", "xx", "yy")
    with pytest.raises(UserError, match=r"train\.xx: no such file, nor train\.xx\.gz"):
        find_files(tmp_path, "xx", "yy")


@pytest.mark.parametrize("content", [b"", b"\n\n", b"  \n"])
def test_an_empty_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(UserError, match="x: the file is empty"):
        read_lines(tmp_path / "x")


def test_bytes_that_are_not_utf8_are_located(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"good\nbad \xff\n")
    with pytest.raises(UserError, match="x, line 2: byte 9 is not UTF-8"):
        read_lines(tmp_path / "x")


def test_a_truncated_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.gz").write_bytes(gzip.compress(b"word " * 1000)[:-20])
    with pytest.raises(UserError, match=r"x\.gz: cannot be read"):
        read_lines(tmp_path / "x.gz")


def test_sides_of_different_length_are_refused_with_both_counts(tmp_path: Path) -> None:
    files = {("dev", "xx"): tmp_path / "dev.xx", ("dev", "yy"): tmp_path / "dev.yy"}
    files["dev", "xx"].write_bytes(b"a\nb\nc\n")
    files["dev", "yy"].write_bytes(b"a\nb\n")
    with pytest.raises(UserError, match=r"dev\.xx has 3 lines, .*dev\.yy 2"):
        read_split(files, "dev", "xx", "yy")


def test_training_pairs_are_cleaned_and_counted_by_rule() -> None:
    long = "w " * 251
    train = Split(["a", "", "b", "w " * 250, long], ["A", "B", " ", "C", "D"])
    kept, dropped = clean(train, max_words=250)
    assert kept.target == ["A", "C"]
    assert dropped == {"empty_side": 2, "too_long": 1}
