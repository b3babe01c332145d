"""The cache against the plain way: join, and pick rows."""

import pytest
import torch

from qknorm_fairseq.modules.key_value_cache import ROOM, KeyValueCache


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_it_holds_what_joining_and_picking_would(dtype: torch.dtype) -> None:
    """Sentences end, so rows grow fewer; more positions than there is room for at first."""
    cache, rows = KeyValueCache(), 12
    keys = values = torch.empty(rows, 2, 0, 3, dtype=dtype)
    for step in range(3 * ROOM):
        key, value = torch.randn(2, rows, 2, 1, 3).to(dtype)
        keys, values = torch.cat([keys, key], 2), torch.cat([values, value], 2)
        for found, expected in zip(cache.append(key, value), (keys, values), strict=True):
            assert found.dtype == dtype and torch.equal(found, expected)
        rows -= step % 8 == 7
        order = torch.randint(len(keys), (rows,))
        cache.reorder(order)
        keys, values = keys[order], values[order]


def test_several_positions_at_once_and_more_rows_than_before() -> None:
    cache = KeyValueCache()
    key, value = torch.randn(2, 3, 2, 5, 4)
    cache.append(key, value)
    cache.reorder(torch.tensor([2, 2, 0, 1, 1]))
    more = torch.randn(5, 2, ROOM, 4)
    keys, values = cache.append(more, -more)
    assert torch.equal(keys, torch.cat([key[[2, 2, 0, 1, 1]], more], 2))
    assert torch.equal(values, torch.cat([value[[2, 2, 0, 1, 1]], -more], 2))


def test_what_was_given_is_left_alone() -> None:
    cache = KeyValueCache()
    key, value = torch.randn(2, 3, 2, 1, 4)
    before = key.clone()
    cache.append(key, value)
    cache.reorder(torch.tensor([1, 1, 1]))
    cache.append(value, value)
    assert torch.equal(key, before)
