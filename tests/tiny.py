"""A tiny made-up pair and tiny models, for tests of every part."""

from pathlib import Path
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.models import build_model
from omegaconf import OmegaConf
from torch import Tensor

import qknorm_fairseq.models
import qknorm_fairseq.tasks.low_resource_translation  # noqa: F401  (registers the task)
from qknorm_fairseq import cli
from qknorm_fairseq.experiment.settings import Pair
from qknorm_fairseq.experiment.workspace import write_lines
from qknorm_fairseq.models.transformer_qknorm import TransformerQKNorm

PAIR = Pair(name="tiny", source="xx", target="yy", merges=10)
SPLITS = {"train": 60, "dev": 13, "test": 11}

SIZES = {
    "encoder_embed_dim": 32,
    "decoder_embed_dim": 32,
    "encoder_ffn_embed_dim": 48,
    "decoder_ffn_embed_dim": 40,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 4,
}
PROFILE: dict[str, Any] = {
    "description": "for tests",
    "beam": 4,
    "options": {
        "criterion": "target_vocab_label_smoothed_cross_entropy",
        "label-smoothing": 0.1,
        "optimizer": "adam",
        "lr-scheduler": "inverse_sqrt",
        "lr": 0.005,
        "warmup-updates": 10,
        "max-tokens": 1024,
        "validate-interval-updates": 10,
        "save-interval-updates": 10,
        "max-update": 20,
        "log-interval": 5,
        **{
            f"{side}-{name}": value
            for side in ("encoder", "decoder")
            for name, value in (
                ("embed-dim", 16),
                ("ffn-embed-dim", 32),
                ("layers", 1),
                ("attention-heads", 2),
            )
        },
    },
}
TYPES = 30
PAD, EOS = 1, 2
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}


def lines(count: int, start: int = 0) -> list[tuple[str, str]]:
    """Pairs in which the target says the source backwards, in capitals."""
    words = ["ba", "ko", "ti", "mu", "se", "la"]
    pairs = []
    for i in range(start, start + count):
        source = [words[(i * 7 + k * (i % 5 + 1)) % 6] for k in range(2 + i % 9)]
        pairs.append((" ".join(source), " ".join(word.upper() for word in reversed(source))))
    return pairs


def write_corpus(folder: Path, sizes: dict[str, int]) -> Path:
    """Raw files of the pair; each split starts elsewhere in the same sequence."""
    start = 0
    for split, size in sizes.items():
        pairs = lines(size, start)
        start += size
        write_lines(folder / f"{split}.xx", [source for source, _ in pairs])
        write_lines(folder / f"{split}.yy", [target for _, target in pairs])
    return folder


def qknorm(*words: object) -> int:
    """The ``qknorm`` command in this process; its exit status."""
    return cli.main([str(word) for word in words])


class Task:
    """Two equal dictionaries: all that a model needs of its task."""

    def __init__(self) -> None:
        self.source_dictionary = self.target_dictionary = Dictionary()
        for i in range(TYPES - 4):
            self.source_dictionary.add_symbol(f"w{i}")
        self.cfg = OmegaConf.create({"left_pad_target": False})


def build(arch: str = "transformer_qknorm", **changes: Any) -> TransformerQKNorm:
    """A tiny model of an architecture."""
    return build_model(OmegaConf.create({"_name": arch, **SIZES, **changes}), Task())


def batch(padded: bool = True, left: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """Sources (fairseq pads them on the left), their lengths, and right-padded targets."""
    src = torch.randint(4, TYPES, (3, 9))
    tgt = torch.randint(4, TYPES, (3, 7))
    src[:, -1] = EOS
    tgt[:, 0] = EOS
    if padded:
        src[1, :3] = src[2, :6] = PAD
        tgt[1, -2:] = tgt[2, -4:] = PAD
        if not left:
            src = torch.stack([row.roll(-int(row.eq(PAD).sum())) for row in src])
    return src, src.ne(PAD).sum(1), tgt
