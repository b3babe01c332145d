"""The table: what each arm scored, how they differ, and what the paper says."""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

from tabulate import tabulate

from qknorm_fairseq.experiment.run import Run
from qknorm_fairseq.experiment.score import PROTOCOLS, Scores, protocol_notes
from qknorm_fairseq.experiment.workspace import Workspace, write_json, write_text

Results = dict[str, Any]


@dataclass(frozen=True)
class ScoredRun:
    """A finished run and its test scores."""

    run: Run
    scores: Scores


def collect(scored: list[ScoredRun], lines: int) -> Results:
    """Everything that the tables show, as JSON: the keys are part of the interface."""
    first = scored[0].run
    by_arm: dict[str, list[ScoredRun]] = {}
    for item in scored:
        by_arm.setdefault(item.run.arm.name, []).append(item)
    arms = {name: _arm_results(items) for name, items in by_arm.items()}
    return {
        "pair": first.pair.name,
        "profile": first.profile.name,
        "precision": first.precision,
        "lines": lines,
        "arms": arms,
        "comparisons": list(_comparisons(by_arm)),
        "paper": {arm: bleu for arm, bleu in first.pair.paper.items() if arm in by_arm},
    }


def _arm_results(items: list[ScoredRun]) -> Results:
    best = [item.run.best() for item in items]
    return {
        "description": items[0].run.arm.description,
        "seeds": [item.run.seed for item in items],
        "dev_bleu": [row["dev_bleu"] for row in best],
        "best_update": [row["update"] for row in best],
        "scores": {protocol: _summary(items, protocol) for protocol in PROTOCOLS},
    }


def _summary(items: list[ScoredRun], protocol: str) -> Results:
    runs = [item.scores[protocol]["score"] for item in items]
    return {
        "mean": round(mean(runs), 4),
        "sd": round(stdev(runs), 4) if len(runs) > 1 else None,
        "runs": runs,
        "signature": items[0].scores[protocol]["signature"],
    }


def _comparisons(by_arm: dict[str, list[ScoredRun]]) -> Iterable[Results]:
    """Each later arm against the first, seed by seed."""
    baseline, *others = by_arm
    for other in others:
        for protocol in PROTOCOLS:
            scores = {
                arm: {item.run.seed: item.scores[protocol]["score"] for item in by_arm[arm]}
                for arm in (baseline, other)
            }
            for seed in scores[baseline].keys() & scores[other].keys():
                difference = scores[other][seed] - scores[baseline][seed]
                yield {
                    "a": baseline,
                    "b": other,
                    "protocol": protocol,
                    "seed": seed,
                    "difference": round(difference, 4),
                }


def table(results: Results, style: str) -> str:
    """The results as a table in one of tabulate's styles, with its notes below."""
    rows = [_arm_row(results, name) for name in results["arms"]]
    baseline, *others = results["arms"]
    rows += [_difference_row(results, baseline, other) for other in others]
    headers = ["arm", "", "dev", *PROTOCOLS]
    if results["paper"]:
        headers.append("paper")
    align = ["left", "left", *["right"] * (len(headers) - 2)]
    body = tabulate(rows, headers, tablefmt=style, colalign=align, disable_numparse=True)
    return f"{_title(results)}\n\n{body}\n\n" + "\n".join(_notes(results))


def _title(results: Results) -> str:
    seeds = sorted({seed for arm in results["arms"].values() for seed in arm["seeds"]})
    return (
        f"{results['pair']}, test set, {results['lines']:,} lines · profile "
        f"{results['profile']} · {results['precision']} · "
        f"seed{'s' if len(seeds) > 1 else ''} {' '.join(map(str, seeds))}"
    )


def _arm_row(results: Results, name: str) -> list[str]:
    arm = results["arms"][name]
    row = [name, arm["description"], f"{mean(arm['dev_bleu']):.2f}"]
    for protocol in PROTOCOLS:
        score = arm["scores"][protocol]
        spread = f" ± {score['sd']:.2f}" if score["sd"] is not None else ""
        row.append(f"{score['mean']:.2f}{spread}")
    return row + _paper_cell(results, results["paper"].get(name), "")


def _difference_row(results: Results, baseline: str, other: str) -> list[str]:
    arms = results["arms"]
    row = [f"{other} − {baseline}", "", ""]
    for protocol in PROTOCOLS:
        a, b = (arms[name]["scores"][protocol]["mean"] for name in (baseline, other))
        row.append(f"{b - a:+.2f}")
    paper = results["paper"]
    both = baseline in paper and other in paper
    return row + _paper_cell(results, paper[other] - paper[baseline] if both else None, "+")


def _paper_cell(results: Results, value: float | None, sign: str) -> list[str]:
    if not results["paper"]:
        return []
    return ["" if value is None else f"{value:{sign}.2f}"]


def _notes(results: Results) -> list[str]:
    first = next(iter(results["arms"].values()))
    notes = protocol_notes(first["scores"])
    notes.append("dev: tokenised BLEU of the best checkpoint, by which it was chosen")
    if results["paper"]:
        notes.append("paper: test BLEU at the published sizes (Henry et al. 2020, table 2)")
    if all(len(arm["seeds"]) == 1 for arm in results["arms"].values()):
        notes.append("one run an arm: a difference of this kind is not yet evidence")
    return notes


def write_report(results: Results, workspace: Workspace) -> str:
    """Write ``results/PAIR.md`` and ``.json``; returns the table for a terminal."""
    pair = results["pair"]
    write_json(workspace.result(pair, "json"), results)
    title, body, notes = table(results, "github").split("\n\n")
    listed = "\n".join(f"- {note}" for note in notes.split("\n"))
    write_text(workspace.result(pair, "md"), f"# {title}\n\n{body}\n\n{listed}\n")
    return table(results, "simple")
