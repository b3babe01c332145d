"""The results as one long table, a row a figure or a fact: for a data frame."""

from collections.abc import Iterator
from typing import Any

from qknorm_fairseq.experiment.comparisons import Results
from qknorm_fairseq.experiment.protocols import PROTOCOLS
from qknorm_fairseq.experiment.verdict import named_contrasts

COLUMNS = [
    *("kind", "a", "b", "seed", "protocol", "value", "sd", "low", "high", "margin"),
    *("p", "p_holm", "star", "p_bootstrap", "p_randomisation", "signature", "text"),
]
OF_A_RUN = ("parameters", "updates", "best_update", "minutes", "dev_bleu")


def tidy(results: Results) -> Iterator[dict[str, Any]]:
    """Rows whose keys are of :data:`COLUMNS`; ``kind`` says what a row is.

    What has a value stands under ``b``, what it is compared with under ``a``.
    """
    yield from _scores(results)
    for c in results["comparisons"]:
        yield {"kind": "difference", **_flat(c)}
    for protocol in PROTOCOLS if "factorial" in results else ():
        for name, found in named_contrasts(results, protocol).items():
            if "a" not in found:
                yield {"kind": "effect", "b": name, "protocol": protocol, **_flat(found)}
    yield from _facts(results)


def _scores(results: Results) -> Iterator[dict[str, Any]]:
    for name, arm in results["arms"].items():
        for protocol, score in arm["scores"].items():
            same = {"b": name, "protocol": protocol, "signature": score["signature"]}
            for seed, value in zip(arm["seeds"], score["runs"], strict=True):
                yield {"kind": "run", **same, "seed": seed, "value": value}
            yield {"kind": "mean", **same, "value": score["mean"], "sd": score["sd"]}
        for kind in OF_A_RUN:
            for seed, value in zip(arm["seeds"], arm[kind], strict=True):
                yield {"kind": kind, "b": name, "seed": seed, "value": value}


def _facts(results: Results) -> Iterator[dict[str, Any]]:
    for arm, bleu in results["paper"].items():
        yield {"kind": "paper", "b": arm, "value": bleu}
    for option, values in results["options"].items():
        for arm, found in values.items():
            yield {"kind": "option", "a": option, "b": arm, "text": " / ".join(map(str, found))}
    for item in results["environments"]:
        for run in item["runs"]:
            for name, value in item["environment"].items():
                yield {"kind": "environment", "a": name, "b": run, "text": value}
    for run, reason in results["missing"].items():
        yield {"kind": "missing", "b": run, "text": reason}
    yield {"kind": "verdict", "text": results["verdict"]}


def _flat(found: Results) -> Results:
    low, high = found.get("interval") or (None, None)
    rest = {k: v for k, v in found.items() if k not in ("difference", "interval")}
    return {**rest, "value": found["difference"], "low": low, "high": high}
