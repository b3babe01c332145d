"""BLEU and chrF++ by sacreBLEU under protocols with a name, each with its signature."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sacrebleu.metrics import BLEU, CHRF
from tabulate import tabulate

from qknorm_fairseq.experiment import detokenise
from qknorm_fairseq.experiment.corpus import read_lines
from qknorm_fairseq.experiment.errors import UserError
from qknorm_fairseq.experiment.run import Run
from qknorm_fairseq.experiment.workspace import write_json, write_lines


@dataclass(frozen=True)
class Protocol:
    """Which form of the text is compared, and by which metric."""

    form: Callable[[list[str], str], list[str]]
    metric: Callable[[], BLEU | CHRF]
    description: str


# "force" stops a warning about tokenised text
PROTOCOLS = {
    "tokenised": Protocol(
        detokenise.as_it_comes,
        lambda: BLEU(tokenize="none", force=True),
        "the corpus's own tokens, as multi-bleu.perl compares them",
    ),
    "nltk_13a": Protocol(
        detokenise.treebank,
        lambda: BLEU(tokenize="13a", force=True),
        "NLTK-detokenised, escapes kept, as in the paper's table 3",
    ),
    "moses_13a": Protocol(
        detokenise.moses,
        lambda: BLEU(tokenize="13a", force=True),
        "escapes undone, Moses-detokenised: the one to report",
    ),
    "chrf2pp": Protocol(detokenise.moses, lambda: CHRF(word_order=2), "chrF2++ of the same text"),
}

Scores = dict[str, dict[str, Any]]


def score(hypotheses: list[str], references: list[str], language: str) -> Scores:
    """Score tokenised text under every protocol: the number and sacreBLEU's signature.

    Raises:
        UserError: when the two have different numbers of lines, or BPE was not joined.
    """
    if len(hypotheses) != len(references):
        raise UserError(
            f"{len(hypotheses):,} hypotheses and {len(references):,} references; "
            "line i of one must answer line i of the other"
        )
    for number, line in enumerate(hypotheses, 1):
        if "@@ " in f"{line} " and "@@ " not in f"{references[number - 1]} ":
            raise UserError(f"hypothesis line {number} still has BPE's «@@ »; join the pieces")
    forms = {
        form: (form(hypotheses, language), form(references, language))
        for form in {protocol.form for protocol in PROTOCOLS.values()}
    }
    scores: Scores = {}
    for name, protocol in PROTOCOLS.items():
        metric, (ours, theirs) = protocol.metric(), forms[protocol.form]
        value = metric.corpus_score(ours, [theirs]).score
        scores[name] = {"score": round(value, 4), "signature": str(metric.get_signature())}
    return scores


def score_run(run: Run, split: str = "test") -> Scores:
    """Score a translated split and keep the scores in ``scores.json``.

    The text Moses-detokenised is put beside it, for other metrics.
    """
    hypotheses = _lines(run.folder / f"{split}.hyp.txt")
    references = read_lines(run.folder / f"{split}.ref.txt")
    language = run.pair.target
    for name, lines in (("hyp", hypotheses), ("ref", references)):
        text = detokenise.moses(lines, language)
        write_lines(run.folder / f"{split}.{name}.detok.txt", text)
    scores = score(hypotheses, references, language)
    write_json(run.folder / "scores.json", {**scores, "lines": len(references)})
    return scores


def _lines(path: Path) -> list[str]:
    """Lines of a file of hypotheses, which may all be empty."""
    return path.read_bytes().decode("utf-8").removesuffix("\n").split("\n")


def score_files(reference: Path, systems: list[tuple[str, Path]], language: str) -> dict[str, Any]:
    """Score files of translations against one reference; the first is the others' baseline.

    Raises:
        UserError: when a file cannot be read, or does not go with the reference.
    """
    references = read_lines(reference)
    scores = {}
    for name, path in systems:
        if name in scores:
            raise UserError(f"two systems are called {name}; give each its own name")
        try:
            scores[name] = score(read_lines(path), references, language)
        except UserError as error:
            where = "" if str(path) in str(error) else f"{path}: "
            raise UserError(f"{where}{error}") from error
    baseline, *others = scores
    comparisons = [
        {
            "a": baseline,
            "b": other,
            "protocol": protocol,
            "difference": round(
                scores[other][protocol]["score"] - scores[baseline][protocol]["score"], 4
            ),
        }
        for other in others
        for protocol in PROTOCOLS
    ]
    return {"lines": len(references), "systems": scores, "comparisons": comparisons}


def score_table(results: dict[str, Any]) -> str:
    """The scores for a terminal, with the signatures below."""
    systems = results["systems"]
    rows = [
        [name, *(f"{scores[protocol]['score']:.2f}" for protocol in PROTOCOLS)]
        for name, scores in systems.items()
    ]
    baseline, *others = systems
    differences = [comparison["difference"] for comparison in results["comparisons"]]
    for i, other in enumerate(others):
        each = differences[i * len(PROTOCOLS) : (i + 1) * len(PROTOCOLS)]
        rows.append([f"{other} − {baseline}", *(f"{value:+.2f}" for value in each)])
    align = ["left", *["right"] * len(PROTOCOLS)]
    body = tabulate(rows, ["", *PROTOCOLS], colalign=align, disable_numparse=True)
    return "\n".join(
        [f"{results['lines']:,} lines", "", body, "", *protocol_notes(systems[baseline])]
    )


def protocol_notes(scores: Scores) -> list[str]:
    """What each protocol is, with its signature."""
    return [
        f"{name}: {protocol.description}; sacreBLEU {scores[name]['signature']}"
        for name, protocol in PROTOCOLS.items()
    ]
