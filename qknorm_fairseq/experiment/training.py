"""Trains runs, some at a time, each in a process of its own; shows how far they are."""

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from qknorm_fairseq.experiment.commands import (
    POLL_SECONDS,
    LogReader,
    failure,
    start_logged,
)
from qknorm_fairseq.experiment.console import Progress
from qknorm_fairseq.experiment.errors import StageFailed, UserError
from qknorm_fairseq.experiment.lock import sign
from qknorm_fairseq.experiment.recorded import forget_results
from qknorm_fairseq.experiment.run import Run

REFUSED = 2  # exit status of a training that did not begin, for a reason that it prints
STOP_SECONDS = 120  # for an update to be finished and saved


def last_update(lines: list[bytes], before: int) -> int:
    """The number of the last update that lines of a train.log tell of, else ``before``."""
    for line in reversed(lines):
        if b"| train_inner | {" in line:
            return int(json.loads(line[line.index(b"{") :])["num_updates"])
    return before


def has_reached_its_end(run: Run) -> bool:
    """Whether the newest sound checkpoint is of the last update, its validation done.

    fairseq looks at its limit after an update alone: resumed there, it would train one more.
    """
    folder = run.folder / "checkpoints"
    if not folder.exists():
        return False
    from qknorm_fairseq import checkpoints  # torch is slow to import

    try:
        newest, _ = checkpoints.recover(folder)
    except ValueError as error:
        raise UserError(str(error)) from error
    return newest is not None and not newest.interrupted and newest.updates >= run.updates


class _Training:
    """A training process, and its progress on a row of the terminal."""

    def __init__(self, run: Run, device: str, row: int, lock: int) -> None:
        self.run, self.device, self.row, self.lock = run, device, row, lock
        self.log = LogReader(run.log)
        self.update = last_update(self.log.new_lines(), 0)  # of an earlier process
        self.progress = Progress(run.name, run.updates, "updates", row)
        self.process = start_logged(run.command(), run.log, device, keep=(lock,))
        sign(lock, self.process.pid)  # it holds the lock too, and may outlive this process

    def show(self) -> None:
        rows = self.run.metrics()
        note = ""
        if rows:
            note = f"dev BLEU {rows[-1]['dev_bleu']:.2f} (best {self.run.best()['dev_bleu']:.2f})"
        self.update = last_update(self.log.new_lines(), self.update)
        self.progress.update(self.update, note)

    def finished(self) -> bool:
        """Whether the process has ended; StageFailed if it ended badly."""
        status = self.process.poll()
        if status is None:
            return False
        self.progress.close()
        sign(self.lock, os.getpid())
        if status:
            kind = UserError if status == REFUSED else StageFailed
            raise kind(f"training of {self.run.name} {failure(status, self.run.log)}")
        self.run.mark_finished()
        return True


def train_all(runs: list[Run], devices: list[str], locks: dict[Path, int]) -> None:
    """Train what is not finished, one run at a time on each of ``devices``.

    Args:
        locks: the descriptors by which this process owns the runs' folders.

    A run that was interrupted goes on from its last checkpoint. When one fails the others
    are stopped; they too go on when called again.

    Raises:
        StageFailed: for the first run that fails, with its last words.
    """
    waiting = []
    for run in runs:
        if has_reached_its_end(run):
            run.mark_finished()
        else:
            waiting.append(run)
    free = list(enumerate(devices))
    with _stopping_what_is_left() as active:
        while waiting or active:
            while waiting and free:
                row, device = free.pop(0)
                run = waiting.pop(0)
                forget_results(run.folder)
                active.append(_Training(run, device, row, locks[run.folder]))
            for training in list(active):
                training.show()
                if training.finished():
                    active.remove(training)
                    free.append((training.row, training.device))
            time.sleep(POLL_SECONDS)


@contextmanager
def _stopping_what_is_left() -> Iterator[list[_Training]]:
    active: list[_Training] = []
    try:
        yield active
    finally:
        for training in active:
            training.progress.close()
            training.process.terminate()
        for training in active:
            try:
                training.process.wait(timeout=STOP_SECONDS)
            except subprocess.TimeoutExpired:
                training.process.kill()
                training.process.wait()
