"""What happens to queries and keys before their product: the paper's idea, in one place.

Each class here turns one head's projected queries and keys into vectors whose plain dot
product is the attention score. The attention module needs to know no more than that.
"""

import math

import torch
from torch import Tensor, nn

from qknorm_fairseq.modules.precision import KeepsFloat32, at_least_float32

SHORTEST = 1e-12  # of a vector that has a direction


def scale_from_length(length: float) -> float:
    """The initial scale for sequences of about ``length`` tokens: log2(L^2 - L).

    L is the 97.5th percentile of the length of the training sentences, in BPE tokens with
    the end-of-sentence token, both languages pooled (Henry et al. 2020, eq. 3).

    Raises:
        ValueError: for a length below 2, where the logarithm is not defined.
    """
    if length < 2:
        raise ValueError(f"the scale log2(L^2 - L) needs a length of at least 2, not {length}")
    return math.log2(length**2 - length)


def inverse_length(x: Tensor) -> Tensor:
    """``1 / |x|`` over the last dimension, which stays, of size one; ``x`` in float32 or better.

    0 for what is shorter than 1e-12, which so becomes zero and gets no gradient: dividing by
    that bound, as ``F.normalize`` does, has a gradient of 1e12 there, which drowns all others.
    """
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return torch.where(length > SHORTEST, length, torch.inf).reciprocal()


def unit_vectors(x: Tensor) -> Tensor:
    """``x / |x|`` over the last dimension, in float32 or better and given back as such."""
    x = at_least_float32(x)
    return x * inverse_length(x)


class DotProduct(nn.Module):
    """Scaled dot product, ``q . k / sqrt(d_head)`` (Vaswani et al. 2017, eq. 1)."""

    def __init__(self, head_dim: int) -> None:
        super().__init__()
        self.scaling = head_dim**-0.5

    def query(self, q: Tensor) -> Tensor:
        """(batch, heads, query, d_head) to the same shape."""
        return q * self.scaling

    def key(self, k: Tensor) -> Tensor:
        """(batch, heads, key, d_head), as it comes."""
        return k


class QueryKeyNorm(KeepsFloat32):
    """Scaled cosine, ``g * (q / |q|) . (k / |k|)`` (Henry et al. 2020, eq. 2 to 5).

    The norm is taken over one head's dimensions, after the head split; 1/sqrt(d) is gone,
    and g, a free parameter with neither bound nor weight decay, takes its place. No score
    exceeds |g|, whatever the length of queries and keys.

    Args:
        num_heads: heads of the attention.
        initial_scale: first value of g.
        per_head: one g a head in place of one for all heads.
        learned: whether g is trained.
    """

    def __init__(
        self,
        num_heads: int,
        initial_scale: float,
        per_head: bool = False,
        learned: bool = True,
    ) -> None:
        super().__init__()
        shape = (num_heads, 1, 1) if per_head else ()
        self.g = nn.Parameter(torch.full(shape, initial_scale), requires_grad=learned)

    def query(self, q: Tensor) -> Tensor:
        """(batch, heads, query, d_head) to vectors of length |g|, same shape and dtype."""
        exact = at_least_float32(q)
        return (exact * (self.g * inverse_length(exact))).to(q.dtype)

    def key(self, k: Tensor) -> Tensor:
        """(batch, heads, key, d_head) to unit vectors, same shape and dtype."""
        return unit_vectors(k).to(k.dtype)
