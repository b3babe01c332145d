"""The criterion against fairseq's own, and against the formulas written out."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
import tiny
import torch
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from torch import Tensor

from qknorm_fairseq.criterions.target_vocab_label_smoothed_cross_entropy import (
    TargetVocabLabelSmoothedCrossEntropyCriterion,
    smoothed_loss,
)
from qknorm_fairseq.models.transformer_qknorm import TransformerQKNorm

EPSILON = 0.1
ALLOWED = 17  # types that may be produced: 2 (eos), 3 (unk) and the first few words


def model_and_sample(masked: bool) -> tuple[TransformerQKNorm, dict[str, Any]]:
    model = tiny.build(dropout=0.0).double().eval()
    if masked:
        mask = torch.arange(tiny.TYPES) < ALLOWED
        mask[:2] = False
        model.decoder.output_projection.allow(mask)
    src, lengths, tgt = tiny.batch()
    target = torch.cat([tgt[:, 1:], torch.full((len(tgt), 1), tiny.EOS)], dim=1)
    target[tgt.eq(tiny.PAD)] = tiny.PAD
    return model, {
        "net_input": {"src_tokens": src, "src_lengths": lengths, "prev_output_tokens": tgt},
        "target": target,
        "ntokens": int(target.ne(tiny.PAD).sum()),
    }


def ours(smoothing: str, epsilon: float = EPSILON) -> TargetVocabLabelSmoothedCrossEntropyCriterion:
    task = SimpleNamespace(target_dictionary=tiny.Task().target_dictionary)
    return TargetVocabLabelSmoothedCrossEntropyCriterion(task, False, epsilon, smoothing)


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.3])
def test_without_a_mask_and_by_fairseqs_convention_it_is_fairseqs_own(epsilon: float) -> None:
    model, sample = model_and_sample(masked=False)
    task = SimpleNamespace(target_dictionary=tiny.Task().target_dictionary)
    loss, size, log = ours("fairseq", epsilon)(model, sample)
    stock = LabelSmoothedCrossEntropyCriterion(task, False, epsilon)
    stock_loss, stock_size, stock_log = stock(model, sample)
    assert size == stock_size == sample["ntokens"]
    torch.testing.assert_close(loss, stock_loss, rtol=1e-6, atol=0)
    torch.testing.assert_close(log["nll_loss"], stock_log["nll_loss"], rtol=1e-6, atol=0)
    assert log.keys() == stock_log.keys()


def written_out(model: TransformerQKNorm, sample: dict[str, Any]) -> tuple[float, float, int]:
    """The released code's loss, a position at a time: (loss, nll, positions without gold)."""
    logits = model(**sample["net_input"])[0]
    allowed = model.decoder.output_projection.target_mask
    loss = nll = 0.0
    outside = 0
    for row, golds in zip(logits, sample["target"], strict=True):
        for position, gold in zip(row, golds.tolist(), strict=True):
            if gold == tiny.PAD:
                continue
            exponentials = [math.exp(x) for x in position[allowed].tolist()]
            minus_log_p = [-math.log(x / sum(exponentials)) for x in exponentials]
            loss += EPSILON * sum(minus_log_p) / len(minus_log_p)
            if allowed[gold]:
                of_gold = minus_log_p[int(allowed[:gold].sum())]
                nll += of_gold
                loss += (1 - EPSILON) * of_gold
            else:
                outside += 1
    return loss, nll, outside


@pytest.mark.parametrize("masked", [True, False])
def test_the_released_codes_convention_written_out(masked: bool) -> None:
    model, sample = model_and_sample(masked)
    loss, size, log = ours("reference")(model, sample)
    expected_loss, expected_nll, outside = written_out(model, sample)
    assert bool(outside) == masked, "a target outside the mask should be among them"
    assert loss.item() == pytest.approx(expected_loss, rel=1e-12)
    assert log["nll_loss"].item() == pytest.approx(expected_nll, rel=1e-12)
    assert size == sample["ntokens"]


def test_a_target_outside_the_mask_leaves_loss_and_gradients_finite() -> None:
    model, sample = model_and_sample(masked=True)
    loss, size, _ = ours("reference")(model, sample)
    (loss / size).backward()
    assert loss.isfinite()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    assert gradients and all(gradient.isfinite().all() for gradient in gradients)


def test_half_precision_logits_are_summed_in_float32() -> None:
    logits, gold = torch.randn(6, 50), torch.randint(50, (6,))
    for value, exact in zip(
        smoothed_loss(logits.half(), gold, EPSILON, "reference"),
        smoothed_loss(logits.half().double(), gold, EPSILON, "reference"),
        strict=True,
    ):
        assert isinstance(value, Tensor) and value.dtype == torch.float32
        assert value.item() == pytest.approx(exact.item(), rel=1e-5)


@pytest.mark.parametrize("epsilon", [-1.0, 1.0, 2.0])
def test_a_smoothing_that_is_none_is_refused(epsilon: float) -> None:
    with pytest.raises(ValueError, match="--label-smoothing"):
        ours("reference", epsilon)
