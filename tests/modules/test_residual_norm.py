"""ScaleNorm and LayerNorm: values, first values, half precision."""

import pytest
import torch

from qknorm_fairseq.modules.residual_norm import ScaleNorm, build_norm


def test_scalenorm_output_has_norm_g_which_starts_at_sqrt_d() -> None:
    norm = ScaleNorm(512)
    assert norm.g.item() == pytest.approx(22.627417, abs=1e-5)
    assert norm.g.shape == ()
    x = 3 * torch.randn(4, 7, 512)
    lengths = norm(x).norm(dim=-1)
    torch.testing.assert_close(lengths, torch.full_like(lengths, 512**0.5))
    with torch.no_grad():
        norm.g.fill_(2.0)
    torch.testing.assert_close(norm(x).norm(dim=-1), torch.full_like(lengths, 2.0))


def test_scalenorm_of_a_short_vector_divides_by_its_eps() -> None:
    x = torch.full((1, 4), 1e-8, dtype=torch.float64)  # norm 2e-8, below 1e-5
    torch.testing.assert_close(ScaleNorm(4).double()(x), 2.0 * x / 1e-5)


def test_layernorm_equals_the_formula() -> None:
    norm = build_norm("layernorm", 16).double()
    x = torch.randn(3, 16).double()
    centred = x - x.mean(1, keepdim=True)
    expected = centred / (centred.square().mean(1, keepdim=True) + 1e-5).sqrt()
    torch.testing.assert_close(norm(x), expected)


@pytest.mark.parametrize("name", ["layernorm", "scalenorm"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("size", [0.0, 1e4])
def test_half_precision_stays_finite_and_gains_stay_float32(
    name: str, dtype: torch.dtype, size: float
) -> None:
    norm = build_norm(name, 64).to(dtype)
    assert {parameter.dtype for parameter in norm.parameters()} == {torch.float32}
    x = (size * torch.randn(2, 64)).to(dtype).requires_grad_()
    out = norm(x)
    assert out.dtype == dtype
    assert out.isfinite().all()
    out.float().square().sum().backward()
    assert x.grad is not None and x.grad.isfinite().all()


def test_none_is_the_identity_and_unknown_names_are_refused() -> None:
    x = torch.randn(2, 8)
    assert torch.equal(build_norm("none", 8)(x), x)
    with pytest.raises(ValueError, match="unknown residual norm 'batchnorm'; known: layernorm"):
        build_norm("batchnorm", 8)
