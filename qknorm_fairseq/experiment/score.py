"""Translations measured: of a run, and of any files."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from tabulate import tabulate

from qknorm_fairseq.experiment.comparisons import difference
from qknorm_fairseq.experiment.corpus import read_bytes, read_lines, split_lines
from qknorm_fairseq.experiment.errors import UserError
from qknorm_fairseq.experiment.protocols import (
    PROTOCOLS,
    LineStatistics,
    Scores,
    Text,
    from_plain,
    from_tokens,
    protocol_notes,
    score,
)
from qknorm_fairseq.experiment.recorded import write_scores
from qknorm_fairseq.experiment.settings import Pair
from qknorm_fairseq.experiment.significance import paired
from qknorm_fairseq.experiment.tables import PAIRED_NOTE
from qknorm_fairseq.experiment.verdict import show_p
from qknorm_fairseq.experiment.workspace import write_lines


def score_run(folder: Path, pair: Pair, data: Path, split: str = "test") -> None:
    """Score the translations of a run; keep ``scores.json`` and ``line_statistics.npz``.

    Where the text was tokenised here, the plain reference is the raw text itself. Both are put
    beside the run as people write them, for other metrics.

    Args:
        folder: of the run.
        data: folder of the prepared pair.

    Raises:
        UserError: when translations and references have different numbers of lines.
    """
    form = from_plain if pair.recipe.is_plain else from_tokens
    files = {name: folder / f"{split}.{name}.txt" for name in ("hyp", "ref")}
    hypotheses = form(split_lines(read_bytes(files["hyp"]), ""), pair.target)
    references = form(read_lines(files["ref"]), pair.target)
    if pair.recipe.tokenises:
        raw = read_lines(data / "raw" / f"{split}.{pair.target}")
        references = Text(references.tokens, raw)
    try:
        scores, statistics = score(hypotheses, references)
    except UserError as error:
        raise UserError(f"{files['hyp']}: {error}") from error
    for name, text in (("hyp", hypotheses), ("ref", references)):
        write_lines(folder / f"{split}.{name}.detok.txt", text.plain)
    write_scores(folder, scores, statistics, len(references.plain))


def score_files(
    reference: Path, systems: list[tuple[str, Path]], language: str, raw: bool = False
) -> dict[str, Any]:
    """Score files of translations against one reference; the first is the others' baseline.

    Args:
        raw: the files are not tokenised.

    Raises:
        UserError: when a file cannot be read, does not go with the reference, or its BPE was
            not joined.
    """
    form = from_plain if raw else from_tokens
    references = form(read_lines(reference), language)
    scores: dict[str, Scores] = {}
    statistics: dict[str, LineStatistics] = {}
    for name, path in systems:
        if name in scores:
            raise UserError(f"two systems are called {name}; give each its own name")
        try:
            lines = read_lines(path)
            _check_joined(lines, references.tokens)
            scores[name], statistics[name] = score(form(lines, language), references)
        except UserError as error:
            where = "" if str(path) in str(error) else f"{path}: "
            raise UserError(f"{where}{error}") from error
    baseline, *others = scores
    comparisons = []
    for protocol in PROTOCOLS if others else ():
        rows = [statistics[name][protocol] for name in scores]
        tests = paired(PROTOCOLS[protocol].metric(), rows[0], rows[1:])
        for other, test in zip(others, tests, strict=True):
            comparisons.append(
                {
                    "a": baseline,
                    "b": other,
                    "protocol": protocol,
                    "difference": difference(scores[baseline], scores[other], protocol),
                    **asdict(test),
                }
            )
    return {"lines": len(references.plain), "systems": scores, "comparisons": comparisons}


def _check_joined(hypotheses: list[str], references: list[str]) -> None:
    if any("@@ " in f"{line} " for line in references):
        return  # it is text
    for number, line in enumerate(hypotheses, 1):
        if "@@ " in f"{line} ":
            raise UserError(f"hypothesis line {number} still has BPE's «@@ »; join the pieces")


def score_table(results: dict[str, Any]) -> str:
    """The scores for a terminal, with the signatures below."""
    systems = results["systems"]
    rows = [
        [name, *(f"{scores[protocol]['score']:.2f}" for protocol in PROTOCOLS)]
        for name, scores in systems.items()
    ]
    baseline, *others = systems
    for other in others:
        tests = [
            c
            for protocol in PROTOCOLS
            for c in results["comparisons"]
            if (c["b"], c["protocol"]) == (other, protocol)
        ]
        rows.append([f"{other} − {baseline}", *(f"{c['difference']:+.2f}" for c in tests)])
        for name, key in (("p, bootstrap", "p_bootstrap"), ("p, randomisation", "p_randomisation")):
            rows.append([f"  {name}", *(show_p(c[key]) for c in tests)])
    align = ["left", *["right"] * len(PROTOCOLS)]
    body = tabulate(rows, ["", *PROTOCOLS], colalign=align, disable_numparse=True)
    notes = protocol_notes(systems[baseline])
    if others:
        notes.append(PAIRED_NOTE)
    return "\n".join([f"{results['lines']:,} lines", "", body, "", *notes])
