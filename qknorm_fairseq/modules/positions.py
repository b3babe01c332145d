"""What is added to each word vector: sinusoids, in three published forms, and the language."""

import math

import torch
from torch import Tensor, nn


def _interleaved_angles(positions: Tensor, dim: int) -> Tensor:
    """pos / 10000^(2 floor(i/2) / d), (position, dim)."""
    pair = torch.arange(dim, dtype=torch.float64) // 2
    return positions[:, None] * torch.pow(10000.0, -2 * pair / dim)


def interleaved(positions: Tensor, dim: int) -> Tensor:
    """Sine on even dimensions, cosine on odd ones, from position 0 (Vaswani et al. 2017)."""
    angles = _interleaved_angles(positions, dim)
    return torch.where(torch.arange(dim) % 2 == 0, angles.sin(), angles.cos())


def released(positions: Tensor, dim: int) -> Tensor:
    """Sine on every dimension: the slip in the released QKNorm code, kept to compare."""
    return _interleaved_angles(positions, dim).sin()


def fairseq(positions: Tensor, dim: int) -> Tensor:
    """fairseq's own: a half of sines, a half of cosines, first position 2."""
    half = dim // 2
    frequencies = torch.exp(
        torch.arange(half, dtype=torch.float64) * -(math.log(10000) / (half - 1))
    )
    angles = (positions + 2)[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=1)


TABLES = {"interleaved": interleaved, "released": released, "fairseq": fairseq}


class SinusoidalPositions(nn.Module):
    """A position's vector for every token that is not padding, whichever side is padded.

    With ``language``, one learned vector is added at every position: the released code
    tells the languages apart so (first normal(0, d^-0.5)); fairseq has no such thing.

    The table is computed in float64 and kept in the dtype of the model, so that float64
    models carry no float32 rounding.
    """

    max_positions = 100_000  # what fairseq's own table allows

    def __init__(self, dim: int, padding_idx: int, kind: str, language: bool = False) -> None:
        super().__init__()
        if dim % 2:
            raise ValueError(f"sinusoidal positions need an even width, not {dim}")
        self.dim = dim
        self.padding_idx = padding_idx
        self.kind = kind
        self.language = nn.Parameter(torch.randn(dim) * dim**-0.5) if language else None
        self.register_buffer("dtype_marker", torch.zeros(()), persistent=False)
        self._table = torch.empty(0, dim)

    def table(self, length: int) -> Tensor:
        """(length, dim), grown by doubling, in the model's dtype and on its device."""
        marker = self.get_buffer("dtype_marker")
        if len(self._table) < length:
            positions = torch.arange(max(length, 2 * len(self._table)), dtype=torch.float64)
            self._table = TABLES[self.kind](positions, self.dim).to(marker)
        elif self._table.dtype != marker.dtype:
            self._table = TABLES[self.kind](
                torch.arange(len(self._table), dtype=torch.float64), self.dim
            ).to(marker)
        self._table = self._table.to(marker.device)
        return self._table

    def forward(self, tokens: Tensor, incremental_state: object | None = None) -> Tensor:
        """(batch, length) of type numbers to (batch, length, dim).

        With an ``incremental_state``, only the last position is computed: (batch, 1, dim).
        """
        table = self.table(tokens.shape[1])
        if incremental_state is not None:
            positions = table[tokens.shape[1] - 1].expand(len(tokens), 1, -1)
        else:
            real = tokens.ne(self.padding_idx)
            positions = table[(real.cumsum(dim=1) - 1).clamp(min=0)]
        return positions if self.language is None else positions + self.language
