"""The results as tables: which rows and columns there are, whatever they are printed as."""

from dataclasses import dataclass
from statistics import mean
from typing import Any

from qknorm_fairseq.experiment.comparisons import TO_REPORT, Results
from qknorm_fairseq.experiment.protocols import PROTOCOLS, protocol_notes
from qknorm_fairseq.experiment.significance import FEWEST_RUNS
from qknorm_fairseq.experiment.verdict import named_contrasts, show_p

PAIRED_NOTE = (
    "p of two runs, over sentences: sacreBLEU's paired bootstrap (1,000 resamples; about half of a "
    "two-sided p) and its paired approximate randomisation (10,000 exchanges, two-sided), not "
    "corrected for their number; they speak of these two runs, not of their arms"
)


@dataclass(frozen=True)
class Section:
    """A table with its title, and what has to be said of it."""

    key: str
    title: str
    headers: list[str]
    rows: list[list[str]]
    notes: list[str]
    text_columns: int = 1  # on the left; the others are figures


def title(results: Results) -> str:
    """What was measured, on one line."""
    counts = {len(arm["seeds"]) for arm in results["arms"].values()}
    seeds = sorted({seed for arm in results["arms"].values() for seed in arm["seeds"]})
    runs = "–".join(str(n) for n in sorted({min(counts), max(counts)}))
    return (
        f"{results['pair']}, test set, {results['lines']:,} lines · profile "
        f"{results['profile']} · {results['precision']} · "
        f"seed{'s' if len(seeds) > 1 else ''} {' '.join(map(str, seeds))} · "
        f"{runs} run{'s' if max(counts) > 1 else ''} an arm"
    )


def sections(results: Results) -> list[Section]:
    """All tables, the one that answers first."""
    found = [
        _factorial(results),
        _arms(results),
        _contrasts(results),
        _paired(results),
        _runs(results),
        _options(results),
        _environments(results),
        _missing(results),
    ]
    return [section for section in found if section and section.rows]


def _factorial(results: Results) -> Section | None:
    """The 2 × 2 of the protocol to report."""
    if "factorial" not in results:
        return None
    factorial = results["factorial"]
    at, norm = factorial["qknorm_at"], factorial["layernorm_at"]
    rows = [
        ["ScaleNorm", *_cells(results, "scalenorm", "qknorm_scalenorm"), _effect(at["scalenorm"])],
        ["LayerNorm", *_cells(results, "layernorm", "qknorm"), _effect(at["layernorm"])],
        ["effect of LayerNorm", _effect(norm["dot"]), _effect(norm["qknorm"]),
         f"interaction {_effect(factorial['interaction'])}"],
    ]  # fmt: skip
    notes = [
        "interaction: how much more QKNorm brings at LayerNorm than at ScaleNorm",
        *_spread_notes(results),
    ]
    headers = [TO_REPORT, "dot product", "QKNorm", "effect of QKNorm"]
    return Section("factorial", "The 2 × 2", headers, rows, notes)


def _cells(results: Results, *arms: str) -> list[str]:
    return [_score(results["arms"][arm]["scores"][TO_REPORT]) for arm in arms]


def _score(score: Results) -> str:
    spread = f" ± {score['sd']:.2f}" if score["sd"] is not None else ""
    return f"{score['mean']:.2f}{spread}"


def _effect(found: Results) -> str:
    p = "" if found["p_holm"] is None else f", p {show_p(found['p_holm'])}"
    return f"{found['difference']:+.2f}{p}{' *' if found['star'] else ''}"


def _spread_notes(results: Results) -> list[str]:
    """What ± and p are, and which arms have too few runs."""
    counts = [len(arm["seeds"]) for arm in results["arms"].values()]
    notes = ["±: standard deviation over runs"] if max(counts) > 1 else []
    if max(counts) >= FEWEST_RUNS:
        notes.append(
            "p: Welch's test over runs, corrected by Holm for the comparisons between arms under "
            "one protocol; *: below 0.05"
        )
    where = "an arm" if min(counts) == max(counts) else "in some arms"
    if min(counts) == 1:
        notes.append(f"one run {where}: a difference of this kind is not yet evidence")
    elif min(counts) < FEWEST_RUNS:
        notes.append(
            f"two runs {where}: how far scores move from seed to seed is hardly known, so no p "
            "and no star"
        )
    return notes


def _arms(results: Results) -> Section:
    """Each arm's mean scores, then how the others differ from the first."""
    paper = results["paper"]
    rows = []
    for name, arm in results["arms"].items():
        scores = [_score(arm["scores"][protocol]) for protocol in PROTOCOLS]
        cells = [name, arm["description"], f"{mean(arm['dev_bleu']):.2f}", *scores]
        rows.append(cells + _paper_cell(paper, paper.get(name), ""))
    for pooled in _pooled(results, TO_REPORT):
        a, b = pooled["a"], pooled["b"]
        differences = [
            _effect_short(c)
            for protocol in PROTOCOLS
            for c in _pooled(results, protocol)
            if c["b"] == b
        ]
        published = paper[b] - paper[a] if {a, b} <= set(paper) else None
        rows.append([f"{b} − {a}", "", "", *differences, *_paper_cell(paper, published, "+")])
    headers = ["arm", "", "dev", *PROTOCOLS, *(["paper"] if paper else [])]
    first = next(iter(results["arms"].values()))
    notes = [*protocol_notes(first["scores"])]
    notes.append("dev: tokenised BLEU of the best checkpoint, by which it was chosen")
    if paper:
        notes.append("paper: tokenised test BLEU, published sizes (Henry et al. 2020, table 2)")
    if "factorial" not in results:
        notes += _spread_notes(results)
    return Section("arms", "The arms", headers, rows, notes, text_columns=2)


def _effect_short(found: Results) -> str:
    return f"{found['difference']:+.2f}{' *' if found['star'] else ''}"


def _paper_cell(paper: Results, value: float | None, sign: str) -> list[str]:
    if not paper:
        return []
    return ["" if value is None else f"{value:{sign}.2f}"]


def _pooled(results: Results, protocol: str) -> list[Results]:
    return [
        c for c in results["comparisons"] if c["seed"] == "pooled" and c["protocol"] == protocol
    ]


def _contrasts(results: Results) -> Section:
    """Arms against arms, over their runs, under every protocol."""
    rows = []
    for protocol in PROTOCOLS:
        for name, found in named_contrasts(results, protocol).items():
            between = found["interval"]
            rows.append([
                name,
                protocol,
                f"{found['difference']:+.2f}",
                "" if found["margin"] is None else f"± {found['margin']:.2f}",
                f"{between[0]:+.2f} to {between[1]:+.2f}" if between else "",
                show_p(found["p"]),
                show_p(found["p_holm"]) + (" *" if found["star"] else ""),
            ])  # fmt: skip
    if all(row[5] == "" for row in rows):  # the differences stand with the arms
        return Section("contrasts", "", [], [], [])
    headers = ["", "protocol", "difference", "Welch 95 %", "bootstrap 95 %", "p", "p, Holm"]
    notes = [
        "Welch 95 %, p: Student's t over the runs' scores, each arm with its own variance, the "
        "test set as it is",
        "p, Holm: corrected for the comparisons under one protocol; *: below 0.05",
        "*: a protocol by itself; choose the one to report beforehand",
        "bootstrap 95 %: over runs and sentences at once, 1,000 resamples; of three runs it covers "
        "86 to 95 %",
        "no p, no interval: fewer than three runs, none that differ, or line counts not kept",
    ]
    return Section("contrasts", "Arms over runs", headers, rows, notes, text_columns=2)


def _paired(results: Results) -> Section:
    """Run against run with the same seed, over sentences."""
    rows: dict[tuple[str, int], list[str]] = {}
    for c in results["comparisons"]:
        if c["seed"] == "pooled":
            continue
        key = (f"{c['b']} − {c['a']}", c["seed"])
        cell = f"{c['difference']:+.2f}"
        if c["p_bootstrap"] is not None:
            cell += f" ({show_p(c['p_bootstrap'])}, {show_p(c['p_randomisation'])})"
        rows.setdefault(key, [key[0], str(key[1])]).append(cell)
    headers = ["", "seed", *PROTOCOLS]
    notes = [f"in brackets, {PAIRED_NOTE}"]
    if any(c["seed"] != "pooled" and c["p_bootstrap"] is None for c in results["comparisons"]):
        notes.append("without brackets: the counts of lines were not kept")
    return Section("paired", "Run against run", headers, list(rows.values()), notes, text_columns=1)


def _runs(results: Results) -> Section:
    rows = []
    for name, arm in results["arms"].items():
        for i, seed in enumerate(arm["seeds"]):
            size = arm["parameters"][i]
            rows.append([
                name,
                str(seed),
                f"{size:,}" if size else "",
                f"{arm['updates'][i]:,}",
                f"{arm['best_update'][i]:,}",
                f"{arm['minutes'][i]:.0f}" if arm["minutes"][i] >= 10
                else f"{arm['minutes'][i]:.1f}",
                f"{arm['dev_bleu'][i]:.2f}",
                *(f"{arm['scores'][protocol]['runs'][i]:.2f}" for protocol in PROTOCOLS),
            ])  # fmt: skip
    headers = ["arm", "seed", "parameters", "updates", "best at", "min", "dev", *PROTOCOLS]
    notes = ["min: of training, validations included"]
    if results["options_not_recorded"]:
        names = ", ".join(results["options_not_recorded"])
        notes.append(f"{names}: did not record their parameters and resolved options")
    return Section("runs", "Every run", headers, rows, notes)


def _options(results: Results) -> Section:
    arms = list(results["arms"])
    rows = [
        [name, *(" / ".join(map(_value, values[arm])) for arm in arms)]
        for name, values in results["options"].items()
    ]
    every = "every run that recorded them" if results["options_not_recorded"] else "every run"
    notes = [f"all others, fairseq's defaults included, are the same in {every}"]
    return Section(
        "options", "Options in which the arms differ", ["", *arms], rows, notes, 1 + len(arms)
    )


def _value(value: Any) -> str:
    return "–" if value is None else str(value)


def _environments(results: Results) -> Section:
    every = sum(len(arm["seeds"]) for arm in results["arms"].values())
    rows = []
    for item in results["environments"]:
        versions = dict(item["environment"])
        place = ", ".join(versions.pop(name) for name in ("device", "machine") if name in versions)
        runs = "all runs" if len(item["runs"]) == every else ", ".join(item["runs"])
        rows.append([runs, place, " · ".join(f"{k} {v}" for k, v in versions.items())])
    return Section("machines", "Machines and versions", ["", "machine", "versions"], rows, [], 3)


def _missing(results: Results) -> Section:
    rows = [[name, reason] for name, reason in results["missing"].items()]
    return Section("missing", "Not in these tables", ["run", "why"], rows, [], 2)
