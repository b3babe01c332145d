"""Which text is meant by a folder or a file."""

import tarfile
from pathlib import Path

import pytest
import tiny

from qknorm_fairseq.experiment.errors import UserError
from qknorm_fairseq.experiment.sources import locate


def write_tables(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for split in ("train", "dev", "test"):
        table = f"talk_name\txx\tyy\nt\tone\u00a0{split}\t two \nt\t__NULL__\tthree\n"
        (folder / f"all_talks_{split}.tsv").write_text(table)
    return folder


def test_talks_are_read_with_their_white_space_made_plain(tmp_path: Path) -> None:
    tables = write_tables(tmp_path / "tables")
    with tarfile.open(tmp_path / "talks.tar.gz", "w:gz") as archive:
        archive.add(tables, "ted")
    for place in (tables, tmp_path / "talks.tar.gz", tmp_path):
        raw = locate(place, "xx", "yy")
        splits, counts = raw.read()
        assert list(splits["dev"].pairs()) == [("one dev", "two")]
        assert counts["dev"]["missing"] == 1
    assert [path.name for path in raw.inputs] == ["talks.tar.gz"]


def test_a_pairs_own_files_come_before_the_talks(tmp_path: Path) -> None:
    write_tables(tmp_path)
    tiny.write_corpus(tmp_path, {"train": 9, "dev": 3, "test": 2})
    raw = locate(tmp_path, "xx", "yy")
    splits, counts = raw.read()
    assert len(splits["train"]) == 9
    assert counts == {}
    (tmp_path / "test.yy").unlink()
    with pytest.raises(UserError, match=r"test\.yy: no such file"):
        locate(tmp_path, "xx", "yy")


def test_one_table_is_not_enough(tmp_path: Path) -> None:
    write_tables(tmp_path)
    with pytest.raises(UserError, match="one table of three; name the folder"):
        locate(tmp_path / "all_talks_dev.tsv", "xx", "yy")
