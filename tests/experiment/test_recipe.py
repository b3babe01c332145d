"""Choices of the preparation: each checked, and two that contradict refused."""

from typing import Any

import pytest

from qknorm_fairseq.experiment.errors import UserError
from qknorm_fairseq.experiment.recipe import Recipe, differences


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ({"source": "no/such"}, "--source 'no/such': must be a language code"),
        ({"source": False}, "in quotes where YAML reads another thing"),
        ({"target": "xx"}, "source and target are both 'xx'"),
        ({"merges": 0}, "--merges 0: must be a whole number above 0"),
        ({"merges": "many"}, "--merges 'many'"),
        ({"text": "cooked"}, "--text 'cooked': must be tokenised or raw"),
        ({"bpe": "wordpiece"}, "must be subword-nmt or sentencepiece-bpe or sentencepiece-unigram"),
        ({"bpe_dropout": 1.0}, "--bpe-dropout 1.0: must be from 0 to below 1"),
        ({"bpe_dropout_copies": 0}, "--bpe-dropout-copies 0"),
        ({"max_words": -1}, "--max-words -1"),
        ({"max_ratio": 0.5}, "--max-ratio 0.5: must be at least 1, or 0"),
        ({"drop_overlap": "yes"}, "--drop-overlap 'yes': must be true or false"),
        ({"bpe": "sentencepiece-bpe", "bpe_dropout": 0.1}, "--bpe-dropout is for subword-nmt"),
        ({"bpe": "sentencepiece-bpe", "vocabulary_threshold": 5}, "is for subword-nmt alone"),
    ],
)
def test_what_makes_no_sense_is_refused(choice: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError) as refused:
        Recipe(**{"source": "xx", "target": "yy", "merges": 10, **choice})
    assert said in str(refused.value)


def test_it_knows_which_libraries_do_the_work() -> None:
    assert Recipe("a", "b", 1).libraries == ["subword-nmt"]
    assert Recipe("a", "b", 1, text="raw").libraries == ["subword-nmt", "sacremoses"]
    raw = Recipe("a", "b", 1, text="raw", bpe="sentencepiece-bpe")
    assert raw.libraries == ["sentencepiece"]
    assert not raw.tokenises


def test_records_are_equal_where_the_outcome_is() -> None:
    assert Recipe("a", "b", 1, max_ratio=9).record() == Recipe("a", "b", 1, max_ratio=9.0).record()
    unused = Recipe("a", "b", 1, bpe_dropout_copies=3)
    assert unused.record() == Recipe("a", "b", 1).record()
    used = Recipe("a", "b", 1, bpe_dropout=0.1, bpe_dropout_copies=3)
    assert used.record() != Recipe("a", "b", 1, bpe_dropout=0.1).record()


def test_differences_are_told_by_name() -> None:
    before, now = Recipe("a", "b", 1).record(), Recipe("a", "b", 2, max_words=9).record()
    assert differences(before, now) == "merges was 1, now 2; max-words was 250, now 9"
    assert differences({}, {"bpe_dropout": 0.1}) == "bpe-dropout was not set, now 0.1"
