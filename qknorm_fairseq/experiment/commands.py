"""fairseq's commands as processes of their own, their chatter in a log file."""

import os
import subprocess
from pathlib import Path

from qknorm_fairseq.experiment.errors import StageFailed


def environment(device: str) -> dict[str, str]:
    """The environment of a command on ``device``: "cpu", or the number of a GPU.

    A CPU run has exactly one thread: two threads that wait on each other by spinning can
    make a training fifteen times slower.
    """
    env = {**os.environ, "PYTHONUNBUFFERED": "1", "OMP_WAIT_POLICY": "passive"}
    if device == "cpu":
        env["OMP_NUM_THREADS"] = "1"
    else:
        env["CUDA_VISIBLE_DEVICES"] = device
    return env


def start_logged(command: list[str], log: Path, device: str = "cpu") -> "subprocess.Popen[bytes]":
    """Start ``command`` with all that it prints appended to ``log``."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment(device),
        )


def run_logged(command: list[str], log: Path, device: str = "cpu") -> None:
    """Run ``command`` to its end; StageFailed with its last words if it fails."""
    process = start_logged(command, log, device)
    try:
        status = process.wait()
    except BaseException:
        process.kill()
        process.wait()
        raise
    if status:
        raise StageFailed(f"{command[2]} failed: {last_words(log)}; its log: {log}")


def last_words(log: Path) -> str:
    """The last line of a log that says something."""
    lines = log.read_text("utf-8", errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "(nothing printed)")
