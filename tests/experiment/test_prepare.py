"""Preparation: nothing lost or moved, done once, and whole or not at all."""

import json
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny
from fairseq.data import Dictionary, data_utils

from qknorm_fairseq.experiment.corpus import read_lines
from qknorm_fairseq.experiment.errors import StageFailed, UserError
from qknorm_fairseq.experiment.prepare import prepare
from qknorm_fairseq.experiment.settings import load_pair
from qknorm_fairseq.experiment.workspace import Workspace, sha256, write_lines

SPLITS = {"train": "train", "dev": "valid", "test": "test"}


def test_undoing_bpe_and_binarisation_gives_the_text_back(workspace: Workspace) -> None:
    folder = workspace.data("tiny")
    for split, name in SPLITS.items():
        for language in ("xx", "yy"):
            raw = read_lines(folder / "raw" / f"{split}.{language}")
            pieces = read_lines(folder / "bpe" / f"{split}.{language}")
            assert [re.sub(r"@@ ", "", line) for line in pieces] == raw
            dictionary = Dictionary.load(str(folder / "bin" / f"dict.{language}.txt"))
            path = folder / "bin" / f"{name}.xx-yy.{language}"
            rows = data_utils.load_indexed_dataset(str(path), dictionary)
            assert [dictionary.string(row, "@@ ") for row in rows] == raw


def test_one_joint_dictionary_without_filler(workspace: Workspace) -> None:
    folder = workspace.data("tiny")
    dictionaries = [(folder / "bin" / f"dict.{x}.txt").read_text() for x in ("xx", "yy")]
    assert dictionaries[0] == dictionaries[1]
    assert "madeupword" not in dictionaries[0]
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["vocabulary"]["joint"] == len(dictionaries[0].splitlines()) + 4


def test_the_manifest_says_what_was_done(workspace: Workspace) -> None:
    folder = workspace.data("tiny")
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["pairs"] == {"train": 60, "dev": 13, "test": 11}
    assert manifest["dropped"] == {"empty_side": 0, "too_long": 0}
    raw = workspace.root.parent / "raw"
    assert manifest["inputs"]["train.xx"]["sha256"] == sha256(raw / "train.xx")
    text = read_lines(folder / "bpe" / "train.xx") + read_lines(folder / "bpe" / "train.yy")
    lengths = sorted(len(line.split(" ")) + 1 for line in text)
    assert manifest["length_percentile_97_5"] == np.quantile(lengths, 0.975)


def test_the_raw_dev_reference_lies_with_the_binarised_data(workspace: Workspace) -> None:
    folder = workspace.data("tiny")
    reference = read_lines(folder / "bin" / "valid.ref.yy")
    assert reference == read_lines(folder / "raw" / "dev.yy")


def test_it_is_done_once_and_again_when_text_or_recipe_changes(tmp_path: Path) -> None:
    raw = tiny.write_corpus(tmp_path / "raw", tiny.SPLITS)
    workspace = Workspace(tmp_path / "out")
    first, worked = prepare(tiny.PAIR, raw, workspace)
    assert worked
    again, worked = prepare(tiny.PAIR, raw, workspace)
    assert not worked
    assert again == first
    assert prepare(tiny.PAIR, None, workspace) == (first, False)
    other = replace(tiny.PAIR, merges=5)
    with pytest.raises(UserError, match="prepared with other settings"):
        prepare(other, None, workspace)
    changed, worked = prepare(other, raw, workspace)
    assert worked
    assert changed["fingerprint"] != first["fingerprint"]
    tiny.write_corpus(raw, {"train": 50, "dev": 13, "test": 11})
    changed, worked = prepare(other, raw, workspace)
    assert worked
    assert changed["pairs"]["train"] == 50


def test_nothing_is_left_behind_when_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = tiny.write_corpus(tmp_path / "raw", tiny.SPLITS)
    workspace = Workspace(tmp_path / "out")
    command = [sys.executable, "-c", "print('so it went'); raise SystemExit(3)"]
    monkeypatch.setattr("qknorm_fairseq.experiment.prepare._binarise_command", lambda *_: command)
    with pytest.raises(StageFailed, match=r"failed: so it went; its log: .*tiny\.preprocess\.log"):
        prepare(tiny.PAIR, raw, workspace)
    left = list((tmp_path / "out" / "data").iterdir())
    assert [path.name for path in left] == ["tiny.preprocess.log"]  # named in the message


def test_a_line_that_breaks_in_binarisation_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = tiny.write_corpus(tmp_path / "raw", tiny.SPLITS)
    workspace = Workspace(tmp_path / "out")
    monkeypatch.setattr("qknorm_fairseq.experiment.bpe.apply", _with_a_carriage_return)
    with pytest.raises(StageFailed, match=r"train\.xx: 60 lines became 61 sentences"):
        prepare(tiny.PAIR, raw, workspace)


def _with_a_carriage_return(bpe: object, lines: list[str], label: str) -> list[str]:
    return [lines[0] + " \r word", *lines[1:]]


def test_a_sentence_beyond_the_models_length_is_named(tmp_path: Path) -> None:
    raw = tiny.write_corpus(tmp_path / "raw", tiny.SPLITS)
    lines = read_lines(raw / "dev.xx")
    write_lines(raw / "dev.xx", [*lines[:4], "ba " * 1001, *lines[5:]])
    with pytest.raises(UserError, match=r"dev\.xx, line 5: 1,001 BPE tokens"):
        prepare(tiny.PAIR, raw, Workspace(tmp_path / "out"))


def test_without_text_or_prepared_data_it_says_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="say where its text is with --raw-dir DIR"):
        prepare(tiny.PAIR, None, Workspace(tmp_path))


def test_galician_gives_the_papers_vocabulary(corpora: Path, tmp_path: Path) -> None:
    manifest, _ = prepare(load_pair("gl-en"), corpora / "ted_gl_en", Workspace(tmp_path))
    assert manifest["pairs"] == {"train": 10_017, "dev": 682, "test": 1_007}
    assert manifest["vocabulary"]["joint"] == 3_164
    assert round(manifest["length_percentile_97_5"]) == 79  # the paper's L
    shutil.rmtree(tmp_path)  # the text is not ours to keep


@pytest.mark.slow
def test_vietnamese_is_prepared_whole(corpora: Path, tmp_path: Path) -> None:
    manifest, _ = prepare(load_pair("en-vi"), corpora / "iwslt15_en_vi", Workspace(tmp_path))
    assert manifest["pairs"] == {"train": 133_137, "dev": 1_553, "test": 1_268}
    assert manifest["dropped"] == {"empty_side": 0, "too_long": 29}
    shutil.rmtree(tmp_path)
