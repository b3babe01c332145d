"""What is computed: published sizes, and batches whose lengths are those of real text."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor

from qknorm_fairseq.experiment import settings
from qknorm_fairseq.experiment.settings import Options, load_arm, load_pair, load_profile

PAD, EOS, FIRST = 1, 2, 4  # of fairseq's dictionaries: numbers from FIRST on are words
PAIRS = ("gl-en", "en-vi")


@dataclass(frozen=True)
class Shapes:
    """A pair's vocabulary and sentence lengths, in tokens with eos."""

    pair: str
    types: int
    target_types: int  # of them, those that the target language has
    train: list[tuple[int, int]]  # source and target
    dev: list[int]  # references


def load_shapes(pair: str) -> Shapes:
    """The shapes of ``pair``, from ``configs/benchmark``."""
    path = Path(settings.CONFIGS) / "benchmark" / f"{pair}.yaml"
    values = yaml.safe_load(path.read_text("utf-8"))
    train = [(source, target) for source, target in values["train"]]
    return Shapes(pair, values["types"], values["target_types"], train, values.get("dev", []))


def published_options(pair: str, arm: str) -> Options:
    """The options of a run at the published sizes, as fairseq's dataclasses spell them."""
    options = settings.resolve_options(load_pair(pair), load_arm(arm), load_profile("paper"))
    return {name.replace("-", "_"): value for name, value in options.items()}


def batches(lengths: list[tuple[int, int]], max_tokens: int) -> list[list[tuple[int, int]]]:
    """Sentences batched as fairseq does: sorted by length, sentences * longest <= max_tokens."""
    found: list[list[tuple[int, int]]] = [[]]
    for pair in sorted(lengths, key=lambda both: (both[0], both[1])):
        longest = max(max(both) for both in [*found[-1], pair])
        if found[-1] and longest * (len(found[-1]) + 1) > max_tokens:
            found.append([])
        found[-1].append(pair)
    return found


def spread(found: list[list[tuple[int, int]]], count: int) -> list[list[tuple[int, int]]]:
    """So many batches, evenly from the shortest sentences to the longest."""
    return [found[int((i + 0.5) * len(found) / count)] for i in range(count)]


def make_sample(
    lengths: list[tuple[int, int]], shapes: Shapes, device: torch.device, seed: int = 1
) -> dict[str, Any]:
    """A batch as fairseq's data sets make it: sources padded on the left, targets on the right.

    ``net_input`` (``src_tokens`` (batch, source), ``src_lengths``, ``prev_output_tokens``
    (batch, target)), ``target`` (batch, target), ``ntokens`` and ``id``.
    """
    generator = torch.Generator().manual_seed(seed)

    def rows(wanted: list[int], types: int, left: bool) -> Tensor:
        width = max(wanted)
        tokens = torch.randint(FIRST, types, (len(wanted), width), generator=generator)
        place = torch.arange(width)
        for row, length in zip(tokens, wanted, strict=True):
            end = width if left else length
            row[(place < end - length) | (place >= end)] = PAD
            row[end - 1] = EOS
        return tokens

    source = rows([s for s, _ in lengths], shapes.types, left=True)
    target = rows([t for _, t in lengths], shapes.target_types, left=False)
    previous = torch.cat([torch.full((len(target), 1), EOS), target[:, :-1]], dim=1)
    previous[previous.eq(EOS) & (torch.arange(target.shape[1]) > 0)] = PAD
    return {
        "id": torch.arange(len(lengths), device=device),
        "net_input": {
            "src_tokens": source.to(device),
            "src_lengths": torch.tensor([s for s, _ in lengths], device=device),
            "prev_output_tokens": previous.to(device),
        },
        "target": target.to(device),
        "ntokens": sum(t for _, t in lengths),
    }
