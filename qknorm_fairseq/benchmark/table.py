"""All that is measured, as JSON and as tables for a terminal."""

import os
import platform
from importlib.metadata import version
from typing import Any

import torch
from tabulate import tabulate

from qknorm_fairseq.benchmark import attention, decoding, pipeline, training
from qknorm_fairseq.benchmark.shapes import PAIRS
from qknorm_fairseq.benchmark.systems import STOCK
from qknorm_fairseq.benchmark.training import FLOOR
from qknorm_fairseq.experiment.console import Stages
from qknorm_fairseq.experiment.errors import UserError
from qknorm_fairseq.experiment.machine import processor

FIRST = "qknorm"  # the arm of the ratios
ARMS = (FIRST, "scalenorm", "layernorm", "qknorm_scalenorm")
SMALL, PUBLISHED = 1024, 4096  # tokens a batch and side
VALIDATION_STEPS = 3

Results = dict[str, Any]


def find_device(name: str) -> torch.device:
    """The device called ``name``; UserError when it is not there."""
    if name not in ("cpu", "cuda"):
        raise UserError(f"--device {name}: must be cpu or cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: torch finds no GPU here; use --device cpu")
    return torch.device(name)


def run(device: torch.device, rounds: int, full: bool) -> Results:
    """Measure everything; on a CPU with one thread.

    Raises:
        UserError: for fewer than two rounds.
    """
    if rounds < 2:
        raise UserError(f"--rounds {rounds}: at least 2, or nothing can be said of the spread")
    torch.set_num_threads(1)
    arms = list(ARMS if full else ARMS[:1])
    max_tokens = PUBLISHED if full else SMALL
    stages = Stages(total=len(PAIRS) + 4)
    steps = {}
    for pair in PAIRS:
        stages.start("train step", f"{pair}, {max_tokens:,} tokens, {rounds} rounds")
        steps[pair] = training.measure(pair, arms, max_tokens, rounds, device)
        stages.done(f"{steps[pair]['to_stock'][FIRST]['median']:.2f} of stock")
    stages.start("decoding", f"gl-en, beam {decoding.BEAM}, {max_tokens:,} tokens")
    decoded = decoding.measure(arms, max_tokens, rounds, device)
    stages.done(f"{decoded['to_stock'][FIRST]['median']:.2f} of stock")
    stages.start("validation", "gl-en's dev set beside 100 updates of the paper profile")
    validated = decoding.validation(FIRST, VALIDATION_STEPS, device)
    stages.done(f"{validated['share']:.2f} of the updates' time")
    stages.start("attention", f"lengths {attention.LENGTHS[0]} to {attention.LENGTHS[-1]:,}")
    alone = attention.measure(device)
    stages.done(f"memory {attention.memory_ratio(alone):.2f}-fold from 1,024 to 4,096")
    stages.start("pipeline", "help, preparation and the first update of toy")
    waits = pipeline.measure()
    stages.done(f"first update after {waits['first_update_seconds']:.0f} s")
    return {
        "machine": machine(device),
        "ratios": {
            "train_step": medians("to_stock", steps),
            "train_floor": medians("to_floor", steps),
            "decode": decoded["to_stock"][FIRST]["median"],
            "validation_share": validated["share"],
            "attention_memory_4096_over_1024": attention.memory_ratio(alone),
        },
        "arms": {
            arm: {
                "train_step": {pair: found["to_stock"][arm] for pair, found in steps.items()},
                "train_floor": {pair: found["to_floor"][arm] for pair, found in steps.items()},
                "decode": decoded["to_stock"][arm],
            }
            for arm in arms
        },
        "train_step": steps,
        "decoding": decoded,
        "validation": validated,
        "attention": alone,
        "pipeline": waits,
        "skipped": skipped(device),
    }


def medians(to: str, steps: dict[str, Any]) -> dict[str, float]:
    """A ratio of the first arm, by pair."""
    return {pair: found[to][FIRST]["median"] for pair, found in steps.items()}


def skipped(device: torch.device) -> list[str]:
    """What is not measured here, by name."""
    return [] if device.type == "cuda" else ["everything that needs CUDA: no GPU was asked for"]


def machine(device: torch.device) -> dict[str, Any]:
    """What it was measured on."""
    return {
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
        "platform": platform.platform(),
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "ve-fairseq")},
    }


def show(results: Results) -> str:
    """The results for a terminal."""
    parts = [_steps(results), _decoding(results), _attention(results), _waits(results)]
    return "\n\n".join(parts)


def _spread(found: dict[str, float]) -> str:
    return f"{found['median']:.2f} ({found['low']:.2f}–{found['high']:.2f})"


def _steps(results: Results) -> str:
    rows = []
    for pair, found in results["train_step"].items():
        for name in (STOCK, *results["arms"], FLOOR):
            words = found["words_per_second"].get(name)
            to_stock, to_floor = found["to_stock"].get(name), found["to_floor"].get(name)
            rows.append(
                [
                    pair,
                    name,
                    f"{found['ms'][name]:,.0f}",
                    f"{words:,}" if words else "",
                    _spread(to_stock) if to_stock else "",
                    _spread(to_floor) if to_floor else "",
                ]
            )
    header = ["training step", "", "ms", "words/s", "to stock", "to floor"]
    align = ["left", "left", *["right"] * 4]
    return tabulate(rows, header, colalign=align, disable_numparse=True)


def _decoding(results: Results) -> str:
    found, share = results["decoding"], results["validation"]
    rows = [
        [name, f"{speed:.1f}", _spread(found["to_stock"][name]) if name != STOCK else ""]
        for name, speed in found["sentences_per_second"].items()
    ]
    header = [f"decoding, beam {found['beam']}", "sentences/s", "time to stock"]
    table = tabulate(rows, header, colalign=["left", "right", "right"], disable_numparse=True)
    return (
        f"{table}\n\ndev BLEU of {share['sentences']} sentences: {share['seconds']:.0f} s, "
        f"{share['share']:.2f} of 100 updates ({share['seconds_of_100_updates']:,.0f} s)"
    )


def _attention(results: Results) -> str:
    lengths = sorted({row["length"] for row in results["attention"]})
    cases: dict[tuple[str, float], list[str]] = {}
    for row in results["attention"]:
        cell = f"{row['ms']:.1f} / {row['mib']:.0f}"
        cases.setdefault((row["kind"], row["dropout"]), []).append(cell)
    rows = [[f"{kind}, dropout {dropout:g}", *cells] for (kind, dropout), cells in cases.items()]
    header = ["attention alone, ms / MiB", *(f"{length:,}" for length in lengths)]
    align = ["left", *["right"] * len(lengths)]
    return tabulate(rows, header, colalign=align, disable_numparse=True)


def _waits(results: Results) -> str:
    waits, where = results["pipeline"], results["machine"]
    return (
        f"qknorm --help: {waits['help_seconds']:.2f} s; toy: "
        f"{waits['prepared_lines_per_second']:,} lines/s prepared, first updates after "
        f"{waits['first_update_seconds']:.1f} s\n"
        f"{where['processor']}, {where['threads']} thread of {where['cores']} cores, torch "
        f"{where['torch']}; ratios: median (quartiles) of rounds in turn"
        + "".join(f"\nskipped: {what}" for what in results["skipped"])
    )
