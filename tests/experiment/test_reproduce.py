"""The whole path on a tiny corpus, what a person reads, and what is refused."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import tiny
import yaml
from tiny import qknorm

from qknorm_fairseq import checkpoints
from qknorm_fairseq.experiment.corpus import read_lines
from qknorm_fairseq.experiment.errors import UserError
from qknorm_fairseq.experiment.lock import owned
from qknorm_fairseq.experiment.recorded import forget_results, missing
from qknorm_fairseq.experiment.training import last_update

pytestmark = pytest.mark.usefixtures("configs")


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory, configs: Path) -> Path:
    """The experiment on a corpus whose dev and test sets have three sentences."""
    folder = tmp_path_factory.mktemp("three")
    raw = tiny.write_corpus(folder / "raw", {"train": 30, "dev": 3, "test": 3})
    assert qknorm("reproduce", "tiny", "--raw-dir", raw, "--out", folder / "out") == 0
    return folder


PROTOCOLS = {"tokenised", "nltk_13a", "moses_13a", "chrf2pp"}  # the interface's names


def test_every_part_of_the_result_is_there(three: Path) -> None:
    results = json.loads((three / "out/results/tiny.json").read_text())
    assert list(results["arms"]) == ["scalenorm", "qknorm"]
    assert results["lines"] == 3
    for arm in results["arms"].values():
        assert arm["seeds"] == [1]
        assert set(arm["scores"]) == PROTOCOLS
        for score in arm["scores"].values():
            assert set(score) == {"mean", "sd", "runs", "signature"}
            assert score["sd"] is None
            assert score["runs"] == [score["mean"]]
    names = {(c["a"], c["b"], c["protocol"], c["seed"]) for c in results["comparisons"]}
    assert names == {("scalenorm", "qknorm", p, n) for p in PROTOCOLS for n in (1, "pooled")}
    for c in results["comparisons"]:
        if c["seed"] == 1:
            assert 0 < min(c["p_bootstrap"], c["p_randomisation"]) <= 1
        else:  # one run an arm says nothing of arms
            assert (c["p"], c["p_holm"], c["interval"], c["star"]) == (None, None, None, False)
    assert results["arms"]["qknorm"]["parameters"][0] > 1_000
    assert set(results["options"]) == {"arch", "qk_norm", "residual_norm"}
    assert "nothing is shown" in results["verdict"]
    assert results["paper"] == {"scalenorm": 22.01, "qknorm": 24.21}
    table = (three / "out/results/tiny.md").read_text()
    assert "| qknorm − scalenorm |" in table
    assert "+2.20" in table  # the paper's own difference
    for suffix in ("tex", "csv"):
        assert (three / f"out/results/tiny.{suffix}").stat().st_size > 500


def test_what_a_cell_rests_on_lies_in_its_run_folder(three: Path) -> None:
    for arm in ("scalenorm", "qknorm"):
        folder = three / "out/runs/tiny" / arm / "seed1"
        for name in ("test.hyp.txt", "test.ref.txt", "test.hyp.detok.txt", "test.ref.detok.txt"):
            assert (folder / name).read_text().count("\n") == 3
        assert read_lines(folder / "test.ref.txt") == read_lines(three / "raw/test.yy")
        scores = json.loads((folder / "scores.json").read_text())
        assert scores["lines"] == 3
        assert set(scores["tokenised"]) == {"score", "signature"}
        rows = [json.loads(row) for row in (folder / "metrics.jsonl").read_text().splitlines()]
        assert [row["update"] for row in rows] == [10, 20]
        assert {row["dev_lines"] for row in rows} == {3}
        config = yaml.safe_load((folder / "config.yaml").read_text())
        assert config["options"]["arch"] == f"transformer_{arm}"
        assert config["threads"] == 1
        assert config["environment"]["torch"].startswith("2.")
        assert config["environment"]["device"]
        finished = json.loads((folder / "finished.json").read_text())
        assert finished["options"]["encoder_embed_dim"] == 16
        assert not [v for v in finished["options"].values() if str(three) in str(v)]
        with np.load(folder / "line_statistics.npz") as counts:
            assert {name: len(counts[name]) for name in counts} == dict.fromkeys(PROTOCOLS, 3)
        assert (folder / "command.txt").read_text().startswith("fairseq-train ")
        log = (folder / "train.log").read_bytes().split(b"\n")
        assert last_update(log, before=0) == 20  # what the progress bar goes by


def test_called_again_nothing_is_trained_or_translated(
    three: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = three / "out/runs/tiny/qknorm/seed1/train.log"
    before = log.read_bytes()
    assert qknorm("reproduce", "tiny", "--out", three / "out") == 0
    out = capsys.readouterr().out
    assert out.count("already done") == 3
    assert log.read_bytes() == before
    first = out.splitlines()[0]
    assert first.startswith("tiny · profile tiny · arms scalenorm qknorm · seed 1 · fp32 · CPU")


def test_a_run_begun_with_other_options_is_refused_by_name(
    three: Path, configs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = configs / "profiles" / "tiny.yaml"
    profile = yaml.safe_load(path.read_text())
    changed = {**profile, "options": {**profile["options"], "dropout": 0.3, "lr": 0.004}}
    path.write_text(yaml.safe_dump(changed))
    assert qknorm("reproduce", "tiny", "--out", three / "out") == 2
    error = capsys.readouterr().err
    assert "dropout was not set, now 0.3; lr was 0.005, now 0.004" in error
    assert "choose another --out" in error
    path.write_text(yaml.safe_dump(profile))


def test_another_seed_with_other_options_is_refused_before_it_is_trained(
    three: Path, configs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It could not stand in one table with the seed that is there."""
    path = configs / "profiles" / "tiny.yaml"
    profile = yaml.safe_load(path.read_text())
    changed = {**profile, "options": {**profile["options"], "lr": 0.004}}
    path.write_text(yaml.safe_dump(changed))
    assert qknorm("reproduce", "tiny", "--seeds", "2", "--out", three / "out") == 2
    path.write_text(yaml.safe_dump(profile))
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "scalenorm/seed1 and " in error
    assert "scalenorm/seed2 are not of one arm: lr differ" in error
    assert not (three / "out/runs/tiny/scalenorm/seed2/config.yaml").exists()


def test_other_data_under_a_run_are_refused(
    three: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    shutil.copytree(three / "out", out)
    raw = tiny.write_corpus(tmp_path / "raw", {"train": 29, "dev": 3, "test": 3})
    assert qknorm("reproduce", "tiny", "--raw-dir", raw, "--out", out) == 2
    assert "qknorm/seed1: trained on other data than" in capsys.readouterr().err
    assert qknorm("reproduce", "tiny", "--out", out) == 0  # what was there is there still


def start_apart(words: list[str], configs: Path) -> "subprocess.Popen[str]":
    """``qknorm`` with the tests' settings, in a process of its own."""
    code = f"""
import sys
from pathlib import Path
from qknorm_fairseq import cli
from qknorm_fairseq.experiment import settings
settings.CONFIGS = Path({str(configs)!r})
sys.exit(cli.main({words!r}))
"""
    return subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)


def start_long(
    folder: Path, configs: Path, updates: int
) -> tuple["subprocess.Popen[str]", list[str]]:
    """A run of so many updates that has saved its first checkpoint, and its command."""
    profile = yaml.safe_load((configs / "profiles" / "tiny.yaml").read_text())
    profile["options"]["max-update"] = updates
    (configs / "profiles" / "long.yaml").write_text(yaml.safe_dump(profile))
    raw = tiny.write_corpus(folder / "raw", {"train": 30, "dev": 3, "test": 3})
    words = ["reproduce", "tiny", "--arms", "qknorm", "--profile", "long"]
    words += ["--raw-dir", str(raw), "--out", str(folder / "out")]
    process = start_apart(words, configs)
    while not (folder / "out/runs/tiny/qknorm/seed1/checkpoints/checkpoint_last.pt").exists():
        assert process.poll() is None
        time.sleep(0.05)
    return process, words


def test_stopped_in_the_middle_it_goes_on(tmp_path: Path, configs: Path) -> None:
    """SIGTERM ends the trainings too; the same command then does what was left."""
    process, words = start_long(tmp_path, configs, 100)
    run = tmp_path / "out/runs/tiny/qknorm/seed1"
    process.terminate()
    assert "stopped; the same command goes on" in process.communicate()[1]
    assert process.returncode == 130
    stopped_at = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["update"]
    assert stopped_at < 100
    assert not (run / "finished.json").exists()
    assert qknorm(*words) == 0
    rows = [json.loads(row)["update"] for row in (run / "metrics.jsonl").read_text().splitlines()]
    assert rows == list(range(10, 101, 10))
    assert "Loaded checkpoint" in (run / "train.log").read_text()
    (configs / "profiles" / "long.yaml").unlink()


def test_a_training_that_had_reached_its_end_is_not_resumed(three: Path) -> None:
    run = three / "out/runs/tiny/qknorm/seed1"
    (run / "finished.json").unlink()  # as if stopped just before it was written
    log = (run / "train.log").read_bytes()
    assert qknorm("reproduce", "tiny", "--out", three / "out") == 0
    assert (run / "train.log").read_bytes() == log
    assert (run / "finished.json").exists()


def test_translations_that_are_lost_or_changed_are_made_again(three: Path) -> None:
    hypotheses = three / "out/runs/tiny/qknorm/seed1/test.hyp.txt"
    before = hypotheses.read_bytes()
    for spoil in (hypotheses.unlink, lambda: hypotheses.write_text("a\nb\nc\n")):
        spoil()
        assert qknorm("reproduce", "tiny", "--out", three / "out") == 0
        assert hypotheses.read_bytes() == before


def test_checkpoints_that_were_not_begun_from_here_are_refused(
    three: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(three / "out", tmp_path / "out")
    (tmp_path / "out/runs/tiny/qknorm/seed1/config.yaml").unlink()
    assert qknorm("reproduce", "tiny", "--out", tmp_path / "out") == 2
    assert "checkpoints of a training that was not begun from here" in capsys.readouterr().err


def test_a_torn_checkpoint_is_set_aside_and_the_run_goes_on(three: Path, tmp_path: Path) -> None:
    shutil.copytree(three / "out", tmp_path / "out")
    run = tmp_path / "out/runs/tiny/qknorm/seed1"
    (run / "finished.json").unlink()
    newest, *_ = checkpoints.survey(run / "checkpoints")[0]
    for found in checkpoints.survey(run / "checkpoints")[0]:
        if found.updates == newest.updates:
            os.truncate(found.path, 5000)
    log = (run / "train.log").stat().st_size
    assert qknorm("reproduce", "tiny", "--out", tmp_path / "out") == 0
    assert newest.path.with_name(f"{newest.path.name}.broken").exists()
    assert (run / "train.log").stat().st_size > log, "it should have trained from the one before"
    assert checkpoints.survey(run / "checkpoints")[0][0].updates == newest.updates


def test_a_second_process_on_a_run_is_told_who_has_it(
    three: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with owned(three / "out/runs/tiny/qknorm/seed1"):
        assert qknorm("reproduce", "tiny", "--out", three / "out") == 2
    error = capsys.readouterr().err
    assert f"qknorm/seed1: in use by process {os.getpid()} on " in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    "name",
    ["data/tiny/manifest.json", "runs/tiny/qknorm/seed1/config.yaml", "metrics.jsonl"],
)
def test_a_broken_record_is_named(
    three: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    shutil.copytree(three / "out", tmp_path / "out")
    path = tmp_path / "out" / name
    if name == "metrics.jsonl":
        path = tmp_path / "out/runs/tiny/qknorm/seed1" / name
    path.write_text("{half: [")
    assert qknorm("reproduce", "tiny", "--out", tmp_path / "out") == 2
    error = capsys.readouterr().err
    assert f"{path}: broken; restore it, or remove {path.parent}" in error
    assert error.count("\n") == 1


def test_logging_and_the_end_of_training_may_change(
    three: Path, tmp_path: Path, configs: Path
) -> None:
    shutil.copytree(three / "out", tmp_path / "out")
    path = configs / "profiles" / "tiny.yaml"
    profile = yaml.safe_load(path.read_text())
    longer = {**profile["options"], "max-update": 30, "log-interval": 1}
    path.write_text(yaml.safe_dump({**profile, "options": longer}))
    try:
        assert qknorm("reproduce", "tiny", "--out", tmp_path / "out") == 0
    finally:
        path.write_text(yaml.safe_dump(profile))
    run = tmp_path / "out/runs/tiny/qknorm/seed1"
    rows = (run / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(row)["update"] for row in rows] == [10, 20, 30]


def test_a_run_that_is_trained_on_gives_up_its_old_scores(
    three: Path, tmp_path: Path, configs: Path
) -> None:
    """Should it be stopped then, no table has them beside the newer model's figures."""
    shutil.copytree(three / "out", tmp_path / "out")
    run = tmp_path / "out/runs/tiny/qknorm/seed1"
    forget_results(run)
    assert missing(run) == "not trained to its end, last validated after update 20"
    assert qknorm("report", "tiny", "--out", tmp_path / "out") == 0
    results = json.loads((tmp_path / "out/results/tiny.json").read_text())
    assert list(results["missing"]) == ["qknorm seed 1"]
    assert list(results["arms"]) == ["scalenorm"]


def test_a_training_stops_with_the_process_that_started_it(tmp_path: Path, configs: Path) -> None:
    """SIGKILL, which the parent cannot pass on: the kernel tells the training."""
    process, _ = start_long(tmp_path, configs, 100_000)
    folder = tmp_path / "out/runs/tiny/qknorm/seed1"
    process.kill()
    process.communicate()
    began = time.monotonic()
    while time.monotonic() - began < 20:
        try:
            with owned(folder):
                break
        except UserError:
            time.sleep(0.1)
    print(f"stopped and saved in {time.monotonic() - began:.1f} s")
    assert time.monotonic() - began < 10
    assert "stopped by signal 15" in (folder / "train.log").read_text()
    (configs / "profiles" / "long.yaml").unlink()


def test_dry_run_lists_the_stages_and_does_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert qknorm("reproduce", "tiny", "--dry-run", "--seeds", "1,2", "--out", tmp_path / "o") == 0
    out = capsys.readouterr().out
    assert "[3/6] train      scalenorm seed 1, qknorm seed 1, scalenorm seed 2" in out
    assert "MB on disk" in out
    assert not (tmp_path / "o").exists()


def test_print_command_is_a_plain_fairseq_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "tiny", "qknorm", "--print-command", "--seed", "7", "--out", tmp_path]
    assert qknorm(*words) == 0
    line = capsys.readouterr().out
    assert line.startswith("fairseq-train ")
    assert "--arch transformer_qknorm" in line
    assert "--seed 7" in line


def test_tables_are_made_again_without_training_or_translating(
    three: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From what a run leaves, its checkpoints gone."""
    out = tmp_path / "out"
    shutil.copytree(three / "out", out)
    for path in [*out.rglob("checkpoints"), out / "results"]:
        shutil.rmtree(path)
    for path in [*out.rglob("scores.json"), *out.rglob("line_statistics.npz")]:
        path.unlink()
    assert qknorm("report", "tiny", "--out", out) == 0
    assert "qknorm − scalenorm" in capsys.readouterr().out
    for suffix in ("md", "tex", "csv", "json"):
        again, first = (f / f"results/tiny.{suffix}" for f in (out, three / "out"))
        assert again.read_bytes() == first.read_bytes()


def test_a_training_that_left_no_checkpoint_is_named(
    three: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(three / "out", tmp_path / "out")
    run = tmp_path / "out/runs/tiny/qknorm/seed1"
    (run / "checkpoints/checkpoint_best.pt").unlink()
    assert qknorm("reproduce", "tiny", "--out", tmp_path / "out") == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert f"{run}/checkpoints/checkpoint_best.pt: not there" in error
    assert f"remove {run} to train it anew" in error


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["report", "tiny"], "tiny: nothing to report from "),
        (["report", "xx-yy"], "unknown pair 'xx-yy'"),
        (["reproduce", "xx-yy"], "unknown pair 'xx-yy'; known: tiny"),
        (["reproduce", "tiny", "--arms", "qknorm,relu"], "unknown arm 'relu'; known: layernorm"),
        (["reproduce", "tiny", "--profile", "big"], "unknown profile 'big'; known: tiny"),
        (["reproduce", "tiny", "--precision", "int8"], "unknown precision 'int8'; known: fp32"),
        (["reproduce", "tiny", "--jobs", "0"], "--jobs 0: at least one"),
        (["reproduce", "tiny", "--seeds=1,-1"], "--seeds -1: a seed is a whole number"),
        (["reproduce", "tiny", "--out", "/tmp/a:b"], "/tmp/a:b: fairseq splits names at colons"),
        (["reproduce", "tiny", "--raw-dir", "/nowhere"], "/nowhere: no such folder"),
        (["prepare", "tiny"], "say where its text is with --raw-dir DIR"),
    ],
)
def test_wrong_input_is_one_line_and_status_2(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert qknorm(words[0], "--out", tmp_path / "out", *words[1:]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert said in error
    assert not list(tmp_path.rglob("*.yaml"))
    assert not list((tmp_path / "out").glob("data/*"))


@pytest.mark.parametrize("spoil", ["missing", "uneven", "empty"])
def test_wrong_text_leaves_nothing_behind(
    spoil: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = tiny.write_corpus(tmp_path / "raw", {"train": 9, "dev": 3, "test": 3})
    if spoil == "missing":
        (raw / "test.yy").unlink()
    else:
        (raw / "test.yy").write_text("one line\n" if spoil == "uneven" else "")
    assert qknorm("reproduce", "tiny", "--raw-dir", raw, "--out", tmp_path / "out") == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "test.yy" in error
    assert not list((tmp_path / "out").rglob("*"))


def test_a_training_that_fails_says_why_and_where_its_log_is(
    tmp_path: Path, configs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arm = configs / "arms" / "wrong.yaml"
    arm.write_text("{arch: transformer_qknorm, description: x, options: {no-such-option: 1}}")
    raw = tiny.write_corpus(tmp_path / "raw", {"train": 9, "dev": 3, "test": 3})
    words = ["reproduce", "tiny", "--arms", "wrong", "--raw-dir", raw, "--out", tmp_path / "out"]
    assert qknorm(*words) == 2
    error = capsys.readouterr().err
    assert "training of wrong seed 1 failed: " in error
    assert "unrecognized arguments: --no-such-option" in error
    assert "train.log" in error
    arm.unlink()
