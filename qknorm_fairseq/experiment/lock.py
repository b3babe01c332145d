"""One owner for a folder: a lock that dies with whoever holds it."""

import fcntl
import json
import os
import socket
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path

from qknorm_fairseq.experiment.errors import UserError

NAME = ".owner"


@contextmanager
def owned(folder: Path, shared: bool = False) -> Iterator[int]:
    """Own ``folder`` for the block; yields the lock's file descriptor.

    A process that is given the descriptor shares the lock: it is held until the last of them
    has ended, in whatever way.

    Args:
        shared: others may own it too, as long as all of them share it.

    Raises:
        UserError: when another process holds it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / NAME, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"{folder}: in use by {_holder(folder)}; wait for it, stop it, or choose "
                "another --out"
            ) from None
        sign(descriptor, os.getpid())
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def own_all(folders: Iterable[Path]) -> Iterator[dict[Path, int]]:
    """Own each of ``folders`` for the block; yields their locks' descriptors."""
    with ExitStack() as stack:
        yield {folder: stack.enter_context(owned(folder)) for folder in folders}


def sign(descriptor: int, process: int) -> None:
    """Write into a lock that one holds who it is that uses the folder."""
    who = {
        "host": socket.gethostname(),
        "process": process,
        "since": datetime.now().astimezone().isoformat(timespec="seconds"),
    }
    os.truncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(who).encode(), 0)


def _holder(folder: Path) -> str:
    try:
        who = json.loads((folder / NAME).read_text())
        if who["host"] == socket.gethostname():
            os.kill(who["process"], 0)  # one that has shared the lock may have gone
        return f"process {who['process']} on {who['host']} since {who['since']}"
    except (OSError, ValueError, KeyError):  # it is just signing
        return "another process"
