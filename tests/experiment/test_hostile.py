"""Hostile text goes through every step as text, and never moves a line."""

import json
import re
from pathlib import Path

import hostile
import pytest
import tiny
from fairseq.data import Dictionary, data_utils
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qknorm_fairseq.experiment.corpus import read_lines, split_lines
from qknorm_fairseq.experiment.prepare import MAX_PIECES, prepare
from qknorm_fairseq.experiment.protocols import from_tokens, score
from qknorm_fairseq.experiment.segment import load
from qknorm_fairseq.experiment.settings import Pair
from qknorm_fairseq.experiment.sources import locate
from qknorm_fairseq.experiment.text import escape, unescape
from qknorm_fairseq.experiment.workspace import Workspace

FAIRSEQ = {"train": "train", "dev": "valid", "test": "test"}
PLAIN = [source for source, _ in tiny.lines(12)]


def expected(line: str) -> str:
    """What a line is in the end: Python's own idea of words, with one space between."""
    return " ".join(line.split())


def write(folder: Path, splits: dict[str, list[str]]) -> Path:
    """The same lines on both sides, but for a word that tells them apart."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, lines in splits.items():
        (folder / f"{split}.xx").write_bytes("".join(f"{line}\n" for line in lines).encode())
        marked = "".join(f"{line} Y\n" for line in lines)
        (folder / f"{split}.yy").write_bytes(marked.encode())
    return folder


SPLITS = {
    "train": [*hostile.LINES.values(), *PLAIN],
    "dev": [*hostile.LINES.values(), hostile.LONG, *PLAIN[:3]],
    "test": [hostile.LONG, *hostile.LINES.values(), *PLAIN[:3]],
}


@pytest.fixture(
    scope="module", params=["subword-nmt", "sentencepiece-bpe", "sentencepiece-unigram"]
)
def prepared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    raw = write(folder / "raw", SPLITS)
    types = {"subword-nmt": 40, "sentencepiece-bpe": 200, "sentencepiece-unigram": 130}[
        request.param
    ]
    choices = {"bpe": request.param, "drop_empty": False}
    pair = Pair("hostile", "xx", "yy", types, choices)
    prepare(pair, locate(raw, "xx", "yy"), Workspace(folder))
    return folder / "data" / "hostile"


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("side", ["xx", "yy"])
def test_lines_come_back_from_pieces_and_from_binary_form(
    prepared: Path, split: str, side: str
) -> None:
    lines = [expected(line if side == "xx" else f"{line} Y") for line in SPLITS[split]]
    assert read_lines_even_empty(prepared / "text" / f"{split}.{side}") == lines
    pair = Pair(**json.loads((prepared / "manifest.json").read_text())["pair"])
    segmenter = load(pair.recipe, prepared / "bpe")
    pieces = read_lines_even_empty(prepared / "bpe" / f"{split}.{side}")
    dictionary = Dictionary.load(str(prepared / "bin" / f"dict.{side}.txt"))
    rows = data_utils.load_indexed_dataset(
        str(prepared / "bin" / f"{FAIRSEQ[split]}.xx-yy.{side}"), dictionary
    )
    assert len(pieces) == len(rows) == len(lines)
    for line, cut, row in zip(lines, pieces, rows, strict=True):
        if len(cut.split(" ")) < MAX_PIECES:
            assert unescape(segmenter.join(cut)) == line
            back = dictionary.string(row, pair.recipe.post_process)
            assert unescape(back) == line
            assert dictionary.unk() not in row.tolist()
        else:
            assert line.startswith("ba ko ti")


def test_what_is_too_long_is_cut_for_the_model_and_told(prepared: Path) -> None:
    manifest = json.loads((prepared / "manifest.json").read_text())
    places = {(cut["split"], cut["language"], cut["line"]) for cut in manifest["cut"]}
    long = len(hostile.LINES) + 1
    assert places == {(s, x, n) for s, n in (("dev", long), ("test", 1)) for x in ("xx", "yy")}
    assert all(cut["pieces"] >= 10_000 for cut in manifest["cut"])
    assert manifest["pairs"] == {split: len(lines) for split, lines in SPLITS.items()}
    test = read_lines_even_empty(prepared / "bpe" / "test.xx")
    assert len(test[0].split(" ")) == MAX_PIECES


def read_lines_even_empty(path: Path) -> list[str]:
    """A file's lines by the one rule that holds: a line feed ends a line."""
    return path.read_bytes().decode().removesuffix("\n").split("\n")


@pytest.mark.usefixtures("configs")
def test_translation_and_scores_keep_every_line(tmp_path: Path) -> None:
    """A model that has learnt nothing translates them; references are what was written."""
    raw = write(tmp_path / "raw", SPLITS)
    words = ["reproduce", "tiny", "--arms", "qknorm", "--keep-empty"]
    assert tiny.qknorm(*words, "--raw-dir", raw, "--out", tmp_path / "out") == 0
    run = tmp_path / "out/runs/tiny/qknorm/seed1"
    references = [expected(f"{line} Y") for line in SPLITS["test"]]
    assert read_lines(run / "test.ref.txt") == references
    hypotheses = read_lines_even_empty(run / "test.hyp.txt")
    assert len(hypotheses) == len(references)
    assert json.loads((run / "scores.json").read_text())["lines"] == len(references)
    rows = [json.loads(row) for row in (run / "metrics.jsonl").read_text().splitlines()]
    assert {row["dev_lines"] for row in rows} == {len(SPLITS["dev"])}
    # fairseq-generate prints the targets by the way of the hypotheses
    targets = {}
    for row in (run / "test.generate.log").read_bytes().split(b"\n"):
        match = re.match(rb"^T-(\d+)\t(.*)$", row)
        if match:
            targets[int(match[1])] = unescape(match[2].decode())
    assert [targets[i] for i in range(1, len(references))] == references[1:]
    assert references[0].startswith(targets[0].rsplit(" ", 1)[0])  # the one that was cut


def test_a_perfect_translation_of_hostile_lines_scores_100() -> None:
    lines = [expected(line) for line in [*hostile.LINES.values(), *PLAIN]]
    again = split_lines("".join(f"{line}\n" for line in lines).encode(), "")
    scores, _ = score(from_tokens(again, "en"), from_tokens(lines, "en"))
    assert {round(value["score"], 6) for value in scores.values()} == {100.0}


any_line = st.text(st.characters(codec="utf-8", exclude_characters="\n\0"), min_size=0, max_size=30)


@pytest.mark.usefixtures("quick_preprocess")
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(any_line, min_size=8, max_size=20),
    st.sampled_from(["subword-nmt", "sentencepiece-bpe"]),
)
def test_lines_of_random_text_keep_their_number_and_order(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], bpe: str
) -> None:
    folder = tmp_path_factory.mktemp("random")
    numbered = [f"line {i} {line}" for i, line in enumerate(lines)]
    raw = write(folder / "raw", dict.fromkeys(FAIRSEQ, numbered))
    characters = len(set("".join(map(escape, numbered))))
    types = 10 if bpe == "subword-nmt" else characters + 8
    pair = Pair("random", "xx", "yy", types, {"bpe": bpe, "max_words": 0})
    prepare(pair, locate(raw, "xx", "yy"), Workspace(folder))
    data = folder / "data" / "random"
    segmenter = load(pair.recipe, data / "bpe")
    dictionary = Dictionary.load(str(data / "bin" / "dict.xx.txt"))
    for split, name in FAIRSEQ.items():
        pieces = read_lines_even_empty(data / "bpe" / f"{split}.xx")
        assert [unescape(segmenter.join(line)) for line in pieces] == [*map(expected, numbered)]
        rows = data_utils.load_indexed_dataset(str(data / "bin" / f"{name}.xx-yy.xx"), dictionary)
        texts = [unescape(dictionary.string(row, pair.recipe.post_process)) for row in rows]
        assert texts == [*map(expected, numbered)]
