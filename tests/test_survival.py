"""Killed at any moment and resumed, a training ends as if nothing had happened."""

import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from conftest import Command
from killing import SAVE_STAGES

from qknorm_fairseq import checkpoints
from qknorm_fairseq.experiment.prepare import prepare
from qknorm_fairseq.experiment.sources import locate
from qknorm_fairseq.experiment.workspace import Workspace
from qknorm_fairseq.trainer import different_options

UPDATES, INTERVAL, AN_EPOCH = 60, 10, 8
SIZES = "--encoder-embed-dim 32 --decoder-embed-dim 32 --encoder-ffn-embed-dim 32 "
SIZES += "--decoder-ffn-embed-dim 32 --encoder-layers 1 --decoder-layers 1 "
SIZES += "--encoder-attention-heads 2 --decoder-attention-heads 2 "
OPTIONS = "--task low_resource_translation --arch transformer_qknorm --optimizer fused_adam "
OPTIONS += "--criterion target_vocab_label_smoothed_cross_entropy --clip-norm 1.0 --lr 0.005 "
OPTIONS += "--lr-scheduler validation_decay --warmup-updates 15 --lr-patience 1 --seed 1 "
OPTIONS += f"--max-update {UPDATES} --max-tokens 300 --num-workers 0 --dropout 0.1 "
OPTIONS += f"--validate-interval-updates {INTERVAL} --save-interval-updates {INTERVAL} "
OPTIONS += "--validate-interval 1000 --save-interval 1000 --keep-interval-updates 2 "
OPTIONS += "--no-epoch-checkpoints --best-checkpoint-metric bleu --log-format json "
OPTIONS += "--maximize-best-checkpoint-metric --log-interval 5 "

Moment = dict[str, Any]
Run = Callable[..., list[int]]


@pytest.fixture(scope="module")
def bin_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("survival")
    raw = tiny.write_corpus(folder / "raw", {"train": 200, "dev": 20, "test": 5})
    workspace = Workspace(folder / "out")
    prepare(tiny.PAIR, locate(raw, "xx", "yy"), workspace)
    return workspace.data("tiny") / "bin"


@pytest.fixture(scope="module")
def run(bin_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run trainings, given as (folder, moment or None, further options); their statuses."""

    def trainings(*wanted: tuple[Any, ...]) -> list[int]:
        plan = []
        for folder, moment, *more in wanted:
            words = [str(bin_folder), *SIZES.split(), *OPTIONS.split(), "--save-dir", str(folder)]
            words += ["--metrics-file", str(folder / "metrics.jsonl"), *map(str, more)]
            folder.mkdir(exist_ok=True)
            plan.append({"arguments": words, "moment": moment, "log": str(folder / "train.log")})
        path = tmp_path_factory.mktemp("plan") / "plan.json"
        path.write_text(json.dumps(plan))
        done = subprocess.run(
            [sys.executable, Path(__file__).with_name("killing.py"), path],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        statuses: list[int] = json.loads(done.stdout.splitlines()[-1])
        return statuses

    return trainings


@pytest.fixture(scope="module")
def undisturbed(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "undisturbed"
    assert run((folder, None)) == [0], (folder / "train.log").read_text()[-3000:]
    return folder


def rows(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [{**json.loads(line), "elapsed": 0} for line in lines]


def differences(one: Any, other: Any, where: str = "") -> list[str]:
    """The places where two states differ by a bit."""
    if isinstance(one, dict) and isinstance(other, dict):
        if one.keys() != other.keys():
            return [f"{where}: {one.keys() ^ other.keys()}"]
        return [d for key in one for d in differences(one[key], other[key], f"{where}.{key}")]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return [d for i, (a, b) in pairs for d in differences(a, b, f"{where}[{i}]")]
    same = torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other
    return [] if same else [where]


def check_equal(folder: Path, undisturbed: Path, what: object) -> None:
    assert rows(folder) == rows(undisturbed), what
    for name in (checkpoints.BEST, checkpoints.LAST):
        mine, its = (torch.load(f / name, weights_only=True) for f in (folder, undisturbed))
        for part in ("model", "last_optimizer_state"):
            assert differences(mine[part], its[part]) == [], (what, name, part)
        # fairseq lists the optimisers of all starts; the last one's is that of the state
        assert mine["optimizer_history"][-1] == its["optimizer_history"][-1], (what, name)
    assert not list(folder.glob(f"*{checkpoints.ASIDE}"))
    assert not list(folder.glob(f"*{checkpoints.BROKEN}"))


def test_undisturbed_it_is_plain_fairseq_train(
    undisturbed: Path, bin_folder: Path, tmp_path: Path, command: Command
) -> None:
    words = [*SIZES.split(), *OPTIONS.split(), "--save-dir", tmp_path]
    words += ["--metrics-file", tmp_path / "metrics.jsonl", "--user-dir", "qknorm_fairseq"]
    done = command("fairseq-train", bin_folder, *words)
    assert done.returncode == 0, done.stderr[-3000:]
    check_equal(tmp_path, undisturbed, "fairseq-train")


def draw(seed: int, updates: int, saves: int, validations: int, first_epoch: int) -> list[Moment]:
    """Moments at random: after the first checkpoint, in a save, in a validation, before."""
    dice = random.Random(seed)
    signals = ["KILL", "KILL", "TERM", "INT"]
    ends = [AN_EPOCH * k for k in range(2, UPDATES // AN_EPOCH)]
    moments = []
    for i in range(updates):
        number = dice.choice(ends) if i % 3 == 0 else dice.randint(INTERVAL + 1, UPDATES - 1)
        kind = "update" if i % 2 == 0 else "in update"
        moments.append({"kind": kind, "number": number, "signal": dice.choice(signals)})
    for i in range(saves):
        stage = SAVE_STAGES[i % len(SAVE_STAGES)]
        number = dice.randint(1, UPDATES // INTERVAL)
        moments.append({"kind": "save", "stage": stage, "number": number, "signal": "KILL"})
    for _ in range(validations):
        number = dice.randint(1, UPDATES // INTERVAL - 1)  # after the last there is no more to do
        signal = dice.choice(["KILL", "TERM", "INT"])
        moments.append({"kind": "validation", "number": number, "signal": signal})
    for _ in range(first_epoch):
        number = dice.randint(1, INTERVAL - 1)
        moments.append({"kind": "update", "number": number, "signal": dice.choice(signals)})
    return moments


def kill_and_resume(run: Run, undisturbed: Path, folder: Path, moments: list[Moment]) -> None:
    trainings: list[tuple[Path, Moment | None]] = []
    for i, moment in enumerate(moments):
        trainings += [(folder / str(i), moment), (folder / str(i), None)]
    statuses = run(*trainings)
    killed, resumed = statuses[::2], statuses[1::2]
    expected = {"KILL": {-9}, "TERM": {143}, "INT": {130}}
    for i, moment in enumerate(moments):
        log = (folder / str(i) / "train.log").read_text()[-3000:]
        assert killed[i] in expected[moment["signal"]], (moment, killed[i], log)
        assert resumed[i] == 0, (moment, log)
        check_equal(folder / str(i), undisturbed, moment)
    counts = Counter(f"{moment['kind']} {moment.get('stage', '')}".strip() for moment in moments)
    print(f"\nkilled and resumed, all ended with the same bits: {dict(counts)}")


def test_a_killed_training_ends_as_if_nothing_had_happened(
    run: Run, undisturbed: Path, tmp_path: Path
) -> None:
    early = {"kind": "update", "number": 3, "signal": "INT"}  # nothing has been saved yet
    due = {"kind": "update", "number": 2 * INTERVAL, "signal": "TERM"}  # a validation is due
    both = {"kind": "update", "number": 5 * AN_EPOCH, "signal": "TERM"}  # and the epoch ends
    in_validation = {"kind": "validation", "number": 4, "signal": "TERM"}
    last = {"kind": "update", "number": UPDATES, "signal": "TERM"}
    end = {"kind": "save", "stage": "renamed", "number": UPDATES // INTERVAL, "signal": "KILL"}
    moments = [early, end, due, both, in_validation, last, *draw(3, 2, 2, 0, 0)]
    kill_and_resume(run, undisturbed, tmp_path, moments)


@pytest.mark.slow
def test_twenty_five_kills(run: Run, undisturbed: Path, tmp_path: Path) -> None:
    moments = draw(11, updates=15, saves=8, validations=3, first_epoch=2)
    epochs = {-(-m["number"] // AN_EPOCH) for m in moments if "update" in m["kind"]}
    assert 1 in epochs and max(epochs) >= 3
    kill_and_resume(run, undisturbed, tmp_path, moments)


def test_a_checkpoint_cut_short_is_set_aside_and_the_one_before_used(
    run: Run, undisturbed: Path, tmp_path: Path
) -> None:
    """The newest file, cut at ten places; the training after it ends the same."""
    killed = tmp_path / "killed"
    run((killed, {"kind": "update", "number": 4 * INTERVAL + 1, "signal": "KILL"}))
    newest = checkpoints.survey(killed)[0][0]
    folders = [tmp_path / str(cut) for cut in range(10)]
    for cut, folder in enumerate(folders):
        shutil.copytree(killed, folder)
        for found in checkpoints.survey(folder)[0]:
            if found.updates == newest.updates:
                os.truncate(found.path, found.path.stat().st_size * cut // 10)
    assert run(*((folder, None) for folder in folders)) == [0] * len(folders)
    for folder in folders:
        name = newest.path.name
        warning = f"{folder / name} is broken; set aside as {name}.broken"
        assert warning in (folder / "train.log").read_text()
        assert rows(folder) == rows(undisturbed)
        for name in (checkpoints.BEST, checkpoints.LAST):
            mine, its = (torch.load(f / name, weights_only=True) for f in (folder, undisturbed))
            assert differences(mine["model"], its["model"]) == []


def test_a_batch_that_does_not_fit_names_the_option(
    run: Run, undisturbed: Path, tmp_path: Path
) -> None:
    """fairseq knows a GPU's words for it, and leaves the batch out; not those of a CPU."""
    cpu, gpu = tmp_path / "cpu", tmp_path / "gpu"
    moments = [{"kind": "memory", "number": 34, "of": of} for of in ("cpu", "gpu")]
    assert run((cpu, moments[0]), (gpu, moments[1])) == [1, 0]
    said = (cpu / "train.log").read_text().splitlines()[-1]
    assert said.startswith(
        "update 34: a batch does not fit in memory: lower --max-tokens (now 300)"
    )
    assert "lower --max-tokens (now 300)" in (gpu / "train.log").read_text()
    assert run((cpu, None)) == [0]
    check_equal(cpu, undisturbed, "memory")


def test_a_full_disk_stops_the_run_and_leaves_the_last_sound_checkpoint(
    run: Run, undisturbed: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    assert run((folder, {"kind": "full disk", "number": 4})) == [1]
    said = (folder / "train.log").read_text().splitlines()[-1]
    assert "no room for a checkpoint" in said and said.endswith("make room there")
    assert checkpoints.survey(folder)[0][0].updates == 3 * INTERVAL
    assert run((folder, None)) == [0]
    check_equal(folder, undisturbed, "full disk")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["decoder.layers.0.fc1.weight", "encoder.layers.0.self_attn.qk.g"])
def test_a_number_that_is_none_stops_the_run_and_is_traced(
    run: Run, undisturbed: Path, tmp_path: Path, name: str, value: float
) -> None:
    folder, update = tmp_path / "run", 3 * INTERVAL + 4
    moment = {"kind": "plant", "number": update, "name": name, "value": value}
    assert run((folder, moment)) == [1]
    said = (folder / "train.log").read_text().splitlines()[-1]
    assert f"update {update}: " in said and f"first in {name};" in said
    assert re.search(r"sentences in the binarised training set, from 0: \d+(, \d+)*;", said)
    assert run((folder, None)) == [0]
    check_equal(folder, undisturbed, name)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--dropout", "0.2"], "dropout was 0.1, now 0.2"),
        (["--lr", "0.004"], "lr was [0.005], now [0.004]"),
        (["--seed", "2"], "seed was 1, now 2"),
        (["--label-smoothing", "0.2"], "label_smoothing was 0.1, now 0.2"),
        (["--max-tokens", "200"], "max_tokens was 300, now 200"),
        (["--arch", "transformer_scalenorm"], "qk_norm was l2, now none"),
        (["--save-interval-updates", "5"], "save_interval_updates was 10, now 5"),
        (["--adam-betas", "(0.9, 0.9)"], "adam_betas was [0.9, 0.999], now (0.9, 0.9)"),
        (["--gnmt-alpha", "1.0"], "gnmt_alpha was 0.6, now 1.0"),
    ],
)
def test_other_options_are_refused_by_name(
    run: Run, undisturbed: Path, tmp_path: Path, options: list[str], said: str
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(undisturbed, folder)
    before = {path.name: path.stat().st_mtime for path in folder.glob("*.pt")}
    assert run((folder, None, *options)) == [2]
    line = (folder / "train.log").read_text().splitlines()[-1]
    assert said in line and "restore them, or choose another --save-dir" in line
    assert {path.name: path.stat().st_mtime for path in folder.glob("*.pt")} == before


def test_logging_paths_and_the_end_may_differ(run: Run, undisturbed: Path, tmp_path: Path) -> None:
    folder = tmp_path / "moved"
    shutil.copytree(undisturbed, folder)
    assert run((folder, None, "--log-interval", "1", "--max-update", UPDATES + 5)) == [0]
    assert rows(folder)[: UPDATES // INTERVAL] == rows(undisturbed)
    assert rows(folder)[-1]["update"] == UPDATES + 5


ENDS_BY_RATE = ("--min-lr", "0.003", "--stop-min-lr", "0", "--max-update", "1000")


@pytest.mark.parametrize("signal", ["KILL", "TERM"])
def test_a_run_that_its_rate_ends_is_ended_there_also_when_resumed(
    run: Run, tmp_path: Path, signal: str
) -> None:
    """The rate becomes 0 within an epoch, which goes on to its end."""
    whole = tmp_path / "whole"
    assert run((whole, None, *ENDS_BY_RATE)) == [0]
    log = (whole / "train.log").read_text()
    assert "stopping training because current learning rate (0.0)" in log
    last = max(int(n) for n in re.findall(r'"train_num_updates": "(\d+)"', log))
    folders = [tmp_path / str(number) for number in range(last - AN_EPOCH + 1, last + 1, 3)]
    moments = [{"kind": "update", "number": int(f.name), "signal": signal} for f in folders]
    plan = [(f, m, *ENDS_BY_RATE) for f, m in zip(folders, moments, strict=True)]
    run(*(one for killed in plan for one in (killed, (killed[0], None, *ENDS_BY_RATE))))
    for folder in folders:
        assert rows(folder) == rows(whole), folder.name
        ends = [torch.load(f / checkpoints.BEST, weights_only=True) for f in (folder, whole)]
        assert differences(ends[0]["model"], ends[1]["model"]) == [], folder.name


def test_a_killed_run_of_so_many_epochs_ends_the_same(run: Run, tmp_path: Path) -> None:
    end = ("--max-epoch", "2", "--validate-interval", "1")
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert run((whole, None, *end)) == [0]
    last = rows(whole)[-1]["update"]
    moment = {"kind": "update", "number": last, "signal": "TERM"}
    assert run((killed, moment, *end), (killed, None, *end)) == [143, 0]
    assert rows(killed) == rows(whole)


def test_options_are_compared_by_what_they_mean() -> None:
    same = {"optimizer": {"adam_betas": [0.9, 0.98]}}, {"optimizer": {"adam_betas": "(0.9, 0.98)"}}
    assert different_options(*same) == []
    cosine = {"lr_scheduler": {"max_update": 10}}, {"lr_scheduler": {"max_update": 20}}
    assert different_options(*cosine) == ["max_update was 10, now 20"]


def test_another_dictionary_is_refused(
    run: Run, undisturbed: Path, bin_folder: Path, tmp_path: Path, command: Command
) -> None:
    other = tmp_path / "bin"
    shutil.copytree(bin_folder, other)
    for path in other.glob("dict.*.txt"):
        lines = path.read_text().splitlines()
        path.write_text("\n".join([*lines[1:], lines[0]]) + "\n")
    done = command(
        *["fairseq-generate", other, "--user-dir", "qknorm_fairseq"],
        *["--task", "low_resource_translation", "--path", undisturbed / checkpoints.BEST],
    )
    assert done.returncode != 0
    assert "its dictionary is not the checkpoint's" in done.stderr
    assert "H-0" not in done.stdout
