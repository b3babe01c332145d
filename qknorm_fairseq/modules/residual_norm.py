"""The norm on the residual path: the other thing that the paper changed."""

import torch
from torch import Tensor, nn

from qknorm_fairseq.modules.precision import KeepsFloat32, at_least_float32


class ScaleNorm(KeepsFloat32):
    """``g x / max(|x|, 1e-5)`` with one learned g, first sqrt(d).

    Nguyen & Salazar (2019), eq. 5. Any shape (..., dim) to the same.
    """

    def __init__(self, dim: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.g = nn.Parameter(torch.tensor(dim**0.5))

    def forward(self, x: Tensor) -> Tensor:
        exact = at_least_float32(x)
        length = torch.linalg.vector_norm(exact, dim=-1, keepdim=True)
        return (exact * (self.g / length.clamp_min(self.eps))).to(x.dtype)


class LayerNorm(KeepsFloat32, nn.LayerNorm):
    """torch's LayerNorm (eps 1e-5, affine) whose statistics and gains stay float32."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(at_least_float32(x)).to(x.dtype)


_NORMS: dict[str, type[nn.Module]] = {
    "layernorm": LayerNorm,
    "scalenorm": ScaleNorm,
    "none": nn.Identity,
}


def build_norm(name: str, dim: int) -> nn.Module:
    """The residual norm called ``name`` for vectors of size ``dim``.

    Raises:
        ValueError: for an unknown name.
    """
    if name not in _NORMS:
        raise ValueError(f"unknown residual norm {name!r}; known: {', '.join(_NORMS)}")
    return _NORMS[name](dim)
