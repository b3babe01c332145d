"""fairseq's commands as processes of their own, their chatter in a log file."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from qknorm_fairseq.experiment.errors import StageFailed

POLL_SECONDS = 0.3


def environment(device: str) -> dict[str, str]:
    """The environment of a command on ``device``: "cpu", or the number of a GPU.

    A CPU run has exactly one thread: two threads that wait on each other by spinning can
    make a training fifteen times slower.
    """
    env = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONUTF8": "1"}
    env["QKNORM_PROCESS"] = str(os.getpid())  # with which a training is to stop
    env["OMP_WAIT_POLICY"] = "passive"
    if device == "cpu":
        env["OMP_NUM_THREADS"] = env["MKL_NUM_THREADS"] = "1"
    else:
        env["CUDA_VISIBLE_DEVICES"] = device
    return env


def start_logged(
    command: list[str], log: Path, device: str = "cpu", keep: tuple[int, ...] = ()
) -> "subprocess.Popen[bytes]":
    """Start ``command`` with all that it prints appended to ``log``.

    Args:
        keep: file descriptors that it shares with this process.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment(device),
            pass_fds=keep,
        )


class LogReader:
    """Reads a growing log, each line once, when it is whole."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self.position = 0

    def new_lines(self) -> list[bytes]:
        """The lines added since the last call."""
        if not self.log.exists():
            return []
        with self.log.open("rb") as file:
            file.seek(self.position)
            whole, end, _ = file.read().rpartition(b"\n")
        self.position += len(whole) + len(end)
        return whole.split(b"\n") if end else []


def run_logged(
    command: list[str],
    log: Path,
    device: str = "cpu",
    watch: Callable[[list[bytes]], None] | None = None,
) -> None:
    """Run ``command`` to its end; ``watch`` is told of the new lines of its log meanwhile.

    Raises:
        StageFailed: with the command's last words, if it fails.
    """
    reader = LogReader(log)
    process = start_logged(command, log, device)
    try:
        while process.poll() is None:
            time.sleep(POLL_SECONDS)
            if watch:
                watch(reader.new_lines())
    finally:
        process.kill()  # does nothing to one that has ended
        process.wait()
    if process.returncode:
        raise StageFailed(f"{command[2]} {failure(process.returncode, log)}")


def failure(status: int, log: Path) -> str:
    """How a command failed: its last words, or the signal that ended it."""
    if status < 0:
        name = signal.Signals(-status).name
        hint = ", perhaps for want of memory" if name == "SIGKILL" else ""
        return f"was ended by {name}{hint}; its log: {log}"
    lines = log.read_text("utf-8", errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "nothing printed")
    return f"failed: {last}; its log: {log}"
