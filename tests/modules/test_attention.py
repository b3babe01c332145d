"""The attention against formulas written out, and its fused path against its explicit one."""

import math

import pytest
import torch
from torch import Tensor

from qknorm_fairseq.modules.attention import MultiheadAttention, attend, attend_with_weights
from qknorm_fairseq.modules.packing import Packing
from qknorm_fairseq.modules.qk_norm import DotProduct, QueryKeyNorm

BATCH, HEADS, QUERY, KEY, HEAD_DIM = 3, 2, 5, 7, 12  # sqrt(12) is no power of two
WIDTH = HEADS * HEAD_DIM
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}


def heads(length: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(BATCH, HEADS, length, HEAD_DIM, dtype=dtype, requires_grad=True)


def visible() -> Tensor:
    """The first sentence whole, the second short by one, the third by four."""
    mask = torch.ones(BATCH, KEY, dtype=torch.bool)
    mask[1, -1:] = False
    mask[2, -4:] = False
    return mask[:, None]


@pytest.mark.parametrize("causal", [False, True])
def test_probabilities_sum_to_one_and_hidden_keys_get_none(causal: bool) -> None:
    mask = None if causal else visible()
    q, k = heads(KEY), heads(KEY)
    _, weights = attend_with_weights(q, k, k, mask, causal)
    torch.testing.assert_close(weights.sum(-1), torch.ones(BATCH, HEADS, KEY).double())
    if causal:
        assert (weights.triu(1) == 0).all()
        assert (weights.tril() > 0).sum() == BATCH * HEADS * KEY * (KEY + 1) / 2
    else:
        hidden = ~visible()[:, None].expand_as(weights)
        assert (weights[hidden] == 0).all()
        assert (weights[~hidden] > 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("masking", ["none", "padding", "causal"])
def test_fused_equals_explicit_forward_and_backward(dtype: torch.dtype, masking: str) -> None:
    causal = masking == "causal"
    mask = visible() if masking == "padding" else None
    q, k, v = heads(KEY, dtype), heads(KEY, dtype), heads(KEY, dtype)
    upstream = torch.randn(BATCH, HEADS, KEY, HEAD_DIM, dtype=dtype)
    fused = attend(q, k, v, mask, causal)
    explicit, _ = attend_with_weights(q, k, v, mask, causal)
    atol = TOLERANCE[dtype]
    torch.testing.assert_close(fused, explicit, rtol=0, atol=atol)
    gradients = [torch.autograd.grad(out, (q, k, v), upstream) for out in (fused, explicit)]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=atol)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_asking_for_weights_changes_no_number(dtype: torch.dtype, training: bool) -> None:
    """In training without dropout, and in evaluation with one that must not act."""
    qk = QueryKeyNorm(HEADS, 9.3)
    attention = MultiheadAttention(WIDTH, HEADS, qk, dropout=0.0 if training else 0.3)
    attention.to(dtype).train(training)
    x, grid = torch.randn(BATCH * KEY, WIDTH, dtype=dtype), Packing(BATCH, KEY)
    results = []
    for need_weights in (False, True):
        attention.zero_grad()
        q, (k, v) = attention.project_query(x, grid), attention.project_key_value(x, grid)
        heads, _ = attention.attend(q, k, v, visible(), need_weights=need_weights)
        out = attention.project_output(heads, grid)
        out.square().mean().backward()
        gradients = [p.grad for p in attention.parameters() if p.grad is not None]
        assert len(gradients) == 9
        results.append([out.detach(), *gradients])
    for fused, explicit in zip(*results, strict=True):
        torch.testing.assert_close(fused, explicit, rtol=0, atol=TOLERANCE[dtype])


def test_trailing_padding_needs_no_mask_where_attention_is_causal() -> None:
    """What a real query sees is the same with and without the padding."""
    q, k, v = heads(KEY), heads(KEY), heads(KEY)
    for row, hidden in enumerate((~visible()[:, 0]).sum(1).tolist()):
        real = KEY - hidden
        part_q, part_k, part_v = (x[row : row + 1, :, :real] for x in (q, k, v))
        alone, weights = attend_with_weights(part_q, part_k, part_v, causal=True)
        torch.testing.assert_close(weights.sum(-1), torch.ones(1, HEADS, real).double())
        for path in (
            attend(q, k, v, visible(), True),
            attend_with_weights(q, k, v, visible(), True)[0],
        ):
            torch.testing.assert_close(path[row : row + 1, :, :real], alone, rtol=0, atol=1e-12)


def test_dropout_is_on_the_probabilities_in_both_paths() -> None:
    q, k = heads(KEY, torch.float32), heads(KEY, torch.float32)
    v = torch.ones(BATCH, HEADS, KEY, HEAD_DIM)
    outputs = []
    for path in (attend, lambda *args: attend_with_weights(*args)[0]):
        torch.manual_seed(3)
        draws = torch.stack([path(q, k, v, None, False, 0.3) for _ in range(400)])
        outputs.append(draws)
        assert draws.std(dim=0).min() > 0.05  # it acts
        assert draws.mean().item() == pytest.approx(1.0, abs=0.02)  # and keeps the mean
    assert outputs[0].std().item() == pytest.approx(outputs[1].std().item(), rel=0.05)


def written_out(attention: MultiheadAttention, x: Tensor, y: Tensor, mask: Tensor) -> Tensor:
    """The same attention, sentence by sentence and head by head, from the paper's formula."""
    rows = []
    for b in range(len(x)):
        joined = []
        for h in range(HEADS):
            part = slice(h * HEAD_DIM, (h + 1) * HEAD_DIM)
            q = x[b] @ attention.q_proj.weight[part].T + attention.q_proj.bias[part]
            k = y[b] @ attention.k_proj.weight[part].T + attention.k_proj.bias[part]
            v = y[b] @ attention.v_proj.weight[part].T + attention.v_proj.bias[part]
            if isinstance(attention.qk, QueryKeyNorm):
                q = q / q.square().sum(1, keepdim=True).sqrt()
                k = k / k.square().sum(1, keepdim=True).sqrt()
                score = attention.qk.g * q @ k.T
            else:
                score = q @ k.T / math.sqrt(HEAD_DIM)
            score[:, ~mask[b, 0]] = -1e30
            weight = score.exp() / score.exp().sum(1, keepdim=True)
            joined.append(weight @ v)
        rows.append(torch.cat(joined, 1) @ attention.out_proj.weight.T + attention.out_proj.bias)
    return torch.stack(rows)


@pytest.mark.parametrize("qk", [DotProduct(HEAD_DIM), QueryKeyNorm(HEADS, 9.3)], ids=["dot", "l2"])
def test_whole_attention_equals_the_formula(qk: DotProduct | QueryKeyNorm) -> None:
    attention = MultiheadAttention(WIDTH, HEADS, qk).double().eval()
    for linear in (attention.q_proj, attention.k_proj, attention.v_proj, attention.out_proj):
        torch.nn.init.normal_(linear.bias)
    x, y = torch.randn(BATCH, QUERY, WIDTH).double(), torch.randn(BATCH, KEY, WIDTH).double()
    expected = written_out(attention, x, y, visible())
    queries, keys = Packing(BATCH, QUERY), Packing.of(visible()[:, 0])
    q = attention.project_query(queries.pack(x), queries)
    k, v = attention.project_key_value(keys.pack(y), keys)
    for need_weights in (False, True):
        heads, weights = attention.attend(q, k, v, visible(), need_weights=need_weights)
        out = queries.unpack(attention.project_output(heads, queries))
        torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)
        assert (weights is not None) == need_weights


def test_normalised_values_are_of_length_one() -> None:
    attention = MultiheadAttention(WIDTH, HEADS, DotProduct(HEAD_DIM), normalize_values=True)
    _, value = attention.project_key_value(torch.randn(BATCH * KEY, WIDTH), Packing(BATCH, KEY))
    torch.testing.assert_close(value.norm(dim=-1), torch.ones(BATCH, HEADS, KEY))


def test_dropout_acts_in_training_only() -> None:
    attention = MultiheadAttention(WIDTH, HEADS, QueryKeyNorm(HEADS, 5.0), dropout=0.5)
    x, grid = torch.randn(BATCH * KEY, WIDTH), Packing(BATCH, KEY)

    def output() -> Tensor:
        return attention.attend(
            attention.project_query(x, grid), *attention.project_key_value(x, grid)
        )[0]

    assert not torch.equal(output(), output())
    attention.eval()
    assert torch.equal(output(), output())


def test_small_init_is_the_published_one() -> None:
    attention = MultiheadAttention(512, 8, DotProduct(64))
    assert attention.q_proj.weight.std().item() == pytest.approx(0.02795, rel=0.01)
    assert attention.out_proj.bias.abs().max() == 0


def test_heads_that_do_not_divide_the_width_are_refused() -> None:
    with pytest.raises(ValueError, match="5 attention heads do not divide the width 12"):
        MultiheadAttention(12, 5, DotProduct(2))


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_a_sentence_with_nothing_to_see_gives_finite_gradients(dropout: float) -> None:
    q, k, v = heads(QUERY), heads(KEY), heads(KEY)
    hidden = visible()
    hidden[1] = False
    out = attend(q, k, v, hidden, dropout=dropout)
    out.square().sum().backward()
    assert out.isfinite().all()
    assert all(x.grad is not None and x.grad.isfinite().all() for x in (q, k, v))
