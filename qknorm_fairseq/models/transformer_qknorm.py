"""The Transformer of the experiment, and its four arms as fairseq architectures."""

from argparse import ArgumentParser, Namespace
from typing import Any, cast

import torch
from fairseq.models import register_model
from fairseq.models.transformer import (
    TransformerConfig,
    TransformerDecoderBase,
    TransformerEncoderBase,
    TransformerModelBase,
)
from omegaconf import OmegaConf
from torch import Tensor, nn

from qknorm_fairseq.arguments import add_dataclass_arguments
from qknorm_fairseq.models.config import (
    TransformerLayerNormConfig,
    TransformerQKNormConfig,
    TransformerQKNormScaleNormConfig,
    TransformerScaleNormConfig,
)
from qknorm_fairseq.models.layers import DecoderLayer, EncoderLayer, replace_dropout
from qknorm_fairseq.modules.embedding import WordEmbedding
from qknorm_fairseq.modules.key_value_cache import all_stay, sentences_of
from qknorm_fairseq.modules.output_projection import OutputProjection
from qknorm_fairseq.modules.packing import AttentionMask, Packing
from qknorm_fairseq.modules.positions import SinusoidalPositions
from qknorm_fairseq.modules.precision import at_least_float32
from qknorm_fairseq.modules.residual_norm import build_norm
from qknorm_fairseq.modules.word_dropout import drop_words


class Encoder(TransformerEncoderBase):
    """fairseq's encoder with the layers, the positions and the last norm of ``cfg``."""

    layer_norm: nn.Module | None

    def __init__(self, cfg: Any, dictionary: Any, embed_tokens: WordEmbedding) -> None:
        super().__init__(cfg, dictionary, embed_tokens)
        width = cfg.encoder.embed_dim
        self.embed_positions = SinusoidalPositions(
            width, self.padding_idx, cfg.positions, cfg.language_embeddings
        )
        if self.layer_norm is not None:
            self.layer_norm = build_norm(cfg.residual_norm, width)
        replace_dropout(self)

    def build_encoder_layer(self, cfg: Any) -> EncoderLayer:
        return EncoderLayer(cfg)

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Tensor | None = None,
        return_all_hiddens: bool = False,
        token_embeddings: Tensor | None = None,
    ) -> dict[str, list[Tensor]]:
        """fairseq's, computed for the tokens that are no padding; hidden states are not kept.

        Args:
            src_tokens: (batch, source), padded on either side.
            token_embeddings: (batch, source, dim), in place of the table's.

        Returns:
            ``encoder_out`` (source, batch, dim), zero at padding, and
            ``encoder_padding_mask`` (batch, source), each as a list of one.
        """
        padding = src_tokens.eq(self.padding_idx)
        tokens = Packing.of(~padding)
        x = tokens.pack(self.forward_embedding(src_tokens, token_embeddings)[0])
        mask = AttentionMask(tokens, tokens)
        for layer in self.layers:
            x = layer(x, mask)
        if self.layer_norm is not None:
            x = self.layer_norm(x)
        absent = ("encoder_embedding", "encoder_states", "fc_results", "src_tokens", "src_lengths")
        return {
            "encoder_out": [tokens.unpack(x).transpose(0, 1)],
            "encoder_padding_mask": [padding],
            **{name: [] for name in absent},
        }

    def reorder_encoder_out(
        self, encoder_out: dict[str, list[Tensor]], new_order: Tensor
    ) -> dict[str, list[Tensor]]:
        """Follow a beam search: row i becomes the old row ``new_order[i]``.

        A generator first asks for each sentence so many times, as rows of the batch, and then
        moves rows about within a sentence. Here a sentence stays one row, and ``beam`` says
        how many rows of the decoder it stands for.
        """
        if "beam" in encoder_out:
            beam = int(encoder_out["beam"][0])
            new_order = sentences_of(new_order, beam)
        else:
            count = encoder_out["encoder_out"][0].shape[1]
            beam = len(new_order) // count
            rows = torch.arange(count, device=new_order.device)
            if beam < 2 or not new_order.equal(rows.repeat_interleave(beam)):
                return super().reorder_encoder_out(encoder_out, new_order)
            new_order = rows
        count = encoder_out["encoder_out"][0].shape[1]
        if not all_stay(new_order, count):
            encoder_out = super().reorder_encoder_out(encoder_out, new_order)
        return {**encoder_out, "beam": [torch.tensor(beam)]}


class Decoder(TransformerDecoderBase):
    """fairseq's decoder with the layers, the positions and the last norm of ``cfg``."""

    layer_norm: nn.Module | None

    def __init__(self, cfg: Any, dictionary: Any, embed_tokens: WordEmbedding) -> None:
        super().__init__(cfg, dictionary, embed_tokens)
        width = cfg.decoder.embed_dim
        self.embed_positions = SinusoidalPositions(
            width, self.padding_idx, cfg.positions, cfg.language_embeddings
        )
        if self.layer_norm is not None:
            self.layer_norm = build_norm(cfg.residual_norm, width)
        replace_dropout(self)

    def build_decoder_layer(self, cfg: Any, no_encoder_attn: bool = False) -> DecoderLayer:
        return DecoderLayer(cfg, no_encoder_attn)

    def build_output_projection(
        self, cfg: Any, dictionary: Any, embed_tokens: WordEmbedding
    ) -> None:
        self.output_projection = OutputProjection(embed_tokens, cfg.output_bias)

    def extract_features(
        self,
        prev_output_tokens: Tensor,
        encoder_out: dict[str, list[Tensor]],
        incremental_state: dict[str, Any] | None = None,
        full_context_alignment: bool = False,
        alignment_layer: int | None = None,
        alignment_heads: int | None = None,
    ) -> tuple[Tensor, dict[str, Any]]:
        """fairseq's, computed for the tokens that are no padding; hidden states are not kept.

        Attention weights are made only for who wants them, since no fused kernel gives them:
        ``--print-alignment`` sets ``need_attn``, a caller ``alignment_layer``.

        Args:
            prev_output_tokens: (batch, target), padded at the end.
            incremental_state: with it, the last position is computed alone.
            full_context_alignment: later words are seen too.
            alignment_heads: the first so many in place of all.

        Returns:
            (batch, target, dim), zero at padding, and ``attn``: [(batch, target, source), the
            mean over heads, or None].
        """
        one_step = incremental_state is not None
        positions = self.embed_positions(prev_output_tokens, incremental_state)
        if one_step:
            prev_output_tokens = prev_output_tokens[:, -1:]
        words = self.embed_scale * self.embed_tokens(prev_output_tokens)
        tokens, source = _packings(prev_output_tokens.ne(self.padding_idx), encoder_out, one_step)
        encoded = encoder_out["encoder_out"][0]
        if not incremental_state:  # later steps have its keys and values in their caches
            encoded = source.pack(encoded.transpose(0, 1))
        x = self.dropout_module(tokens.pack(words + positions))
        causal = not one_step and not full_context_alignment
        beam = tokens.batch // source.batch
        own = AttentionMask(tokens, tokens, causal, beam)
        cross = AttentionMask(tokens, source, beam=beam)
        if alignment_layer is None and self.layers[-1].need_attn:
            alignment_layer = self.num_layers - 1
        weights: Tensor | None = None
        for number, layer in enumerate(self.layers):
            x, found, _ = layer(
                x,
                encoded,
                cross,
                incremental_state,
                self_attn_padding_mask=own,
                need_head_weights=number == alignment_layer,
            )
            weights = found if number == alignment_layer else weights
        if self.layer_norm is not None:
            x = self.layer_norm(x)
        attention = None if weights is None else weights[:alignment_heads].mean(dim=0)
        return tokens.unpack(x), {"attn": [attention], "inner_states": []}


def _packings(
    real: Tensor, encoder_out: dict[str, list[Tensor]], one_step: bool
) -> tuple[Packing, Packing]:
    """Of the decoder's input and of the encoder's output.

    In one step of many, all that is decoded is real, and the source was packed, projected and
    cached at the first: it does not pay to look for its padding again.
    """
    source = ~encoder_out["encoder_padding_mask"][0]
    if one_step:
        return Packing(len(real), 1), Packing(len(source), source.shape[1], source)
    return Packing.of(real), Packing.of(source)


@register_model("transformer_qknorm", dataclass=TransformerQKNormConfig)
class TransformerQKNorm(TransformerModelBase):
    """Transformer with Query-Key Normalization (Henry et al. 2020).

    One joint dictionary and one table for encoder input, decoder input and output.
    """

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Tensor,
        prev_output_tokens: Tensor,
        **kwargs: Any,
    ) -> tuple[Tensor, dict[str, Any]]:
        """(batch, source), (batch,) and (batch, target) to logits (batch, target, types).

        Here lie the two things that are done to tokens: words are dropped, on both sides
        and in training alone, and the decoder's first symbol becomes the one asked for.
        """
        dictionary, start = self.decoder.dictionary, self.start_token()
        if start != dictionary.eos():
            first = torch.full_like(prev_output_tokens[:, :1], start)
            prev_output_tokens = torch.cat([first, prev_output_tokens[:, 1:]], dim=1)
        if self.training and self.cfg.word_dropout > 0:
            src_tokens, prev_output_tokens = (
                drop_words(tokens, self.cfg.word_dropout, dictionary.unk(), dictionary.pad())
                for tokens in (src_tokens, prev_output_tokens)
            )
        return super().forward(src_tokens, src_lengths, prev_output_tokens, **kwargs)

    def start_token(self) -> int:
        """The number of the symbol that the decoder sees first."""
        dictionary = self.decoder.dictionary
        return int(dictionary.bos() if self.cfg.decoder.start == "bos" else dictionary.eos())

    @classmethod
    def add_args(cls, parser: ArgumentParser) -> None:
        """Add the options of this architecture's dataclass to ``parser``."""
        add_dataclass_arguments(parser, getattr(cls, "__dataclass")())

    @classmethod
    def build_model(cls, cfg: Any, task: Any) -> "TransformerQKNorm":
        """Build the model that ``cfg``, a flat config, asks for.

        Raises:
            ValueError: when the options do not go together, or the dictionaries differ.
        """
        if task.source_dictionary != task.target_dictionary:
            raise ValueError(
                "the two dictionaries differ: prepare the data with one joint dictionary "
                "(fairseq-preprocess --joined-dictionary)"
            )
        if getattr(task.cfg, "left_pad_target", False):
            raise ValueError("--left-pad-target: this decoder needs its padding at the end")
        flat = OmegaConf.to_container(OmegaConf.create(cfg), resolve=True, enum_to_str=True)
        options = Namespace(**cast(dict[str, Any], flat))
        if options.encoder_embed_dim != options.decoder_embed_dim:
            raise ValueError(
                f"--encoder-embed-dim {options.encoder_embed_dim} and --decoder-embed-dim "
                f"{options.decoder_embed_dim} differ, but the two share one table"
            )
        if not 0 <= options.word_dropout < 1:
            raise ValueError(f"--word-dropout {options.word_dropout}: must be in [0, 1)")
        options.share_all_embeddings = True
        options.decoder_input_dim = options.decoder_output_dim = options.decoder_embed_dim
        return super().build_model(TransformerConfig.from_namespace(options), task)

    def get_normalized_probs(
        self,
        net_output: tuple[Tensor, Any],
        log_probs: bool,
        sample: dict[str, Tensor] | None = None,
    ) -> Tensor:
        """(Log-)probabilities (batch, target, types), float64 where the model is."""
        logits = at_least_float32(net_output[0])
        return logits.log_softmax(dim=-1) if log_probs else logits.softmax(dim=-1)

    @classmethod
    def build_embedding(
        cls, cfg: Any, dictionary: Any, embed_dim: int, path: str | None = None
    ) -> WordEmbedding:
        return WordEmbedding(len(dictionary), embed_dim, dictionary.pad(), cfg.fix_norm)

    @classmethod
    def build_encoder(cls, cfg: Any, src_dict: Any, embed_tokens: WordEmbedding) -> Encoder:
        return Encoder(cfg, src_dict, embed_tokens)

    @classmethod
    def build_decoder(cls, cfg: Any, tgt_dict: Any, embed_tokens: WordEmbedding) -> Decoder:
        return Decoder(cfg, tgt_dict, embed_tokens)


@register_model("transformer_scalenorm", dataclass=TransformerScaleNormConfig)
class TransformerScaleNorm(TransformerQKNorm):
    """The baseline: dot product and ScaleNorm."""


@register_model("transformer_layernorm", dataclass=TransformerLayerNormConfig)
class TransformerLayerNorm(TransformerQKNorm):
    """A control: dot product and LayerNorm."""


@register_model("transformer_qknorm_scalenorm", dataclass=TransformerQKNormScaleNormConfig)
class TransformerQKNormScaleNorm(TransformerQKNorm):
    """A control: QKNorm and ScaleNorm."""
