"""A padded batch as the list of its tokens: no layer computes anything for the padding.

In a batch of 4,096 tokens with real lengths, every third position on the target side is
padding. All that a Transformer does but attention treats each token by itself, so it is
done to the (tokens, dim) that are there; attention alone sees (batch, length).
"""

from dataclasses import dataclass
from typing import Self

from torch import Tensor


@dataclass(frozen=True)
class Packing:
    """Which positions of a (batch, length) grid the rows of a (tokens, …) tensor are.

    Attributes:
        batch, length: size of the grid.
        real: (batch, length) bool, False at padding; None when nothing is padding.
        places: (tokens,) positions in the flattened grid, sentence by sentence; None when
            the tensor has a row for every position, padding included.
    """

    batch: int
    length: int
    real: Tensor | None = None
    places: Tensor | None = None

    @classmethod
    def of(cls, real: Tensor) -> Self:
        """A row for each position where ``real`` (batch, length) is True."""
        batch, length = real.shape
        places = real.flatten().nonzero()[:, 0]
        if len(places) == real.numel():
            return cls(batch, length)
        return cls(batch, length, real, places)

    def pack(self, x: Tensor) -> Tensor:
        """(batch, length, …) to (tokens, …)."""
        x = x.flatten(0, 1)
        return x if self.places is None else x.index_select(0, self.places)

    def unpack(self, x: Tensor) -> Tensor:
        """(tokens, …) to (batch, length, …), zero at padding."""
        if self.places is not None:
            grid = x.new_zeros(self.batch * self.length, *x.shape[1:])
            x = grid.index_copy_(0, self.places, x)
        return x.unflatten(0, (self.batch, self.length))

    def split_heads(self, x: Tensor, heads: int) -> Tensor:
        """(tokens, heads * d_head) to (batch, heads, length, d_head), zero at padding."""
        return self.unpack(x.unflatten(-1, (heads, -1))).transpose(1, 2)

    def join_heads(self, x: Tensor) -> Tensor:
        """(batch, heads, length, d_head) to (tokens, heads * d_head)."""
        return self.pack(x.transpose(1, 2)).flatten(-2)


@dataclass(frozen=True)
class AttentionMask:
    """Who attends to whom: each query to the real keys of its sentence, none to later ones.

    Attributes:
        queries, keys: how their rows are packed.
        causal: query i sees keys 0 to i.
        beam: rows of queries that are hypotheses of one sentence, one after the other: what a
            cache is made for.
    """

    queries: Packing
    keys: Packing
    causal: bool = False
    beam: int = 1
