"""The three position tables against loops and fairseq's own module."""

import math

import pytest
import torch
from fairseq.modules import SinusoidalPositionalEmbedding

from qknorm_fairseq.modules.positions import SinusoidalPositions

DIM, PAD = 8, 1
TOKENS = torch.tensor([[5, 6, 7, 8], [9, 4, PAD, PAD]])


@pytest.mark.parametrize("kind", ["interleaved", "released"])
def test_table_equals_the_formula(kind: str) -> None:
    table = SinusoidalPositions(DIM, PAD, kind).double().table(5)
    for position in range(5):
        for i in range(DIM):
            angle = position / 10000 ** (2 * (i // 2) / DIM)
            wave = math.cos if kind == "interleaved" and i % 2 else math.sin
            assert table[position, i].item() == pytest.approx(wave(angle), abs=1e-15)


@pytest.mark.parametrize("left", [False, True])
def test_fairseq_table_equals_fairseqs(left: bool) -> None:
    tokens = TOKENS.flip(1) if left else TOKENS
    theirs = SinusoidalPositionalEmbedding(DIM, PAD, 16)(tokens)
    ours = SinusoidalPositions(DIM, PAD, "fairseq")(tokens)
    real = tokens.ne(PAD)
    torch.testing.assert_close(ours[real], theirs[real])


@pytest.mark.parametrize("kind", ["interleaved", "released", "fairseq"])
def test_padding_on_either_side_does_not_move_a_word(kind: str) -> None:
    positions = SinusoidalPositions(DIM, PAD, kind)
    right, left = positions(TOKENS)[1, :2], positions(TOKENS[1:].roll(2, 1))[0, 2:]
    assert torch.equal(right, left)


def test_one_step_is_the_last_of_the_whole() -> None:
    positions = SinusoidalPositions(DIM, PAD, "interleaved")
    whole = positions(TOKENS[:1])
    for length in range(1, 5):
        step = positions(TOKENS[:1, :length], incremental_state={})
        assert torch.equal(step, whole[:, length - 1 : length])


def test_a_float64_model_gets_float64_positions() -> None:
    positions = SinusoidalPositions(DIM, PAD, "interleaved")
    positions(TOKENS)  # a float32 table is there already
    exact = positions.double()(TOKENS)
    assert exact.dtype == torch.float64
    assert exact[0, 1, 0].item() == pytest.approx(math.sin(1), abs=1e-15)
    assert not positions.state_dict()


def test_an_odd_width_is_refused() -> None:
    with pytest.raises(ValueError, match="even width, not 7"):
        SinusoidalPositions(7, PAD, "interleaved")
