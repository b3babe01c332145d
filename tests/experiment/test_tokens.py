"""Moses's tokens: no word is parted inside, and what they cannot give back is known."""

import hostile
import pytest

from qknorm_fairseq.experiment.text import normalise
from qknorm_fairseq.experiment.tokens import MosesTokens, moses_text, moses_tokens


@pytest.mark.parametrize(
    ("language", "line", "tokens"),
    [
        ("fr", "Un cafe\u0301, s'il vous plai\u0302t.", 8),
        ("fa", "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645.", 2),  # a joiner in a verb
        ("my", "\u1019\u103c\u1014\u103a\u1019\u102c", 1),  # vowel signs and a killer
        ("hi", "\u0939\u093f\u0928\u094d\u0926\u0940 \u092d\u093e\u0937\u093e", 2),
        ("he", "\u05e9\u05b8\u05c1\u05dc\u05d5\u05b9\u05dd", 1),  # points
        ("en", "the cafe\u0301's coffee", 4),
        ("it", "l'universita\u0300 e l'e\u0300", 5),
        ("en", "\u202bone\u202c two", 2),
    ],
)
def test_marks_and_joiners_stay_with_their_word(language: str, line: str, tokens: int) -> None:
    assert len(MosesTokens(language)(line).split(" ")) == tokens
    assert moses_text(moses_tokens([line], language), language) == [line]


def test_punctuation_is_parted_and_escaped() -> None:
    line = "It's \"fine\", isn't it? [1] a|b & c..."
    tokens = moses_tokens([line], "en")[0]
    assert tokens == (
        "It &apos;s &quot; fine &quot; , isn &apos;t it ? &#91; 1 &#93; a &#124; b &amp; c ..."
    )


@pytest.mark.parametrize("name", hostile.LINES)
def test_every_hostile_line_stays_a_line_of_plain_tokens(name: str) -> None:
    tokens = MosesTokens("en")(normalise(hostile.LINES[name]))
    assert tokens == " ".join(tokens.split())
    letters = [c for c in hostile.LINES[name] if c.isalnum()]
    undone = "".join(moses_text([tokens], "en"))
    assert [c for c in undone if c.isalnum()] == letters
