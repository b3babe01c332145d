"""FixNorm: word vectors of length one."""

import torch
from torch import Tensor, nn

from qknorm_fairseq.modules.qk_norm import unit_vectors


class WordEmbedding(nn.Embedding):
    """The one table for encoder input, decoder input and output projection.

    With ``fix_norm``, every row that leaves has length 1 (Nguyen & Salazar 2019,
    section 3.2); the parameter itself is free. The radius sqrt(d) at the input is the
    caller's to apply.
    """

    def __init__(self, num_types: int, dim: int, padding_idx: int, fix_norm: bool) -> None:
        super().__init__(num_types, dim, padding_idx=padding_idx)
        self.fix_norm = fix_norm
        if fix_norm:
            nn.init.uniform_(self.weight, -0.01, 0.01)
        else:
            nn.init.normal_(self.weight, std=dim**-0.5)
            with torch.no_grad():
                self.weight[padding_idx].zero_()

    def forward(self, tokens: Tensor) -> Tensor:
        """(batch, length) of type numbers to (batch, length, dim)."""
        rows = super().forward(tokens)
        return unit_vectors(rows).to(rows.dtype) if self.fix_norm else rows
