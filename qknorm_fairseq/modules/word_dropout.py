"""Word dropout: a model that has not seen every word must not lean on each one."""

import torch
from torch import Tensor


def drop_words(tokens: Tensor, probability: float, unk: int, pad: int) -> Tensor:
    """A copy of ``tokens`` in which each that is not padding is ``unk`` with ``probability``.

    Both ends of a sentence may be hit too, as in the released code (Nguyen & Salazar 2019,
    appendix A). Any shape of type numbers to the same; the tensor given is not altered.
    """
    dropped = torch.rand(tokens.shape, device=tokens.device) < probability
    return tokens.masked_fill(dropped & tokens.ne(pad), unk)
