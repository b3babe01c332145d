"""fairseq's Transformer layers with our attention and norms put in their places."""

from typing import Any

from fairseq.incremental_decoding_utils import FairseqIncrementalState
from fairseq.modules.fairseq_dropout import FairseqDropout
from fairseq.modules.transformer_layer import (
    TransformerDecoderLayerBase,
    TransformerEncoderLayerBase,
)
from torch import Tensor, nn

from qknorm_fairseq.modules.attention import MultiheadAttention
from qknorm_fairseq.modules.dropout import dropout
from qknorm_fairseq.modules.key_value_cache import KeyValueCache, SourceCache
from qknorm_fairseq.modules.packing import AttentionMask
from qknorm_fairseq.modules.qk_norm import DotProduct, QueryKeyNorm, scale_from_length
from qknorm_fairseq.modules.residual_norm import build_norm

IncrementalState = dict[str, Any]
STATE = "attn_state"


def build_query_key_norm(cfg: Any, embed_dim: int, num_heads: int) -> DotProduct | QueryKeyNorm:
    """The treatment of queries and keys that ``cfg`` asks for."""
    if cfg.qk_norm == "none":
        return DotProduct(embed_dim // num_heads)
    scale = cfg.qk_scale_init
    return QueryKeyNorm(
        num_heads,
        initial_scale=scale_from_length(cfg.qk_scale_length) if scale is None else scale,
        per_head=cfg.qk_scale_per == "head",
        learned=not cfg.qk_scale_fixed,
    )


class FairseqAttention(FairseqIncrementalState, MultiheadAttention):
    """Our attention behind the calls that fairseq's layers and generator make.

    Tensors come and go as (tokens, embed_dim). While decoding step by step, keys are cached as
    they leave ``project_key_value``: normalised, once. Where a sentence has several rows of
    queries, a beam's hypotheses, it has one of keys between them.
    """

    def __init__(self, cfg: Any, embed_dim: int, num_heads: int) -> None:
        super().__init__(
            embed_dim,
            num_heads,
            build_query_key_norm(cfg, embed_dim, num_heads),
            dropout=cfg.attention_dropout,
            normalize_values=cfg.normalize_values,
            small_init=cfg.small_init,
            bias=cfg.linear_bias,
        )

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: AttentionMask,
        incremental_state: IncrementalState | None = None,
        need_weights: bool = False,
        static_kv: bool = False,
        attn_mask: None = None,
        need_head_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend from ``query`` to ``key``; ``value`` is the same tensor as ``key``.

        Args:
            query: (tokens, embed_dim).
            key: (tokens, embed_dim), of as many sentences, or of as many times fewer as there
                are hypotheses of each.
            key_padding_mask: how both are packed and who sees whom. fairseq's layers hand it
                on from the encoder or decoder, as they would a padding mask.
            incremental_state: the cache, while decoding step by step.
            static_kv: cross-attention: what the cache holds is all there is.
            need_head_weights: weights (heads, batch, query, key) rather than their mean
                over heads (batch, query, key).
        """
        mask = key_padding_mask
        q = self.project_query(query, mask.queries)
        k, v, visible = self._keys(key, mask, incremental_state, static_kv)
        need_weights = need_weights or need_head_weights
        beam, length = len(q) // len(k), mask.queries.length
        if beam > 1:  # hypotheses are so many more queries: (sentences, heads, beam * query, …)
            q = q.unflatten(0, (-1, beam)).transpose(1, 2).flatten(2, 3)
        heads, weights = self.attend(q, k, v, visible, mask.causal, need_weights)
        if beam > 1:
            heads = heads.unflatten(2, (beam, length)).transpose(1, 2).flatten(0, 1)
        if weights is not None:
            weights = weights.unflatten(2, (beam, length)).transpose(1, 2).flatten(0, 1)
            weights = weights.transpose(0, 1) if need_head_weights else weights.mean(dim=1)
        return self.project_output(heads, mask.queries), weights

    def _keys(
        self,
        key: Tensor,
        mask: AttentionMask,
        incremental_state: IncrementalState | None,
        static_kv: bool,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Keys, values and which of them are visible, of this step and from the cache."""
        state = None if incremental_state is None else self._state(incremental_state)
        real = None if mask.keys.real is None else mask.keys.real[:, None]
        if isinstance(state, SourceCache):
            return state.key, state.value, real
        k, v = self.project_key_value(key, mask.keys)
        if incremental_state is None:
            return k, v, real
        if static_kv:
            state = SourceCache(k.contiguous(), v.contiguous(), mask.beam)
            self._set_state(incremental_state, state)
            return state.key, state.value, real
        if k.requires_grad:
            raise RuntimeError("no gradient flows step by step: decode under torch.no_grad()")
        if state is None:
            state = KeyValueCache(mask.beam)
            self._set_state(incremental_state, state)
        return state.append(k, v)

    def reorder_incremental_state(
        self, incremental_state: IncrementalState, new_order: Tensor
    ) -> IncrementalState:
        """Follow the beam: row i becomes the old row ``new_order[i]``, of the same sentence."""
        state = self._state(incremental_state)
        if state is not None:
            state.reorder(new_order)
        return incremental_state

    def _state(self, incremental_state: IncrementalState) -> SourceCache | KeyValueCache | None:
        state: Any = FairseqIncrementalState.get_incremental_state(self, incremental_state, STATE)
        return state

    def _set_state(self, incremental_state: IncrementalState, state: Any) -> None:
        FairseqIncrementalState.set_incremental_state(self, incremental_state, STATE, state)

    def _get_input_buffer(self, incremental_state: IncrementalState | None) -> dict[str, Tensor]:
        """What fairseq's layers look at for models of another kind; nothing here."""
        return {}


class Dropout(FairseqDropout):
    """fairseq's, switches included, with masks that cost less."""

    def forward(self, x: Tensor, inplace: bool = False) -> Tensor:
        """Any shape to the same; ``inplace`` has no effect."""
        acts = self.p > 0 and (self.training or self.apply_during_inference)
        return dropout(x, self.p) if acts else x


def replace_dropout(module: nn.Module) -> None:
    """Put ours in place of each of fairseq's that ``module`` itself holds."""
    for name, part in module.named_children():
        if isinstance(part, FairseqDropout):
            setattr(module, name, Dropout(part.p, part.module_name))


def init_feed_forward(cfg: Any, *linears: nn.Linear) -> None:
    """normal(0, sqrt(2 / (fan in + fan out))) and zero biases, as both papers' code has it."""
    for linear in linears:
        nn.init.xavier_normal_(linear.weight)
        nn.init.zeros_(linear.bias)
        if not cfg.linear_bias:
            linear.register_parameter("bias", None)


class EncoderLayer(TransformerEncoderLayerBase):
    """One encoder layer with the attention and the norms of ``cfg``."""

    def __init__(self, cfg: Any) -> None:
        super().__init__(cfg)
        self.self_attn_layer_norm = build_norm(cfg.residual_norm, self.embed_dim)
        self.final_layer_norm = build_norm(cfg.residual_norm, self.embed_dim)
        init_feed_forward(cfg, self.fc1, self.fc2)
        replace_dropout(self)

    def build_self_attention(self, embed_dim: int, cfg: Any) -> FairseqAttention:
        return FairseqAttention(cfg, embed_dim, cfg.encoder.attention_heads)


class DecoderLayer(TransformerDecoderLayerBase):
    """One decoder layer with the attentions and the norms of ``cfg``."""

    def __init__(self, cfg: Any, no_encoder_attn: bool = False) -> None:
        super().__init__(cfg, no_encoder_attn)
        self.self_attn_layer_norm = build_norm(cfg.residual_norm, self.embed_dim)
        self.encoder_attn_layer_norm = build_norm(cfg.residual_norm, self.embed_dim)
        self.final_layer_norm = build_norm(cfg.residual_norm, self.embed_dim)
        self.need_attn = False  # fairseq-generate turns it on for --print-alignment
        init_feed_forward(cfg, self.fc1, self.fc2)
        replace_dropout(self)

    def build_self_attention(
        self, embed_dim: int, cfg: Any, add_bias_kv: bool = False, add_zero_attn: bool = False
    ) -> FairseqAttention:
        return FairseqAttention(cfg, embed_dim, cfg.decoder.attention_heads)

    def build_encoder_attention(self, embed_dim: int, cfg: Any) -> FairseqAttention:
        return FairseqAttention(cfg, embed_dim, cfg.decoder.attention_heads)
