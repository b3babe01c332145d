"""Checkpoints of the released code to fairseq's and back, bit for bit."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import Command
from torch import Tensor

from qknorm_fairseq.cli import main
from qknorm_fairseq.experiment import convert
from qknorm_fairseq.experiment.errors import UserError
from qknorm_fairseq.experiment.fixture import read_fixture

SPECIALS = ["_PAD_", "_BOS_", "_EOS_", "_UNK_"]


def released_model(
    folder: Path, norm: str = "layernorm", qk: bool = True, pre: bool = True, bias: bool = True
) -> dict[str, Tensor]:
    """The three files of a random model of the released code, whose scales are float64."""
    types, d, ff, layers, generator = 20, 8, 12, 2, torch.Generator().manual_seed(3)
    params: dict[str, Tensor] = {}

    def add(name: str, *shape: int, dtype: torch.dtype = torch.float32) -> None:
        params[name] = torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)

    add("word_embedding", types, d)
    add("lang_embedding", 2, d)
    if bias:
        add("out_bias", types)
    for side in ("encoder", "decoder"):
        kinds = ["atts"] if side == "encoder" else ["atts", "cross_atts"]
        for i in range(layers):
            for kind in kinds:
                add(f"{side}.{kind}.{i}.weights", 4 * d, d)
                if bias:
                    add(f"{side}.{kind}.{i}.biases", 4 * d)
                if qk:
                    add(f"{side}.{kind}.{i}.mha_scale.scale", dtype=torch.float64)
            for name, rows, columns in (("in_proj", ff, d), ("out_proj", d, ff)):
                add(f"{side}.ffs.{i}.{name}.weight", rows, columns)
                if bias:
                    add(f"{side}.ffs.{i}.{name}.bias", rows)
        for i in range(layers * (len(kinds) + 1) + pre):
            if norm == "scalenorm":
                add(f"{side}.scales.{i}.scale")
            else:
                add(f"{side}.scales.{i}.weight", d)
                add(f"{side}.scales.{i}.bias", d)
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(params, folder / "model.pth")
    words = [*SPECIALS, *(f"w{i}@@" for i in range(types - 4))]
    lines = [f"{word} {i} {0 if i < 4 else 100 - i}\n" for i, word in enumerate(words)]
    (folder / "vocab.joint").write_text("".join(lines))
    mask = np.array([0, 0, 1, 1] + [i % 3 > 0 for i in range(types - 4)], dtype=np.uint8)
    np.save(folder / "mask.vi.npy", mask)
    return params


def to_fairseq(folder: Path, *more: str) -> int:
    words = ["convert", folder / "model.pth", "--vocab", folder / "vocab.joint"]
    words += ["--mask", folder / "mask.vi.npy", "--heads", "2", "--source", "en"]
    return main([str(word) for word in [*words, "--out", folder / "out", *more]])


@pytest.mark.parametrize(
    "kind",
    [
        {},
        {"norm": "scalenorm", "qk": False},
        {"pre": False},
        {"bias": False},
        {"norm": "scalenorm", "pre": False},
    ],
)
@pytest.mark.parametrize("source_row", ["0", "1"])
def test_there_and_back_gives_the_same_bits(
    tmp_path: Path,
    kind: dict[str, Any],
    source_row: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    params = released_model(tmp_path, **kind)
    assert to_fairseq(tmp_path, "--source-row", source_row) == 0
    assert capsys.readouterr().err == ""
    back = tmp_path / "back" / "model.pth"
    assert main(["convert", str(tmp_path / "out"), "--to", str(back)]) == 0
    again = torch.load(back, weights_only=True)
    assert again.keys() == params.keys()
    for name, value in params.items():
        assert again[name].dtype == value.dtype, name
        assert torch.equal(again[name], value), name
    for name in ("vocab.joint", "mask.vi.npy"):
        assert (back.parent / name).read_bytes() == (tmp_path / name).read_bytes()


def test_a_converted_model_translates_by_fairseqs_command(
    reference: Path, tmp_path: Path, command: Command
) -> None:
    """The reference's own model, its best translations by ``fairseq-interactive``."""
    fixture = read_fixture(reference / "parity" / "trained_qknorm_layernorm.npz")
    params = fixture.tensors("param", torch.float32)
    types = fixture.config["joint_vocab_size"]
    words = [*SPECIALS, *(f"w{i}" for i in range(4, types))]
    torch.save(params, tmp_path / "model.pth")
    lines = [f"{word} {i} 1\n" for i, word in enumerate(words)]
    (tmp_path / "vocab.joint").write_text("".join(lines))
    np.save(tmp_path / "mask.vi.npy", fixture.arrays["in/logit_mask"])
    assert to_fairseq(tmp_path, "--heads", str(fixture.config["num_heads"])) == 0
    sources = [
        " ".join(words[token] for token in row if token not in (0, 2))
        for row in fixture.arrays["in/src"].tolist()
    ]
    done = command(
        *["fairseq-interactive", tmp_path / "out", "--user-dir", "qknorm_fairseq"],
        *["--task", "low_resource_translation", "--source-lang", "en", "--target-lang", "vi"],
        *["--path", tmp_path / "out" / "checkpoint.pt", "--beam", "4", "--buffer-size", "24"],
        *["--batch-size", "5"],
        text="\n".join(sources) + "\n",
    )
    assert done.returncode == 0, done.stderr
    found = {
        int(line.split("\t")[0][2:]): line.split("\t")[2]
        for line in done.stdout.splitlines()
        if line.startswith("H-")
    }
    best = fixture.meta["beam_best"]["alpha=0.6,beam=4"]
    expected = [" ".join(words[token] for token in one["tokens"]) for one in best]
    assert [found[i] for i in range(len(expected))] == expected


def test_a_trained_run_becomes_the_released_codes_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    released_model(tmp_path / "a")
    assert to_fairseq(tmp_path / "a") == 0
    run = tmp_path / "run"  # as a training leaves it: the dictionaries lie with the data
    (run / "checkpoints").mkdir(parents=True)
    checkpoint = torch.load(tmp_path / "a" / "out" / "checkpoint.pt", weights_only=True)
    checkpoint["cfg"]["model"]["decoder_start"] = "eos"
    torch.save(checkpoint, run / "checkpoints" / "checkpoint_best.pt")
    assert main(["convert", str(run), "--to", str(tmp_path / "b" / "m.pth")]) == 0
    said = capsys.readouterr().err
    assert "2 heads, FixNorm, released positions, row 0 of lang_embedding" in said
    assert "trained to start from </s>, the released code starts from _BOS_" in said
    assert {path.name for path in (tmp_path / "b").iterdir()} == {
        "m.pth",
        "vocab.joint",
        "mask.vi.npy",
    }


def break_vocab(folder: Path, line: str, number: int) -> None:
    path = folder / "vocab.joint"
    lines = path.read_text().split("\n")
    lines[number - 1] = line
    path.write_text("\n".join(lines))


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("out_bias", None, "model.pth: missing parameter out_bias"),
        ("encoder.atts.0.mha_scale.scale", None, "missing parameter encoder.atts.0.mha_scale.scal"),
        ("decoder.atts.0.biases", None, "missing parameter decoder.atts.0.biases"),
        ("encoder.scales.4.weight", None, "missing parameter encoder.scales.4.weight"),
        ("word_embedding", torch.zeros(()), r"word_embedding has the shape \(\)"),
        ("encoder.atts.1.weights", None, "model.pth: missing parameter encoder.atts.1.weights"),
        ("decoder.extra", torch.zeros(2), "model.pth: unknown parameter decoder.extra"),
        ("lang_embedding", torch.zeros(2, 9), r"lang_embedding has the shape \(2, 9\)"),
        ("word_embedding", torch.zeros(19, 8), r"word_embedding has the shape \(19, 8\)"),
        ("word_embedding", None, "missing parameter word_embedding"),
    ],
)
def test_a_file_that_does_not_fit_is_named(
    tmp_path: Path,
    name: str,
    value: Tensor | None,
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    params: dict[str, Tensor | None] = {**released_model(tmp_path), name: value}
    torch.save({k: v for k, v in params.items() if v is not None}, tmp_path / "model.pth")
    assert to_fairseq(tmp_path) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not (tmp_path / "out").exists()
    with pytest.raises(UserError, match=said):
        convert.from_released(
            tmp_path / "model.pth",
            tmp_path / "vocab.joint",
            None,
            convert.ModelFacts(heads=2),
            tmp_path / "out",
        )


@pytest.mark.parametrize(
    ("line", "number", "said"),
    [
        (
            "_PAD_ 3 0",
            4,
            "vocab.joint, line 4: '_PAD_' should be _UNK_",
        ),
        ("w0@@ 5 1", 6, "vocab.joint, line 6: 'w0@@' stands there a second time"),
        ("w2@@ 7 1", 7, "vocab.joint, line 7: «w2@@ 7 1» should be a type, 6 and its count"),
        ("two words 6 1", 7, "vocab.joint, line 7"),
    ],
)
def test_a_slip_in_the_vocabulary_is_named(
    tmp_path: Path, line: str, number: int, said: str
) -> None:
    released_model(tmp_path)
    break_vocab(tmp_path, line, number)
    with pytest.raises(UserError, match=said):
        convert.from_released(
            tmp_path / "model.pth",
            tmp_path / "vocab.joint",
            tmp_path / "mask.vi.npy",
            convert.ModelFacts(heads=2),
            tmp_path / "out",
        )


def test_other_slips_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    released_model(tmp_path)

    def said(*words: object) -> str:
        assert main(["convert", *(str(word) for word in words)]) == 2
        return capsys.readouterr().err

    model, vocab, out = tmp_path / "model.pth", tmp_path / "vocab.joint", tmp_path / "out"
    assert "needs --vocab, --heads and --out" in said(model, "--vocab", vocab)
    common = ("--vocab", vocab, "--heads", "2", "--out", out)
    assert "nowhere.pth: no such file" in said(tmp_path / "nowhere.pth", *common)
    assert "vocab.joint: not a state dict that torch can read" in said(vocab, *common)
    for heads in ("0", "-2"):
        assert f"{heads} attention heads do not divide" in said(
            model, *common[:2], "--heads", heads, *common[4:]
        )
    (tmp_path / "mask.yy.npy").write_bytes(b"")
    assert "not a NumPy array" in said(model, *common, "--mask", tmp_path / "mask.yy.npy")
    assert "3 attention heads do not divide" in said(model, *common[:2], "--heads", 3, *common[4:])
    np.save(tmp_path / "mask.xx.npy", np.ones(19))
    assert "0 or 1 for each of 20 types" in said(model, *common, "--mask", tmp_path / "mask.xx.npy")
    shutil.copy(tmp_path / "mask.vi.npy", tmp_path / "m.npy")
    assert "say the language with --target" in said(model, *common, "--mask", tmp_path / "m.npy")
    assert "no run with a checkpoint" in said(tmp_path, "--to", tmp_path / "x.pth")
    np.save(tmp_path / "mask.zz.npy", np.zeros(20))
    assert "forbids _EOS_" in said(model, *common, "--mask", tmp_path / "mask.zz.npy")
    assert "'a/b' is no language code" in said(model, *common, "--source", "a/b")
    (tmp_path / "empty.pth").write_bytes(b"")
    assert "not a state dict that torch can read" in said(tmp_path / "empty.pth", *common)
    assert not out.exists()
    assert to_fairseq(tmp_path) == 0
    assert "name of another of the three" in said(out, "--to", tmp_path / "b" / "vocab.joint")
    assert "is there already" in said(model, *common)
    assert "model.pth: is there already; give --to another folder" in said(out, "--to", model)
    back = tmp_path / "back" / "m.pth"
    assert "--heads says nothing with --to" in said(out, "--to", back, "--heads", "2")
    assert "--no-fix-norm says nothing with --to" in said(out, "--to", back, "--no-fix-norm")
    assert "--out says nothing with --to" in said(out, "--to", back, "--out", tmp_path)
    assert not back.parent.exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"residual_norm": "none"}, "no model with residual_norm none"),
        ({"positions": "fairseq"}, "no model with positions fairseq"),
        ({"output_bias": False}, "no model with output_bias False"),
        ({"decoder_attention_heads": 4}, "no model with decoder_attention_heads 4"),
        ({"decoder_layers": 3}, "Missing key"),
    ],
)
def test_a_model_that_the_released_code_does_not_have_is_refused(
    tmp_path: Path, options: dict[str, Any], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    released_model(tmp_path)
    assert to_fairseq(tmp_path) == 0
    path = tmp_path / "out" / "checkpoint.pt"
    checkpoint = torch.load(path, weights_only=True)
    checkpoint["cfg"]["model"] |= options
    torch.save(checkpoint, path)
    capsys.readouterr()
    assert main(["convert", str(path), "--to", str(tmp_path / "back" / "m.pth")]) == 2
    captured = capsys.readouterr().err
    assert said in captured and len(captured.splitlines()) == 1
    assert not (tmp_path / "back").exists()
