"""Warm up, stay flat, and decay when the dev BLEU says so: the published schedule."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from fairseq.dataclass import FairseqDataclass
from fairseq.optim.lr_scheduler import FairseqLRScheduler, register_lr_scheduler
from omegaconf import II

from qknorm_fairseq.dev_bleu import DEV_BLEU


def fell_below_all(scores: Sequence[float], patience: int, since_decay: int) -> bool:
    """The released code: the latest score is below each of the ``patience`` before it."""
    return len(scores) > patience and scores[-1] < min(scores[-patience - 1 : -1])


def has_not_improved(scores: Sequence[float], patience: int, since_decay: int) -> bool:
    """The papers' words: no new best in the last ``patience`` scores, all since a decay."""
    earlier, latest = scores[:-patience], scores[-patience:]
    return since_decay >= patience and bool(earlier) and max(latest) <= max(earlier)


class DecayRule(StrEnum):
    """When the rate decays."""

    released = "released"
    paper = "paper"


RULES: dict[str, Callable[[Sequence[float], int, int], bool]] = {
    "released": fell_below_all,
    "paper": has_not_improved,
}


def _option(default: Any, help_text: str) -> Any:
    return field(default=default, metadata={"help": help_text})


@dataclass
class ValidationDecayConfig(FairseqDataclass):
    """Options of the schedule; ``--lr`` is the peak that the ramp leads to."""

    warmup_updates: int = _option(8000, "w of the ramp --lr * n / w; flat from n = w - 1 on")
    decay_rule: DecayRule = _option(
        DecayRule.released,
        "decay when dev BLEU falls below each of the last --lr-patience scores (the released "
        "code), or when it has not improved for so many (the papers' words)",
    )
    lr_patience: int = _option(3, "validations that the decay rule looks back on")
    lr_shrink: float = _option(0.8, "what a decay multiplies the rate with")
    min_lr: float = _option(0.0, "a rate below this ends the training; needs --stop-min-lr 0")
    lr: list[float] = II("optimization.lr")
    stop_min_lr: float = II("optimization.stop_min_lr")


@register_lr_scheduler("validation_decay", dataclass=ValidationDecayConfig)
class ValidationDecay(FairseqLRScheduler):
    """The rate of update n: ``lr * n / warmup`` while n < warmup, then flat, then decaying.

    This is UPFLAT_WU of the released code and ValDecay of Nguyen & Salazar (2019), table 4:
    with ``lr`` = (512 * 8000)^-0.5 the ramp is 512^-0.5 * n * 8000^-1.5. The flat part has
    the rate of the ramp's last update, 7,999. Scores of validations in the warm-up count for
    those after it, but do not decay. The released code reads BLEU with two decimals off
    multi-bleu.perl; here it has four, so that a tie there may be a decision here.

    Below ``min_lr`` the rate is 0: the weights stay as they are, and fairseq, which looks at
    ``--stop-min-lr 0`` between epochs only, ends the training with this epoch.

    Raises:
        ValueError: for several rates, for a task that measures no dev BLEU, or for a
            ``min_lr`` that would not end the training.
    """

    def __init__(self, cfg: ValidationDecayConfig, optimizer: Any) -> None:
        super().__init__(cfg, optimizer)
        if len(cfg.lr) > 1:
            raise ValueError(f"--lr {cfg.lr}: validation_decay takes one rate, the peak")
        if cfg.lr_patience < 1:
            raise ValueError(f"--lr-patience {cfg.lr_patience}: must be at least 1")
        if cfg.warmup_updates < 0 or not 0 < cfg.lr_shrink <= 1:
            raise ValueError(
                f"--warmup-updates {cfg.warmup_updates}, --lr-shrink {cfg.lr_shrink}: must be at "
                "least 0, and in (0, 1]"
            )
        if not DEV_BLEU.expected:
            raise ValueError(
                "--lr-scheduler validation_decay goes by the dev BLEU of --task "
                "low_resource_translation with --eval-bleu"
            )
        if cfg.min_lr > 0 and cfg.stop_min_lr != 0:
            raise ValueError(
                f"--min-lr {cfg.min_lr}: the training ends there with --stop-min-lr 0; "
                f"it is {cfg.stop_min_lr}"
            )
        self.scores: list[float] = []
        self.decays = 0
        self.since_decay = 0  # validations after the warm-up and the last decay
        self.last_validation = 0  # its update
        DEV_BLEU.listener = self.validated
        self.step_update(0)

    def rate(self, update: int) -> float:
        """The rate of an update, the first being 1."""
        warmup: int = self.cfg.warmup_updates
        ramp = min(update, warmup - 1) / warmup if warmup > 1 else 1.0
        rate = float(self.cfg.lr[0]) * ramp * float(self.cfg.lr_shrink) ** self.decays
        return 0.0 if rate < self.cfg.min_lr and update > warmup else rate

    def step_update(self, num_updates: int) -> float:
        """Set the rate of the update that comes after ``num_updates``."""
        rate = self.rate(num_updates + 1)
        self.optimizer.set_lr(rate)
        return rate

    def validated(self, update: int, bleu: float) -> None:
        """Take a validation's dev BLEU and decay if the rule says so, from the next update on."""
        if update <= self.last_validation:
            return  # fairseq validates twice where two of its intervals meet
        self.last_validation = update
        self.scores.append(bleu)
        if update < self.cfg.warmup_updates:
            return
        self.since_decay += 1
        if RULES[self.cfg.decay_rule](self.scores, self.cfg.lr_patience, self.since_decay):
            self.decays += 1
            self.since_decay = 0
        self.step_update(update)

    def state_dict(self) -> dict[str, Any]:
        """What a resumed training needs; plain numbers and lists."""
        return {
            "scores": list(self.scores),
            "decays": self.decays,
            "since_decay": self.since_decay,
            "last_validation": self.last_validation,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where :meth:`state_dict` was taken."""
        self.scores = list(state_dict["scores"])
        self.decays = state_dict["decays"]
        self.since_decay = state_dict["since_decay"]
        self.last_validation = state_dict["last_validation"]
