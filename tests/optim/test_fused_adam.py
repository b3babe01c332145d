"""The optimiser against Adam's algorithm written out, and beside fairseq's own."""

from copy import deepcopy
from typing import Any

import pytest
import torch
from fairseq.optim.adam import FairseqAdam
from omegaconf import OmegaConf
from torch import Tensor, nn

from qknorm_fairseq.optim.fused_adam import FusedAdam

RATE, BETAS, EPS = 0.01, (0.9, 0.98), 1e-8


def options(decay: float = 0.0) -> Any:
    values = {"lr": [RATE], "adam_betas": str(BETAS), "adam_eps": EPS, "weight_decay": decay}
    fairseqs = {"use_old_adam": False, "fp16_adam_stats": False, "tpu": False}
    return OmegaConf.create({**values, **fairseqs})


def train(kind: type[FairseqAdam], start: Tensor, decay: float, steps: int) -> Tensor:
    parameter = nn.Parameter(start.clone())
    optimizer = kind(options(decay), [parameter])
    for step in range(steps):
        optimizer.set_lr(RATE / (1 + step))  # as a schedule does
        optimizer.zero_grad()
        optimizer.backward((parameter**2 * torch.linspace(-1, 3, len(start))).sum())
        optimizer.step()
    return parameter.detach()


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_it_is_the_algorithm(decay: float) -> None:
    """Kingma & Ba (2015), algorithm 1, with decay taken off the weights themselves."""
    start = torch.randn(40, dtype=torch.float64)
    x, m, v = start.clone(), torch.zeros(40).double(), torch.zeros(40).double()
    for step in range(1, 21):
        rate = RATE / step
        gradient = 2 * x * torch.linspace(-1, 3, 40)
        m = BETAS[0] * m + (1 - BETAS[0]) * gradient
        v = BETAS[1] * v + (1 - BETAS[1]) * gradient**2
        m_hat, v_hat = m / (1 - BETAS[0] ** step), v / (1 - BETAS[1] ** step)
        x = x - rate * decay * x - rate * m_hat / (v_hat.sqrt() + EPS)
    torch.testing.assert_close(train(FusedAdam, start, decay, 20), x, rtol=1e-9, atol=1e-12)


def test_it_is_fairseqs_but_for_the_place_of_epsilon() -> None:
    start = torch.randn(40)
    ours, theirs = (train(kind, start, 0.0, 20) for kind in (FusedAdam, FairseqAdam))
    assert not torch.equal(ours, start)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


def test_a_restored_state_goes_on_bit_for_bit() -> None:
    start = nn.Parameter(torch.randn(40))
    first = FusedAdam(options(), [start])

    def step(optimizer: FusedAdam, parameter: nn.Parameter) -> None:
        optimizer.zero_grad()
        optimizer.backward((parameter**3).sum())
        optimizer.step()

    step(first, start)
    other = nn.Parameter(start.detach().clone())
    second = FusedAdam(options(), [other])
    second.load_state_dict(deepcopy(first.state_dict()))
    step(first, start)
    step(second, other)
    assert torch.equal(start, other)


def test_half_precision_may_join_the_parameters() -> None:
    """fairseq's --fp16 joins them into one tensor, and refuses optimisers that mind."""
    assert FusedAdam(options(), [nn.Parameter(torch.randn(4))]).supports_flat_params
