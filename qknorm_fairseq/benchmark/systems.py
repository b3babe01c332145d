"""Who computes it: an arm of ours or stock fairseq's Transformer, each with its own criterion."""

import warnings
from argparse import Namespace
from dataclasses import dataclass
from typing import Any

import torch
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.data import Dictionary
from fairseq.models import build_model
from fairseq.models.transformer import TransformerConfig, TransformerModelBase
from fairseq.optim.adam import FairseqAdam
from omegaconf import OmegaConf
from torch import nn

import qknorm_fairseq.models  # noqa: F401  (registers the architectures)
from qknorm_fairseq.benchmark.shapes import FIRST, Shapes, published_options
from qknorm_fairseq.criterions.target_vocab_label_smoothed_cross_entropy import (
    TargetVocabLabelSmoothedCrossEntropyCriterion,
)
from qknorm_fairseq.experiment.settings import Options
from qknorm_fairseq.optim.fused_adam import FusedAdam

STOCK = "stock"  # fairseq's `transformer`: PreNorm, one tied table
SIZES = [
    f"{side}_{name}"
    for side in ("encoder", "decoder")
    for name in ("embed_dim", "ffn_embed_dim", "layers", "attention_heads")
]
DROPOUTS = ["dropout", "attention_dropout", "activation_dropout"]


class Task:
    """All that models and criterions want of a task: one joint dictionary."""

    def __init__(self, types: int) -> None:
        self.source_dictionary = self.target_dictionary = Dictionary()
        for number in range(types - FIRST):
            self.source_dictionary.add_symbol(f"w{number}")
        self.cfg = OmegaConf.create({"left_pad_target": False})


@dataclass(frozen=True)
class System:
    """A model with its criterion and optimiser."""

    name: str
    task: Task
    model: Any
    criterion: nn.Module
    optimizer: Any

    def train_step(self, sample: dict[str, Any]) -> None:
        """Forward, backward, clip, update: what fairseq's Trainer does with a batch."""
        self.model.train()
        self.optimizer.zero_grad()
        loss, size, _ = self.criterion(self.model, sample)
        self.optimizer.backward(loss)
        self.optimizer.multiply_grads(1 / size)
        self.optimizer.clip_grad_norm(1.0)
        self.optimizer.step()


def build(name: str, shapes: Shapes, device: torch.device, half: str | None = None) -> System:
    """The arm called ``name``, or stock fairseq, at the published sizes of the shapes' pair.

    Args:
        half: "fp16" or "bf16", on a GPU.
    """
    torch.manual_seed(1)
    # of stock fairseq's attention, at every step
    warnings.filterwarnings("ignore", "Support for mismatched key_padding_mask")
    task = Task(shapes.types)
    if name == STOCK:
        model = _stock_model(published_options(shapes.pair, "qknorm"), task)
        criterion: nn.Module = LabelSmoothedCrossEntropyCriterion(task, False, 0.1)
    else:
        model = _our_model(published_options(shapes.pair, name), task)
        model.decoder.output_projection.allow(torch.arange(shapes.types) < shapes.target_types)
        criterion = TargetVocabLabelSmoothedCrossEntropyCriterion(task, False, 0.1, "reference")
    model = model.to(device)
    if half:
        model = model.half() if half == "fp16" else model.bfloat16()
    return System(name, task, model, criterion, _optimizer(name, model))


def _our_model(options: Options, task: Task) -> Any:
    fields = {"_name": options["arch"], **{n: options[n] for n in (*SIZES, *DROPOUTS)}}
    for name in ("qk_scale_length", "positions", "decoder_start", "word_dropout"):
        fields[name] = options[name]
    return build_model(OmegaConf.create(fields), task)


def _stock_model(options: Options, task: Task) -> Any:
    fields = {name: options[name] for name in (*SIZES, *DROPOUTS)}
    fields |= {f"{side}_normalize_before": True for side in ("encoder", "decoder")}
    width = options["decoder_embed_dim"]
    fields |= {"decoder_input_dim": width, "decoder_output_dim": width}
    flat = Namespace(share_all_embeddings=True, **fields)
    return TransformerModelBase.build_model(TransformerConfig.from_namespace(flat), task)


def _optimizer(name: str, model: nn.Module) -> FairseqAdam:
    cfg = OmegaConf.create(
        {
            "lr": [1e-4],
            "adam_betas": "(0.9, 0.999)",
            "adam_eps": 1e-8,
            "weight_decay": 0.0,
            "use_old_adam": False,
            "fp16_adam_stats": False,
            "tpu": False,
        }
    )
    kind: Any = FairseqAdam if name == STOCK else FusedAdam
    made: FairseqAdam = kind(cfg, [p for p in model.parameters() if p.requires_grad])
    return made
