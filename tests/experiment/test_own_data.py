"""A pair that nobody listed: plain options or a file, tokenised or raw text, new text too."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tiny
import yaml

from qknorm_fairseq.experiment.corpus import read_lines
from qknorm_fairseq.experiment.tokens import moses_text, moses_tokens
from qknorm_fairseq.experiment.workspace import write_lines

ROOT = Path(__file__).parents[2]
OWN = ["--source", "xx", "--target", "yy", "--text", "raw"]
pytestmark = pytest.mark.usefixtures("configs")


def raw_corpus(folder: Path) -> Path:
    """The tiny corpus as people write: capitals, commas, quotes, full stops, brackets."""
    start = 0
    for split, size in {"train": 40, "dev": 4, "test": 5}.items():
        sides: tuple[list[str], list[str]] = ([], [])
        for source, target in tiny.lines(size, start):
            sides[0].append(f'"{source.capitalize()}", it\'s said [{source[:2]}].')
            sides[1].append(f"«{target}», ({target[:2]})...")
        write_lines(folder / f"{split}.xx", sides[0])
        write_lines(folder / f"{split}.yy", sides[1])
        start += size
    return folder


@pytest.fixture(scope="module", params=["subword-nmt", "sentencepiece-bpe"])
def own(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, configs: Path
) -> tuple[str, Path]:
    """An experiment on raw text by plain options."""
    folder = tmp_path_factory.mktemp("own")
    words = ["reproduce", "own", *OWN, "--merges", "60", "--bpe", request.param]
    words += ["--raw-dir", str(raw_corpus(folder / "raw")), "--out", str(folder / "out")]
    assert tiny.qknorm(*words, "--profile", "tiny", "--arms", "qknorm") == 0
    return request.param, folder


def test_raw_text_is_tokenised_and_that_is_recorded_and_undone(own: tuple[str, Path]) -> None:
    bpe, folder = own
    data, run = folder / "out/data/own", folder / "out/runs/own/qknorm/seed1"
    manifest = json.loads((data / "manifest.json").read_text())
    raw = read_lines(folder / "raw/test.yy")
    assert manifest["recipe"]["text"] == "raw"
    if bpe == "subword-nmt":
        assert "sacremoses" in manifest["tools"]
        assert read_lines(data / "text/test.yy") == moses_tokens(raw, "yy") != raw
        lines = [
            (x, line)
            for s in ("dev", "test")
            for x in ("xx", "yy")
            for line in read_lines(folder / f"raw/{s}.{x}")
        ]
        same = [moses_text(moses_tokens([line], x), x) == [line] for x, line in lines]
        assert manifest["tokens_undone"] == {"lines": 18, "same": sum(same)}
        assert read_lines(run / "test.ref.txt") == moses_tokens(raw, "yy")
        hypotheses = moses_text(read_lines(run / "test.hyp.txt"), "yy")
    else:
        assert "sacremoses" not in manifest["tools"]
        assert read_lines(data / "text/test.yy") == raw
        hypotheses = read_lines(run / "test.hyp.txt")
        assert "▁" not in "".join(hypotheses)
    assert read_lines(run / "test.ref.detok.txt") == raw  # the reference is what was given
    assert read_lines(run / "test.hyp.detok.txt") == hypotheses
    command = (run / "command.txt").read_text()
    assert ("--eval-bleu-tokenize 13a" in command) == (bpe != "subword-nmt")


def test_l_is_measured_and_written_into_the_command(own: tuple[str, Path]) -> None:
    _, folder = own
    measured = json.loads((folder / "out/data/own/manifest.json").read_text())
    run = folder / "out/runs/own/qknorm/seed1"
    length = measured["length_percentile_97_5"]
    assert f"--qk-scale-length {length} " in (run / "command.txt").read_text()
    assert yaml.safe_load((run / "config.yaml").read_text())["options"]["qk-scale-length"] == length


def test_prepared_once_it_is_known_by_its_name(
    own: tuple[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    bpe, folder = own
    words = ["reproduce", "own", "--profile", "tiny", "--arms", "qknorm"]
    assert tiny.qknorm(*words, "--out", folder / "out") == 0
    assert "not needed: the data are prepared" in capsys.readouterr().out
    assert tiny.qknorm(*words, "--merges", "50", "--out", folder / "out") == 2
    assert "prepared with other settings (merges was 60, now 50)" in capsys.readouterr().err
    words += ["--raw-dir", str(folder / "raw"), *OWN, "--bpe", bpe, "--merges", "60"]
    assert tiny.qknorm(*words, "--out", folder / "out") == 0


def test_new_text_goes_the_same_way(own: tuple[str, Path]) -> None:
    _, folder = own
    for side, choice in (("xx", []), ("yy", ["--language", "yy"])):
        text = (folder / f"raw/test.{side}").read_bytes()
        done = apply(folder / "out", text, *choice)
        assert done.returncode == 0, done.stderr
        assert done.stdout == (folder / f"out/data/own/bpe/test.{side}").read_bytes()
    odd = "Ba\u2028ko\r\n\n\x0b\n<unk> @@ ▁".encode()
    assert apply(folder / "out", odd).stdout.count(b"\n") == 4


def apply(out: Path, text: bytes, *words: str) -> "subprocess.CompletedProcess[bytes]":
    command = [sys.executable, "-m", "qknorm_fairseq.cli", "apply", "own", "--out", str(out)]
    return subprocess.run([*command, *words], input=text, capture_output=True, cwd=ROOT)


@pytest.mark.parametrize(
    ("text", "words", "said"),
    [
        (b"good\nb\xffd\n", [], "standard input, line 2: byte 6 is not UTF-8"),
        (b"good\nb\0d\n", [], "standard input, line 2: byte 6 is NUL"),
        (b"good\n", ["--language", "zz"], "--language zz: the pair's are xx or yy"),
    ],
)
def test_text_that_cannot_be_applied_is_located(
    own: tuple[str, Path], text: bytes, words: list[str], said: str
) -> None:
    done = apply(own[1] / "out", text, *words)
    assert done.returncode == 2
    assert said in done.stderr.decode()
    assert done.stderr.count(b"\n") == 1


@pytest.mark.usefixtures("quick_preprocess")
def test_a_file_of_ones_own_describes_a_pair(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = tiny.write_corpus(tmp_path / "raw", tiny.SPLITS)
    settings = {"source": "xx", "target": "yy", "merges": 10}
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump({**settings, "preparation": {"max-words": 5}}))
    assert tiny.qknorm("prepare", file, "--raw-dir", raw, "--out", tmp_path / "out") == 0
    manifest = json.loads((tmp_path / "out/data/mine/manifest.json").read_text())
    assert manifest["recipe"]["max_words"] == 5
    assert manifest["dropped"]["too_long"] > 0
    file.write_text(yaml.safe_dump({**settings, "preparation": {"max-wurds": 5}}))
    capsys.readouterr()
    assert tiny.qknorm("prepare", file, "--raw-dir", raw, "--out", tmp_path / "out") == 2
    assert "unknown max_wurds" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["own"], "unknown pair 'own'; known: tiny; for another say --source xx --target yy"),
        (["own", "--source", "xx", "--target", "yy"], "--merges N"),
        (["../own", *OWN, "--merges", "9"], "pair '../own': a name is of letters"),
        (["nowhere.yaml"], "nowhere.yaml: no such file"),
        (["own", *OWN, "--merges", "9", "--bpe", "x"], "--bpe 'x': must be subword-nmt or"),
        (["own", *OWN, "--merges", "0"], "--merges 0: must be a whole number above 0"),
    ],
)
def test_what_is_no_pair_is_refused(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = raw_corpus(tmp_path / "raw")
    assert tiny.qknorm("prepare", *words, "--raw-dir", raw, "--out", tmp_path / "out") == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_an_installed_package_carries_its_settings(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run(["git", "clone", "--quiet", ROOT, tmp_path / "clone"], check=True)
    for name in ("setup.py", "configs", "qknorm_fairseq", "data/toy"):  # as they are now
        subprocess.run(["cp", "-r", ROOT / name, (tmp_path / "clone" / name).parent], check=True)
    subprocess.run([*pip, "--target", tmp_path / "site", tmp_path / "clone"], check=True)
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "site"), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-m", "qknorm_fairseq.cli", "prepare", "toy"]
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "runs/data/toy/manifest.json").exists()
    code = "from qknorm_fairseq.experiment import settings; print(settings.CONFIGS)"
    place = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert place.stdout.strip() == str(tmp_path / "site/qknorm_fairseq/configs")
