"""Checkpoint files: whole or not there, and put in order after a mishap."""

import logging
import os
import shutil
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest
import torch

from qknorm_fairseq import checkpoints
from qknorm_fairseq.checkpoints import ASIDE, BEST, BROKEN, LAST


def put(path: Path, updates: int, score: float | None, best: float | None, **extra: Any) -> None:
    """A checkpoint as small as one can be."""
    state = {
        "model": {"weight": torch.full((100,), float(updates))},
        "optimizer_history": [{"num_updates": updates}],
        "extra_state": {"val_loss": score, "best": best, **extra},
    }
    checkpoints.save(state, path)


def updates(path: Path) -> int:
    found = checkpoints.read(path)
    assert found is not None
    return found.updates


def test_a_failing_write_leaves_what_was_there(tmp_path: Path) -> None:
    put(tmp_path / LAST, 10, 1.0, 1.0)

    def half(aside: Path) -> None:
        aside.write_bytes(b"half")
        raise RuntimeError("PytorchStreamWriter failed writing file\nmore")

    with pytest.raises(OSError, match=r"no room for a checkpoint .*failed writing file"):
        checkpoints.write_whole(tmp_path / LAST, half)
    assert updates(tmp_path / LAST) == 10
    assert list(tmp_path.glob(f"*{ASIDE}")) == []


def test_room_is_looked_for_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / LAST, 10, 1.0, 1.0)
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**9, 10**9, 100))
    with pytest.raises(OSError, match="MB needed, 0 MB free"):
        put(tmp_path / "checkpoint_1_20.pt", 20, 2.0, 2.0)
    assert [path.name for path in tmp_path.iterdir()] == [LAST]


def test_the_newest_sound_file_is_found_whatever_its_name(tmp_path: Path) -> None:
    put(tmp_path / "checkpoint_1_10.pt", 10, 3.0, 3.0)
    put(tmp_path / "checkpoint_1_20.pt", 20, 2.0, 3.0)
    checkpoints.link(tmp_path / "checkpoint_1_10.pt", tmp_path / BEST)
    put(tmp_path / LAST, 25, None, 3.0, interrupted={})
    newest, best = checkpoints.recover(tmp_path)
    assert newest is not None and newest.path.name == LAST and newest.interrupted
    assert best == 3.0 and updates(tmp_path / BEST) == 10


def test_a_best_that_a_kill_has_left_behind_is_made_again(tmp_path: Path) -> None:
    put(tmp_path / "checkpoint_1_10.pt", 10, 3.0, 3.0)
    checkpoints.link(tmp_path / "checkpoint_1_10.pt", tmp_path / BEST)
    put(tmp_path / "checkpoint_1_20.pt", 20, 4.0, 4.0)  # killed before its links
    newest, best = checkpoints.recover(tmp_path)
    assert newest is not None and newest.updates == 20
    assert best == 4.0 and updates(tmp_path / BEST) == updates(tmp_path / LAST) == 20
    for name in (BEST, LAST):
        (tmp_path / name).unlink()
    checkpoints.recover(tmp_path)
    assert updates(tmp_path / BEST) == updates(tmp_path / LAST) == 20


def test_of_equal_scores_the_latest_is_the_best(tmp_path: Path) -> None:
    put(tmp_path / "checkpoint_1_10.pt", 10, 3.0, 3.0)
    put(tmp_path / "checkpoint_1_20.pt", 20, 3.0, 3.0)
    checkpoints.recover(tmp_path)
    assert updates(tmp_path / BEST) == 20


def test_a_best_that_is_lost_is_said_and_the_best_left_takes_its_place(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put(tmp_path / BEST, 10, 9.0, 9.0)
    put(tmp_path / "checkpoint_1_20.pt", 20, 2.0, 9.0)
    put(tmp_path / "checkpoint_1_30.pt", 30, 1.0, 9.0)
    checkpoints.link(tmp_path / "checkpoint_1_30.pt", tmp_path / LAST)
    os.truncate(tmp_path / BEST, 100)
    newest, best = checkpoints.recover(tmp_path)
    assert newest is not None and newest.updates == 30
    assert best == 2.0 and updates(tmp_path / BEST) == 20
    assert (tmp_path / (BEST + BROKEN)).exists()
    assert "the best checkpoint, of dev BLEU 9.0, is lost; the best left is" in caplog.text
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2


def test_a_flipped_byte_is_noticed(tmp_path: Path) -> None:
    put(tmp_path / LAST, 10, 1.0, 1.0)
    data = bytearray((tmp_path / LAST).read_bytes())
    at = data.index(torch.full((4,), 10.0).numpy().tobytes())
    data[at] ^= 1
    (tmp_path / LAST).write_bytes(data)
    assert checkpoints.read(tmp_path / LAST) is None


def test_a_link_is_a_copy_where_links_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "checkpoint_1_10.pt", 10, 1.0, 1.0)

    def fail(*paths: Path) -> None:
        raise OSError("not on this file system")

    monkeypatch.setattr(os, "link", fail)
    checkpoints.link(tmp_path / "checkpoint_1_10.pt", tmp_path / LAST)
    assert updates(tmp_path / LAST) == 10
    assert not (tmp_path / LAST).samefile(tmp_path / "checkpoint_1_10.pt")


def test_leftovers_of_writing_go(tmp_path: Path) -> None:
    put(tmp_path / LAST, 10, 1.0, 1.0)
    (tmp_path / f"checkpoint_1_20.pt{ASIDE}").write_bytes(b"half")
    checkpoints.recover(tmp_path)
    assert list(tmp_path.glob(f"*{ASIDE}")) == []


def test_what_is_whole_but_strange_is_not_set_aside(tmp_path: Path) -> None:
    torch.save({"model": {}}, tmp_path / LAST)
    with pytest.raises(ValueError, match=r"checkpoint_last\.pt: not a checkpoint of this plugin"):
        checkpoints.recover(tmp_path)
    assert (tmp_path / LAST).exists()


def test_where_all_are_broken_nothing_begins_anew_by_itself(tmp_path: Path) -> None:
    (tmp_path / LAST).write_bytes(b"torn")
    for _ in range(2):
        with pytest.raises(ValueError, match="no sound checkpoint beside it; remove it to begin"):
            checkpoints.recover(tmp_path)


def test_a_checkpoint_of_an_epochs_end_counts_too(tmp_path: Path) -> None:
    put(tmp_path / "checkpoint3.pt", 30, 1.0, 1.0)
    newest, _ = checkpoints.recover(tmp_path)
    assert newest is not None and newest.updates == 30
