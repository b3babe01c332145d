"""Which types the target language has, and whether a model may produce them all."""

import logging
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

logger = logging.getLogger(__name__)


def occurring_types(sentences: Iterable[Tensor], dictionary: Any) -> Tensor:
    """(types,) True for what may be produced: the sentences' types, eos and unk."""
    mask = torch.zeros(len(dictionary), dtype=torch.bool)
    mask[[dictionary.eos(), dictionary.unk()]] = True
    for sentence in sentences:
        mask[sentence] = True
    return mask


def check_mask(allowed: Tensor, occurring: Tensor, dictionary: Any) -> None:
    """Compare a checkpoint's mask with what occurs in the training target, both (types,).

    Raises:
        ValueError: when a type that occurs is not allowed.
    """
    if occurring.equal(allowed):
        return
    logger.warning(
        f"the checkpoint's target mask allows {int(allowed.sum()):,} of {len(allowed):,} "
        f"types, not the {int(occurring.sum()):,} of the training target"
    )
    forbidden = (occurring & ~allowed).nonzero()[:, 0].tolist()
    if forbidden:
        raise ValueError(
            f"the checkpoint's target mask forbids {len(forbidden)} types that occur in the "
            f"training targets, the first is {dictionary[forbidden[0]]!r}: train on the data "
            "that it was made for, or begin without that checkpoint"
        )
