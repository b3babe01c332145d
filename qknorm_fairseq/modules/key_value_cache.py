"""What a decoder remembers while decoding step by step: keys and values, by sentence."""

from dataclasses import dataclass

import torch
from torch import Tensor

ROOM = 32  # positions made at a time


class KeyValueCache:
    """Keys and values of one attention while decoding step by step, kept by sentence.

    The usual cache has a row for each hypothesis and copies all rows whenever the beam moves.
    Here a sentence keeps the words of every hypothesis that it ever had, at each position one of
    each of its beam; which of them are a hypothesis's own is a mask that follows the beam in
    their place. The same numbers are read in a step, and none is copied. No gradient flows
    through what is kept.

    Args:
        beam: hypotheses of a sentence, which stand one after the other.
    """

    def __init__(self, beam: int = 1) -> None:
        self.beam = beam
        self.length = 0
        self._held = torch.empty(0)  # (sentences, 2, heads, room * beam, d_head): keys, values
        self._visible = torch.empty(0)  # (sentences * beam, room * beam) bool

    @torch.no_grad()
    def append(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Keep those of the next positions; give back all so far.

        Args:
            key, value: (sentences * beam, heads, positions, d_head).

        Returns:
            keys and values (sentences, heads, length * beam, d_head), and which of them each
            hypothesis sees: (sentences, beam, length * beam) bool.
        """
        positions = key.shape[2]
        self._make_room(key)
        begin, self.length = self.length, self.length + positions
        new, all_so_far = slice(begin * self.beam, self.length * self.beam), self.length * self.beam
        for part, x in enumerate((key, value)):
            by_sentence = x.unflatten(0, (-1, self.beam)).permute(0, 2, 3, 1, 4)
            self._held[:, part, :, new] = by_sentence.flatten(2, 3)
        own = torch.eye(self.beam, dtype=torch.bool, device=key.device)
        self._visible[:, new] = own.repeat(len(key) // self.beam, positions)
        visible = self._visible[:, :all_so_far].unflatten(0, (-1, self.beam))
        return self._held[:, 0, :, :all_so_far], self._held[:, 1, :, :all_so_far], visible

    def _make_room(self, key: Tensor) -> None:
        rows, heads, positions, d_head = key.shape
        if self.length == 0:
            self._held = key.new_empty(rows // self.beam, 2, heads, 0, d_head)
            self._visible = torch.empty(rows, 0, dtype=torch.bool, device=key.device)
        used = self.length * self.beam
        wanted = used + positions * self.beam
        if wanted > self._visible.shape[1]:
            room = wanted + ROOM * self.beam
            held, visible = self._held, self._visible
            self._held = held.new_empty(*held.shape[:3], room, d_head)
            self._visible = visible.new_empty(rows, room)
            self._held[:, :, :, :used] = held[:, :, :, :used]
            self._visible[:, :used] = visible[:, :used]

    @torch.no_grad()
    def reorder(self, order: Tensor) -> None:
        """Row i becomes row ``order[i]`` of before, of the same sentence as its neighbours.

        ``order`` (sentences * beam,) may be shorter than before.
        """
        self._visible = self._visible.index_select(0, order)
        sentences = _sentences(order, self.beam)
        if not _stay(sentences, self._held):
            self._held = self._held.index_select(0, sentences)


@dataclass
class SourceCache:
    """Keys and values of the sources, made once, a row for all ``beam`` hypotheses of each."""

    key: Tensor  # (sentences, heads, source, d_head), as is value
    value: Tensor
    beam: int

    def reorder(self, order: Tensor) -> None:
        """As :meth:`KeyValueCache.reorder`."""
        sentences = _sentences(order, self.beam)
        if not _stay(sentences, self.key):
            self.key = self.key.index_select(0, sentences)
            self.value = self.value.index_select(0, sentences)


def _sentences(order: Tensor, beam: int) -> Tensor:
    """(sentences * beam,) rows to the sentences (sentences,) that they are hypotheses of."""
    return order.view(-1, beam)[:, 0] // beam


def _stay(sentences: Tensor, rows: Tensor) -> bool:
    return sentences.equal(torch.arange(len(rows), device=sentences.device))
