"""Dropout is what it says: how often, by how much, and nothing but that."""

import pytest
import torch
from torch import Tensor

from qknorm_fairseq.models.layers import Dropout
from qknorm_fairseq.modules.dropout import dropout, keep_mask

SIZE = 1_000_003  # no multiple of anything


@pytest.mark.parametrize("p", [1e-3, 0.1, 0.3, 0.5, 0.9])
def test_so_many_are_dropped_and_the_mean_stays(p: float) -> None:
    x = torch.ones(SIZE)
    y = dropout(x, p)
    dropped = float(y.eq(0).float().mean())
    deviation = (p * (1 - p) / SIZE) ** 0.5
    assert abs(dropped - p) < 5 * deviation + 2**-17
    kept = y[y.ne(0)]
    assert (kept == kept[0]).all()
    assert kept[0].item() == pytest.approx(1 / (1 - p), rel=2**-16 / (1 - p))
    assert y.mean().item() == pytest.approx(1, abs=5 * deviation / (1 - p))


def test_elements_are_independent_of_their_neighbours() -> None:
    """Four of them come from one random integer; 16 bits each."""
    kept = keep_mask(torch.ones(SIZE), 0.3).ne(0).float() - 0.7
    for distance in (1, 2, 3, 4, 8):
        correlation = (kept[:-distance] * kept[distance:]).mean() / 0.21
        assert abs(correlation) < 5 / SIZE**0.5
    for place in range(4):
        assert abs(kept[place::4].mean()) < 5 * (0.21 * 4 / SIZE) ** 0.5


def test_a_seed_gives_the_same_mask_and_the_next_draw_another() -> None:
    x = torch.randn(50, 33)
    torch.manual_seed(4)
    first, second = dropout(x, 0.4), dropout(x, 0.4)
    torch.manual_seed(4)
    assert torch.equal(dropout(x, 0.4), first) and not torch.equal(first, second)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_shape_dtype_and_gradient(dtype: torch.dtype) -> None:
    x = torch.randn(7, 5, 3, dtype=dtype).transpose(0, 1).requires_grad_()
    torch.manual_seed(1)
    y = dropout(x, 0.5)
    assert y.dtype == dtype and y.shape == x.shape
    y.sum().backward()
    torch.manual_seed(1)
    assert x.grad is not None and torch.equal(x.grad, keep_mask(x, 0.5))
    assert torch.equal(y, x * x.grad)


def test_all_or_nothing() -> None:
    x = torch.randn(100)
    assert torch.equal(dropout(x, 0.0), x)
    assert not dropout(x, 1.0).any() and dropout(x, 1.0).isfinite().all()


@pytest.mark.parametrize("switch", ["training", "inference", "off", "zero"])
def test_it_acts_when_fairseqs_would(switch: str) -> None:
    module = Dropout(0.0 if switch == "zero" else 0.5, "Layer")
    module.train(switch in ("training", "zero"))
    if switch == "inference":
        module.make_generation_fast_("layer", retain_dropout=True)
    x = torch.randn(1000)
    y: Tensor = module(x)
    assert torch.equal(x, y) == (switch in ("off", "zero"))
