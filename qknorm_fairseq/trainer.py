"""fairseq's Trainer, made to survive: whole checkpoints, exact resume, signals, bad numbers."""

import ast
import logging
import math
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from fairseq import checkpoint_utils, utils
from fairseq.logging import meters, metrics
from fairseq.trainer import Trainer as FairseqTrainer
from fairseq_cli import train as fairseq_train
from omegaconf import OmegaConf

from qknorm_fairseq import checkpoints
from qknorm_fairseq.health import Health, first_bad_module

logger = logging.getLogger(__name__)

# what may differ between a checkpoint's options and those of a resume: where things lie, what
# is told, and how long it goes on
FREE_PARTS = {"distributed_training", "interactive", "generation", "eval_lm", "common_eval"}
FREE_PARTS |= {"job_logging_cfg"}
FREE_OPTIONS = {
    "checkpoint": {"save_dir", "restore_file", "patience", "write_checkpoints_asynchronously"}
    | {"keep_interval_updates", "keep_last_epochs", "keep_best_checkpoints"},
    "common": {"log_interval", "log_format", "log_file", "no_progress_bar", "user_dir"}
    | {"tensorboard_logdir", "wandb_project", "suppress_crashes"},
    "dataset": {"num_workers", "data_buffer_size"},
    "optimization": {"max_update", "max_epoch", "stop_time_hours", "stop_min_lr"},
    "lr_scheduler": {"stop_min_lr"},
    "task": {"data", "metrics_file", "eval_bleu_reference"},
}


class Refused(Exception):
    """A line for the user: what is wrong and how to mend it. Exit status 2."""


class Broken(Exception):
    """A line for the user: the training cannot go on. Exit status 1."""


class StopRequest:
    """SIGTERM and SIGINT, remembered until the training can stop well."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def install(self) -> None:
        """Take the two signals from now on."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._remember)

    def _remember(self, number: int, frame: object) -> None:
        self.signal = number


# what torch says on a GPU and on a CPU
OUT_OF_MEMORY = ("out of memory", "can't allocate memory")
STOP = StopRequest()


@dataclass(frozen=True)
class Position:
    """Where an interrupted training stood, in place of fairseq's iterator of that epoch."""

    epoch: int
    ended: bool
    state: dict[str, Any]

    def end_of_epoch(self) -> bool:
        return self.ended

    def state_dict(self) -> dict[str, Any]:
        return self.state


class Trainer(FairseqTrainer):
    """fairseq's, put in its place by :mod:`qknorm_fairseq.launch`.

    On SIGTERM or SIGINT the update is finished, a validation abandoned, and the state saved
    as it was before that validation, which a resume then makes up for. A training killed in
    any other way goes on from its newest sound checkpoint. In float32 on one CPU thread
    both end with the very bits of a training that went through.

    Raises:
        Refused: for a checkpoint of other options.
        Broken: for a loss or gradient that is not a number.
    """

    interrupted: Position | None = None
    is_done = False
    resumed_within_an_epoch = False
    validation_begins = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.health = Health()
        self.health.look_at_scales(self.get_model())  # the signs of the beginning

    # -- training

    def get_lr(self) -> float:
        """The rate, for fairseq to compare with --stop-min-lr before it goes on.

        It does so between epochs alone; a resume within one is not to end before it does.
        """
        if self.resumed_within_an_epoch:
            self.resumed_within_an_epoch = False
            return math.inf
        return float(super().get_lr())

    def get_train_iterator(self, *args: Any, **kwargs: Any) -> Any:
        """fairseq's; kept, since a stop needs to know where in the epoch it is."""
        self.epoch_iterator = super().get_train_iterator(*args, **kwargs)
        return self.epoch_iterator

    def train_step(self, samples: Any, raise_oom: bool = False) -> Any:
        """fairseq's; then stops, if a signal has asked for it."""
        try:
            output = super().train_step(samples, raise_oom)
        except FloatingPointError as error:
            raise Broken(self._what_broke(samples, error)) from error
        except RuntimeError as error:
            self._tell_of_memory(error)
            raise
        if output and not math.isfinite(output.get("loss", 0.0)):
            raise Broken(self._what_broke(samples, FloatingPointError("loss is Nan/Inf")))
        if STOP.signal is not None:
            self._save_and_leave()
        return output

    def valid_step(self, sample: Any, raise_oom: bool = False) -> Any:
        """fairseq's; abandoned, if a signal has asked for it."""
        if STOP.signal is not None:
            self._save_and_leave()
        try:
            if self.validation_begins:
                self.validation_begins = False
                self.health.look_at_attention(self.get_model(), self._prepare_sample(sample)[0])
            return super().valid_step(sample, raise_oom)
        except RuntimeError as error:
            if not raise_oom:  # else fairseq asks for it, and this is called again
                self._tell_of_memory(error)
            raise

    def begin_valid_epoch(self, epoch: int) -> None:
        """fairseq's; and a look at g, and soon at the attention."""
        self.validation_begins = True
        self.health.look_at_scales(self.get_model())
        super().begin_valid_epoch(epoch)

    def _tell_of_memory(self, error: RuntimeError) -> None:
        """Raise Broken for a batch that does not fit in memory, and for nothing else."""
        if any(words in str(error) for words in OUT_OF_MEMORY):
            line = f"update {self.get_num_updates() + 1}: {self._smaller_batches()}"
            raise Broken(line) from error

    def _smaller_batches(self) -> str:
        sizes, suffix = self.cfg.dataset, "" if self.model.training else "_valid"
        name = "max_tokens" if sizes[f"max_tokens{suffix}"] else "batch_size"
        option = f"--{name}{suffix}".replace("_", "-")
        return (
            f"a batch does not fit in memory: lower {option} "
            f"(now {sizes[name + suffix]}); in training, --update-freq makes up for it"
        )

    def _log_oom(self, exc: Exception) -> None:
        """fairseq's, which then leaves the batch out where it can; and what to do about it."""
        super()._log_oom(exc)
        logger.warning(self._smaller_batches())

    def _what_broke(self, samples: Any, error: Exception) -> str:
        numbers = [i for sample in samples for i in sample["id"].tolist()]
        update = self.get_num_updates() + 1
        name = first_bad_module(
            self.get_model(), lambda: self.task_losses(samples), self.get_model().named_parameters()
        )
        return (
            f"update {update}: {error}, first in {name}; the batch's sentences in the binarised "
            f"training set, from 0: {', '.join(map(str, sorted(numbers)))}; the last checkpoint "
            "is from before; look at these sentences, lower --lr or raise the precision"
        )

    def task_losses(self, samples: Any) -> None:
        """Forward over ``samples``, as in their update, for who watches the modules."""
        self._set_seed()
        for sample in samples:
            prepared, _ = self._prepare_sample(sample)
            with torch.no_grad():
                self.criterion(self.model, prepared)

    # -- checkpoints

    def _save_and_leave(self) -> None:
        iterator = self.interrupted or self.epoch_iterator
        place = {"epoch": iterator.epoch, "ended": iterator.end_of_epoch()}
        extra = {"train_iterator": iterator.state_dict(), "val_loss": None}
        extra[checkpoints.INTERRUPTED] = place
        best = getattr(checkpoint_utils.save_checkpoint, "best", None)
        if best is not None:
            extra["best"] = best
        folder = Path(self.cfg.checkpoint.save_dir)
        folder.mkdir(parents=True, exist_ok=True)
        self.consolidate_optimizer()  # fairseq's state_dict relies on it
        self.save_checkpoint(str(folder / checkpoints.LAST), extra)
        logger.info("stopped by signal %s; the same command goes on", STOP.signal)
        raise SystemExit(128 + (STOP.signal or 0))

    def save_checkpoint(self, filename: str, extra_state: dict[str, Any]) -> str | None:
        """fairseq's, written whole; none of a state in which something broke."""
        if not self.should_save_checkpoint_on_current_rank or Path(filename).name == "crash.pt":
            return None
        state = utils.move_to_cpu(self.state_dict())
        state["extra_state"].update(extra_state)
        state["extra_state"]["early_stop"] = dict(vars(fairseq_train.should_stop_early))
        last = Path(filename).with_name(checkpoints.LAST)
        if last.exists():  # at an epoch's end fairseq writes no file but this one
            checkpoints.link(last, last.with_name(checkpoints.PREVIOUS))
        checkpoints.save(state, Path(filename))
        return filename

    def load_checkpoint(self, filename: str, *args: Any, **kwargs: Any) -> Any:
        """fairseq's, from the newest sound file of its folder."""
        newest = best = None
        folder = Path(self.cfg.checkpoint.save_dir).resolve()
        if Path(filename).resolve() == folder / checkpoints.LAST:
            try:
                newest, best = checkpoints.recover(folder)
            except ValueError as error:
                raise Refused(str(error)) from error
            if newest is not None:
                filename = str(newest.path)
                self._refuse_other_options(newest.path)
        extra = super().load_checkpoint(filename, *args, **kwargs)
        if extra is not None and best is not None:
            extra["best"] = best
        if extra is not None and newest is not None:
            vars(fairseq_train.should_stop_early).update(extra.get("early_stop", {}))
            self.resumed_within_an_epoch = extra["train_iterator"]["iterations_in_epoch"] > 0
        if extra is not None and checkpoints.INTERRUPTED in extra:
            place = extra[checkpoints.INTERRUPTED]
            self.interrupted = Position(place["epoch"], place["ended"], extra["train_iterator"])
            _restore_meters(extra["metrics"])
        return extra

    def _refuse_other_options(self, path: Path) -> None:
        state = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
        try:
            self.task.load_state_dict(state["task_state"])
        except ValueError as error:
            raise Refused(f"{path}: {error}") from error
        then = state["cfg"]
        now: Any = OmegaConf.to_container(self.cfg, resolve=True, enum_to_str=True)
        differences = different_options(then, now)
        if differences:
            raise Refused(
                f"{path}: trained with other options ({'; '.join(differences)}); restore them, "
                "or choose another --save-dir"
            )


def _restore_meters(state: Any) -> None:
    """The meters of an epoch that had ended: fairseq would begin them anew."""
    metrics.load_state_dict(state)
    for meter in metrics.get_meters("default"):
        if isinstance(meter, meters.TimeMeter):
            meter.reset()


def different_options(then: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What differs, a phrase each, where a resume may not differ: "lr was [0.1], now [0.2]"."""
    found = []
    for part in sorted((then.keys() | now.keys()) - FREE_PARTS):
        old, new = then.get(part) or {}, now.get(part) or {}
        if not (isinstance(old, dict) and isinstance(new, dict)):
            continue
        for name in sorted((old.keys() | new.keys()) - FREE_OPTIONS.get(part, set())):
            was, is_now = old.get(name, "not set"), new.get(name, "not set")
            if _plain(was) != _plain(is_now):
                found.append(f"{name} was {was}, now {is_now}")
    return found


def _plain(value: Any) -> Any:
    """ "(0.9, 0.98)" as typed and [0.9, 0.98] as stored are the same."""
    if isinstance(value, str):
        with suppress(ValueError, SyntaxError):
            value = ast.literal_eval(value)
    return list(value) if isinstance(value, tuple) else value
