"""Pieces of each library: undone, the same each time, and never a symbol of fairseq's."""

import random
import subprocess
import sys
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


@pytest.fixture(scope="module")
def with_dropout(tmp_path_factory: pytest.TempPathFactory) -> Segmenter:
    recipe = Recipe("xx", "yy", TYPES["subword-nmt"])
    return learn(recipe, TRAIN, tmp_path_factory.mktemp("dropout"))


@given(line=st.text())
def test_any_line_comes_back_from_dropout(with_dropout: Segmenter, line: str) -> None:
    plain = normalise(line)
    pieces = with_dropout.segment(escape(plain), "xx", 0.5)
    assert unescape(with_dropout.join(pieces)) == plain
    assert not SYMBOLS & set(pieces.split(" "))


@given(line=st.text())
def test_any_line_comes_back(segmenter: Segmenter, line: str) -> None:
    plain = normalise(line)
    pieces = segmenter.segment(escape(plain), "xx")
    assert unescape(segmenter.join(pieces)) == plain
    assert not SYMBOLS & set(pieces.split(" "))
    assert pieces == " ".join(pieces.split())  # nothing that fairseq would split further


@pytest.mark.parametrize("name", hostile.LINES)
def test_hostile_lines_come_back(segmenter: Segmenter, name: str) -> None:
    plain = normalise(hostile.LINES[name])
    pieces = segmenter.segment(escape(plain), "yy")
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


def test_dropout_is_the_same_in_any_process_and_leaves_the_programs_own_chance(
    tmp_path: Path,
) -> None:
    segmenter = learn(Recipe("xx", "yy", TYPES["subword-nmt"]), TRAIN, tmp_path)
    line = "baba koko titi mumu"

    def sample() -> list[str]:
        with seeded():
            return [segmenter.segment(line, "xx", 0.5) for _ in range(5)]

    random.seed(7)
    first = sample()
    assert random.random() == random.Random(7).random()
    assert sample() == first
    assert len({*first, segmenter.segment(line, "xx")}) > 2
    code = f"""
from pathlib import Path
from qknorm_fairseq.experiment.recipe import Recipe
from qknorm_fairseq.experiment.segment import load, seeded
segmenter = load(Recipe("xx", "yy", 1), Path({str(tmp_path)!r}))
with seeded():
    print("|".join(segmenter.segment({line!r}, "xx", 0.5) for _ in range(5)))
"""
    apart = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert apart.stdout.strip().split("|") == first


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
