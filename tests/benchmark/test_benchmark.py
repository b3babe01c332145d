"""The benchmark measures what it says: the same work for all, in turn, and all of it."""

import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from torch.utils.flop_counter import FlopCounterMode

from qknorm_fairseq.benchmark import attention, decoding, floor, pipeline, shapes, systems, table
from qknorm_fairseq.benchmark.shapes import EOS, PAD, Shapes, batches, make_sample, spread
from qknorm_fairseq.benchmark.timing import in_turn, ratio

CPU = torch.device("cpu")
SMALL = Shapes("gl-en", 30, 20, [(3 + i % 7, 2 + i % 5) for i in range(40)], [4, 6, 9, 5, 7, 8])


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiny sizes and short sentences in place of the published ones."""
    published = shapes.published_options

    def options(pair: str, arm: str) -> dict[str, Any]:
        return {**published(pair, arm), **tiny.SIZES}

    monkeypatch.setattr(systems, "published_options", options)
    for module in ("training", "decoding"):
        monkeypatch.setattr(f"qknorm_fairseq.benchmark.{module}.load_shapes", lambda _: SMALL)


def test_systems_take_turns_and_the_order_changes() -> None:
    calls: list[tuple[str, int]] = []

    def caller(name: str) -> Callable[[int], Any]:
        return lambda number: calls.append((name, number))

    times = in_turn({name: caller(name) for name in "abc"}, rounds=4, device=CPU, warm_up=1)
    assert {name: len(found) for name, found in times.items()} == dict.fromkeys("abc", 4)
    counted = calls[3:]
    for number in range(4):
        assert sorted(counted[3 * number : 3 * number + 3]) == [(x, number) for x in "abc"]
    assert {counted[3 * number][0] for number in range(4)} == set("abc")


def test_a_ratio_is_the_median_of_paired_ratios() -> None:
    """A machine that slows down for everyone moves the times, not the ratios."""
    base = [1.0, 2.0, 8.0, 4.0, 1.0]
    found = ratio([t * f for t, f in zip(base, [0.9, 1.0, 1.1, 1.2, 0.8], strict=True)], base)
    assert found.median == pytest.approx(1.0)
    assert (found.low, found.high) == pytest.approx((0.9, 1.1))
    slept = in_turn({"a": lambda _: time.sleep(0.02), "b": lambda _: time.sleep(0.01)}, 3, CPU)
    assert ratio(slept["a"], slept["b"]).median == pytest.approx(2, rel=0.2)


def test_batches_hold_every_sentence_and_no_more_than_they_may() -> None:
    lengths = [
        (random.Random(i).randint(2, 60), random.Random(-i).randint(2, 60)) for i in range(300)
    ]
    found = batches(lengths, 512)
    assert sorted(pair for batch in found for pair in batch) == sorted(lengths)
    for batch in found:
        assert len(batch) * max(max(pair) for pair in batch) <= 512
    picked = spread(found, 5)
    assert [batch[0][0] for batch in picked] == sorted(batch[0][0] for batch in picked)


@pytest.mark.parametrize("pair", shapes.PAIRS)
def test_shapes_are_those_of_the_prepared_pairs(pair: str) -> None:
    """Means of all training sentences: 27.8 and 27.9 for gl-en, 25.0 and 27.1 for en-vi."""
    found = shapes.load_shapes(pair)
    means = {"gl-en": (27.8, 27.9), "en-vi": (25.0, 27.1)}[pair]
    for side, mean in enumerate(means):
        lengths = [both[side] for both in found.train]
        assert sum(lengths) / len(lengths) == pytest.approx(mean, rel=0.12)
    assert found.types == {"gl-en": 3_164, "en-vi": 8_361}[pair]
    assert len(found.dev) == {"gl-en": 682, "en-vi": 0}[pair]


def test_a_sample_is_padded_as_fairseqs_are() -> None:
    sample = make_sample([(5, 3), (2, 6), (4, 4)], SMALL, CPU)
    source, target = sample["net_input"]["src_tokens"], sample["target"]
    assert source.ne(PAD).sum(1).tolist() == [5, 2, 4]
    assert target.ne(PAD).sum(1).tolist() == [3, 6, 4]
    assert source[:, -1].eq(EOS).all()
    assert source[1, :3].eq(PAD).all()
    assert target[0, 2] == EOS
    assert target[0, 3:].eq(PAD).all()
    previous = sample["net_input"]["prev_output_tokens"]
    assert previous[:, 0].eq(EOS).all()
    assert previous[0].tolist() == [EOS, *target[0, :2].tolist(), PAD, PAD, PAD]
    assert target.max() < SMALL.target_types
    assert sample["ntokens"] == 13


@pytest.mark.usefixtures("small")
def test_the_floor_is_all_the_products_of_a_step_and_no_other() -> None:
    """torch's own counter sees the same operations in forward and backward."""
    system = systems.build("qknorm", SMALL, CPU)
    sample = make_sample(SMALL.train[:9], SMALL, CPU)
    with FlopCounterMode(display=False) as counter:
        system.train_step(sample)
    counted = counter.get_total_flops()
    found = floor.products(system.model, sample, SMALL.target_types)
    each = (p.left.numel() * p.right.shape[-1] for p in found)
    assert 3 * 2 * sum(each) == counted
    for product in found:
        product.run()


def test_systems_have_the_published_sizes() -> None:
    gl_en = shapes.load_shapes("gl-en")
    ours = systems.build("qknorm", gl_en, CPU)
    assert sum(p.numel() for p in ours.model.parameters()) == 31_051_880
    assert int(ours.model.decoder.output_projection.target_mask.sum()) == gl_en.target_types
    stock = systems.build(systems.STOCK, gl_en, CPU)
    # without 12 scales, the output's biases and the two languages' vectors
    assert sum(p.numel() for p in stock.model.parameters()) == 31_051_880 - 12 - 3_164 - 2 * 512
    assert stock.model.cfg.attention_dropout == ours.model.cfg.attention_dropout == 0.4
    assert stock.model.cfg.encoder.normalize_before


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", ["qknorm", systems.STOCK])
def test_a_step_learns(name: str) -> None:
    system = systems.build(name, SMALL, CPU)
    before = [p.detach().clone() for p in system.model.parameters()]
    system.train_step(make_sample(SMALL.train[:5], SMALL, CPU))
    moved = [not torch.equal(a, b) for a, b in zip(before, system.model.parameters(), strict=True)]
    assert sum(moved) > 0.8 * len(moved)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", ["qknorm", systems.STOCK])
def test_translations_are_as_long_as_they_are_forced_to_be(name: str) -> None:
    system = systems.build(name, SMALL, CPU)
    sample = make_sample([(n, n) for n in SMALL.dev], SMALL, CPU)
    found = decoding.translate(system, decoding.make_generator(system), sample)
    for beams, length in zip(found, SMALL.dev, strict=True):
        assert [len(hypothesis["tokens"]) for hypothesis in beams] == [length] * decoding.BEAM


def test_attention_is_measured_apart_with_its_memory() -> None:
    small, large = (attention._apart("qknorm", 0.3, n, CPU) for n in (64, 1024))
    assert large["ms"] > small["ms"] > 0
    weights = 8 * 1024 * 1024 * 4 / attention.MIB  # one float32 a head, query and key
    assert large["mib"] > 2 * weights  # dropout keeps more than one of them
    assert attention._apart("qknorm", 0.0, 1024, CPU)["mib"] < 3 * weights


@pytest.mark.usefixtures("small")
def test_results_have_their_keys_and_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        attention, "_apart", lambda kind, dropout, length, device: {"ms": 1.0, "mib": length / 64}
    )
    waits = {"help_seconds": 0.1, "prepared_lines_per_second": 500, "first_update_seconds": 9.0}
    monkeypatch.setattr(pipeline, "measure", lambda: waits)
    monkeypatch.setattr(table, "SMALL", 40)
    assert tiny.qknorm("benchmark", "--rounds", 3, "--json", tmp_path / "x.json") == 0
    found = json.loads((tmp_path / "x.json").read_text())
    ratios = found["ratios"]
    assert set(ratios) == {
        "train_step",
        "train_floor",
        "decode",
        "validation_share",
        "attention_memory_4096_over_1024",
    }
    assert set(ratios["train_step"]) == set(ratios["train_floor"]) == {"gl-en", "en-vi"}
    assert ratios["attention_memory_4096_over_1024"] == 4.0
    assert all(isinstance(v, float) and v > 0 for v in ratios["train_step"].values())
    assert found["machine"]["torch"].startswith("2.")
    assert found["skipped"] == ["everything that needs CUDA: no GPU was asked for"]
    printed = capsys.readouterr().out
    for part in ("to stock", "decoding, beam 4", "attention alone", "first updates after"):
        assert part in printed


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--device", "tpu"], "--device tpu: must be cpu or cuda"),
        (["--rounds", "1"], "--rounds 1: at least 2"),
        (["--json", "/nowhere/x.json", "--device", "npu"], "must be cpu or cuda"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tiny.qknorm("benchmark", *words) == 2
    assert said in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_said_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert tiny.qknorm("benchmark", "--device", "cuda") == 2
    assert "--device cuda: torch finds no GPU here" in capsys.readouterr().err


@pytest.mark.slow
def test_a_person_does_not_wait_long() -> None:
    waits = pipeline.measure()
    assert waits["help_seconds"] < 0.5
    assert waits["first_update_seconds"] < 60
    assert waits["prepared_lines_per_second"] > 100
