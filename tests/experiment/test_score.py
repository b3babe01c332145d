"""Scores against the published translations, and what may not be scored."""

from pathlib import Path

import pytest

from qknorm_fairseq.experiment.corpus import read_lines
from qknorm_fairseq.experiment.errors import UserError
from qknorm_fairseq.experiment.score import bleu
from qknorm_fairseq.experiment.translate import detokenise


@pytest.mark.parametrize(
    ("system", "tokenised", "moses"), [("baseline", 32.486, 32.501), ("qknorm", 33.235, 33.257)]
)
def test_published_translations_score_as_they_should(
    reference: Path, system: str, tokenised: float, moses: float
) -> None:
    hypotheses = read_lines(reference / "outputs" / f"{system}.tok")
    references = read_lines(reference / "outputs" / "ref.vi")
    assert bleu(hypotheses, references, "none")["score"] == pytest.approx(tokenised, abs=0.01)
    detokenised = detokenise(hypotheses, "vi"), detokenise(references, "vi")
    assert bleu(*detokenised, "13a")["score"] == pytest.approx(moses, abs=0.01)


def test_the_signature_says_how_it_was_scored() -> None:
    signature = bleu(["a b c d"], ["a b c d"], "13a")["signature"]
    assert signature.startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")


def test_escapes_are_undone_before_words_are_joined() -> None:
    line = "It &apos;s &quot; fine &quot; &amp; I don &apos;t mind , he said ."
    assert detokenise([line], "en") == ["It's \"fine\" & I don't mind, he said."]
    assert detokenise([""], "en") == [""]


def test_text_that_cannot_be_compared_is_refused() -> None:
    with pytest.raises(UserError, match="2 hypotheses and 1 references"):
        bleu(["a", "b"], ["a"], "none")
    with pytest.raises(UserError, match="hypothesis line 2 still has BPE"):
        bleu(["a", "wo@@ rd"], ["a", "word"], "none")
