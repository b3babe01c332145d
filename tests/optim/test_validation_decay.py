"""The schedule: its ramp, both decay rules, its end, and its state."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq.optim.adam import FairseqAdam, FairseqAdamConfig

from qknorm_fairseq.dev_bleu import DEV_BLEU
from qknorm_fairseq.optim.lr_scheduler.validation_decay import (
    DecayRule,
    ValidationDecay,
    ValidationDecayConfig,
)

PEAK = (512 * 8000) ** -0.5


@pytest.fixture(autouse=True)
def _a_task_that_measures_bleu() -> Iterator[None]:
    DEV_BLEU.expected = True
    yield
    DEV_BLEU.expected, DEV_BLEU.listener = False, None


def schedule(**changes: Any) -> ValidationDecay:
    options: dict[str, Any] = {
        "warmup_updates": 8000,
        "decay_rule": DecayRule.released,
        "lr_patience": 3,
        "lr_shrink": 0.8,
        "min_lr": 0.0,
        "lr": [PEAK],
        "stop_min_lr": 0.0,
    }
    adam = FairseqAdam(
        SimpleNamespace(**vars(FairseqAdamConfig()) | {"lr": [1.0], "adam_betas": "(0.9, 0.999)"}),
        [torch.nn.Parameter(torch.zeros(1))],
    )
    return ValidationDecay(ValidationDecayConfig(**options | changes), adam)


def rate_of_update(lr_schedule: ValidationDecay, update: int) -> float:
    """The optimiser's rate when ``update`` (1 the first) is made."""
    lr_schedule.step_update(update - 1)
    return float(lr_schedule.optimizer.get_lr())


def released_ramp(update: int) -> float:
    return 512**-0.5 * min(update, 7999) * 8000**-1.5


@pytest.mark.parametrize("update", [1, 2, 7998, 7999, 8000, 8001, 100_000])
def test_the_ramp_is_that_of_the_released_code(update: int) -> None:
    assert rate_of_update(schedule(), update) == pytest.approx(released_ramp(update), rel=1e-12)


def test_its_figures() -> None:
    lr_schedule = schedule()
    assert rate_of_update(lr_schedule, 1) == pytest.approx(6.1763e-8, rel=1e-4)
    assert rate_of_update(lr_schedule, 7998) == pytest.approx(4.93982e-4, rel=1e-5)
    assert rate_of_update(lr_schedule, 7999) == pytest.approx(4.94044e-4, rel=1e-5)
    assert rate_of_update(lr_schedule, 8000) == rate_of_update(lr_schedule, 7999)


def decays(rule: str, scores: list[float], warmup_scores: int = 0) -> list[int]:
    """After which scores (1 the first) the rate decays; a score every 100 updates."""
    lr_schedule = schedule(decay_rule=rule, warmup_updates=100 * warmup_scores + 1)
    found = []
    for number, score in enumerate(scores, 1):
        before = rate_of_update(lr_schedule, 100 * number)
        DEV_BLEU.announce(100 * number, score)
        if lr_schedule.optimizer.get_lr() < before:
            found.append(number)
    return found


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([1, 2, 3, 4, 5, 6], []),
        ([5, 6, 7], []),  # needs more than three
        ([5, 4, 3, 2], [4]),
        ([5, 4, 3, 3], []),  # must fall below, not meet
        ([5, 9, 6, 5.5], []),  # not below the 5
        ([5, 9, 6, 4.9], [4]),
        ([9, 8, 7, 6, 5, 4], [4, 5, 6]),  # no counter, no patience begun anew
        ([9, 8, 7, 6, 6, 6, 5], [4, 7]),
        ([9, 1, 1, 1, 1, 1, 1], []),  # a plateau far below the best never decays
    ],
)
def test_the_released_rule(scores: list[float], expected: list[int]) -> None:
    assert decays("released", scores) == expected


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([1, 2, 3, 4, 5, 6], []),
        ([5, 4, 3], []),
        ([5, 4, 3, 2], [4]),
        ([5, 5, 5, 5], [4]),  # an equal is no gain
        ([9, 1, 2, 3, 4, 5, 6, 7], [4, 7]),  # three without a gain, then three more
        ([5, 4, 4, 5.1, 5, 5, 5], [7]),
    ],
)
def test_the_papers_rule(scores: list[float], expected: list[int]) -> None:
    assert decays("paper", scores) == expected


def test_scores_in_the_warm_up_enter_the_window_and_do_not_decay() -> None:
    falling = [9.0, 8.0, 7.0, 6.0, 5.0]
    assert decays("released", falling, warmup_scores=4) == [5]
    assert decays("released", falling, warmup_scores=5) == []
    assert decays("paper", [9.0, 8.0, 8.0, 8.0, 8.0], warmup_scores=2) == [5]


def test_a_decay_holds_from_the_next_update_on() -> None:
    lr_schedule = schedule(warmup_updates=1)
    for update, score in ((10, 4.0), (20, 3.0), (30, 2.0), (40, 1.0)):
        lr_schedule.step_update(update)
        DEV_BLEU.announce(update, score)
    assert lr_schedule.optimizer.get_lr() == pytest.approx(0.8 * PEAK)
    assert rate_of_update(lr_schedule, 41) == pytest.approx(0.8 * PEAK)


def test_a_second_validation_after_the_same_update_counts_once() -> None:
    lr_schedule = schedule(warmup_updates=1)
    for update, score in ((10, 4.0), (10, 3.0), (20, 3.0), (20, 2.0), (30, 2.0)):
        DEV_BLEU.announce(update, score)
    assert lr_schedule.scores == [4.0, 3.0, 2.0]


def test_below_the_least_rate_it_is_zero_which_ends_the_training() -> None:
    lr_schedule = schedule(warmup_updates=100, min_lr=0.7 * PEAK)
    assert rate_of_update(lr_schedule, 1) > 0, "the ramp starts below the least rate"
    for update, score in ((100, 5.0), (200, 4.0), (300, 3.0), (400, 2.0)):
        DEV_BLEU.announce(update, score)
    assert rate_of_update(lr_schedule, 401) == pytest.approx(0.8 * PEAK * 99 / 100)
    DEV_BLEU.announce(500, 1.0)
    assert rate_of_update(lr_schedule, 501) == 0.0


@pytest.mark.parametrize(("last", "expected"), [(5e-5, 11), (1e-5, 18)])
def test_as_many_decays_as_published_end_a_run(last: float, expected: int) -> None:
    lr_schedule = schedule(min_lr=last)
    count = 0
    while rate_of_update(lr_schedule, 9000) > 0:
        lr_schedule.decays += 1
        count += 1
    assert count == expected


def test_a_resumed_schedule_goes_on_as_if_nothing_had_happened() -> None:
    scores = [5.0, 6.0, 4.0, 3.0, 7.0, 6.5, 6.4, 6.3, 2.0]
    for rule in ("released", "paper"):
        whole = schedule(decay_rule=rule, warmup_updates=200)
        rates = []
        for number, score in enumerate(scores, 1):
            DEV_BLEU.announce(100 * number, score)
            rates.append(rate_of_update(whole, 100 * number + 1))
        assert len(set(rates[1:])) > 1, "no decay: the test would show nothing"
        for cut in range(1, len(scores)):
            first = schedule(decay_rule=rule, warmup_updates=200)
            for number, score in enumerate(scores[:cut], 1):
                DEV_BLEU.announce(100 * number, score)
            second = schedule(decay_rule=rule, warmup_updates=200)
            second.load_state_dict(first.state_dict())
            for number in range(cut, len(scores)):
                DEV_BLEU.announce(100 * (number + 1), scores[number])
                assert rate_of_update(second, 100 * (number + 1) + 1) == rates[number]


def test_what_it_refuses() -> None:
    with pytest.raises(ValueError, match="one rate, the peak"):
        schedule(lr=[1.0, 0.5])
    with pytest.raises(ValueError, match="--stop-min-lr 0"):
        schedule(min_lr=1e-5, stop_min_lr=-1.0)
    for wrong in ({"warmup_updates": -5}, {"lr_shrink": 0.0}, {"lr_shrink": 2.0}):
        with pytest.raises(ValueError, match=r"--warmup-updates .* --lr-shrink"):
            schedule(**wrong)
    with pytest.raises(ValueError, match="--lr-patience 0"):
        schedule(lr_patience=0)
    DEV_BLEU.expected = False
    with pytest.raises(ValueError, match="--task low_resource_translation"):
        schedule()
