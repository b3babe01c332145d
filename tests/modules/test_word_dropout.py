"""Word dropout: how many, where never, and nothing altered."""

import pytest
import torch

from qknorm_fairseq.modules.word_dropout import drop_words

PAD, UNK = 1, 3


def test_as_many_words_are_dropped_as_asked_for_and_padding_never() -> None:
    tokens = torch.randint(4, 50, (200, 100))
    tokens[:, -20:] = PAD
    dropped = drop_words(tokens, 0.1, UNK, PAD)
    assert dropped[:, -20:].eq(PAD).all()
    changed = dropped != tokens
    assert dropped[changed].eq(UNK).all()
    assert changed[:, :-20].float().mean().item() == pytest.approx(0.1, abs=0.01)
    assert changed[:, 0].any(), "the first symbol may be hit, as in the released code"


def test_the_stored_batch_is_not_altered() -> None:
    tokens = torch.randint(4, 50, (20, 10))
    before = tokens.clone()
    assert not torch.equal(drop_words(tokens, 0.5, UNK, PAD), tokens)
    assert torch.equal(tokens, before)


def test_the_extremes() -> None:
    tokens = torch.randint(4, 50, (20, 10))
    assert torch.equal(drop_words(tokens, 0.0, UNK, PAD), tokens)
    assert drop_words(tokens, 1.0, UNK, PAD).eq(UNK).all()
