"""Trains runs, some at a time, each in a process of its own; shows how far they are."""

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from qknorm_fairseq.experiment.commands import (
    POLL_SECONDS,
    LogReader,
    last_words,
    start_logged,
)
from qknorm_fairseq.experiment.console import Progress
from qknorm_fairseq.experiment.errors import StageFailed
from qknorm_fairseq.experiment.run import Run


def last_update(lines: list[bytes], before: int) -> int:
    """The number of the last update that lines of a train.log tell of, else ``before``."""
    for line in reversed(lines):
        if b"| train_inner | {" in line:
            return int(json.loads(line[line.index(b"{") :])["num_updates"])
    return before


class _Training:
    """A training process and its progress bar."""

    def __init__(self, run: Run, device: str, progress: Progress) -> None:
        self.run, self.device, self.progress = run, device, progress
        self.log = LogReader(run.log)
        self.update = last_update(self.log.new_lines(), 0)  # of an earlier process
        self.process = start_logged(run.command(), run.log, device)

    def show(self) -> None:
        rows = self.run.metrics()
        note = ""
        if rows:
            best = max(row["dev_bleu"] for row in rows)
            note = f"dev BLEU {rows[-1]['dev_bleu']:.2f} (best {best:.2f})"
        self.update = last_update(self.log.new_lines(), self.update)
        self.progress.update(self.update, note)

    def finished(self) -> bool:
        """Whether the process has ended; StageFailed if it ended badly."""
        status = self.process.poll()
        if status is None:
            return False
        if status:
            raise StageFailed(
                f"training of {self.run.name} failed: {last_words(self.run.log)}; "
                f"its log: {self.run.log}"
            )
        self.run.mark_finished()
        return True


def train_all(runs: list[Run], devices: list[str]) -> None:
    """Train what is not finished, one run at a time on each of ``devices``.

    A run that was interrupted goes on from its last checkpoint. When one fails the others
    are stopped; they too go on when called again.

    Raises:
        StageFailed: for the first run that fails, with its last words.
    """
    waiting = [run for run in runs if not run.is_finished()]
    free = list(devices)
    with ExitStack() as bars, _stopping_what_is_left() as active:
        while waiting or active:
            while waiting and free:
                run = waiting.pop(0)
                row = len(devices) - len(free)
                progress = bars.enter_context(Progress(run.name, run.updates, "updates", row))
                active.append(_Training(run, free.pop(0), progress))
            for training in list(active):
                training.show()
                if training.finished():
                    active.remove(training)
                    free.append(training.device)
            time.sleep(POLL_SECONDS)


@contextmanager
def _stopping_what_is_left() -> Iterator[list[_Training]]:
    active: list[_Training] = []
    try:
        yield active
    finally:
        for training in active:
            training.process.terminate()
        for training in active:
            try:
                training.process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                training.process.kill()
                training.process.wait()
