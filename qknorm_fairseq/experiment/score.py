"""BLEU and chrF++ by sacreBLEU under protocols with a name, each with its signature."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sacrebleu.metrics import BLEU, CHRF
from tabulate import tabulate

from qknorm_fairseq.experiment.corpus import read_bytes, read_lines, split_lines
from qknorm_fairseq.experiment.errors import UserError
from qknorm_fairseq.experiment.run import Run
from qknorm_fairseq.experiment.tokens import moses_text, moses_tokens, treebank_text
from qknorm_fairseq.experiment.workspace import write_json, write_lines


@dataclass(frozen=True)
class Text:
    """Lines as tokens with spaces between and as people write them."""

    tokens: list[str]
    plain: list[str]


def from_tokens(lines: list[str], language: str) -> Text:
    """Tokenised lines, escapes undone and Moses-detokenised for the plain form."""
    return Text(lines, moses_text(lines, language))


def from_plain(lines: list[str], language: str) -> Text:
    """Lines that are not tokenised, Moses-tokenised for the other form."""
    return Text(moses_tokens(lines, language), lines)


@dataclass(frozen=True)
class Protocol:
    """Which form of the text is compared, and by which metric."""

    form: Callable[[Text], list[str]]
    metric: Callable[[], BLEU | CHRF]
    description: str


# "force" stops a warning about tokenised text
PROTOCOLS = {
    "tokenised": Protocol(
        lambda text: text.tokens,
        lambda: BLEU(tokenize="none", force=True),
        "the corpus's own tokens, else Moses's, as multi-bleu.perl compares them",
    ),
    "nltk_13a": Protocol(
        lambda text: treebank_text(text.tokens),
        lambda: BLEU(tokenize="13a", force=True),
        "NLTK-detokenised, escapes kept, as in the paper's table 3",
    ),
    "moses_13a": Protocol(
        lambda text: text.plain,
        lambda: BLEU(tokenize="13a", force=True),
        "escapes undone, Moses-detokenised: the one to report",
    ),
    "chrf2pp": Protocol(
        lambda text: text.plain, lambda: CHRF(word_order=2), "chrF2++ of the same text"
    ),
}

Scores = dict[str, dict[str, Any]]


def score(hypotheses: Text, references: Text) -> Scores:
    """Score translations under every protocol: the number and sacreBLEU's signature.

    Raises:
        UserError: when the two have different numbers of lines.
    """
    if len(hypotheses.tokens) != len(references.tokens):
        raise UserError(
            f"{len(hypotheses.tokens):,} hypotheses and {len(references.tokens):,} references; "
            "line i of one must answer line i of the other"
        )
    scores: Scores = {}
    for name, protocol in PROTOCOLS.items():
        metric = protocol.metric()
        value = metric.corpus_score(protocol.form(hypotheses), [protocol.form(references)]).score
        scores[name] = {"score": round(value, 4), "signature": str(metric.get_signature())}
    return scores


def score_run(run: Run, split: str = "test") -> Scores:
    """Score a translated split and keep the scores in ``scores.json``.

    Where the text was tokenised here, the plain reference is the raw text itself. Both are put
    beside the run as people write them, for other metrics.
    """
    recipe, language = run.pair.recipe, run.pair.target
    form = from_plain if recipe.is_plain else from_tokens
    hypotheses = form(split_lines(read_bytes(run.folder / f"{split}.hyp.txt"), ""), language)
    references = form(read_lines(run.folder / f"{split}.ref.txt"), language)
    if recipe.tokenises:
        raw = read_lines(run.data / "raw" / f"{split}.{language}")
        references = Text(references.tokens, raw)
    for name, text in (("hyp", hypotheses), ("ref", references)):
        write_lines(run.folder / f"{split}.{name}.detok.txt", text.plain)
    scores = score(hypotheses, references)
    write_json(run.folder / "scores.json", {**scores, "lines": len(references.plain)})
    return scores


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
    for name, path in systems:
        if name in scores:
            raise UserError(f"two systems are called {name}; give each its own name")
        try:
            lines = read_lines(path)
            _check_joined(lines, references.tokens)
            scores[name] = score(form(lines, language), references)
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
