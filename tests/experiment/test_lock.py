"""One owner for a run folder."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from qknorm_fairseq.experiment.errors import UserError
from qknorm_fairseq.experiment.lock import owned, sign

HOLD = """
import sys, time
from pathlib import Path
from qknorm_fairseq.experiment.lock import owned
with owned(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def holder(folder: Path) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, folder], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    return process


def test_the_second_process_is_told_who_holds_the_folder(tmp_path: Path) -> None:
    process = holder(tmp_path)
    with pytest.raises(UserError) as error, owned(tmp_path):
        pass
    process.kill()
    process.wait()
    said = str(error.value)
    assert f"{tmp_path}: in use by process {process.pid} on " in said
    assert " since 20" in said and "another --out" in said


def test_a_lock_left_by_a_dead_process_is_taken_over(tmp_path: Path) -> None:
    process = holder(tmp_path)
    process.send_signal(signal.SIGKILL)
    process.wait()
    with owned(tmp_path):
        pass


def test_a_child_that_shares_the_lock_keeps_it(tmp_path: Path) -> None:
    with owned(tmp_path) as lock:
        child = subprocess.Popen(["sleep", "60"], pass_fds=(lock,))
        sign(lock, child.pid)
    with pytest.raises(UserError, match=f"in use by process {child.pid} on"), owned(tmp_path):
        pass
    child.kill()
    child.wait()
    for _ in range(50):  # until the kernel has let go
        try:
            with owned(tmp_path):
                return
        except UserError:
            time.sleep(0.1)
    pytest.fail("the lock outlived its last holder")


def test_the_lock_is_let_go_at_the_end(tmp_path: Path) -> None:
    for _ in range(2):
        with owned(tmp_path) as lock:
            assert os.get_inheritable(lock) is False


def test_those_who_share_keep_out_only_those_who_do_not(tmp_path: Path) -> None:
    refused = pytest.raises(UserError, match="in use by process")
    with owned(tmp_path, shared=True), owned(tmp_path, shared=True), refused, owned(tmp_path):
        pass
    with owned(tmp_path), refused, owned(tmp_path, shared=True):
        pass


def test_a_process_that_has_gone_is_not_named_as_the_holder(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    with owned(tmp_path, shared=True) as descriptor:
        sign(descriptor, gone.pid)
        with pytest.raises(UserError, match="in use by another process;"), owned(tmp_path):
            pass
