"""What a person waits for: the command's help, preparation, the first update."""

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from qknorm_fairseq.experiment.commands import POLL_SECONDS, LogReader
from qknorm_fairseq.experiment.errors import StageFailed
from qknorm_fairseq.experiment.manifest import read_manifest
from qknorm_fairseq.experiment.training import last_update
from qknorm_fairseq.experiment.workspace import Workspace

QKNORM = [sys.executable, "-m", "qknorm_fairseq.cli"]
ROUNDS = 5


def measure() -> dict[str, Any]:
    """Seconds of ``--help`` (median), lines prepared a second and seconds to the first update,
    both of the made-up language, from the command on and with nothing prepared before."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        began = time.perf_counter()
        _run(["prepare", "toy", "--out", str(out / "prepared")])
        seconds = time.perf_counter() - began
        manifest = read_manifest(Workspace(out / "prepared"), "toy")
        assert manifest is not None
        return {
            "help_seconds": round(statistics.median(_time_help() for _ in range(ROUNDS)), 3),
            "prepared_lines_per_second": round(2 * sum(manifest["pairs"].values()) / seconds),
            "first_update_seconds": round(_time_to_first_update(out / "trained"), 2),
        }


def _run(words: list[str]) -> None:
    done = subprocess.run([*QKNORM, *words], capture_output=True, text=True)
    if done.returncode:
        raise StageFailed(f"qknorm {' '.join(words)}: {done.stderr.strip()}")


def _time_help() -> float:
    began = time.perf_counter()
    _run(["--help"])
    return time.perf_counter() - began


def _time_to_first_update(out: Path) -> float:
    """From the command to the first update that the log tells of, which is the tenth."""
    log = LogReader(Workspace(out.resolve()).run("toy", "qknorm", 1) / "train.log")
    words = [*QKNORM, "train", "toy", "qknorm", "--profile", "smoke", "--out", str(out)]
    began = time.perf_counter()
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        while last_update(log.new_lines(), 0) == 0:
            if process.poll() is not None:
                raise StageFailed(f"qknorm train toy qknorm ended: {process.communicate()[1]!r}")
            time.sleep(POLL_SECONDS / 10)
        return time.perf_counter() - began
    finally:
        process.terminate()
        process.communicate()
