"""Checkpoint files that are whole or not there, and finding the sound ones again.

A file is written aside, flushed to the disk and renamed. What has another name for the same
state (``checkpoint_best.pt``, ``checkpoint_last.pt``) is a link to it, put in place by a
rename too. So a kill leaves each name at the old state or at the new one.
"""

import errno
import logging
import os
import pickle
import re
import shutil
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

logger = logging.getLogger(__name__)

BEST, LAST, PREVIOUS = "checkpoint_best.pt", "checkpoint_last.pt", "checkpoint_previous.pt"
ASIDE, BROKEN = ".aside", ".broken"
INTERRUPTED = "interrupted"  # in extra_state: saved before the validation that was due
FAILED_WRITE = re.compile("PytorchStreamWriter|file write|unexpected pos")  # in torch's words
MARGIN = 1.1  # of free disk over the size of the last checkpoint


@dataclass(frozen=True)
class Found:
    """A sound checkpoint file and what it says of itself."""

    path: Path
    updates: int
    score: float | None  # dev BLEU of this state
    best: float | None  # highest dev BLEU until then
    interrupted: bool

    @property
    def rank(self) -> tuple[int, bool, bool]:
        """Newer is higher; of one update the state after its validation; of names the last."""
        return self.updates, not self.interrupted, self.path.name == LAST


def write_whole(path: Path, write: Callable[[Path], None]) -> None:
    """Let ``write`` make the file aside; give it its name when it is on the disk.

    As much room as the last checkpoint took, and a tenth more, has to be free beforehand.

    Raises:
        OSError: when the disk is full, or about to be; the name keeps what it had.
    """
    aside = path.with_name(path.name + ASIDE)
    last = path.with_name(LAST)
    needed = last.stat().st_size * MARGIN if last.exists() else 0
    free = shutil.disk_usage(path.parent).free
    if free < needed:
        raise _full(path, f"{needed / 1e6:,.0f} MB needed, {free / 1e6:,.0f} MB free")
    try:
        try:
            write(aside)
        except RuntimeError as error:
            if not FAILED_WRITE.search(str(error)):
                raise
            raise _full(path, str(error).splitlines()[0]) from error
        with aside.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def _full(path: Path, what: str) -> OSError:
    return OSError(errno.ENOSPC, f"no room for a checkpoint ({what})", str(path))


def link(path: Path, name: Path) -> None:
    """Make ``name`` another name of ``path``'s file, in one step; a copy where links fail."""
    aside = name.with_name(name.name + ASIDE)
    aside.unlink(missing_ok=True)
    try:
        try:
            os.link(path, aside)
        except OSError:
            shutil.copyfile(path, aside)
        os.replace(aside, name)
    finally:
        aside.unlink(missing_ok=True)


def read(path: Path) -> Found | None:
    """What a checkpoint says of itself; None when it is torn or has a bit wrong.

    Raises:
        OSError: when it cannot be read.
        ValueError: when it is whole, and not of this plugin's training.
    """
    try:
        with zipfile.ZipFile(path) as file:
            if file.testzip() is not None:
                return None
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError):
        return None  # the last: a damaged header seems to ask for an unknown compression
    try:
        state = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
        extra = state["extra_state"]
        updates = int(state["optimizer_history"][-1]["num_updates"])
    except (pickle.UnpicklingError, KeyError, IndexError, TypeError) as error:
        what = str(error).splitlines()[0]
        raise ValueError(f"{path}: not a checkpoint of this plugin ({what})") from error
    return Found(path, updates, extra.get("val_loss"), extra.get("best"), INTERRUPTED in extra)


def survey(folder: Path) -> tuple[list[Found], list[Path]]:
    """The sound checkpoints of a folder, newest first, and the broken ones."""
    sound, broken = [], []
    for path in sorted(folder.glob("checkpoint*.pt")):
        found = read(path)
        if found is None:
            broken.append(path)
        else:
            sound.append(found)
    return sorted(sound, key=lambda found: found.rank, reverse=True), broken


def recover(folder: Path) -> tuple[Found | None, float | None]:
    """Put a folder in order after whatever has happened.

    Leftovers of writing go, broken files are set aside with a warning, and
    ``checkpoint_best.pt`` is made again from what the newest sound file says.

    Returns:
        The newest sound checkpoint, and the dev BLEU of the best one there is.

    Raises:
        ValueError: when all are broken, or one is not of this plugin's training.
    """
    for aside in folder.glob(f"*{ASIDE}"):
        aside.unlink()
    sound, broken = survey(folder)
    for path in broken:
        os.replace(path, path.with_name(path.name + BROKEN))
        logger.warning("%s is broken; set aside as %s", path, path.name + BROKEN)
    if not sound:
        leftover = next(folder.glob(f"*{BROKEN}"), None)
        if leftover is not None:
            raise ValueError(
                f"{leftover}: broken, and no sound checkpoint beside it; remove it to begin anew"
            )
        return None, None
    newest = sound[0]
    _give_name(newest.path, folder / LAST)  # a kill may have come between the two names
    scored = [found for found in sound if found.score is not None]
    if newest.best is None or not scored:
        return newest, newest.best
    wanted = [found for found in scored if found.score == newest.best]
    chosen = max(wanted or scored, key=lambda found: (found.score, found.updates))
    if not wanted:
        logger.warning(
            "the best checkpoint, of dev BLEU %s, is lost; the best left is %s (%s)",
            *(newest.best, chosen.path.name, chosen.score),
        )
    _give_name(chosen.path, folder / BEST)
    return newest, chosen.score


def _give_name(path: Path, name: Path) -> None:
    """Make ``name`` a name of ``path``'s file, unless it is one."""
    if not (name.exists() and name.samefile(path)):
        link(path, name)


def save(state: Any, path: Path) -> None:
    """torch.save, whole."""
    write_whole(path, lambda aside: torch.save(state, aside))
