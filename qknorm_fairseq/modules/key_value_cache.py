"""What a decoder remembers of the words before: their keys and values."""

import torch
from torch import Tensor

ROOM = 16  # positions made at a time


class KeyValueCache:
    """Keys and values of one attention while decoding step by step, a row a hypothesis.

    A step writes its own position into room made before; following the beam copies the rows
    once, to memory that is used by turns. No gradient flows through what is kept.
    """

    def __init__(self) -> None:
        self.length = 0
        self._held = torch.empty(0)  # (rows, 2, heads, room, d_head): keys, then values
        self._spare = torch.empty(0)

    @torch.no_grad()
    def append(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Keep those of the next positions; give back all so far, (rows, heads, length, d_head).

        Args:
            key, value: (rows, heads, positions, d_head).
        """
        if self.length == 0:
            rows, heads, _, d_head = key.shape
            self._held = key.new_empty(rows, 2, heads, 0, d_head)
        begin, self.length = self.length, self.length + key.shape[2]
        missing = self.length - self._held.shape[3]
        if missing > 0:
            room = self._held.new_empty(*self._held.shape[:3], missing + ROOM, key.shape[3])
            self._held = torch.cat([self._held, room], dim=3)
        self._held[:, 0, :, begin : self.length] = key
        self._held[:, 1, :, begin : self.length] = value
        return self._held[:, 0, :, : self.length], self._held[:, 1, :, : self.length]

    @torch.no_grad()
    def reorder(self, order: Tensor) -> None:
        """Row i becomes row ``order[i]`` of before; ``order`` (rows,) may be shorter."""
        fits = self._spare.shape[1:] == self._held.shape[1:] and len(self._spare) >= len(order)
        if not fits:
            self._spare = self._held.new_empty(len(order), *self._held.shape[1:])
        moved = torch.index_select(self._held, 0, order, out=self._spare[: len(order)])
        self._held, self._spare = moved, self._held
