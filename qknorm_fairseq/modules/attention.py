"""Multi-head attention with the query/key treatment passed in."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from qknorm_fairseq.modules.dropout import dropout as drop
from qknorm_fairseq.modules.packing import Packing
from qknorm_fairseq.modules.precision import at_least_float32
from qknorm_fairseq.modules.qk_norm import DotProduct, QueryKeyNorm, unit_vectors


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    visible: Tensor | None = None,
    causal: bool = False,
    dropout: float = 0.0,
) -> Tensor:
    """``softmax(query . key^T) value`` by torch's fused kernel; no score is scaled here.

    On a CPU there is no such kernel with dropout: :func:`attend_with_weights` does it then.

    Args:
        query: (batch, heads, query, d_head), scale already in it.
        key: (batch, heads, key, d_head).
        value: (batch, heads, key, d_head).
        visible: (batch, query, key) or (batch, 1, key) bool, False where there is nothing to see.
        causal: query i sees keys 0 to i. ``visible`` is then left out: padding that
            trails is hidden from every real query already, and queries that are padding
            themselves are thrown away. So no (query, key) mask is ever built.
        dropout: probability of dropping an attention weight.

    Returns:
        (batch, heads, query, d_head).
    """
    if dropout > 0 and query.device.type == "cpu":
        return attend_with_weights(query, key, value, visible, causal, dropout)[0]
    mask = None
    if visible is not None and not causal:
        mask = visible[:, None]  # the same for all heads
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, dropout_p=dropout, is_causal=causal, scale=1.0
    )


def attend_with_weights(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    visible: Tensor | None = None,
    causal: bool = False,
    dropout: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """As :func:`attend`, written out, for when the probabilities are wanted too.

    Returns:
        the output (batch, heads, query, d_head) and the probabilities before dropout
        (batch, heads, query, key).
    """
    scores = query @ key.transpose(-2, -1)  # (batch, heads, query, key)
    lowest = torch.finfo(scores.dtype).min  # minus infinity is no number where all is hidden
    if causal:
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(future, lowest)
    elif visible is not None:
        scores = scores.masked_fill(~visible[:, None], lowest)
    weights = torch.softmax(at_least_float32(scores), dim=-1).to(query.dtype)
    return (drop(weights, dropout) if dropout > 0 else weights) @ value, weights


class MultiheadAttention(nn.Module):
    """``softmax(score(q, k)) v`` for each head, between four linear projections.

    Args:
        embed_dim: width of the model; also of keys and values.
        num_heads: must divide ``embed_dim``.
        qk: what is done to queries and keys, e.g. :class:`QueryKeyNorm`.
        dropout: on the attention weights, in training.
        normalize_values: unit values too (Henry et al. 2020, table 6).
        small_init: normal(0, sqrt(2 / (5 d))) (Nguyen & Salazar 2019, section 2.2) in
            place of Xavier's uniform.
        bias: whether the projections have biases.

    Raises:
        ValueError: when ``num_heads`` does not divide ``embed_dim``.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        qk: DotProduct | QueryKeyNorm,
        dropout: float = 0.0,
        normalize_values: bool = False,
        small_init: bool = True,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if num_heads < 1 or embed_dim % num_heads:
            raise ValueError(f"{num_heads} attention heads do not divide the width {embed_dim}")
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        self.dropout = dropout
        self.normalize_values = normalize_values
        self.qk = qk
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            nn.Linear(embed_dim, embed_dim, bias=bias) for _ in range(4)
        )
        for projection in (self.q_proj, self.k_proj, self.v_proj, self.out_proj):
            if small_init:
                nn.init.normal_(projection.weight, std=(2 / (5 * embed_dim)) ** 0.5)
            else:
                nn.init.xavier_uniform_(projection.weight)
            if bias:
                nn.init.zeros_(projection.bias)

    def project_query(self, x: Tensor, packing: Packing) -> Tensor:
        """(tokens, embed_dim) to (batch, heads, query, d_head), scale included."""
        return self.qk.query(packing.split_heads(self.q_proj(x), self.num_heads))

    def project_key_value(self, x: Tensor, packing: Packing) -> tuple[Tensor, Tensor]:
        """(tokens, embed_dim) to keys, normalised, and values: what a decoder caches.

        Both are (batch, heads, key, d_head).
        """
        key = self.qk.key(packing.split_heads(self.k_proj(x), self.num_heads))
        value = packing.split_heads(self.v_proj(x), self.num_heads)
        return key, unit_vectors(value).to(value.dtype) if self.normalize_values else value

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        visible: Tensor | None = None,
        causal: bool = False,
        need_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attention of projected heads.

        Returns:
            (batch, heads, query, d_head), and (batch, heads, query, key) if asked for.
        """
        dropout = self.dropout if self.training else 0.0
        if need_weights:
            return attend_with_weights(query, key, value, visible, causal, dropout)
        return attend(query, key, value, visible, causal, dropout), None

    def project_output(self, heads: Tensor, packing: Packing) -> Tensor:
        """(batch, heads, query, d_head), joined, to (tokens, embed_dim)."""
        return self.out_proj(packing.join_heads(heads))
