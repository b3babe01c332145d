"""The plugin through fairseq's own commands: train, resume, generate, interactive, Hydra."""

import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import ROOT, Command
from fairseq.data import Dictionary
from sacrebleu.metrics import BLEU

from qknorm_fairseq.cli import main
from qknorm_fairseq.experiment.corpus import read_lines
from qknorm_fairseq.experiment.translate import parse_hypotheses
from qknorm_fairseq.experiment.workspace import Workspace

SIZES = "--encoder-embed-dim 32 --decoder-embed-dim 32 --encoder-ffn-embed-dim 64 "
SIZES += "--decoder-ffn-embed-dim 64 --encoder-layers 1 --decoder-layers 1 "
SIZES += "--encoder-attention-heads 2 --decoder-attention-heads 2"
TRAINING = "--task low_resource_translation --optimizer adam --lr 0.005 --clip-norm 1.0 "
TRAINING += "--lr-scheduler inverse_sqrt --warmup-updates 30 --max-tokens 256 --seed 1 "
TRAINING += "--criterion target_vocab_label_smoothed_cross_entropy --num-workers 0 "
TRAINING += "--validate-interval-updates 40 --save-interval-updates 40 --validate-interval 1000 "
TRAINING += "--no-epoch-checkpoints --best-checkpoint-metric bleu --maximize-best-checkpoint-metric"
USE_PLUGIN = "--user-dir qknorm_fairseq"


def metrics(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(row) for row in (folder / "metrics.jsonl").read_text().splitlines()]


Train = Callable[..., str]


@pytest.fixture(scope="module")
def train(workspace: Workspace, command: Command) -> Train:
    """Train a tiny model into a folder by fairseq-train; returns what it printed."""

    def run(
        folder: Path, arch: str, updates: int, *more: str, by: tuple[str, ...] = ("fairseq-train",)
    ) -> str:
        words = [*by, workspace.data("tiny") / "bin", *USE_PLUGIN.split()]
        words += [*SIZES.split(), *TRAINING.split(), "--arch", arch, "--save-dir", folder, *more]
        words += ["--metrics-file", folder / "metrics.jsonl", "--max-update", updates]
        done = command(*words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="module")
def refused(train: Train) -> Train:
    """As ``train``, for a command that should fail; returns what it complained of."""

    def run(*arguments: Any) -> str:
        with pytest.raises(AssertionError) as error:
            train(*arguments)
        return str(error.value)

    return run


@pytest.fixture(scope="module")
def trained(train: Train, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 120 updates, resumed after 80."""
    folder = tmp_path_factory.mktemp("trained")
    train(folder, "transformer_qknorm", 80)
    assert "Loaded checkpoint" in train(folder, "transformer_qknorm", 120)
    return folder


def generate(command: Command, workspace: Workspace, path: Path, subset: str, log: Path) -> None:
    words = ["fairseq-generate", workspace.data("tiny") / "bin", *USE_PLUGIN.split()]
    words += ["--task", "low_resource_translation", "--path", path, "--gen-subset", subset]
    words += ["--beam", "4", "--post-process", "subword_nmt", "--batch-size", "5"]
    done = command(*words)
    assert done.returncode == 0, done.stderr
    log.write_text(done.stdout)


def test_each_validation_has_its_row_and_sees_every_dev_sentence(trained: Path) -> None:
    rows = metrics(trained)
    assert [row["update"] for row in rows] == [40, 80, 120]
    assert {row["dev_lines"] for row in rows} == {13}
    names = {"epoch", "lr", "train_loss", "dev_loss", "dev_bleu", "gnorm", "elapsed"}
    assert names < set(rows[0])
    assert rows[-1]["train_loss"] < rows[0]["train_loss"]
    assert rows[0]["elapsed"] < rows[-1]["elapsed"]


def check_dev_bleu(run: Path, command: Command, workspace: Workspace, log: Path) -> None:
    """Dev BLEU in training equals that of the best checkpoint's translations."""
    generate(command, workspace, run / "checkpoint_best.pt", "valid", log)
    hypotheses = parse_hypotheses(log, 13)
    references = read_lines(workspace.data("tiny") / "text" / "dev.yy")
    score = BLEU(tokenize="none", force=True).corpus_score(hypotheses, [references]).score
    best = max(row["dev_bleu"] for row in metrics(run))
    assert best > 5, "too little was learned for the comparison to mean anything"
    assert score == pytest.approx(best, abs=0.01)


def test_dev_bleu_in_training_equals_dev_bleu_by_translating_afterwards(
    trained: Path, workspace: Workspace, command: Command, tmp_path: Path
) -> None:
    check_dev_bleu(trained, command, workspace, tmp_path / "log")


def test_every_test_sentence_is_translated(
    trained: Path, workspace: Workspace, command: Command, tmp_path: Path
) -> None:
    generate(command, workspace, trained / "checkpoint_best.pt", "test", tmp_path / "log")
    assert len(parse_hypotheses(tmp_path / "log", 11)) == 11


def test_interactive_answers_line_for_line(
    trained: Path, workspace: Workspace, command: Command
) -> None:
    bpe = read_lines(workspace.data("tiny") / "bpe" / "test.xx")[:3]
    words = ["fairseq-interactive", workspace.data("tiny") / "bin", *USE_PLUGIN.split()]
    words += ["--task", "low_resource_translation", "--path", trained / "checkpoint_best.pt"]
    done = command(*words, "--beam", "4", text="\n".join(bpe) + "\n")
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"^H-\d+\t", done.stdout, re.MULTILINE)) == 3


def test_attention_weights_are_there_for_who_wants_alignments(
    trained: Path, workspace: Workspace, command: Command
) -> None:
    words = ["fairseq-generate", workspace.data("tiny") / "bin", *USE_PLUGIN.split()]
    words += ["--task", "low_resource_translation", "--path", trained / "checkpoint_best.pt"]
    plain, aligned = command(*words), command(*words, "--print-alignment")
    assert aligned.returncode == 0, aligned.stderr
    assert len(re.findall(r"^A-\d+\t\d+-\d+", aligned.stdout, re.MULTILINE)) == 11
    line = re.compile(r"^(H-\d+)\t[^\t]*\t(.*)", re.MULTILINE)  # the score's last digit may differ
    hypotheses = [line.findall(done.stdout) for done in (plain, aligned)]
    assert len(hypotheses[0]) == 11
    assert hypotheses[0] == hypotheses[1]


def test_what_the_task_replaces_is_refused_by_name(
    trained: Path, workspace: Workspace, command: Command
) -> None:
    words = ["fairseq-generate", workspace.data("tiny") / "bin", *USE_PLUGIN.split()]
    words += ["--task", "low_resource_translation", "--path", trained / "checkpoint_best.pt"]
    done = command(*words, "--lenpen", "0.6")
    assert done.returncode != 0
    assert "--lenpen does nothing in this task; use --gnmt-alpha" in done.stderr


def test_a_run_goes_to_the_released_codes_files_and_back(trained: Path, tmp_path: Path) -> None:
    pth, back = tmp_path / "model.pth", tmp_path / "back"
    best = trained / "checkpoint_best.pt"
    assert main(["convert", str(best), "--to", str(pth)]) == 0
    words = ["convert", pth, "--vocab", tmp_path / "vocab.joint", "--heads", "2", "--out", back]
    words += ["--mask", tmp_path / "mask.yy.npy", "--source", "xx", "--positions", "interleaved"]
    assert main([str(word) for word in words]) == 0
    one, other = (
        torch.load(path, weights_only=True)["model"] for path in (best, back / "checkpoint.pt")
    )
    assert one.keys() == other.keys()
    assert all(torch.equal(value, other[name]) for name, value in one.items())


def test_checkpoints_load_with_torchs_protection_on(trained: Path) -> None:
    checkpoints = list(trained.glob("*.pt"))
    assert {p.name for p in checkpoints} >= {"checkpoint_best.pt", "checkpoint_last.pt"}
    for path in checkpoints:
        assert torch.serialization.get_unsafe_globals_in_checkpoint(path) == []
        torch.load(path, weights_only=True)


def test_a_resumed_run_equals_one_that_went_through(
    trained: Path, train: Train, tmp_path: Path
) -> None:
    train(tmp_path, "transformer_qknorm", 120)
    for name in ("checkpoint_last.pt", "checkpoint_best.pt"):
        one = torch.load(trained / name, weights_only=True)["model"]
        other = torch.load(tmp_path / name, weights_only=True)["model"]
        assert one.keys() == other.keys()
        assert all(torch.equal(one[name], other[name]) for name in one)
    for mine, its in zip(metrics(trained), metrics(tmp_path), strict=True):
        assert {**mine, "elapsed": 0} == {**its, "elapsed": 0}


def test_the_model_may_produce_what_the_training_target_has_and_no_more(
    trained: Path, workspace: Workspace
) -> None:
    model = torch.load(trained / "checkpoint_last.pt", weights_only=True)["model"]
    dictionary = Dictionary.load(str(workspace.data("tiny") / "bin" / "dict.yy.txt"))
    bpe = read_lines(workspace.data("tiny") / "bpe" / "train.yy")
    pieces = {piece for line in bpe for piece in line.split(" ")} | {"</s>", "<unk>"}
    mask = model["decoder.output_projection.target_mask"].tolist()
    assert {dictionary[i] for i, allowed in enumerate(mask) if allowed} == pieces
    assert 5 < sum(mask) < len(dictionary) - 5


def test_a_mask_that_forbids_a_training_target_is_refused(
    trained: Path, train: Train, workspace: Workspace, tmp_path: Path, refused: Train
) -> None:
    state = torch.load(trained / "checkpoint_last.pt", weights_only=True)
    mask = state["model"]["decoder.output_projection.target_mask"]
    number = int(mask.nonzero()[-1])
    mask[number] = False
    torch.save(state, tmp_path / "checkpoint_last.pt")
    said = refused(tmp_path, "transformer_qknorm", 130)
    word = Dictionary.load(str(workspace.data("tiny") / "bin" / "dict.yy.txt"))[number]
    assert f"forbids 1 types that occur in the training targets, the first is {word!r}" in said


def test_a_forbidding_mask_is_refused_also_where_none_is_asked_for(
    trained: Path, tmp_path: Path, refused: Train
) -> None:
    state = torch.load(trained / "checkpoint_last.pt", weights_only=True)
    state["model"]["decoder.output_projection.target_mask"][8:] = False
    torch.save(state, tmp_path / "checkpoint_last.pt")
    said = refused(tmp_path, "transformer_qknorm", 130, "--no-target-vocab-mask")
    assert "types that occur in the training targets, the first is" in said


def test_dev_bleu_of_a_model_that_starts_from_bos_is_measured_from_bos(
    train: Train, workspace: Workspace, command: Command, tmp_path: Path
) -> None:
    train(tmp_path, "transformer_qknorm", 80, "--decoder-start", "bos")
    check_dev_bleu(tmp_path, command, workspace, tmp_path / "log")


def test_a_criterion_that_cannot_do_with_a_mask_is_refused(refused: Train, tmp_path: Path) -> None:
    stock = ("--criterion", "label_smoothed_cross_entropy")
    said = refused(tmp_path, "transformer_qknorm", 2, *stock)
    assert "--criterion target_vocab_label_smoothed_cross_entropy, or say --no-target-" in said


def test_the_criterion_says_which_models_it_is_for(refused: Train, tmp_path: Path) -> None:
    said = refused(tmp_path, "transformer", 2, "--share-all-embeddings")
    assert "needs one of this plugin's models, such as --arch transformer_qknorm" in said


def test_without_a_mask_fairseqs_criterion_will_do(train: Train, tmp_path: Path) -> None:
    stock = ("--criterion", "label_smoothed_cross_entropy", "--no-target-vocab-mask")
    train(tmp_path, "transformer_qknorm", 2, *stock)


def test_fairseqs_own_transformer_trains_under_the_task(train: Train, tmp_path: Path) -> None:
    stock = ("--criterion", "label_smoothed_cross_entropy", "--share-all-embeddings")
    train(tmp_path, "transformer", 2, *stock)


UPDATES_AN_EPOCH = 5
SCHEDULE: tuple[str, ...] = ("--lr-scheduler", "validation_decay", "--lr", "0.004")
SCHEDULE += ("--warmup-updates", "10", "--max-tokens", "128")
SCHEDULE += ("--lr-shrink", "0.5", "--lr-patience", "1", "--validate-interval-updates", "3")
SCHEDULE += ("--save-interval-updates", "3", "--log-interval", "1", "--log-format", "json")


def logged_rates(text: str) -> dict[int, float]:
    """Update -> rate of the update after it, as fairseq logs it."""
    rows = re.findall(r"\| train_inner \| (\{.*\})", text)
    return {int(row["num_updates"]): float(row["lr"]) for row in map(json.loads, rows)}


def test_the_rate_decays_where_the_logged_bleu_says_it_must(train: Train, tmp_path: Path) -> None:
    """Validations every 3 updates, epochs longer; with and without a resume in between."""
    at_once, resumed = tmp_path / "at_once", tmp_path / "resumed"
    text = train(at_once, "transformer_qknorm", 60, *SCHEDULE)
    again = train(resumed, "transformer_qknorm", 30, *SCHEDULE)
    again += train(resumed, "transformer_qknorm", 60, *SCHEDULE)
    assert metrics(at_once)[-1]["epoch"] == 60 // UPDATES_AN_EPOCH
    bleu = {row["update"]: row["dev_bleu"] for row in metrics(at_once)}
    rates, decays, scores = logged_rates(text), 0, []
    for update in range(1, 60):
        ramp = min(update + 1, 9) / 10  # of the update to come
        assert rates[update] == pytest.approx(0.004 * ramp * 0.5**decays, rel=1e-3), update
        if update in bleu:
            scores.append(bleu[update])
            falls = len(scores) > 1 and scores[-1] < scores[-2]
            decays += falls and update >= 10
    assert decays >= 3, "too few decays for the test to show anything"
    assert logged_rates(again) == rates
    for mine, its in zip(metrics(at_once), metrics(resumed), strict=True):
        assert {**mine, "elapsed": 0} == {**its, "elapsed": 0}
    ends = [torch.load(f / "checkpoint_last.pt", weights_only=True) for f in (at_once, resumed)]
    assert all(torch.equal(v, ends[1]["model"][name]) for name, v in ends[0]["model"].items())


def test_the_least_rate_ends_the_training(train: Train, tmp_path: Path) -> None:
    last = ("--min-lr", "0.0015", "--stop-min-lr", "0")
    text = train(tmp_path, "transformer_qknorm", 500, *SCHEDULE, *last)
    assert "stopping training because current learning rate (0.0)" in text
    rows, rates = metrics(tmp_path), logged_rates(text)
    falls = [
        row["update"]
        for before, row in itertools.pairwise(rows)
        if row["dev_bleu"] < before["dev_bleu"] and row["update"] >= 10
    ]
    below = falls[1]  # 0.0036, 0.0018, 0.0009
    assert {rate for update, rate in rates.items() if update > below} <= {0.0}
    assert max(rates) - below < UPDATES_AN_EPOCH, "it should end with the epoch"
    text = train(tmp_path, "transformer_qknorm", 500, *SCHEDULE, *last)
    assert not logged_rates(text), "resumed, it should stop at once"


def test_the_schedule_needs_a_dev_bleu(refused: Train, tmp_path: Path) -> None:
    said = refused(tmp_path, "transformer_qknorm", 2, *SCHEDULE, "--no-eval-bleu")
    assert "goes by the dev BLEU of --task low_resource_translation with --eval-bleu" in said


def test_bf16_trains_and_keeps_its_scales_in_float32(train: Train, tmp_path: Path) -> None:
    launcher = ("python", "-m", "qknorm_fairseq.launch")
    train(tmp_path, "transformer_qknorm_scalenorm", 40, "--bf16", by=launcher)
    model = torch.load(tmp_path / "checkpoint_last.pt", weights_only=True)["model"]
    scales = {name: value for name, value in model.items() if name.endswith(".g")}
    assert len(scales) == 3 + 3 + 4  # attentions; norms of encoder and decoder
    assert {value.dtype for value in scales.values()} == {torch.float32}
    moved = [value for name, value in scales.items() if "qk.g" in name]
    assert all(float(value) != pytest.approx(12.58920, abs=1e-4) for value in moved)
    assert all(float(v) != float(v.bfloat16()) for v in moved), "g moves in bfloat16's steps"


def test_a_missing_reference_is_said_in_a_line(
    workspace: Workspace, command: Command, tmp_path: Path
) -> None:
    words = ["fairseq-train", workspace.data("tiny") / "bin", *USE_PLUGIN.split()]
    words += [*SIZES.split(), *TRAINING.split(), "--arch", "transformer_qknorm"]
    words += ["--save-dir", tmp_path, "--eval-bleu-reference", tmp_path / "nowhere.yy"]
    done = command(*words)
    assert done.returncode != 0
    assert "nowhere.yy: no raw dev reference to score against" in done.stderr


@pytest.mark.parametrize(
    ("arch", "gains"),
    [
        ("transformer_qknorm", {"qk.g": 6}),
        ("transformer_scalenorm", {"layer_norm.g": 12}),
        ("transformer_layernorm", {}),
        ("transformer_qknorm_scalenorm", {"qk.g": 6, "layer_norm.g": 12}),
    ],
)
def test_hydra_builds_the_arm_that_its_yaml_names(
    arch: str, gains: dict[str, int], workspace: Workspace, command: Command, tmp_path: Path
) -> None:
    for name in ("qknorm_fairseq", "configs"):
        (tmp_path / name).symlink_to(ROOT / name)
    done = command(
        *["fairseq-hydra-train", "--config-dir", "configs/hydra", "--config-name", "toy"],
        f"model._name={arch}",
        f"task.data={workspace.data('tiny') / 'bin'}",
        "optimization.max_update=1",
        "lr_scheduler._name=validation_decay",
        cwd=tmp_path,
    )
    checkpoint = tmp_path / "runs/hydra/checkpoints/checkpoint_last.pt"
    assert checkpoint.exists(), done.stdout[-2000:] + done.stderr[-2000:]
    state = torch.load(checkpoint, weights_only=True)
    assert state["cfg"]["model"]["_name"] == arch
    assert state["optimizer_history"][-1]["lr_scheduler_state"]["decays"] == 0
    found = {
        kind: count
        for kind in ("qk.g", "layer_norm.g")
        if (count := sum(name.endswith(kind) for name in state["model"]))
    }
    assert found == gains
    assert state["model"]["encoder.embed_tokens.weight"].shape[1] == 128
