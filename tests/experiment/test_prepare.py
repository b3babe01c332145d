"""Preparation: nothing lost or moved, done once, and whole or not at all."""

import gzip
import json
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tiny
from fairseq.data import Dictionary, data_utils

from qknorm_fairseq.experiment.card import show
from qknorm_fairseq.experiment.corpus import read_lines
from qknorm_fairseq.experiment.errors import StageFailed, UserError
from qknorm_fairseq.experiment.lock import owned
from qknorm_fairseq.experiment.manifest import find_pair, prepared
from qknorm_fairseq.experiment.prepare import prepare
from qknorm_fairseq.experiment.settings import load_pair
from qknorm_fairseq.experiment.sources import RawText, locate
from qknorm_fairseq.experiment.workspace import Workspace, sha256, whole_folder, write_lines

pytestmark = pytest.mark.usefixtures("quick_preprocess")
RULES = {"empty_side", "too_long", "length_ratio", "duplicate", "overlap"}
SPLITS = {"train": "train", "dev": "valid", "test": "test"}


def located(raw: Path) -> RawText:
    return locate(raw, "xx", "yy")


def test_undoing_bpe_and_binarisation_gives_the_text_back(workspace: Workspace) -> None:
    folder = workspace.data("tiny")
    for split, name in SPLITS.items():
        for language in ("xx", "yy"):
            raw = read_lines(folder / "text" / f"{split}.{language}")
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
    assert set(manifest["dropped"]) == {*RULES, "too_many_pieces"}
    assert sum(manifest["dropped"].values()) == 0
    raw = workspace.root.parent / "raw"
    assert manifest["inputs"]["train.xx"]["sha256"] == sha256(raw / "train.xx")
    text = read_lines(folder / "bpe" / "train.xx") + read_lines(folder / "bpe" / "train.yy")
    lengths = sorted(len(line.split(" ")) + 1 for line in text)
    assert manifest["length_percentile_97_5"] == np.quantile(lengths, 0.975)


def test_the_raw_dev_reference_lies_with_the_binarised_data(workspace: Workspace) -> None:
    folder = workspace.data("tiny")
    reference = read_lines(folder / "bin" / "valid.ref.yy")
    assert reference == read_lines(folder / "text" / "dev.yy")


def test_it_is_done_once_and_again_when_text_or_recipe_changes(tmp_path: Path) -> None:
    raw = tiny.write_corpus(tmp_path / "raw", tiny.SPLITS)
    workspace = Workspace(tmp_path / "out")
    first, worked = prepare(tiny.PAIR, located(raw), workspace)
    assert worked
    again, worked = prepare(tiny.PAIR, located(raw), workspace)
    assert not worked
    assert again == first
    assert prepared(tiny.PAIR, workspace) == first
    other = replace(tiny.PAIR, merges=5)
    with pytest.raises(UserError, match=r"prepared with other settings \(merges was 10, now 5\)"):
        prepared(other, workspace)
    changed, worked = prepare(other, located(raw), workspace)
    assert worked
    assert changed["fingerprint"] != first["fingerprint"]
    tiny.write_corpus(raw, {"train": 50, "dev": 13, "test": 11})
    changed, worked = prepare(other, located(raw), workspace)
    assert worked
    assert changed["pairs"]["train"] == 50


def test_data_that_were_changed_are_noticed_and_made_anew(tmp_path: Path) -> None:
    raw = tiny.write_corpus(tmp_path / "raw", tiny.SPLITS)
    workspace = Workspace(tmp_path / "out")
    first, _ = prepare(tiny.PAIR, located(raw), workspace)
    folder = workspace.data("tiny")
    for name in ("text/test.yy", "bpe/train.xx", "bin/train.xx-yy.xx.bin", "bin/dict.xx.txt"):
        (folder / name).write_bytes((folder / name).read_bytes()[::-1])
        with pytest.raises(UserError, match=f"{name}: not what was prepared; prepare it anew"):
            prepared(tiny.PAIR, workspace)
        again, worked = prepare(tiny.PAIR, located(raw), workspace)
        assert worked
        assert again == first
    shutil.rmtree(folder / "bin")
    with pytest.raises(UserError, match="not what was prepared"):
        prepared(tiny.PAIR, workspace)


def test_other_options_of_the_pair_are_kept_without_preparing_anew(tmp_path: Path) -> None:
    raw = tiny.write_corpus(tmp_path / "raw", tiny.SPLITS)
    workspace = Workspace(tmp_path / "out")
    prepare(tiny.PAIR, located(raw), workspace)
    changed = replace(tiny.PAIR, options={"dropout": 0.4})
    _, worked = prepare(changed, located(raw), workspace)
    assert not worked
    assert find_pair("tiny", workspace, {}) == changed


def test_a_renamed_or_packed_file_is_the_same_data(tmp_path: Path) -> None:
    raw = tiny.write_corpus(tmp_path / "raw", tiny.SPLITS)
    workspace = Workspace(tmp_path / "out")
    first, _ = prepare(tiny.PAIR, located(raw), workspace)
    packed = gzip.compress((raw / "train.xx").read_bytes())
    (raw / "train.xx").unlink()
    (raw / "train.xx.gz").write_bytes(packed)
    again, worked = prepare(tiny.PAIR, located(raw), workspace)
    assert worked
    assert again["fingerprint"] == first["fingerprint"]  # to which runs are bound


def test_data_in_use_are_not_replaced(tmp_path: Path) -> None:
    raw = tiny.write_corpus(tmp_path / "raw", tiny.SPLITS)
    workspace = Workspace(tmp_path / "out")
    first, _ = prepare(tiny.PAIR, located(raw), workspace)
    tiny.write_corpus(raw, {"train": 50, "dev": 13, "test": 11})
    with (
        owned(workspace.data_lock("tiny"), shared=True),
        pytest.raises(UserError, match="in use by process"),
    ):
        prepare(tiny.PAIR, located(raw), workspace)
    assert prepared(tiny.PAIR, workspace) == first


def test_what_a_killed_process_left_is_swept(tmp_path: Path) -> None:
    raw = tiny.write_corpus(tmp_path / "raw", tiny.SPLITS)
    for name in (".tiny.123.new", ".tiny.123.old", ".tiny.5.124.new"):
        (tmp_path / "out/data" / name / "bpe").mkdir(parents=True)
    prepare(tiny.PAIR, located(raw), Workspace(tmp_path / "out"))
    left = {path.name for path in (tmp_path / "out/data").iterdir()}
    # killed in the middle of the exchange: the old data are there still
    (tmp_path / "out/data/tiny").rename(tmp_path / "out/data/.tiny.77.old")
    with pytest.raises(RuntimeError), whole_folder(tmp_path / "out/data/tiny"):
        raise RuntimeError
    assert prepared(tiny.PAIR, Workspace(tmp_path / "out"))
    assert left == {".tiny.5.124.new", ".tiny.lock", "tiny"}  # the first is of pair «tiny.5»


def test_nothing_is_left_behind_when_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = tiny.write_corpus(tmp_path / "raw", tiny.SPLITS)
    workspace = Workspace(tmp_path / "out")
    command = [sys.executable, "-c", "print('so it went'); raise SystemExit(3)"]
    monkeypatch.setattr("qknorm_fairseq.experiment.binarise.command", lambda *_: command)
    with pytest.raises(StageFailed, match=r"failed: so it went; its log: .*tiny\.preprocess\.log"):
        prepare(tiny.PAIR, located(raw), workspace)
    left = sorted(path.name for path in (tmp_path / "out" / "data").iterdir())
    assert left == [".tiny.lock", "tiny.preprocess.log"]  # the log is named in the message


@pytest.mark.parametrize("said", ["OSError: [Errno 28] No space left on device", ""])
def test_a_full_disk_is_said_so_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    """Also where the log itself could not be written any more."""
    raw = tiny.write_corpus(tmp_path / "raw", tiny.SPLITS)
    command = [sys.executable, "-c", f"raise SystemExit({said!r} or 1)"]
    monkeypatch.setattr("qknorm_fairseq.experiment.binarise.command", lambda *_: command)
    if not said:
        monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=4096))
    with pytest.raises(OSError, match="No space left on device"):
        prepare(tiny.PAIR, located(raw), Workspace(tmp_path / "out"))
    assert not (tmp_path / "out/data/tiny").exists()


def test_a_line_that_breaks_in_binarisation_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = tiny.write_corpus(tmp_path / "raw", tiny.SPLITS)
    workspace = Workspace(tmp_path / "out")
    monkeypatch.setattr("qknorm_fairseq.experiment.prepare.escape", _with_a_carriage_return)
    with pytest.raises(StageFailed, match=r"train\.xx: 60 lines became 1\d\d sentences"):
        prepare(tiny.PAIR, located(raw), workspace)


def _with_a_carriage_return(line: str) -> str:
    return line.replace(" ", " \r ", 1)


def test_a_training_sentence_beyond_the_models_length_is_left_out(tmp_path: Path) -> None:
    raw = tiny.write_corpus(tmp_path / "raw", tiny.SPLITS)
    lines = read_lines(raw / "train.xx")
    word = "".join(chr(0x4E00 + i) for i in range(1500))  # nothing in it to merge
    write_lines(raw / "train.xx", [*lines[:4], word, *lines[5:]])
    manifest, _ = prepare(tiny.PAIR, located(raw), Workspace(tmp_path / "out"))
    assert manifest["dropped"]["too_many_pieces"] == 1
    assert manifest["pairs"]["train"] == 59
    folder = tmp_path / "out/data/tiny"
    assert read_lines(folder / "text" / "train.xx") == [*lines[:4], *lines[5:]]
    target = read_lines(raw / "train.yy")
    assert read_lines(folder / "text" / "train.yy") == [*target[:4], *target[5:]]


def test_the_card_counts_what_is_there(workspace: Workspace) -> None:
    manifest = json.loads((workspace.data("tiny") / "manifest.json").read_text())
    raw = {
        (split, x): read_lines(workspace.root.parent / "raw" / f"{split}.{x}")
        for split in SPLITS
        for x in ("xx", "yy")
    }
    for (split, language), lines in raw.items():
        side = manifest["card"]["text"][split][language]
        words = " ".join(lines).split()
        assert side["words"] == len(words)
        assert side["types"] == len(set(words))
        assert side["length"]["longest"] == max(len(line.split()) for line in lines)
        assert side["scripts"] == {"LATIN": 1.0}
    pairs = set(zip(raw["train", "xx"], raw["train", "yy"], strict=True))
    shared = [p in pairs for p in zip(raw["test", "xx"], raw["test", "yy"], strict=True)]
    assert manifest["card"]["overlap"]["test"]["pairs"] == sum(shared)
    assert manifest["length_percentiles"]["97.5"] == manifest["length_percentile_97_5"]
    printed = show(manifest)
    assert "train.xx" in printed
    assert "L = " in printed


def test_scripts_and_unknown_pieces_are_measured(tmp_path: Path) -> None:
    raw = tiny.write_corpus(tmp_path / "raw", tiny.SPLITS)
    write_lines(raw / "dev.yy", ["\u05e9\u05dc ab", *read_lines(raw / "dev.yy")[1:]])
    manifest, _ = prepare(tiny.PAIR, located(raw), Workspace(tmp_path / "out"))
    scripts = manifest["card"]["text"]["dev"]["yy"]["scripts"]
    letters = "".join(read_lines(raw / "dev.yy")).replace(" ", "")
    assert scripts["HEBREW"] == pytest.approx(2 / len(letters), abs=1e-6)
    train = set(" ".join((raw / f"train.{x}").read_text() for x in ("xx", "yy")))
    pieces = read_lines(tmp_path / "out/data/tiny/bpe/dev.yy")
    known = {
        p
        for x in ("xx", "yy")
        for p in (tmp_path / f"out/data/tiny/bpe/train.{x}").read_text().split()
    }
    each = " ".join(pieces).split()
    unknown = sum(piece not in known for piece in each)
    assert not set("\u05e9\u05dc") & train
    assert manifest["card"]["unknown"]["dev"]["yy"] == pytest.approx(unknown / len(each), abs=1e-6)


def test_bpe_dropout_segments_each_copy_anew_and_the_same_each_time(tmp_path: Path) -> None:
    raw = tiny.write_corpus(tmp_path / "raw", tiny.SPLITS)
    pair = replace(tiny.PAIR, merges=30, preparation={"bpe-dropout": 0.3, "bpe-dropout-copies": 3})
    manifest, _ = prepare(pair, located(raw), Workspace(tmp_path / "a"))
    prepare(pair, located(raw), Workspace(tmp_path / "b"))
    name = Path("data/tiny/bpe/train.xx")
    lines = read_lines(tmp_path / "a" / name)
    assert lines == read_lines(tmp_path / "b" / name)
    assert len(lines) == 3 * 60
    assert manifest["pairs"]["train"] == 60
    assert manifest["copies"] == 3
    copies = lines[:60], lines[60:120], lines[120:]
    assert copies[0] != copies[1] != copies[2] != copies[0]
    text = read_lines(raw / "train.xx")
    for copy in copies:
        assert [line.replace("@@ ", "") for line in copy] == text
    dev = read_lines(tmp_path / "a/data/tiny/bpe/dev.xx")
    prepare(replace(pair, preparation={}), located(raw), Workspace(tmp_path / "c"))
    assert dev == read_lines(tmp_path / "c/data/tiny/bpe/dev.xx")  # dropout is training's alone


def test_without_text_or_prepared_data_it_says_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="say where its text is with --raw-dir DIR"):
        prepared(tiny.PAIR, Workspace(tmp_path))


def assert_all_lines_come_back(folder: Path, source: str, target: str) -> None:
    """By what fairseq's users would do: sed over the pieces, Dictionary.string over the rows."""
    train = {x: set((folder / "bpe" / f"train.{x}").read_text().split()) for x in (source, target)}
    known = train[source] | train[target]
    for split, name in SPLITS.items():
        for language in (source, target):
            text = (folder / "text" / f"{split}.{language}").read_bytes().split(b"\n")[:-1]
            pieces = (folder / "bpe" / f"{split}.{language}").read_bytes().split(b"\n")[:-1]
            assert [re.sub(rb"(@@ )|(@@ ?$)", b"", line) for line in pieces] == text
            dictionary = Dictionary.load(str(folder / "bin" / f"dict.{language}.txt"))
            path = folder / "bin" / f"{name}.{source}-{target}.{language}"
            rows = data_utils.load_indexed_dataset(str(path), dictionary)
            assert len(rows) == len(text)
            for row, line, whole in zip(rows, pieces, text, strict=True):
                if all(piece in known for piece in line.decode().split(" ")):
                    assert dictionary.string(row, "@@ ").encode() == whole
                else:
                    assert split != "train"


def test_galician_gives_the_papers_vocabulary(corpora: Path, tmp_path: Path) -> None:
    raw = locate(corpora / "ted_talks_sample.tar.gz", "gl", "en")
    manifest, _ = prepare(load_pair("gl-en"), raw, Workspace(tmp_path))
    assert manifest["pairs"] == {"train": 10_017, "dev": 682, "test": 1_007}
    assert manifest["vocabulary"]["joint"] == 3_164
    assert round(manifest["length_percentile_97_5"]) == 79  # the paper's L
    assert_all_lines_come_back(tmp_path / "data/gl-en", "gl", "en")
    shutil.rmtree(tmp_path)  # the text is not ours to keep


@pytest.mark.slow
def test_vietnamese_is_prepared_whole(corpora: Path, tmp_path: Path) -> None:
    raw = locate(corpora / "iwslt15_en_vi", "en", "vi")
    manifest, _ = prepare(load_pair("en-vi"), raw, Workspace(tmp_path))
    assert manifest["pairs"] == {"train": 133_137, "dev": 1_553, "test": 1_268}
    assert manifest["dropped"]["too_long"] == sum(manifest["dropped"].values()) == 29
    assert_all_lines_come_back(tmp_path / "data/en-vi", "en", "vi")
    shutil.rmtree(tmp_path)
