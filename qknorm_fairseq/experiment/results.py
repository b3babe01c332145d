"""All that a table shows, as JSON: what each arm scored, on what, and how sure it is."""

from collections.abc import Iterable
from statistics import mean, stdev
from typing import Any

from qknorm_fairseq.experiment.comparisons import Arms, Results, compare
from qknorm_fairseq.experiment.errors import UserError
from qknorm_fairseq.experiment.protocols import PROTOCOLS
from qknorm_fairseq.experiment.recorded import RecordedRun
from qknorm_fairseq.experiment.settings import Pair, load_arm
from qknorm_fairseq.experiment.verdict import verdict

# options that make no arm, and are not shown
OF_A_SEED = {"seed", "log_interval", "log_format", "keep_interval_updates"}


def collect(pair: Pair, arms: Arms, missing: dict[str, str]) -> Results:
    """Everything that the tables show: the keys are part of the interface.

    Args:
        arms: in the table's order, each with at least one run.
        missing: runs that the table lacks, with the reason.
    """
    runs = [run for each in arms.values() for run in each]
    first = runs[0]
    results: Results = {
        "pair": pair.name,
        "profile": first.config["profile"],
        "precision": first.precision,
        "lines": first.lines,
        "arms": {name: _arm(name, each) for name, each in arms.items()},
        "paper": {arm: bleu for arm, bleu in pair.paper.items() if arm in arms},
        "options": _differing(arms),
        "options_not_recorded": [run.name for run in runs if not run.resolved],
        "environments": list(_environments(runs)),
        "missing": missing,
        **compare(arms),
    }
    return {**results, "verdict": verdict(results)}


def _arm(name: str, runs: list[RecordedRun]) -> Results:
    best = [run.best for run in runs]
    return {
        "description": _description(name),
        "seeds": [run.seed for run in runs],
        "dev_bleu": [row["dev_bleu"] for row in best],
        "best_update": [row["update"] for row in best],
        "updates": [run.metrics[-1]["update"] for run in runs],
        "minutes": [round(run.metrics[-1]["elapsed"] / 60, 1) for run in runs],
        "parameters": [run.finished.get("parameters") for run in runs],
        "scores": {protocol: _summary(runs, protocol) for protocol in PROTOCOLS},
    }


def _description(arm: str) -> str:
    try:
        return load_arm(arm).description
    except UserError:  # run with a file that is not there now
        return ""


def _summary(runs: list[RecordedRun], protocol: str) -> Results:
    scores = [run.scores[protocol]["score"] for run in runs]
    return {
        "mean": round(mean(scores), 4),
        "sd": round(stdev(scores), 4) if len(scores) > 1 else None,
        "runs": scores,
        "signature": runs[0].scores[protocol]["signature"],
    }


def _differing(arms: Arms) -> Results:
    """Option -> arm -> its runs' values, of the options that are not the same in all runs.

    An arm of which no run recorded all its options has no values.
    """
    known = {arm: [run.resolved for run in runs if run.resolved] for arm, runs in arms.items()}
    names = {name for each in known.values() for options in each for name in options}
    values = {
        name: {arm: _distinct(options.get(name) for options in each) for arm, each in known.items()}
        for name in sorted(names - OF_A_SEED)
    }
    return {
        name: of_arms
        for name, of_arms in values.items()
        if len(_distinct(value for found in of_arms.values() for value in found)) > 1
    }


def _distinct(values: Iterable[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if value not in found:
            found.append(value)
    return found


def _environments(runs: Iterable[RecordedRun]) -> Iterable[dict[str, Any]]:
    """Machines and versions, each with the runs that had them."""
    found: list[dict[str, Any]] = []
    for run in runs:
        environment = run.config.get("environment") or {}
        for known in found:
            if known["environment"] == environment:
                known["runs"].append(run.name)
                break
        else:
            found.append({"environment": environment, "runs": [run.name]})
    return found
