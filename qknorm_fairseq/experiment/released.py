"""Models of the released code (CyndxAI/QKNorm) as models of this plugin, and back.

That code stacks an attention's four projections by rows, numbers its norm sites in order,
and starts its vocabulary ``pad bos eos unk`` where fairseq has ``bos pad eos unk``.
"""

from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.models import build_model
from omegaconf import OmegaConf
from torch import Tensor

from qknorm_fairseq.experiment.errors import UserError
from qknorm_fairseq.models.transformer_qknorm import TransformerQKNorm

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "out_proj")
NORM_PARTS = {"weight": "weight", "bias": "bias", "scale": "g"}  # theirs -> ours
LANGUAGES = "lang_embedding"
MASK = "decoder.output_projection.target_mask"

# the released code's options -> this plugin's
OPTIONS: dict[str, tuple[str, ...]] = {
    "embed_dim": ("encoder_embed_dim", "decoder_embed_dim"),
    "ff_dim": ("encoder_ffn_embed_dim", "decoder_ffn_embed_dim"),
    "num_enc_layers": ("encoder_layers",),
    "num_dec_layers": ("decoder_layers",),
    "num_heads": ("encoder_attention_heads", "decoder_attention_heads"),
    "use_bias": ("linear_bias", "output_bias"),
    "fix_norm": ("fix_norm",),
    "pre_act": ("encoder_normalize_before", "decoder_normalize_before"),
    "seq_len_threshold": ("qk_scale_length",),
}
CHOICES = {
    "mha_sup": ("qk_norm", {True: "l2", False: "none"}),
    "scnorm": ("residual_norm", {True: "scalenorm", False: "layernorm"}),
}

Tensors = dict[str, Tensor]


def model_options(config: dict[str, Any], positions: str = "released") -> dict[str, Any]:
    """The plugin's options for a config of the released code.

    Raises:
        UserError: when an option is missing or not one of those that it can be.
    """
    missing = (OPTIONS.keys() | CHOICES.keys()) - config.keys()
    if missing:
        raise UserError(f"option {', '.join(sorted(missing))} missing in its config")
    options: dict[str, Any] = {
        "_name": "transformer_qknorm",
        "positions": positions,
        "decoder_start": "bos",
    }
    for theirs, ours in OPTIONS.items():
        options |= dict.fromkeys(ours, config[theirs])
    for theirs, (name, values) in CHOICES.items():
        if config[theirs] not in values:
            raise UserError(f"option {theirs} is {config[theirs]!r}, but must be true or false")
        options[name] = values[config[theirs]]
    return options


class ModelTask:
    """What a model asks of its task: a joint dictionary of the right size."""

    def __init__(self, types: int) -> None:
        dictionary = Dictionary()
        for number in range(types - len(dictionary)):
            dictionary.add_symbol(f"type{number}")
        self.source_dictionary = self.target_dictionary = dictionary
        self.cfg = Namespace(left_pad_target=False)


def build(options: dict[str, Any], types: int) -> TransformerQKNorm:
    """A model of the plugin for so many types.

    Raises:
        UserError: when the options do not go together.
    """
    try:
        return build_model(OmegaConf.create(options), ModelTask(types))
    except ValueError as error:
        raise UserError(str(error)) from error


@dataclass(frozen=True)
class Mapping:
    """A parameter: its name there, and the names here of its equal parts by rows."""

    theirs: str
    ours: tuple[str, ...]
    by_type: bool = False  # a row a type of the vocabulary, and the parts are all the same

    def split(self, value: Tensor) -> list[Tensor]:
        """The parts of their ``value`` as ours, in the order of ``ours``."""
        if self.by_type:
            return [swap_specials(value)] * len(self.ours)
        if self.theirs == LANGUAGES:
            return list(value.unbind())
        return list(value.chunk(len(self.ours))) if value.dim() else [value]

    def join(self, parts: Tensors) -> Tensor:
        """Their value, put together from ``parts`` by our names."""
        values = [parts[name] for name in self.ours]
        if self.by_type:
            return swap_specials(values[0])
        if self.theirs == LANGUAGES:
            return torch.stack(values)
        return torch.cat(values) if values[0].dim() else values[0]


def swap_specials(rows: Tensor) -> Tensor:
    """Rows by type in the other code's order: 0 and 1, pad and bos, change places."""
    order = torch.arange(len(rows))
    order[:2] = torch.tensor([1, 0])
    return rows[order]


def swap_special_numbers(tokens: Tensor) -> Tensor:
    """Type numbers in the other code's numbering."""
    return torch.where(tokens < 2, 1 - tokens, tokens)


def _all_mappings(encoder_layers: int, decoder_layers: int, source_row: int) -> Iterator[Mapping]:
    """Every parameter that a model of either code can have.

    Args:
        source_row: which row of ``lang_embedding`` is the source language.
    """
    tied = ("encoder.embed_tokens", "decoder.embed_tokens", "decoder.output_projection")
    yield Mapping("word_embedding", tuple(f"{name}.weight" for name in tied), by_type=True)
    sides = ["encoder", "decoder"] if source_row == 0 else ["decoder", "encoder"]
    yield Mapping(LANGUAGES, tuple(f"{side}.embed_positions.language" for side in sides))
    yield Mapping("out_bias", ("decoder.output_projection.bias",), by_type=True)
    for i in range(encoder_layers):
        yield from _attention(f"encoder.atts.{i}", f"encoder.layers.{i}.self_attn")
        yield from _feed_forward("encoder", i)
    for i in range(decoder_layers):
        yield from _attention(f"decoder.atts.{i}", f"decoder.layers.{i}.self_attn")
        yield from _attention(f"decoder.cross_atts.{i}", f"decoder.layers.{i}.encoder_attn")
        yield from _feed_forward("decoder", i)
    yield from _norms("encoder", encoder_layers, ("self_attn", "final"))
    yield from _norms("decoder", decoder_layers, ("self_attn", "encoder_attn", "final"))


def _attention(theirs: str, ours: str) -> Iterator[Mapping]:
    for stacked, part in (("weights", "weight"), ("biases", "bias")):
        yield Mapping(f"{theirs}.{stacked}", tuple(f"{ours}.{p}.{part}" for p in PROJECTIONS))
    yield Mapping(f"{theirs}.mha_scale.scale", (f"{ours}.qk.g",))


def _feed_forward(side: str, i: int) -> Iterator[Mapping]:
    for theirs, ours in (("in_proj", "fc1"), ("out_proj", "fc2")):
        for part in ("weight", "bias"):
            yield Mapping(f"{side}.ffs.{i}.{theirs}.{part}", (f"{side}.layers.{i}.{ours}.{part}",))


def _norms(side: str, layers: int, kinds: tuple[str, ...]) -> Iterator[Mapping]:
    sites = [f"{side}.layers.{i}.{kind}_layer_norm" for i in range(layers) for kind in kinds]
    for number, site in enumerate([*sites, f"{side}.layer_norm"]):
        for theirs, ours in NORM_PARTS.items():
            yield Mapping(f"{side}.scales.{number}.{theirs}", (f"{site}.{ours}",))


def mappings(model: TransformerQKNorm, source_row: int = 0) -> list[Mapping]:
    """The parameters of ``model``, in the released code's order.

    Args:
        source_row: which row of ``lang_embedding`` is the source language.

    Raises:
        UserError: when the model has a parameter for which that code has no name.
    """
    state = model.state_dict()
    layers = len(model.encoder.layers), len(model.decoder.layers)
    found = [p for p in _all_mappings(*layers, source_row) if all(n in state for n in p.ours)]
    named = {name for mapping in found for name in mapping.ours}
    parameters = dict(model.named_parameters())
    unmapped = [name for name in parameters if name not in named]
    unmapped += [name for name, p in parameters.items() if name.endswith("qk.g") and p.dim()]
    if unmapped:
        raise UserError(f"the released code has nothing like {unmapped[0]}")
    if LANGUAGES not in {mapping.theirs for mapping in found}:
        raise UserError("the released code has no model without language embeddings")
    return found


def to_ours(model: TransformerQKNorm, params: Tensors, source_row: int = 0) -> Tensors:
    """Parameters of the released code by this plugin's names, in their own dtype.

    Raises:
        UserError: for a missing or unknown parameter, or one of another shape.
    """
    wanted = {mapping.theirs: mapping for mapping in mappings(model, source_row)}
    for names, what in (
        (wanted.keys() - params.keys(), "missing parameter"),
        (params.keys() - wanted.keys(), "unknown parameter"),
    ):
        if names:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            raise UserError(f"{what} {', '.join(sorted(names)[:3])}{more}")
    empty = to_theirs(model, model.state_dict(), source_row)
    ours: Tensors = {}
    for name, mapping in wanted.items():
        if params[name].shape != empty[name].shape:
            shapes = f"{tuple(params[name].shape)}, not {tuple(empty[name].shape)}"
            raise UserError(f"parameter {name} has the shape {shapes}")
        ours |= dict(zip(mapping.ours, mapping.split(params[name]), strict=True))
    return ours


def to_theirs(model: TransformerQKNorm, ours: Tensors, source_row: int = 0) -> Tensors:
    """The reverse: the plugin's parameters, or their gradients, put together again."""
    return {mapping.theirs: mapping.join(ours) for mapping in mappings(model, source_row)}
