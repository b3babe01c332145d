"""BLEU by sacreBLEU under protocols with a name, each with its signature."""

from pathlib import Path
from typing import Any

from sacrebleu.metrics import BLEU

from qknorm_fairseq.experiment.corpus import read_lines
from qknorm_fairseq.experiment.errors import UserError
from qknorm_fairseq.experiment.run import Run
from qknorm_fairseq.experiment.workspace import write_json

# protocol -> which text is compared, and how sacreBLEU tokenises it
PROTOCOLS = {
    "tokenised": ("", "none"),  # the corpus's own tokens: what multi-bleu.perl reports
    "moses_13a": (".detok", "13a"),  # escapes undone, Moses detokenised, 13a: the proper one
}

Scores = dict[str, dict[str, Any]]


def bleu(hypotheses: list[str], references: list[str], tokenise: str) -> dict[str, Any]:
    """Corpus BLEU and its signature.

    Raises:
        UserError: when the two have different numbers of lines, or BPE was not joined.
    """
    if len(hypotheses) != len(references):
        raise UserError(
            f"{len(hypotheses):,} hypotheses and {len(references):,} references; "
            "line i of one must answer line i of the other"
        )
    for number, line in enumerate(hypotheses, 1):
        if "@@ " in line and "@@ " not in references[number - 1]:
            raise UserError(f"hypothesis line {number} still has BPE's «@@ »; join the pieces")
    metric = BLEU(tokenize=tokenise, force=True)  # force: no warning about tokenised text
    score = metric.corpus_score(hypotheses, [references]).score
    return {"score": round(score, 4), "signature": str(metric.get_signature())}


def score_run(run: Run, split: str = "test") -> Scores:
    """Score a translated split under every protocol and keep it in ``scores.json``."""
    scores: Scores = {}
    for protocol, (form, tokenise) in PROTOCOLS.items():
        hypotheses = _lines(run.folder / f"{split}.hyp{form}.txt")
        references = read_lines(run.folder / f"{split}.ref{form}.txt")
        scores[protocol] = bleu(hypotheses, references, tokenise)
    write_json(run.folder / "scores.json", {**scores, "lines": len(references)})
    return scores


def _lines(path: Path) -> list[str]:
    """Lines of a file of hypotheses, which may all be empty."""
    return path.read_bytes().decode("utf-8").removesuffix("\n").split("\n")
