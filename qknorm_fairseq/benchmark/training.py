"""The training step of each arm beside stock fairseq's, and beside its own matrix products."""

import statistics
from collections.abc import Callable
from typing import Any

import torch

from qknorm_fairseq.benchmark import floor
from qknorm_fairseq.benchmark.shapes import batches, load_shapes, make_sample, spread
from qknorm_fairseq.benchmark.systems import STOCK, System, build
from qknorm_fairseq.benchmark.timing import in_turn, ratio

FLOOR = "floor"


def _trainer(system: System, samples: list[dict[str, Any]]) -> Callable[[int], Any]:
    return lambda number: system.train_step(samples[number])


def measure(
    pair: str, arms: list[str], max_tokens: int, rounds: int, device: torch.device
) -> dict[str, Any]:
    """Ratios to stock and to the floor of each arm, milliseconds and words a second.

    A round is one batch; the batches go from short to long sentences. The floor is that of
    the first arm.
    """
    shapes = load_shapes(pair)
    chosen = spread(batches(shapes.train, max_tokens), rounds)
    samples = [make_sample(lengths, shapes, device) for lengths in chosen]
    built = {name: build(name, shapes, device) for name in (STOCK, *arms)}
    least = [floor.products(built[arms[0]].model, s, shapes.target_types) for s in samples]

    def products(number: int) -> None:
        with torch.no_grad():
            for product in least[number]:
                product.run()

    systems = {name: _trainer(system, samples) for name, system in built.items()}
    times = in_turn({**systems, FLOOR: products}, rounds, device)
    words = sum(sample["ntokens"] for sample in samples)
    return {
        "max_tokens": max_tokens,
        "rounds": rounds,
        "ms": {name: round(1000 * statistics.median(found), 1) for name, found in times.items()},
        "words_per_second": {name: round(words / sum(times[name])) for name in (STOCK, *arms)},
        "to_stock": {name: ratio(times[name], times[STOCK]).record() for name in arms},
        "to_floor": {name: ratio(times[name], times[FLOOR]).record() for name in (STOCK, *arms)},
    }
