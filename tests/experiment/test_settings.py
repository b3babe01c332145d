"""Pairs, arms and profiles: all load, and have what the papers say."""

from pathlib import Path

import pytest

from qknorm_fairseq.experiment import settings
from qknorm_fairseq.experiment.errors import UserError
from qknorm_fairseq.experiment.settings import (
    CONFIGS,
    as_arguments,
    load_arm,
    load_pair,
    load_profile,
    resolve_options,
)

PAIRS = sorted(path.stem for path in (CONFIGS / "pairs").glob("*.yaml"))
ARMS = sorted(path.stem for path in (CONFIGS / "arms").glob("*.yaml"))
PROFILES = sorted(path.stem for path in (CONFIGS / "profiles").glob("*.yaml"))


def test_what_the_documentation_names_is_there() -> None:
    assert {"gl-en", "sk-en", "ar-en", "en-he", "en-vi", "toy"} <= set(PAIRS)
    assert {"scalenorm", "qknorm", "layernorm", "qknorm_scalenorm"} <= set(ARMS)
    assert {"paper", "cpu", "smoke"} <= set(PROFILES)


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("profile", PROFILES)
def test_every_pair_and_profile_says_what_a_run_needs(pair: str, profile: str) -> None:
    options = resolve_options(load_pair(pair), load_arm("qknorm"), load_profile(profile))
    assert options["max-update"] > 0
    assert options["validate-interval-updates"] == options["save-interval-updates"]


# layers, heads, dropout, updates an "epoch", most epochs, last rate, merges, L, and the paper's
# baseline and QKNorm: Nguyen & Salazar 2019, table 1; Henry et al. 2020, tables 1 and 2; the
# last rate by the released code
PUBLISHED = {
    "gl-en": (4, 4, 0.4, 100, 1000, 5e-5, 3000, 79, 22.01, 24.21),
    "sk-en": (6, 8, 0.3, 600, 200, 1e-5, 8000, 75, 32.58, 33.23),
    "en-vi": (6, 8, 0.3, 1500, 200, 1e-5, 8000, 72, 32.79, 33.24),
    "en-he": (6, 8, 0.3, 2000, 200, 1e-5, 8000, 72, 28.28, 28.96),
    "ar-en": (6, 8, 0.3, 2000, 200, 1e-5, 8000, 75, 36.09, 36.75),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_paper_profile_is_as_published(name: str) -> None:
    layers, heads, dropout, interval, epochs, last, merges, length, *bleu = PUBLISHED[name]
    pair = load_pair(name)
    options = resolve_options(pair, load_arm("qknorm"), load_profile("paper"))
    for side in ("encoder", "decoder"):
        assert options[f"{side}-layers"] == layers
        assert options[f"{side}-attention-heads"] == heads
        assert (options[f"{side}-embed-dim"], options[f"{side}-ffn-embed-dim"]) == (512, 2048)
    for kind in ("dropout", "attention-dropout", "activation-dropout"):
        assert options[kind] == dropout
    for event in ("validate", "save"):
        assert options[f"{event}-interval-updates"] == interval
    assert options["max-update"] == interval * epochs
    assert (options["min-lr"], options["stop-min-lr"]) == (last, 0)
    assert (pair.merges, options["qk-scale-length"]) == (merges, length)
    assert [pair.paper["scalenorm"], pair.paper["qknorm"]] == bleu
    assert options["lr"] == pytest.approx((512 * 8000) ** -0.5, rel=1e-12)
    expected = {
        "lr-scheduler": "validation_decay",
        "warmup-updates": 8000,
        "lr-shrink": 0.8,
        "lr-patience": 3,
        "decay-rule": "released",
        "word-dropout": 0.1,
        "label-smoothing": 0.1,
        "clip-norm": 1.0,
        "max-tokens": 4096,
        "adam-betas": "(0.9, 0.999)",
        "positions": "released",
        "decoder-start": "bos",
    }
    assert {name: options[name] for name in expected} == expected


def test_smoke_validates_ten_times() -> None:
    options = load_profile("smoke").options
    assert options["max-update"] >= 10 * options["validate-interval-updates"]


@pytest.mark.parametrize("load", [load_pair, load_arm, load_profile])
def test_an_unknown_name_lists_the_known_ones(load: object) -> None:
    assert callable(load)
    with pytest.raises(UserError, match=r"unknown (pair|arm|profile) 'xyz'; known: \w+"):
        load("xyz")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("merges: abc", "--merges 'abc': must be a whole number above 0"),
        ("merges: -5", "--merges -5: must be"),
        ("source: no", "--source False: must be a language code"),
        ("options: [a]", "options is ['a'], but must be a mapping"),
        ("paper: {qknorm: '24,21'}", "but must be a mapping of arms to numbers"),
        ("sorce: be", "unexpected keyword argument 'sorce'"),
        ("merges: [", "mend that file"),
        ("preparation: {bpe: x}", "--bpe 'x': must be subword-nmt or"),
        ("preparation: {1: 9}", "preparation: unknown 1; known: text, bpe,"),
        ("preparation: {merges: 9}", "preparation: unknown merges"),
        ("preparation: {bpe: {a: b}}", "must be subword-nmt or"),
        ("options: {d: 2023-01-01}", "must be a mapping of options to numbers, words"),
        ("merges: 99999999999999", "must be a whole number above 0, at most 1,000,000"),
        ("merges:", "missing 1 required positional argument: 'merges'"),
        ("preparation: [bpe]", "preparation is ['bpe'], but must be a mapping"),
    ],
)
def test_a_slip_in_a_file_is_named(
    line: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pairs").mkdir()
    values = {"source": "source: be", "target": "target: en", "merges": "merges: 10"}
    values[line.split(":")[0]] = line
    (tmp_path / "pairs" / "be-en.yaml").write_text("\n".join(values.values()))
    monkeypatch.setattr(settings, "CONFIGS", tmp_path)
    with pytest.raises(UserError) as error:
        load_pair("be-en")
    assert said in str(error.value)
    assert "be-en.yaml" in str(error.value)


def test_options_become_words_of_a_command_line() -> None:
    options = {"arch": "a", "lr": 1e-3, "fp16": True, "no-such": None, "fix-norm": False}
    words = ["--arch", "a", "--lr", "0.001", "--fp16", "--no-fix-norm"]
    assert as_arguments(options) == words


def test_other_languages_have_no_published_figures() -> None:
    pair = load_pair("gl-en")
    assert pair.prepared_by({"max_words": 100}).paper == pair.paper
    other = pair.prepared_by({"source": "en", "target": "gl"})
    assert other.paper == {}
    assert "qk-scale-length" not in other.options
    kept = pair.prepared_by({"drop_overlap": True})
    assert kept.options["qk-scale-length"] == 79
    for choice in ({"merges": 9}, {"bpe": "sentencepiece-bpe"}, {"bpe_dropout": 0.1}):
        measured = pair.prepared_by(choice)
        assert "qk-scale-length" not in measured.options  # other pieces, another length
        assert measured.paper == pair.paper
