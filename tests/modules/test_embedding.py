"""FixNorm at the input and in the output projection, over one table."""

import pytest
import torch

from qknorm_fairseq.modules.embedding import OutputProjection, WordEmbedding

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
