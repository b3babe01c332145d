"""Packed and padded are the same batch, and a packed model computes what a padded one does."""

from typing import Any

import pytest
import torch
from tiny import PAD, batch, build
from torch import Tensor

from qknorm_fairseq.models.transformer_qknorm import TransformerQKNorm
from qknorm_fairseq.modules.packing import Packing

REAL = torch.tensor([[True] * 4, [True, True, False, False], [False, True, True, True]])


def test_packing_keeps_what_is_real_in_order_and_unpacking_puts_it_back() -> None:
    packing, x = Packing.of(REAL), torch.randn(3, 4, 5)
    packed = packing.pack(x)
    assert packed.shape == (9, 5)
    assert torch.equal(packed, x[REAL])
    assert torch.equal(packing.unpack(packed), x * REAL[:, :, None])


def test_a_batch_without_padding_is_not_copied() -> None:
    packing, x = Packing.of(torch.ones(3, 4, dtype=torch.bool)), torch.randn(3, 4, 5)
    assert packing.real is None
    assert packing.pack(x).data_ptr() == x.data_ptr()
    assert torch.equal(packing.unpack(packing.pack(x)), x)


def test_heads_are_split_by_sentence_and_joined_again() -> None:
    packing = Packing.of(REAL)
    x = torch.randn(9, 6)
    heads = packing.split_heads(x, 2)
    assert heads.shape == (3, 2, 4, 3)
    assert torch.equal(heads[2, 1, 1:], x[6:, 3:])  # the third sentence, second head
    assert not heads[2, :, 0].any() and not heads[1, :, 2:].any()
    assert torch.equal(packing.join_heads(heads), x)


def test_gradients_go_through_the_real_positions_alone() -> None:
    packing, x = Packing.of(REAL), torch.randn(3, 4, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: packing.unpack(packing.pack(x) * 3).square(), x)
    packing.unpack(packing.pack(x)).sum().backward()
    assert x.grad is not None and torch.equal(x.grad, REAL[:, :, None].expand(3, 4, 5).double())


def everything_computed(real: Tensor) -> Packing:
    """The padded batch as it is, padding hidden from the attention alone."""
    batch_size, length = real.shape
    return Packing(batch_size, length, real)


def outcome(model: TransformerQKNorm) -> list[Tensor]:
    """The real logits and every gradient."""
    torch.manual_seed(5)
    src, lengths, tgt = batch()
    model.zero_grad()
    logits = model(src, lengths, tgt)[0][tgt.ne(PAD)]
    (logits * torch.linspace(0, 1, logits.numel()).view_as(logits)).sum().backward()
    return [logits, *(p.grad for p in model.parameters() if p.grad is not None)]


@pytest.mark.parametrize("prenorm", [True, False])
@pytest.mark.parametrize("arch", ["transformer_qknorm", "transformer_scalenorm"])
def test_leaving_the_padding_out_changes_no_number(
    arch: str, prenorm: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("encoder_normalize_before", "decoder_normalize_before")
    options: dict[str, Any] = {"dropout": 0.0, "word_dropout": 0.0, **dict.fromkeys(names, prenorm)}
    model = build(arch, **options).double().train()
    packed = outcome(model)
    monkeypatch.setattr(Packing, "of", everything_computed)
    padded = outcome(model)
    assert len(packed) == len(padded) > 50
    for ours, theirs in zip(packed, padded, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)
