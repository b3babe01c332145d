"""Systems timed in turn, A B A B …, and compared round by round."""

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Ratio:
    """The median of the rounds' ratios, and its quartiles."""

    median: float
    low: float
    high: float
    rounds: int

    def record(self) -> dict[str, float]:
        """As JSON."""
        return {name: round(value, 4) for name, value in asdict(self).items()}

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f}–{self.high:.2f})"


def in_turn(
    systems: dict[str, Callable[[int], Any]], rounds: int, device: torch.device, warm_up: int = 1
) -> dict[str, list[float]]:
    """Seconds of each system in each round.

    Args:
        systems: what to run, each with the number of the round.
        warm_up: rounds before those that count.

    The order is turned round by round, so that none always comes after the same other.
    """
    times: dict[str, list[float]] = {name: [] for name in systems}
    names = list(systems)
    for number in range(-warm_up, rounds):
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            synchronise(device)
            began = time.perf_counter()
            systems[name](number % rounds)
            synchronise(device)
            if number >= 0:
                times[name].append(time.perf_counter() - began)
    return times


def synchronise(device: torch.device) -> None:
    """Wait until the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def ratio(of: list[float], to: list[float]) -> Ratio:
    """How long one system takes in terms of another, by rounds."""
    ratios = [a / b for a, b in zip(of, to, strict=True)]
    low, median, high = (
        statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
    )
    return Ratio(median, low, high, len(ratios))
