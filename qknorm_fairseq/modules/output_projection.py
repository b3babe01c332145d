"""The output projection: over the word table, and over the target's words alone."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from qknorm_fairseq.modules.embedding import WordEmbedding
from qknorm_fairseq.modules.qk_norm import unit_vectors


class OutputProjection(nn.Module):
    """Logits as products with the rows of a :class:`WordEmbedding`, which it shares.

    Types that the target language does not have are not computed at all: after
    :meth:`allow`, :meth:`allowed_logits` has a column for each allowed type alone.

    Args:
        embedding: the table.
        bias: whether each type has a learned bias, first 0.
    """

    target_mask: Tensor  # (types,) True for the types that may be produced; in the checkpoint
    allowed_types: Tensor  # their numbers, in order

    def __init__(self, embedding: WordEmbedding, bias: bool) -> None:
        super().__init__()
        self.weight = embedding.weight  # the same parameter, so that it is tied
        self.fix_norm = embedding.fix_norm
        self._held: tuple[Tensor, Tensor | None] | None = None
        self.bias = nn.Parameter(torch.zeros(len(self.weight))) if bias else None
        self.register_buffer("target_mask", torch.ones(len(self.weight), dtype=torch.bool))
        self.register_buffer("allowed_types", torch.arange(len(self.weight)), persistent=False)

    def allow(self, mask: Tensor) -> None:
        """Let only the types where ``mask`` (types,) is True be produced from now on."""
        self.target_mask.copy_(mask)
        self.allowed_types = self.target_mask.nonzero()[:, 0]

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self.allow(self.target_mask)

    def _rows(self) -> tuple[Tensor, Tensor | None]:
        """(allowed types, dim) and (allowed types,): what features are multiplied with."""
        rows: Tensor = self.weight
        bias: Tensor | None = self.bias
        if len(self.allowed_types) < len(rows):
            rows = rows[self.allowed_types]
            bias = bias[self.allowed_types] if bias is not None else None
        return unit_vectors(rows).to(rows.dtype) if self.fix_norm else rows, bias

    @contextmanager
    def held(self) -> Iterator[None]:
        """Make the rows once for the block, in which the weights must not change."""
        self._held = self._rows()
        try:
            yield
        finally:
            self._held = None

    def allowed_logits(self, features: Tensor) -> Tensor:
        """(..., dim) to (..., allowed types)."""
        rows, bias = self._held or self._rows()
        return F.linear(features, rows, bias)

    def allowed_columns(self, types: Tensor) -> Tensor:
        """Type numbers, of any shape, to their columns in ``allowed_logits``; -1: none."""
        columns = types.new_full((len(self.weight),), -1)
        columns[self.allowed_types] = torch.arange(len(self.allowed_types), device=types.device)
        return columns[types]

    def forward(self, features: Tensor) -> Tensor:
        """(..., dim) to (..., types), minus infinity where a type may not be produced."""
        logits = self.allowed_logits(features)
        if len(self.allowed_types) == len(self.weight):
            return logits
        everything = logits.new_full((*logits.shape[:-1], len(self.weight)), float("-inf"))
        return everything.index_copy(-1, self.allowed_types, logits)
