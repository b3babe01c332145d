"""Half precision where it is safe, float32 where it is not."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

HALF_DTYPES = (torch.float16, torch.bfloat16)


def at_least_float32(x: Tensor) -> Tensor:
    """``x`` as float32 if it is float16 or bfloat16; float32 and float64 as they are.

    A sum of squares overflows float16 beyond 65,504, and the usual epsilons underflow in
    it, so norms are taken after this.
    """
    return x.float() if x.dtype in HALF_DTYPES else x


class KeepsFloat32(nn.Module):
    """A leaf module whose parameters stay float32 when the model is cast to half.

    A gain of 12.6 moves in steps of 0.0625 in bfloat16, further than many an update
    would take it. Casts to float64, and moves between devices, act as usual.
    """

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        def fn_keeping_float32(tensor: Tensor) -> Tensor:
            moved = fn(tensor)
            return tensor.to(moved.device) if moved.dtype in HALF_DTYPES else moved

        return super()._apply(fn_keeping_float32, recurse)  # type: ignore[no-untyped-call]
