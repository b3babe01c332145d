"""Beam search beside stock fairseq's, and what dev BLEU costs beside the training."""

import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from fairseq.search import BeamSearch
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor

from qknorm_fairseq.benchmark.shapes import batches, load_shapes, make_sample, spread
from qknorm_fairseq.benchmark.systems import STOCK, System, build
from qknorm_fairseq.benchmark.timing import in_turn, ratio, synchronise
from qknorm_fairseq.sequence_generator import GNMTSequenceGenerator

BEAM = 4
PUBLISHED_TOKENS = 4096


class ForcedLengths(BeamSearch):
    """Beam search in which every translation is as long as its source: untrained models stop
    anywhere, and two of them at different places."""

    needs_src_lengths = True  # the generator then calls set_src_lengths at every step

    def set_src_lengths(self, src_lengths: Tensor) -> None:
        """(batch,) lengths of the sources still being translated, with eos."""
        self.lengths = src_lengths

    def step(self, step: int, lprobs: Tensor, *args: Any, **kwargs: Any) -> Any:
        """eos at the last step of a sentence and at no other; ``lprobs`` (batch, beam, types)."""
        is_eos = torch.arange(lprobs.shape[-1], device=lprobs.device) == self.eos
        ends = (self.lengths <= step + 1)[:, None, None]
        return super().step(step, lprobs.masked_fill(ends ^ is_eos, -math.inf), *args, **kwargs)


def make_generator(system: System) -> Any:
    """The generator of a system, with lengths forced."""
    dictionary = system.task.target_dictionary
    options: dict[str, Any] = {"beam_size": BEAM, "search_strategy": ForcedLengths(dictionary)}
    if system.name == STOCK:
        return SequenceGenerator([system.model], dictionary, max_len_b=5, max_len_a=1, **options)
    return GNMTSequenceGenerator(
        [system.model], dictionary, gnmt_alpha=0.6, max_length_over_source=5, **options
    )


def translate(system: System, generator: Any, sample: dict[str, Any]) -> list[list[Any]]:
    """The beams of each sentence of a batch."""
    system.model.eval()
    start = system.task.target_dictionary.eos()
    if system.name != STOCK:
        start = system.model.start_token()
    with torch.no_grad():
        found: list[list[Any]] = generator.generate([system.model], sample, bos_token=start)
    return found


def _translator(system: System, samples: list[dict[str, Any]]) -> Callable[[int], Any]:
    generator = make_generator(system)
    return lambda number: translate(system, generator, samples[number])


def measure(arms: list[str], max_tokens: int, rounds: int, device: torch.device) -> dict[str, Any]:
    """gl-en's sizes: time to stock's and sentences a second; a round is a batch of the dev set."""
    shapes = load_shapes("gl-en")
    chosen = spread(batches([(n, n) for n in shapes.dev], max_tokens), rounds)
    samples = [make_sample(lengths, shapes, device) for lengths in chosen]
    systems = {name: _translator(build(name, shapes, device), samples) for name in (STOCK, *arms)}
    times = in_turn(systems, rounds, device)
    sentences = sum(len(lengths) for lengths in chosen)
    return {
        "beam": BEAM,
        "max_tokens": max_tokens,
        "rounds": rounds,
        "sentences_per_second": {name: round(sentences / sum(t), 2) for name, t in times.items()},
        "to_stock": {name: ratio(times[name], times[STOCK]).record() for name in arms},
    }


def validation(arm: str, steps: int, device: torch.device) -> dict[str, Any]:
    """Dev BLEU of gl-en at the ``paper`` profile, over 100 updates between validations.

    Sources are as long as the references, and translations forced to that.
    """
    shapes = load_shapes("gl-en")
    system = build(arm, shapes, device)
    chosen = spread(batches(shapes.train, PUBLISHED_TOKENS), steps)
    samples = [make_sample(lengths, shapes, device) for lengths in chosen]
    times = in_turn({arm: lambda number: system.train_step(samples[number])}, steps, device)
    step = statistics.mean(times[arm])
    generator = make_generator(system)
    dev = batches([(n, n) for n in shapes.dev], PUBLISHED_TOKENS)
    began = time.perf_counter()
    for lengths in dev:
        translate(system, generator, make_sample(lengths, shapes, device))
    synchronise(device)
    seconds = time.perf_counter() - began
    return {
        "sentences": len(shapes.dev),
        "seconds": round(seconds, 1),
        "seconds_of_100_updates": round(100 * step, 1),
        "share": round(seconds / (100 * step), 4),
    }
