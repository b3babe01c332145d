"""Raw text: only a line feed ends a line, and what is wrong is said in one line."""

import gzip
import random
from pathlib import Path

import pytest

from qknorm_fairseq.experiment.corpus import Split, find_files, parting, read_lines, read_split
from qknorm_fairseq.experiment.errors import UserError


def test_only_a_line_feed_ends_a_line(tmp_path: Path) -> None:
    lines = ["a\u2028b", "c\u0085d", "e\x0cf", "", "g\rh", "i\u2029"]
    plain = ["a b", "c d", "e f", "", "g h", "i"]
    (tmp_path / "x").write_bytes("\n".join(lines).encode() + b"\n")
    assert read_lines(tmp_path / "x") == plain
    (tmp_path / "y").write_bytes("\n".join(lines).encode())  # without a last line feed
    assert read_lines(tmp_path / "y") == plain
    (tmp_path / "z").write_bytes(b"one\r\ntwo\r\n")
    assert read_lines(tmp_path / "z") == ["one", "two"]


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


@pytest.mark.parametrize("content", [b"", b"\n\n", b"  \n", "\u3000\n".encode()])
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


def test_files_may_have_the_names_of_their_corpus(tmp_path: Path) -> None:
    stems = {"train": "train", "dev": "tst2012", "test": "tst2013"}
    for stem in ("train", "tst2012", "test"):
        for language in ("en", "vi"):
            (tmp_path / f"{stem}.{language}").write_text("one\n")
    files = find_files(tmp_path, "en", "vi", stems)
    assert files["dev", "vi"].name == "tst2012.vi"
    assert files["test", "en"].name == "test.en"
    (tmp_path / "tst2012.en").unlink()
    with pytest.raises(UserError, match=r"dev\.en: no such file, nor tst2012\.en, nor dev\.en\.gz"):
        find_files(tmp_path, "en", "vi", stems)


def test_a_file_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    for name in ("train.xx", "train.xx.gz", "train.yy"):
        (tmp_path / name).write_bytes(b"one\n")
    with pytest.raises(UserError, match=r"both train\.xx and train\.xx\.gz are there"):
        find_files(tmp_path, "xx", "yy")


def test_a_nul_is_located(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"good\nba\0d\n")
    with pytest.raises(UserError, match="x, line 2: byte 7 is NUL; take it out"):
        read_lines(tmp_path / "x")


@pytest.mark.parametrize("place", [0, 1, 137, 399])
@pytest.mark.parametrize("missing", [1, 3])
def test_it_is_told_where_two_texts_part(place: int, missing: int) -> None:
    generator = random.Random(place)
    longer = ["x" * generator.randint(5, 200) for _ in range(400)]
    other = [line + "y" * (len(line) // 5) for line in longer]
    shorter = other[:place] + other[place + missing :]
    found = parting(longer, shorter)
    assert abs(found - (place + 1)) <= 2
    assert parting(shorter, longer) == found


def test_text_without_a_partner_is_pointed_at(tmp_path: Path) -> None:
    lines = [("word " * (3 + i * 7 % 31)).strip() for i in range(60)]
    (tmp_path / "dev.xx").write_text("".join(f"{line}\n" for line in lines))
    (tmp_path / "dev.yy").write_text("".join(f"{line}\n" for line in [*lines[:40], *lines[41:]]))
    files = {("dev", x): tmp_path / f"dev.{x}" for x in ("xx", "yy")}
    with pytest.raises(UserError, match=r"60 lines, .*dev\.yy 59; .* about line 41: look there"):
        read_split(files, "dev", "xx", "yy")
