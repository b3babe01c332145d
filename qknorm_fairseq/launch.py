"""The process in which ``qknorm`` trains: fairseq-train with a Trainer that survives.

    python -m qknorm_fairseq.launch DATA --user-dir … (the arguments of fairseq-train)

What is put in place of fairseq's: its Trainer; the copying of checkpoints, by links that are
whole or not there; the loading of one, after which a validation that was abandoned is made
up for. And fairseq's command line takes ``--bf16`` to mean a TPU, whatever the machine has. The
numbers are those of fairseq-train undisturbed.
"""

import ctypes
import errno
import os
import signal
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from fairseq_cli import train  # first: it sets the form of the log

# isort: split
import fairseq.trainer
from fairseq import checkpoint_utils, options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.distributed import utils as distributed_utils
from fairseq.file_io import PathManager
from fairseq.logging import metrics

# --user-dir imports nothing of a package that is imported already, as this one is here
import qknorm_fairseq.models
import qknorm_fairseq.tasks.low_resource_translation  # noqa: F401  (registers)
from qknorm_fairseq import checkpoints
from qknorm_fairseq.trainer import STOP, Broken, Refused, Trainer

PR_SET_PDEATHSIG = 1  # linux/prctl.h


class LinkingPathManager(PathManager):
    """fairseq's files, but what it copies, it links: in one step, or not at all."""

    @staticmethod
    def copy(src_path: str, dst_path: str, overwrite: bool = False) -> bool:
        checkpoints.link(Path(src_path), Path(dst_path))
        return True


_load_checkpoint = checkpoint_utils.load_checkpoint
_train_an_epoch = train.train


def load_checkpoint(cfg: Any, trainer: Trainer, **options: Any) -> Any:
    """fairseq's; then the validation and the save that a stop has left undone."""
    loaded = _load_checkpoint(cfg, trainer, **options)
    place = trainer.interrupted
    if place is not None:
        subsets = trainer.cfg.dataset.valid_subset.split(",")
        with metrics.aggregate("train"):
            _, trainer.is_done = train.validate_and_save(
                trainer.cfg, trainer, trainer.task, place, subsets, place.end_of_epoch()
            )
        trainer.interrupted = None
        if place.end_of_epoch():
            metrics.reset_meters("train")
    return loaded


def train_an_epoch(cfg: Any, trainer: Trainer, task: Any, epoch_itr: Any) -> Any:
    """fairseq's, but for a training that was at its end: resumed, it would make an update more."""
    limit = cfg.optimization.max_update
    if trainer.is_done or (limit and trainer.get_num_updates() >= limit):
        return [None], True
    return _train_an_epoch(cfg, trainer, task, epoch_itr)


def stop_with_the_parent() -> None:
    """If ``qknorm`` started this process, have a SIGTERM come when that dies."""
    parent = int(os.environ.get("QKNORM_PROCESS", "0"))
    if parent:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it was faster
            sys.exit(143)


def main() -> int:
    """Train as the command line says; returns 1 when it broke, 2 when it was refused."""
    stop_with_the_parent()
    args = options.parse_args_and_arch(options.get_training_parser())
    args.tpu = False
    STOP.install()
    train.Trainer = Trainer
    train.train = train_an_epoch
    checkpoint_utils.load_checkpoint = load_checkpoint
    checkpoint_utils.PathManager = LinkingPathManager
    # its backward hooks fail on an encoder that answers with a dictionary; ours looks instead
    fairseq.trainer.NanDetector = lambda model: nullcontext()
    cfg = convert_namespace_to_omegaconf(args)
    try:
        distributed_utils.call_main(cfg, train.main)
    except Refused as error:
        print(error, file=sys.stderr)
        return 2
    except Broken as error:
        print(error, file=sys.stderr)
        return 1
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        place = error.filename or cfg.checkpoint.save_dir
        print(f"{place}: {error.strerror}; make room there", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
