"""BLEU and chrF++ by sacreBLEU under protocols with a name, each with its signature."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics import BLEU, CHRF

from qknorm_fairseq.experiment.errors import UserError
from qknorm_fairseq.experiment.tokens import moses_text, moses_tokens, treebank_text


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

Scores = dict[str, dict[str, Any]]  # protocol -> score and signature
# protocol -> (lines, counts): matches, lengths and the like of each line, whose sums over any
# choice of lines make that choice's score
LineStatistics = dict[str, NDArray[np.int64]]


def score(hypotheses: Text, references: Text) -> tuple[Scores, LineStatistics]:
    """Score translations under every protocol: the number, sacreBLEU's signature, and the counts.

    Raises:
        UserError: when the two have different numbers of lines.
    """
    if len(hypotheses.tokens) != len(references.tokens):
        raise UserError(
            f"{len(hypotheses.tokens):,} hypotheses and {len(references.tokens):,} references; "
            "line i of one must answer line i of the other"
        )
    scores: Scores = {}
    statistics: LineStatistics = {}
    for name, protocol in PROTOCOLS.items():
        metric = protocol.metric()
        # what corpus_score does, in two steps
        counts = metric._extract_corpus_statistics(
            protocol.form(hypotheses), [protocol.form(references)]
        )
        value = metric._aggregate_and_compute(counts).score
        scores[name] = {"score": round(value, 4), "signature": str(metric.get_signature())}
        statistics[name] = np.array(counts, dtype=np.int64)
    return scores, statistics


def protocol_notes(scores: Scores) -> list[str]:
    """What each protocol is, with its signature."""
    return [
        f"{name}: {protocol.description}; sacreBLEU {scores[name]['signature']}"
        for name, protocol in PROTOCOLS.items()
    ]
