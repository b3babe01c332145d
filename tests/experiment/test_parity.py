"""Parity with the released code's numbers, and that it would notice if there were none."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qknorm_fairseq.cli import main
from qknorm_fairseq.experiment.errors import UserError
from qknorm_fairseq.experiment.fixture import read_fixture
from qknorm_fairseq.experiment.parity import TOLERANCE, Comparison, compare, report

UNTRAINED = [
    "qknorm_layernorm",
    "qknorm_layernorm_nofixnorm_nobias",
    "qknorm_layernorm_postnorm",
    "qknorm_scalenorm",
    "sdpa_layernorm",
    "sdpa_scalenorm",
]
TRAINED = ["trained_qknorm_layernorm", "trained_sdpa_scalenorm"]
SETTINGS = ["alpha=0.6,beam=4", "alpha=-1,beam=4", "alpha=0.6,beam=1", "alpha=1.0,beam=5"]


def fixture_path(reference: Path, name: str) -> Path:
    return reference / "parity" / f"{name}.npz"


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", UNTRAINED + TRAINED)
def test_everything_that_a_fixture_holds_agrees(reference: Path, name: str, dtype: str) -> None:
    fixture = read_fixture(fixture_path(reference, name))
    rows, largest = compare(fixture, dtype)
    assert largest <= TOLERANCE[dtype]
    compared = {row.name for row in rows if row.difference is not None}
    skipped = {row.name for row in rows if row.difference is None}
    given = {key for key in fixture.arrays if key.startswith(("in/", "param/"))}
    assert fixture.arrays.keys() - given <= compared, "a key was passed over"
    assert "n_params" in compared
    if name in TRAINED:
        assert {f"beam_best {setting}" for setting in SETTINGS} <= compared
        assert all(len(fixture.meta["beam_best"][setting]) == 24 for setting in SETTINGS)
        assert not skipped
    else:
        assert skipped == {"beam_best"}
        assert {f"grad/{key[6:]}" for key in given if key.startswith("param/")} <= compared


def test_a_key_that_nothing_answers_to_is_named(reference: Path, tmp_path: Path) -> None:
    extra = {"in/weather": np.zeros(1), "out/mood": np.zeros(1)}
    path = changed(fixture_path(reference, "sdpa_scalenorm"), tmp_path / "a.npz", extra, {})
    rows, largest = compare(read_fixture(path), "float64")
    assert largest < 1e-9
    assert {row.name for row in rows if row.difference is None} == {"beam_best", *extra}
    text, _ = report(path, "float64")
    assert text.count("skipped: ") == 3


def altered(path: Path, name: str, to: Path, quarter: int = 0) -> Path:
    """The fixture with an element of ``param/name`` that matters shifted by 1e-6.

    In q, k, v and o, which are packed, the first of the given ``quarter``.
    """
    with np.load(path) as file:
        arrays = {key: file[key] for key in file.files}
    value = np.array(arrays[f"param/{name}"])
    flat = value.reshape(-1)
    used = 0
    if name in ("word_embedding", "out_bias"):  # a row of a type that occurs
        used = int(arrays["in/targets"][0, 0]) * (value.size // len(value))
    elif name.endswith((".weights", ".biases")):
        used = quarter * value.size // 4
    flat[used] += 1e-6 * np.abs(value).max()
    arrays[f"param/{name}"] = value
    np.savez(to, **arrays)
    return to


def parameter_names(reference: Path, name: str) -> list[str]:
    arrays = read_fixture(fixture_path(reference, name)).arrays
    return [key.removeprefix("param/") for key in arrays if key.startswith("param/")]


@pytest.mark.parametrize("name", UNTRAINED + TRAINED)
def test_a_weight_that_is_off_by_a_millionth_is_noticed(
    reference: Path, name: str, tmp_path: Path
) -> None:
    path = fixture_path(reference, name)
    missed = []
    for parameter in parameter_names(reference, name):
        for quarter in range(4 if parameter.endswith((".weights", ".biases")) else 1):
            if quarter == 1 and parameter.endswith(".biases") and "sdpa" in name:
                continue  # softmax does not see what is added to all keys
            changed_file = altered(path, parameter, tmp_path / "altered.npz", quarter)
            rows = Comparison(read_fixture(changed_file), "float64").rows()
            # until the first that differs: beams, the slowest, come last
            if not any((row.difference or 0) > TOLERANCE["float64"] for row in rows):
                missed.append((parameter, quarter))
    assert missed == []


def test_the_report_ends_with_the_verdict(reference: Path, tmp_path: Path) -> None:
    path = fixture_path(reference, "sdpa_scalenorm")
    text, agrees = report(path, "float64")
    assert agrees
    assert text.splitlines()[-1].startswith("parity: ok, largest relative difference ")
    text, agrees = report(altered(path, "encoder.scales.0.scale", tmp_path / "a.npz"), "float64")
    assert not agrees
    assert text.splitlines()[-1].startswith("parity: FAILED, largest relative difference ")
    assert "above" in text


def test_the_commands_exit_status(
    reference: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = fixture_path(reference, "trained_sdpa_scalenorm")
    bad = altered(good, "lang_embedding", tmp_path / "bad.npz")
    assert main(["parity", str(good)]) == 0
    assert main(["parity", str(bad), str(good)]) == 1
    assert "differ from the reference's: bad.npz" in capsys.readouterr().err
    assert main(["parity", str(tmp_path / "none.npz")]) == 2


def changed(path: Path, to: Path, arrays: dict[str, Any], config: dict[str, Any]) -> Path:
    """The fixture with arrays and options replaced; None takes one out."""
    with np.load(path) as file:
        old = {key: file[key] for key in file.files}
    meta = json.loads(str(old.pop("meta")))
    new_config = meta["config"] | config
    meta["config"] = {name: value for name, value in new_config.items() if value is not None}
    kept = {name: value for name, value in (old | arrays).items() if value is not None}
    np.savez(to, meta=json.dumps(meta), **kept)
    return to


@pytest.mark.parametrize(
    ("arrays", "config", "said"),
    [
        ({"param/out_bias": None}, {}, "missing parameter out_bias"),
        ({"param/extra": np.zeros(3)}, {}, "unknown parameter extra"),
        ({"param/out_bias": np.zeros(39)}, {}, r"out_bias has the shape \(39,\), not \(40,\)"),
        ({"param/lang_embedding": np.zeros((3, 32))}, {}, r"lang_embedding has the shape \(3, 32"),
        (
            {"param/encoder.atts.0.mha_scale.scale": np.zeros(1)},
            {},
            "mha_scale.scale has the shape",
        ),
        ({}, {"use_rotary": True}, "unknown option use_rotary"),
        ({}, {"scnorm": None}, "option scnorm is missing"),
        ({}, {"scnorm": "rms"}, "option scnorm is 'rms', but must be true or false"),
        ({}, {"num_heads": 5}, "5 attention heads do not divide the width 32"),
        ({}, {"num_heads": 0}, "option num_heads is 0, but must be a whole number above 0"),
        ({}, {"embed_dim": "x"}, "option embed_dim is 'x', but must be a whole number above 0"),
        ({}, {"fix_norm": 3}, "option fix_norm is 3, but must be true or false"),
        ({}, {"label_smoothing": "x"}, "option label_smoothing is 'x', but must be a number"),
        ({}, {"num_enc_layers": 3}, "missing parameter encoder.atts.2"),
        ({"in/src": None}, {}, "in/src is missing"),
        ({"in/src": np.full((5, 9), 77)}, {}, "in/src must be batch × length of type numbers"),
        ({"in/src": np.full((5, 9), 7.0)}, {}, "in/src must be batch × length of type numbers"),
        ({"in/src": np.zeros((0, 9), int)}, {}, "in/src must be batch × length of type numbers"),
        ({"in/src": np.full((4, 9), 7)}, {}, "are not of one batch"),
        ({"in/targets": np.full((5, 9), 7)}, {}, "are not of one batch"),
        ({"in/logit_mask": np.ones(39)}, {}, r"in/logit_mask has the shape \(39,\), not \(40,\)"),
        ({"out/loss": None}, {}, "out/loss is missing"),
        ({"grad/out_bias": None}, {}, "grad/out_bias is missing"),
    ],
)
def test_a_fixture_that_does_not_fit_is_named(
    reference: Path, tmp_path: Path, arrays: dict[str, Any], config: dict[str, Any], said: str
) -> None:
    path = changed(
        fixture_path(reference, "qknorm_layernorm"), tmp_path / "bad.npz", arrays, config
    )
    with pytest.raises(UserError, match=said) as error:
        compare(read_fixture(path), "float64")
    assert "bad.npz" in str(error.value)


def test_nan_and_nonsense_are_no_agreement(reference: Path, tmp_path: Path) -> None:
    path = fixture_path(reference, "trained_sdpa_scalenorm")
    with np.load(path) as file:
        arrays = {key: file[key] for key in file.files}
    for i, (value, status) in enumerate(((float("nan"), 1), ("x", 2), ({}, 2), (None, 2))):
        meta = json.loads(str(arrays["meta"]))
        if i < 2:
            meta["beam_best"][SETTINGS[0]][0]["score"] = value
        else:
            meta["beam_best"] = value
        arrays["meta"] = np.array(json.dumps(meta))
        np.savez(tmp_path / "bad.npz", **arrays)
        arrays["meta"] = np.load(path)["meta"]
        assert main(["parity", str(tmp_path / "bad.npz")]) == status, value
    arrays["out/loss"] = np.array(float("nan"))
    np.savez(tmp_path / "bad.npz", **arrays)
    assert main(["parity", str(tmp_path / "bad.npz")]) == 1


def test_what_is_no_fixture_is_named(tmp_path: Path) -> None:
    (tmp_path / "text.npz").write_text("nothing")
    (tmp_path / "empty.npz").write_text("")
    np.savez(tmp_path / "other.npz", a=np.zeros(2))
    for name in ("text.npz", "empty.npz", "other.npz", "none.npz"):
        with pytest.raises(UserError, match=f"{name}: not a parity fixture"):
            read_fixture(tmp_path / name)
