"""The matrix products of a training step, and nothing else: no step takes less than they do."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from qknorm_fairseq.benchmark.shapes import PAD


@dataclass(frozen=True)
class Product:
    """``left @ right`` of a forward pass, with the two products of its backward pass."""

    left: Tensor  # (…, m, k)
    right: Tensor  # (…, k, n)
    gradient: Tensor  # (…, m, n)

    def run(self) -> None:
        """All three."""
        _ = self.left @ self.right
        _ = self.gradient @ self.right.transpose(-2, -1)
        _ = self.left.transpose(-2, -1) @ self.gradient


def products(model: Any, sample: dict[str, Any], target_types: int) -> list[Product]:
    """Those of one of our models on a batch, for tokens that are no padding; q, k and v as one."""
    found = list(_shapes(model, sample, target_types))
    like = next(model.parameters())
    return [_product(shape, like) for shape in found]


# (products at a time, m, k, n)
Shape = tuple[int, int, int, int]


def _product(shape: Shape, like: Tensor) -> Product:
    many, m, k, n = shape
    new = like.new_ones
    if many == 1:  # a linear layer: its weight is (n, k)
        return Product(new(m, k), new(n, k).T, new(m, n))
    return Product(new(many, m, k), new(many, k, n), new(many, m, n))


def _shapes(model: Any, sample: dict[str, Any], target_types: int) -> Iterator[Shape]:
    source, target = sample["net_input"]["src_tokens"], sample["target"]
    width = model.cfg.encoder.embed_dim
    batch, longest_source = source.shape
    longest_target = target.shape[1]
    sources, targets = int(source.ne(PAD).sum()), int(target.ne(PAD).sum())

    def attention(queries: int, keys: int, heads: int) -> Iterator[Shape]:
        head = width // heads
        yield batch * heads, queries, head, keys
        yield batch * heads, queries, keys, head

    def feed_forward(rows: int, inner: int) -> Iterator[Shape]:
        yield 1, rows, width, inner
        yield 1, rows, inner, width

    for _ in range(model.cfg.encoder.layers):
        yield 1, sources, width, 3 * width
        yield from attention(longest_source, longest_source, model.cfg.encoder.attention_heads)
        yield 1, sources, width, width
        yield from feed_forward(sources, model.cfg.encoder.ffn_embed_dim)
    for _ in range(model.cfg.decoder.layers):
        heads = model.cfg.decoder.attention_heads
        yield 1, targets, width, 3 * width
        yield from attention(longest_target, longest_target, heads)
        yield 1, targets, width, width
        yield 1, targets, width, width
        yield 1, sources, width, 2 * width
        yield from attention(longest_target, longest_source, heads)
        yield 1, targets, width, width
        yield from feed_forward(targets, model.cfg.decoder.ffn_embed_dim)
    yield 1, targets, width, target_types
