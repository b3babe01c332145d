"""Dropout whose masks cost a CPU little."""

import torch
import torch.nn.functional as F
from torch import Tensor

BITS = 16
WORD = 64 // BITS  # draws in a random integer


def dropout(x: Tensor, p: float) -> Tensor:
    """Each element zero with probability ``p``, else divided by 1 - p; any shape.

    torch draws a number for each element; where that takes long, on a CPU, each here is
    compared with 16 bits of a random integer, so that ``p`` is rounded to a multiple of 2^-16.
    """
    if x.device.type != "cpu":
        return F.dropout(x, p)
    return x * keep_mask(x, p)


def keep_mask(x: Tensor, p: float) -> Tensor:
    """0 with probability ``p``, else 1 / (1 - p), of the shape and dtype of ``x``."""
    dropped = round(p * 2**BITS)
    if dropped == 2**BITS:
        return torch.zeros_like(x)
    words = torch.empty(-(-x.numel() // WORD), dtype=torch.int64).random_(-(2**63), None)
    draws = words.view(torch.int16)[: x.numel()].view(x.shape)  # -2^15 to 2^15 - 1, all alike
    keep = torch.empty(x.shape, dtype=x.dtype)
    # straight to x's dtype: by way of a bool it takes nine times as long
    torch.ge(draws, dropped - 2 ** (BITS - 1), out=keep)
    return keep.mul_(2**BITS / (2**BITS - dropped))
