"""The paper's claims about normalised queries and keys, as properties."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from qknorm_fairseq.modules.attention import MultiheadAttention, attend, attend_with_weights
from qknorm_fairseq.modules.packing import Packing
from qknorm_fairseq.modules.qk_norm import DotProduct, QueryKeyNorm, scale_from_length

TINY = 1e-12  # float64 rounding
HEADS, HEAD_DIM = 3, 5


def random_heads(length: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(2, HEADS, length, HEAD_DIM, dtype=dtype)


def scores(norm: DotProduct | QueryKeyNorm, q: Tensor, k: Tensor) -> Tensor:
    return norm.query(q) @ norm.key(k).transpose(-2, -1)


@given(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_scaling_a_query_or_a_key_changes_nothing(a: float, b: float) -> None:
    norm = QueryKeyNorm(HEADS, 12.6).double()
    q, k = random_heads(4), random_heads(6)
    torch.testing.assert_close(scores(norm, a * q, b * k), scores(norm, q, k), rtol=0, atol=1e-11)


def test_scaling_changes_the_dot_product() -> None:
    q, k = random_heads(4), random_heads(6)
    assert not torch.allclose(
        scores(DotProduct(HEAD_DIM), 2 * q, k), scores(DotProduct(HEAD_DIM), q, k)
    )


@given(st.floats(-30, 30), st.floats(1e-3, 1e4))
def test_no_score_exceeds_g(g: float, size: float) -> None:
    norm = QueryKeyNorm(HEADS, g).double()
    q = size * random_heads(8)
    reached = scores(norm, q, q).abs().max().item()  # a vector with itself: cosine 1
    assert reached <= abs(norm.g.item()) * (1 + TINY)
    assert reached >= abs(norm.g.item()) * (1 - 1e-9)


def test_vectors_are_of_length_one_in_each_head_not_over_all() -> None:
    norm = QueryKeyNorm(HEADS, 3.0).double()
    lengths = norm.key(random_heads(6)).norm(dim=-1)
    torch.testing.assert_close(lengths, torch.ones_like(lengths))
    lengths = norm.query(random_heads(6)).norm(dim=-1)
    torch.testing.assert_close(lengths, torch.full_like(lengths, 3.0))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("size", [0.0, 1e-4, 1.0, 1e4])
def test_half_precision_stays_finite(dtype: torch.dtype, size: float) -> None:
    norm = QueryKeyNorm(HEADS, 12.6).to(dtype)
    q = (torch.ones(1, HEADS, 4, 64) * size).to(dtype).requires_grad_()
    k = (torch.randn(1, HEADS, 4, 64) * size).to(dtype)
    v = torch.randn(1, HEADS, 4, 64, dtype=dtype)
    for key in (k, torch.randn_like(v), torch.zeros_like(v)):
        q.grad = norm.g.grad = None
        fused = attend(norm.query(q), norm.key(key), v)
        explicit, _ = attend_with_weights(norm.query(q), norm.key(key), v)
        for out in (fused, explicit):
            assert out.dtype == dtype
            assert out.isfinite().all()
            (10 * out.float()).square().mean().backward()
            assert q.grad is not None and q.grad.isfinite().all()
            assert norm.g.grad is not None and norm.g.grad.isfinite()
    if size:  # a vector with itself: the score is g
        itself = scores(norm, q, q)[0, 0].float()
        torch.testing.assert_close(itself, torch.full((4, 4), 12.6), rtol=0.02, atol=0)


def test_g_stays_float32_in_a_half_precision_model() -> None:
    norm = QueryKeyNorm(HEADS, 12.58925)
    assert norm.half().g.dtype == torch.float32
    assert norm.g.item() == pytest.approx(12.58925, abs=1e-6)
    assert norm.bfloat16().g.item() == pytest.approx(12.58925, abs=1e-6)
    assert norm.double().g.dtype == torch.float64


def test_g_is_one_scalar_learned_and_used() -> None:
    attention = MultiheadAttention(HEADS * HEAD_DIM, HEADS, QueryKeyNorm(HEADS, 5.0))
    assert [name for name, _ in attention.qk.named_parameters()] == ["g"]
    assert isinstance(attention.qk, QueryKeyNorm)
    assert attention.qk.g.shape == ()
    x, grid = torch.randn(2 * 4, HEADS * HEAD_DIM), Packing(2, 4)

    def output() -> Tensor:
        return attention.attend(
            attention.project_query(x, grid), *attention.project_key_value(x, grid)
        )[0]

    before = output()
    before.square().sum().backward()
    assert attention.qk.g.grad is not None and attention.qk.g.grad.abs() > 0
    with torch.no_grad():
        attention.qk.g.add_(1.0)
    assert not torch.allclose(output(), before)


def test_a_fixed_g_is_not_learned_and_zero_makes_attention_uniform() -> None:
    norm = QueryKeyNorm(HEADS, 0.0, learned=False)
    assert not norm.g.requires_grad
    q, k = random_heads(4, torch.float32), random_heads(6, torch.float32)
    _, weights = attend_with_weights(norm.query(q), norm.key(k), k)
    torch.testing.assert_close(weights, torch.full_like(weights, 1 / 6))


def test_per_head_equals_per_module_when_all_heads_are_alike() -> None:
    q, k = random_heads(4), random_heads(6)
    per_head = QueryKeyNorm(HEADS, 7.5, per_head=True).double()
    assert per_head.g.numel() == HEADS
    assert torch.equal(scores(per_head, q, k), scores(QueryKeyNorm(HEADS, 7.5).double(), q, k))


@pytest.mark.parametrize(
    ("length", "scale"), [(79, 12.5892), (75, 12.4383), (72, 12.3197), (2, 1.0)]
)
def test_first_scale_is_the_papers(length: float, scale: float) -> None:
    assert scale_from_length(length) == pytest.approx(scale, abs=5e-5)
    assert scale_from_length(length) == math.log2(length * length - length)


def test_a_length_without_a_scale_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 2"):
        scale_from_length(1)
