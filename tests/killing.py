"""Trainings that are killed at a chosen moment, each in a process of its own: no test.

    python killing.py PLAN.json

PLAN.json: a list of trainings, each with ``arguments`` (of fairseq-train), ``log``, and a
``moment`` or none: ``kind`` and ``number``; for a kill ``signal`` (KILL, TERM or INT) and in a
save ``stage``; for a planted weight ``name`` and ``value``; for memory that is wanting ``of``.
Prints a line of exit statuses. The processes are forked from one that has everything imported, so
that a start takes no time.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import fairseq.trainer
import torch
from fairseq.tasks import FairseqTask

from qknorm_fairseq import checkpoints, launch

SAVE_STAGES = ("half written", "written", "renamed", "linked")


def now(moment: dict[str, Any]) -> None:
    os.kill(os.getpid(), getattr(signal, f"SIG{moment['signal']}"))


def arm(moment: dict[str, Any]) -> None:
    """Have the signal come at the moment."""
    count = 0

    def wrap(owner: Any, name: str, kind: str, before: bool) -> None:
        original: Callable[..., Any] = getattr(owner, name)

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            count += 1
            hit = moment["kind"] == kind and count == moment["number"]
            if hit and before:
                now(moment)
            result = original(*args, **kwargs)
            if hit and not before:
                now(moment)
            return result

        setattr(owner, name, wrapped)

    trainer = fairseq.trainer.Trainer
    if moment["kind"] in ("update", "in update"):
        wrap(trainer, "train_step", moment["kind"], before=moment["kind"] == "in update")
    elif moment["kind"] == "validation":
        wrap(trainer, "valid_step", "validation", before=True)
    elif moment["kind"] == "plant":

        def plant(self: Any, *args: Any, **kwargs: Any) -> Any:
            nonlocal count
            count += 1
            if count == moment["number"]:
                parameter = dict(self.get_model().named_parameters())[moment["name"]]
                parameter.data.view(-1)[0] = moment["value"]
            return step(self, *args, **kwargs)

        step = trainer.train_step
        trainer.train_step = plant
    elif moment["kind"] == "memory":

        def large(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            count += 1
            if count == moment["number"]:
                if moment["of"] == "cpu":
                    torch.empty(2**50)
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")
            return forward(*args, **kwargs)

        forward = FairseqTask.train_step
        mock.patch.object(FairseqTask, "train_step", large).start()
    elif moment["kind"] == "full disk":

        def full(state: Any, path: Path) -> None:
            nonlocal count
            count += 1
            if count == moment["number"]:
                Path(path).write_bytes(b"part")
                raise RuntimeError("PytorchStreamWriter failed writing file data/5")
            save(state, path)

        save = torch.save
        mock.patch.object(torch, "save", full).start()
    elif moment["stage"] == "half written":
        original = torch.save

        def half(state: Any, path: Path) -> None:
            nonlocal count
            count += 1
            original(state, path)
            if count == moment["number"]:
                os.truncate(path, path.stat().st_size // 2)
                now(moment)

        mock.patch.object(torch, "save", half).start()
    elif moment["stage"] == "written":
        wrap(os, "fsync", "save", before=False)
    elif moment["stage"] == "renamed":
        wrap(checkpoints, "save", "save", before=False)
    else:
        wrap(checkpoints, "link", "save", before=False)


def train(training: dict[str, Any]) -> int:
    """Train in a process of its own; its exit status, negative for a signal."""
    process = os.fork()
    if process == 0:
        log = os.open(training["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)
        torch.set_num_threads(1)
        if training.get("moment"):
            arm(training["moment"])
        sys.argv = ["launch", *training["arguments"]]
        try:
            status = launch.main()
        except SystemExit as error:
            status = int(error.code or 0)
        except BaseException:
            import traceback

            traceback.print_exc()
            status = 70
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


if __name__ == "__main__":
    plan = json.loads(Path(sys.argv[1]).read_text())
    print(json.dumps([train(training) for training in plan]))
