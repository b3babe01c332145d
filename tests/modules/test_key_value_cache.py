"""The cache against the plain way: a row a hypothesis, joined step by step and picked by row."""

import pytest
import torch
from torch import Tensor

from qknorm_fairseq.modules.attention import attend_with_weights
from qknorm_fairseq.modules.key_value_cache import ROOM, KeyValueCache

HEADS, DIM = 2, 3


def seen(x: Tensor, visible: Tensor) -> Tensor:
    """What each hypothesis sees of ``x`` (sentences, heads, slots, dim), in order."""
    rows = [
        x[sentence][:, visible[sentence, beam]]
        for sentence in range(len(x))
        for beam in range(visible.shape[1])
    ]
    return torch.stack(rows)


def follow(sentences: list[int], beam: int) -> Tensor:
    """An order in which these sentences stay and their hypotheses change places."""
    return torch.cat([torch.randint(beam, (beam,)) + beam * sentence for sentence in sentences])


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_it_shows_what_joining_and_picking_would(dtype: torch.dtype, beam: int) -> None:
    """Sentences end, so rows grow fewer; more positions than there is room for at first."""
    cache, sentences = KeyValueCache(beam), 6
    keys = values = torch.empty(sentences * beam, HEADS, 0, DIM, dtype=dtype)
    for step in range(5 * ROOM + 3):
        key, value = torch.randn(2, sentences * beam, HEADS, 1, DIM).to(dtype)
        keys, values = torch.cat([keys, key], 2), torch.cat([values, value], 2)
        held_keys, held_values, visible = cache.append(key, value)
        assert held_keys.dtype == dtype and len(held_keys) == sentences
        assert torch.equal(seen(held_keys, visible), keys)
        assert torch.equal(seen(held_values, visible), values)
        left = list(range(sentences))
        if step % 16 == 15:
            left.pop(step % sentences)
        order, sentences = follow(left, beam), len(left)
        cache.reorder(order)
        keys, values = keys[order], values[order]


def test_attention_over_it_is_attention_over_rows() -> None:
    cache, beam = KeyValueCache(3), 3
    keys = values = torch.empty(2 * beam, HEADS, 0, DIM).double()
    for _ in range(7):
        order = follow([0, 1], beam)
        keys, values = keys[order], values[order]
        if cache.used:
            cache.reorder(order)
        key, value = torch.randn(2, 2 * beam, HEADS, 1, DIM).double()
        keys, values = torch.cat([keys, key], 2), torch.cat([values, value], 2)
        held_keys, held_values, visible = cache.append(key, value)
        query = torch.randn(2 * beam, HEADS, 1, DIM).double()
        expected, _ = attend_with_weights(query, keys, values)
        shared = query.unflatten(0, (2, beam)).transpose(1, 2).flatten(2, 3)
        found, _ = attend_with_weights(shared, held_keys, held_values, visible)
        by_row = found.transpose(1, 2).flatten(0, 1)[:, :, None]
        torch.testing.assert_close(by_row, expected, rtol=0, atol=1e-12)


def test_words_that_no_hypothesis_has_any_more_are_left_behind() -> None:
    """All come from the first at every step: one word a position is still somebody's."""
    cache, beam, steps = KeyValueCache(4), 4, 4 * ROOM
    for _ in range(steps):
        visible = cache.append(*torch.randn(2, 3 * beam, HEADS, 1, DIM))[2]
        cache.reorder(torch.arange(0, 3 * beam, beam).repeat_interleave(beam))
    assert (visible.sum(2) == steps).all()
    assert visible.shape[2] <= steps + (ROOM + 1) * beam
