"""Pieces of each library: undone, the same each time, and never a symbol of fairseq's."""

from pathlib import Path

import hostile
import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st

from qknorm_fairseq.experiment.corpus import Split
from qknorm_fairseq.experiment.errors import UserError
from qknorm_fairseq.experiment.recipe import Recipe
from qknorm_fairseq.experiment.segment import Segmenter, learn, load, seeded
from qknorm_fairseq.experiment.text import escape, normalise, unescape

BPE = ["subword-nmt", "sentencepiece-bpe", "sentencepiece-unigram"]
TYPES = {"subword-nmt": 60, "sentencepiece-bpe": 200, "sentencepiece-unigram": 130}
TEXT = [escape(normalise(line)) for line in hostile.LINES.values()]
TRAIN = Split([s for s, _ in tiny.lines(60)] + TEXT, [t for _, t in tiny.lines(60)] + TEXT)
SYMBOLS = {"<s>", "<pad>", "</s>", "<unk>"}


@pytest.fixture(scope="module", params=BPE)
def segmenter(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Segmenter:
    folder = tmp_path_factory.mktemp(request.param)
    return learn(Recipe("xx", "yy", TYPES[request.param], bpe=request.param), TRAIN, folder)


@given(line=st.text(), dropout=st.sampled_from([0.0, 0.5]))
def test_any_line_comes_back(segmenter: Segmenter, line: str, dropout: float) -> None:
    plain = normalise(line)
    pieces = segmenter.segment(escape(plain), "xx", dropout)
    assert unescape(segmenter.join(pieces)) == plain
    assert not SYMBOLS & set(pieces.split(" "))
    assert pieces == " ".join(pieces.split())  # nothing that fairseq would split further


@pytest.mark.parametrize("name", hostile.LINES)
@pytest.mark.parametrize("dropout", [0.0, 0.9])
def test_hostile_lines_come_back(segmenter: Segmenter, name: str, dropout: float) -> None:
    plain = normalise(hostile.LINES[name])
    pieces = segmenter.segment(escape(plain), "yy", dropout)
    assert unescape(segmenter.join(pieces)) == plain
    assert not SYMBOLS & set(pieces.split(" "))


def test_symbols_come_back_however_often_they_stand_there(tmp_path: Path) -> None:
    """So often that every merge that could make a piece of them is learnt."""
    lines = [escape("<unk> a<unk> </s> <s>x @@ @@@@ foo@@")] * 50
    for bpe in BPE:
        recipe = Recipe("xx", "yy", 40 if bpe == "subword-nmt" else 20, bpe=bpe)
        segmenter = learn(recipe, Split(lines, lines), tmp_path / bpe)
        pieces = segmenter.segment(lines[0], "xx")
        assert not SYMBOLS & set(pieces.split(" "))
        assert unescape(segmenter.join(pieces)) == unescape(lines[0])


def test_no_line_is_left_out_of_learning(tmp_path: Path) -> None:
    lines = [escape(line) for line in ["abc abd"] * 30 + ["xyz ▅ xyw"] * 30]
    for bpe in BPE[1:]:
        segmenter = learn(Recipe("xx", "yy", 17, bpe=bpe), Split(lines, lines), tmp_path / bpe)
        vocabulary = (tmp_path / bpe / "sentencepiece.vocab").read_text()
        assert all(letter in vocabulary for letter in "abcdxyzw")
        assert unescape(segmenter.join(segmenter.segment(lines[-1], "xx"))) == "xyz ▅ xyw"


@pytest.mark.parametrize("bpe", BPE[:2])
def test_dropout_is_seeded_and_does_not_touch_the_programs_own_chance(
    tmp_path: Path, bpe: str
) -> None:
    import random

    segmenter = learn(Recipe("xx", "yy", TYPES[bpe], bpe=bpe), TRAIN, tmp_path)
    lines = TRAIN.source[:20]

    def sample() -> list[str]:
        with seeded():
            return [segmenter.segment(line, "xx", 0.5) for line in lines]

    random.seed(7)
    first = sample()
    assert random.random() == random.Random(7).random()
    assert sample() == first
    assert first != [segmenter.segment(line, "xx") for line in lines]


def test_a_threshold_splits_what_is_rare_in_its_language(tmp_path: Path) -> None:
    common, rare = "baba koko", "titi"
    train = Split([common] * 30 + [rare] * 2, ["mumu"] * 30 + [rare] * 30)
    whole = learn(Recipe("xx", "yy", 30), train, tmp_path / "whole")
    recipe = Recipe("xx", "yy", 30, vocabulary_threshold=5)
    split = learn(recipe, train, tmp_path / "split")
    assert whole.segment(rare, "xx") == whole.segment(rare, "yy") == rare
    assert split.segment(rare, "yy") == rare
    assert split.segment(rare, "xx") != rare
    assert split.join(split.segment(rare, "xx")) == rare
    again = load(recipe, tmp_path / "split")
    assert again.segment(rare, "xx") == split.segment(rare, "xx")


def test_a_threshold_above_all_splits_everything(tmp_path: Path) -> None:
    train = Split(["baba koko"] * 9, ["mumu"] * 9)
    recipe = Recipe("xx", "yy", 30, vocabulary_threshold=1000)
    assert learn(recipe, train, tmp_path).segment("baba", "xx") == "b@@ a@@ b@@ a"


def test_too_little_text_is_said_so(tmp_path: Path) -> None:
    for bpe, types, said in (
        ("sentencepiece-bpe", 100_000, "Vocabulary size too high"),
        ("sentencepiece-unigram", 5, "Vocabulary size is smaller than required_chars"),
    ):
        with pytest.raises(UserError, match=f"--merges {types}: sentencepiece says: {said}"):
            learn(Recipe("xx", "yy", types, bpe=bpe), TRAIN, tmp_path / bpe)
    for i, line in enumerate(["a", "ab cd ef"]):
        with pytest.raises(UserError, match="too little to learn BPE from"):
            learn(Recipe("xx", "yy", 5), Split([line], ["b"]), tmp_path / str(i))
