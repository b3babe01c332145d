"""What a decoder remembers while decoding step by step: keys and values, by sentence."""

from dataclasses import dataclass

import torch
from torch import Tensor

ROOM = 8  # positions for which room is made at a time


class KeyValueCache:
    """Keys and values of one attention while decoding step by step, kept by sentence.

    The usual cache has a row for each hypothesis and copies all rows whenever the beam moves.
    Here the words of all hypotheses of a sentence lie in one row of slots, and a mask says which
    are a hypothesis's own: it follows the beam in their place. Hypotheses come from common
    beginnings, which are so kept and read once. Every few positions, when new room is made, words
    that no hypothesis has any more are left behind. No gradient flows through what is kept.

    Args:
        beam: hypotheses of a sentence, which stand one after the other.
    """

    def __init__(self, beam: int = 1) -> None:
        self.beam = beam
        self.used = 0  # slots
        self._held = torch.empty(0)  # (sentences, 2, heads, room, d_head): keys, then values
        self._visible = torch.empty(0)  # (sentences, beam, room) bool

    @torch.no_grad()
    def append(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Keep those of the next position; give back all that any hypothesis sees.

        Args:
            key, value: (sentences * beam, heads, 1, d_head).

        Returns:
            keys and values (sentences, heads, slots, d_head), and which of them each hypothesis
            sees: (sentences, beam, slots) bool.
        """
        if self.used + self.beam > self._visible.shape[-1]:
            self._make_room(key)
        new = slice(self.used, self.used + self.beam)
        self.used = new.stop
        for part, x in enumerate((key, value)):
            self._held[:, part, :, new] = x[:, :, 0].unflatten(0, (-1, self.beam)).transpose(1, 2)
        self._visible[:, :, new] = torch.eye(self.beam, dtype=torch.bool, device=key.device)
        filled = slice(0, self.used)
        return self._held[:, 0, :, filled], self._held[:, 1, :, filled], self._visible[..., filled]

    def _make_room(self, key: Tensor) -> None:
        rows, heads, _, d_head = key.shape
        sentences, slots = rows // self.beam, ROOM * self.beam
        kept = self._alive() if self.used else None
        self.used = kept[1].shape[-1] if kept else 0
        self._held = key.new_empty(sentences, 2, heads, self.used + slots, d_head)
        shape = (sentences, self.beam, self.used + slots)
        self._visible = torch.empty(shape, dtype=torch.bool, device=key.device)
        if kept:
            self._held[:, :, :, : self.used], self._visible[..., : self.used] = kept

    def _alive(self) -> tuple[Tensor, Tensor]:
        """The slots that some hypothesis sees, in order, as many as the fullest sentence has."""
        visible = self._visible[:, :, : self.used]
        alive = visible.any(dim=1)  # (sentences, slots)
        most = int(alive.sum(dim=1).max())
        kept = alive.byte().argsort(dim=1, descending=True, stable=True)[:, :most]
        rows = torch.arange(self._held[..., 0, 0].numel(), device=kept.device)
        rows = rows.view(*self._held.shape[:3], 1) * self._held.shape[3] + kept[:, None, None]
        held = self._held.flatten(0, 3).index_select(0, rows.flatten()).view(*rows.shape, -1)
        return held, visible.gather(2, kept[:, None].expand(-1, self.beam, -1))

    @torch.no_grad()
    def reorder(self, order: Tensor) -> None:
        """Row i becomes row ``order[i]`` of before, of the same sentence as its neighbours.

        ``order`` (sentences * beam,) may be shorter than before.
        """
        by_row = self._visible.flatten(0, 1).index_select(0, order)
        self._visible = by_row.unflatten(0, (-1, self.beam))
        sentences = sentences_of(order, self.beam)
        if not all_stay(sentences, len(self._held)):
            self._held = self._held.index_select(0, sentences)


@dataclass
class SourceCache:
    """Keys and values of the sources, made once, a row for all ``beam`` hypotheses of each."""

    key: Tensor  # (sentences, heads, source, d_head), as is value
    value: Tensor
    beam: int

    def reorder(self, order: Tensor) -> None:
        """As :meth:`KeyValueCache.reorder`."""
        sentences = sentences_of(order, self.beam)
        if not all_stay(sentences, len(self.key)):
            self.key = self.key.index_select(0, sentences)
            self.value = self.value.index_select(0, sentences)


def sentences_of(order: Tensor, beam: int) -> Tensor:
    """The sentences (sentences,) of which rows (sentences * beam,) are the hypotheses.

    Raises:
        ValueError: when the rows are not whole beams, or come from several sentences.
    """
    if len(order) % beam:
        raise ValueError(f"{len(order)} rows are no beams of {beam}: a sentence leaves whole")
    sentences = order.view(-1, beam) // beam
    if not sentences.eq(sentences[:, :1]).all():
        raise ValueError("a beam's hypotheses cannot move to another sentence")
    return sentences[:, 0]


def all_stay(sentences: Tensor, count: int) -> bool:
    """Whether ``sentences`` are all ``count`` of before, each in its place."""
    return sentences.equal(torch.arange(count, device=sentences.device))
