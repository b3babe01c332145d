"""What the runs show and what they do not, in words."""

from typing import Any

from qknorm_fairseq.experiment.comparisons import TO_REPORT, Results
from qknorm_fairseq.experiment.factorial import EFFECTS
from qknorm_fairseq.experiment.significance import FEWEST_RUNS

NAMES = {
    "qknorm_at.scalenorm": "QKNorm at ScaleNorm",
    "qknorm_at.layernorm": "QKNorm at LayerNorm",
    "layernorm_at.dot": "LayerNorm at dot-product attention",
    "layernorm_at.qknorm": "LayerNorm at QKNorm",
    "interaction": "the interaction of the two",
}

KINDS = SHOWN, NOT_SHOWN, NOT_TESTED = (
    "Shown",
    "Not shown, which is not to say zero",
    f"Not tested, for want of {FEWEST_RUNS} runs that differ",
)


def verdict(results: Results) -> str:
    """A sentence or two of what the table's comparisons between arms come to."""
    contrasts = named_contrasts(results, TO_REPORT)
    if not contrasts:
        return "One arm: there is nothing to compare it with."
    counts = [len(arm["seeds"]) for arm in results["arms"].values()]
    if all(found["p"] is None for found in contrasts.values()) and min(counts) < FEWEST_RUNS:
        runs = "one run" if min(counts) == 1 else "two runs"
        where = "an arm" if min(counts) == max(counts) else "in some arms"
        return (
            f"With {runs} {where} nothing is shown about the arms: how far a score moves from "
            f"seed to seed is hardly known. {FEWEST_RUNS} seeds are the least that tell."
        )
    kinds: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for name, found in contrasts.items():
        kind = NOT_TESTED if found["p"] is None else SHOWN if found["star"] else NOT_SHOWN
        kinds[kind].append(_phrase(name, found))
    sentences = [f"{kind}: {'; '.join(each)}." for kind, each in kinds.items() if each]
    if not kinds[SHOWN]:
        sentences.insert(0, f"{SHOWN}: no difference between arms.")
    means = f"By {TO_REPORT}, over runs (± 95 %, each by itself; p after Holm's correction)."
    return " ".join([means, *sentences])


def named_contrasts(results: Results, protocol: str) -> dict[str, dict[str, Any]]:
    """The different comparisons between arms under a protocol, by what they are called."""
    pooled = {
        (c["b"], c["a"]): c
        for c in results["comparisons"]
        if c["seed"] == "pooled" and c["protocol"] == protocol
    }
    factorial = results.get("factorial")
    named: dict[str, dict[str, Any]] = {}
    if factorial:
        effects = factorial["by_protocol"][protocol]
        for key, weights in EFFECTS.items():
            outer, _, inner = key.partition(".")
            named[NAMES[key]] = effects[outer][inner] if inner else effects[outer]
            pooled = {pair: c for pair, c in pooled.items() if set(pair) != set(weights)}
    return {**named, **{f"{b} − {a}": c for (b, a), c in pooled.items()}}


def _phrase(name: str, found: Results) -> str:
    margin = "" if found["margin"] is None else f" ± {found['margin']:.2f}"
    p = "" if found["p_holm"] is None else f", p {show_p(found['p_holm'])}"
    return f"{name} {found['difference']:+.2f}{margin}{p}"


def show_p(p: float | None) -> str:
    """A p-value to two digits that mean something."""
    if p is None:
        return ""
    return "< 0.001" if p < 0.001 else f"{p:.3f}" if p < 0.1 else f"{p:.2f}"
