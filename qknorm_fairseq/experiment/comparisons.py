"""How arms differ: run against run on one test set, and arm against arm over their runs.

The four arms of the 2 × 2 cross two attentions with two residual norms, so that the effect of
each can be told from the other's, and from what they do together.
"""

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from qknorm_fairseq.experiment.factorial import EFFECTS, FACTORIAL
from qknorm_fairseq.experiment.protocols import PROTOCOLS
from qknorm_fairseq.experiment.recorded import RecordedRun
from qknorm_fairseq.experiment.significance import (
    FEWEST_RUNS,
    Contrast,
    Paired,
    Weights,
    contrast,
    holm,
    interval,
    paired,
    resample,
)

Results = dict[str, Any]
Arms = Mapping[str, list[RecordedRun]]  # arm -> its runs; the first arm is the baseline

UNTESTED = [field.name for field in fields(Paired)]
TO_REPORT = "moses_13a"  # the protocol whose figures stand for the others


def compare(arms: Arms) -> Results:
    """Every comparison of one table, as JSON.

    Returns:
        ``comparisons``: the baseline with each other arm, under each protocol, of each seed that
        both have and "pooled" over all; ``factorial``, where the four arms are there.
    """
    baseline, *others = arms
    pooled = {other: {other: 1.0, baseline: -1.0} for other in others}
    effects = EFFECTS if set(FACTORIAL) <= set(arms) else {}
    comparisons: list[Results] = []
    by_protocol: Results = {}
    for protocol in PROTOCOLS:
        found = _contrasts(arms, protocol, [*pooled.values(), *effects.values()])
        by_seed = _by_seed(arms, protocol)
        for other, result in zip(others, found, strict=False):
            pair = {"a": baseline, "b": other, "protocol": protocol}
            comparisons += [{**pair, **row} for row in by_seed[other]]
            comparisons.append({**pair, "seed": "pooled", **result})
        by_protocol[protocol] = dict(zip(effects, found[len(others) :], strict=True))
    if not effects:
        return {"comparisons": comparisons}
    nested = {protocol: _nested(found) for protocol, found in by_protocol.items()}
    factorial = {"protocol": TO_REPORT, **nested[TO_REPORT], "by_protocol": nested}
    return {"comparisons": comparisons, "factorial": factorial}


def _nested(effects: Results) -> Results:
    """``{"a.b": x}`` as ``{"a": {"b": x}}``."""
    nested: Results = {}
    for name, effect in effects.items():
        *outer, last = name.split(".")
        place = nested.setdefault(outer[0], {}) if outer else nested
        place[last] = effect
    return nested


def _by_seed(arms: Arms, protocol: str) -> dict[str, list[Results]]:
    """The baseline's runs with the others' of the same seed, tested over sentences.

    Returns:
        other arm -> a row a seed.
    """
    baseline, *others = arms
    rows: dict[str, list[Results]] = {other: [] for other in others}
    for one in arms[baseline]:
        same_seed = {arm: run for arm in others for run in arms[arm] if run.seed == one.seed}
        tested = _tested(one, same_seed, protocol)
        for arm, run in same_seed.items():
            p_values = asdict(tested[arm]) if arm in tested else dict.fromkeys(UNTESTED)
            distance = difference(one.scores, run.scores, protocol)
            rows[arm].append({"seed": one.seed, "difference": distance, **p_values})
    return rows


def _tested(one: RecordedRun, others: dict[str, RecordedRun], protocol: str) -> dict[str, Paired]:
    """Those that can be tested: with their lines' counts."""
    counts = {
        arm: run.statistics[protocol] for arm, run in others.items() if run.statistics is not None
    }
    if one.statistics is None or not counts:
        return {}
    metric = PROTOCOLS[protocol].metric()
    tests = paired(metric, one.statistics[protocol], list(counts.values()))
    return dict(zip(counts, tests, strict=True))


def difference(a: Results, b: Results, protocol: str) -> float:
    """How much more ``b`` scored than ``a``."""
    return round(b[protocol]["score"] - a[protocol]["score"], 4)


def _contrasts(arms: Arms, protocol: str, wanted: list[Weights]) -> list[Results]:
    """Contrasts of arms over runs, corrected for how many different ones there are."""
    scores = {arm: [run.scores[protocol]["score"] for run in runs] for arm, runs in arms.items()}
    found = [contrast(scores, weights) for weights in wanted]
    p_values = {_sides(weights): each.p for weights, each in zip(wanted, found, strict=True)}
    corrected = dict(zip(p_values, holm(list(p_values.values())), strict=True))
    intervals = _intervals(arms, protocol, wanted)
    return [
        _result(each, corrected[_sides(weights)], between)
        for weights, each, between in zip(wanted, found, intervals, strict=True)
    ]


def _sides(weights: Weights) -> frozenset[frozenset[str]]:
    """The same for a contrast and its negative, which are one comparison."""
    return frozenset(
        frozenset(arm for arm, weight in weights.items() if (weight > 0) is side)
        for side in (True, False)
    )


def _intervals(
    arms: Arms, protocol: str, wanted: list[Weights]
) -> list[tuple[float, float] | None]:
    """Of each contrast, where its arms have enough runs that kept their lines' counts."""
    counts = {
        arm: [run.statistics[protocol] for run in runs if run.statistics is not None]
        for arm, runs in arms.items()
        if len(runs) >= FEWEST_RUNS and all(run.statistics is not None for run in runs)
    }
    if not counts or not wanted:
        return [None] * len(wanted)
    resampled = resample(counts, PROTOCOLS[protocol].metric())
    return [
        interval(resampled, weights) if weights.keys() <= resampled.keys() else None
        for weights in wanted
    ]


def _six_digits(p: float | None) -> float | None:
    """The digits that every machine agrees on."""
    return None if p is None else float(f"{p:.6g}")


def _result(found: Contrast, p_holm: float | None, between: tuple[float, float] | None) -> Results:
    return {
        "difference": round(found.difference, 4),
        "interval": [round(end, 4) for end in between] if between else None,
        "margin": round(found.margin, 4) if found.margin is not None else None,
        "p": _six_digits(found.p),
        "p_holm": _six_digits(p_holm),
        "star": p_holm is not None and p_holm < 0.05,
    }
