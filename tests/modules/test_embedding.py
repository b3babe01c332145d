"""FixNorm at the input and in the output projection, over one table."""

import pytest
import torch

from qknorm_fairseq.modules.embedding import WordEmbedding
from qknorm_fairseq.modules.output_projection import OutputProjection

TYPES, DIM, PAD = 20, 8, 1


def test_fixnorm_rows_have_norm_one_at_input_and_output() -> None:
    embedding = WordEmbedding(TYPES, DIM, PAD, fix_norm=True)
    projection = OutputProjection(embedding, bias=False)
    with torch.no_grad():  # rows of all lengths
        embedding.weight.mul_(torch.logspace(-3, 3, TYPES)[:, None])
    tokens = torch.arange(TYPES)[None]
    torch.testing.assert_close(embedding(tokens).norm(dim=-1), torch.ones(1, TYPES))
    rows = projection(torch.eye(DIM)).T  # the logit of a unit vector is a coordinate of the row
    torch.testing.assert_close(rows.norm(dim=-1), torch.ones(TYPES))
    torch.testing.assert_close(rows, embedding(tokens)[0])


def test_without_fixnorm_rows_are_the_parameter() -> None:
    embedding = WordEmbedding(TYPES, DIM, PAD, fix_norm=False)
    tokens = torch.arange(TYPES)
    assert torch.equal(embedding(tokens), embedding.weight)
    assert torch.equal(OutputProjection(embedding, bias=False)(torch.eye(DIM)).T, embedding.weight)
    assert embedding.weight[PAD].abs().max() == 0


def test_the_table_is_one_parameter() -> None:
    embedding = WordEmbedding(TYPES, DIM, PAD, fix_norm=True)
    assert OutputProjection(embedding, bias=False).weight is embedding.weight


def test_first_values() -> None:
    assert WordEmbedding(1000, 64, PAD, fix_norm=True).weight.abs().max() <= 0.01
    spread = WordEmbedding(1000, 64, PAD, fix_norm=False).weight.std().item()
    assert spread == pytest.approx(64**-0.5, rel=0.02)


def test_a_zero_row_does_not_blow_up_the_gradient() -> None:
    embedding = WordEmbedding(TYPES, DIM, PAD, fix_norm=True)
    with torch.no_grad():
        embedding.weight[PAD].zero_()
    OutputProjection(embedding, bias=False)(torch.randn(5, DIM)).logsumexp(-1).sum().backward()
    assert embedding.weight.grad is not None
    norms = embedding.weight.grad.norm(dim=1)
    assert norms[PAD] == 0
    assert norms.max() < 100 * norms.median()


def masked_projection(fix_norm: bool = True) -> OutputProjection:
    projection = OutputProjection(WordEmbedding(TYPES, DIM, PAD, fix_norm), bias=True)
    with torch.no_grad():
        assert projection.bias is not None
        projection.bias.normal_()
    mask = torch.rand(TYPES) < 0.5
    mask[2] = True
    projection.allow(mask)
    return projection


@pytest.mark.parametrize("fix_norm", [True, False])
def test_masked_types_are_not_computed_and_the_others_are_as_without_a_mask(
    fix_norm: bool,
) -> None:
    projection = masked_projection(fix_norm)
    mask, features = projection.target_mask.clone(), torch.randn(3, 4, DIM)
    logits, all_logits = projection.allowed_logits(features), projection(features)
    assert logits.shape == (3, 4, int(mask.sum()))
    assert all_logits[..., ~mask].eq(float("-inf")).all()
    assert torch.equal(all_logits[..., mask], logits)
    projection.allow(torch.ones(TYPES, dtype=torch.bool))
    torch.testing.assert_close(projection(features)[..., mask], logits)
    assert projection.bias is not None
    rows = projection.weight if not fix_norm else torch.nn.functional.normalize(projection.weight)
    torch.testing.assert_close(projection(features), features @ rows.T + projection.bias)


def test_masked_types_get_no_gradient() -> None:
    projection = masked_projection()
    projection.allowed_logits(torch.randn(5, DIM)).logsumexp(-1).sum().backward()
    assert projection.weight.grad is not None
    moved = projection.weight.grad.abs().sum(dim=1) > 0
    assert torch.equal(moved, projection.target_mask)


def test_columns_of_types() -> None:
    projection = masked_projection()
    columns = projection.allowed_columns(torch.arange(TYPES))
    assert torch.equal(columns.ge(0), projection.target_mask)
    features = torch.randn(DIM)
    allowed, everything = projection.allowed_logits(features), projection(features)
    for number in projection.target_mask.nonzero()[:, 0].tolist():
        assert allowed[columns[number]] == everything[number]


def test_the_mask_comes_back_from_a_checkpoint() -> None:
    projection = masked_projection()
    other = OutputProjection(WordEmbedding(TYPES, DIM, PAD, fix_norm=True), bias=True)
    other.load_state_dict(projection.state_dict())
    features = torch.randn(2, DIM)
    assert torch.equal(other(features), projection(features))
    assert len(other.allowed_types) == int(projection.target_mask.sum())
