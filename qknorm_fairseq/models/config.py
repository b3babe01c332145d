"""The options of the models, and what each of the four arms sets differently.

The dataclasses are flat: fairseq looks flat names up on the command line and in a YAML, and
a nested one would lose every size that is asked for.
"""

from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Any, Optional

from fairseq.dataclass import FairseqDataclass
from fairseq.models.transformer import (
    DEFAULT_MAX_SOURCE_POSITIONS,
    DEFAULT_MAX_TARGET_POSITIONS,
)


class QKNorm(StrEnum):
    """What is done to queries and keys before their product."""

    none = "none"
    l2 = "l2"


class ScalePer(StrEnum):
    """What shares one learned scale g."""

    module = "module"
    head = "head"


class ResidualNorm(StrEnum):
    """The norm on the residual path."""

    layernorm = "layernorm"
    scalenorm = "scalenorm"
    none = "none"


class DecoderStart(StrEnum):
    """The symbol that a decoder sees first."""

    eos = "eos"
    bos = "bos"


class Positions(StrEnum):
    """Which table of sinusoids."""

    interleaved = "interleaved"
    released = "released"
    fairseq = "fairseq"


def _option(default: Any, help_text: str) -> Any:
    return field(default=default, metadata={"help": help_text})


@dataclass
class TransformerQKNormConfig(FairseqDataclass):
    """The paper's system: QKNorm, LayerNorm, PreNorm and FixNorm (Henry et al. 2020)."""

    # fairseq's own
    activation_fn: str = _option("relu", "activation function of the feed-forward layers")
    dropout: float = _option(0.1, "dropout probability")
    attention_dropout: float = _option(0.0, "dropout probability for attention weights")
    activation_dropout: float = _option(0.0, "dropout probability after activation in FFN")
    encoder_embed_dim: int = _option(512, "encoder embedding dimension")
    encoder_ffn_embed_dim: int = _option(2048, "encoder embedding dimension for FFN")
    encoder_layers: int = _option(6, "number of encoder layers")
    encoder_attention_heads: int = _option(8, "number of encoder attention heads")
    encoder_normalize_before: bool = _option(True, "PreNorm in the encoder, else PostNorm")
    decoder_embed_dim: int = _option(512, "decoder embedding dimension")
    decoder_ffn_embed_dim: int = _option(2048, "decoder embedding dimension for FFN")
    decoder_layers: int = _option(6, "number of decoder layers")
    decoder_attention_heads: int = _option(8, "number of decoder attention heads")
    decoder_normalize_before: bool = _option(True, "PreNorm in the decoder, else PostNorm")
    max_source_positions: int = _option(
        DEFAULT_MAX_SOURCE_POSITIONS, "longest source sentence, in tokens"
    )
    max_target_positions: int = _option(
        DEFAULT_MAX_TARGET_POSITIONS, "longest target sentence, in tokens"
    )
    # the attention
    qk_norm: QKNorm = _option(QKNorm.l2, "normalisation of each head's queries and keys")
    qk_scale_length: float = _option(
        79.0, "L, of which g starts at log2(L^2 - L); 97.5th percentile of training lengths"
    )
    qk_scale_init: Optional[float] = _option(None, "first value of g, in place of L's")
    qk_scale_per: ScalePer = _option(ScalePer.module, "what shares one g")
    qk_scale_fixed: bool = _option(False, "do not learn g")
    normalize_values: bool = _option(False, "normalise each head's values too")
    # the rest of the model
    residual_norm: ResidualNorm = _option(ResidualNorm.layernorm, "norm on the residual path")
    fix_norm: bool = _option(True, "unit word vectors, at the input and at the output")
    small_init: bool = _option(True, "normal(0, sqrt(2/(5d))) for the attention's matrices")
    linear_bias: bool = _option(True, "biases in the attention and feed-forward layers")
    language_embeddings: bool = _option(
        True, "a learned vector a language, added at every position"
    )
    output_bias: bool = _option(True, "a learned bias a type in the output projection")
    target_vocab_mask: bool = _option(True, "produce only types that occur in the training target")
    word_dropout: float = _option(0.1, "probability that a word becomes <unk> in training")
    decoder_start: DecoderStart = _option(
        DecoderStart.eos, "first symbol of the decoder: fairseq's eos or the released code's bos"
    )
    positions: Positions = _option(Positions.interleaved, "table of sinusoidal positions")


def _changed(name: str, default: Enum) -> Any:
    """The field ``name`` of the base with another default and the same help."""
    metadata = TransformerQKNormConfig.__dataclass_fields__[name].metadata
    return field(default=default, metadata=dict(metadata))


@dataclass
class TransformerScaleNormConfig(TransformerQKNormConfig):
    """The baseline: dot product, ScaleNorm, PreNorm, FixNorm (Nguyen & Salazar 2019)."""

    qk_norm: QKNorm = _changed("qk_norm", QKNorm.none)
    residual_norm: ResidualNorm = _changed("residual_norm", ResidualNorm.scalenorm)


@dataclass
class TransformerLayerNormConfig(TransformerQKNormConfig):
    """A control that the paper lacks: the dot product under the paper's LayerNorm."""

    qk_norm: QKNorm = _changed("qk_norm", QKNorm.none)


@dataclass
class TransformerQKNormScaleNormConfig(TransformerQKNormConfig):
    """The other missing control: QKNorm under the baseline's ScaleNorm."""

    residual_norm: ResidualNorm = _changed("residual_norm", ResidualNorm.scalenorm)
