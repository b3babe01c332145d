"""White space is made plain, symbols are broken, and all else is text."""

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qknorm_fairseq.experiment.text import MARK, WHITE_SPACE, escape, normalise, unescape

RESERVED = ["<s>", "<pad>", "</s>", "<unk>", "@@", "▁", "▅"]
pieces_of_symbols = st.lists(st.sampled_from([*RESERVED, *"<>/@_=sunkpad", MARK, "é", " "]))


def test_the_table_is_all_that_unicode_calls_white_space() -> None:
    spaces = {chr(c) for c in range(sys.maxunicode + 1) if chr(c).isspace()}
    assert set(WHITE_SPACE) == spaces
    for character, name in WHITE_SPACE.items():
        proper = unicodedata.name(character, name.upper())
        assert proper == name.upper()


@pytest.mark.parametrize("character", WHITE_SPACE, ids=WHITE_SPACE.values())
def test_white_space_separates_words_and_means_no_more(character: str) -> None:
    assert normalise(f"{character}a{character * 2} b{character}") == "a b"


@pytest.mark.parametrize("kept", ["\ufeff", "\u200b", "\u200d", "\u200f", "\u202e", "\u2060"])
def test_invisible_characters_that_are_not_white_space_are_kept(kept: str) -> None:
    assert normalise(f"{kept}a{kept} {kept}") == f"{kept}a{kept} {kept}"


@given(st.text())
def test_normalising_twice_is_normalising_once(line: str) -> None:
    assert normalise(normalise(line)) == normalise(line)
    assert normalise(line).split(" ") == (line.split() or [""])  # as Python sees words


@given(pieces_of_symbols.map("".join))
def test_escapes_break_every_symbol_and_are_undone(line: str) -> None:
    escaped = escape(line)
    assert not any(symbol in escaped for symbol in RESERVED)
    assert unescape(escaped) == line


@given(st.text())
def test_any_text_survives_its_escapes(line: str) -> None:
    assert unescape(escape(line)) == line
    if not any(symbol in line for symbol in (*RESERVED, MARK)):
        assert escape(line) == line


def test_stray_marks_in_a_models_words_are_no_error() -> None:
    assert unescape(f"a{MARK} b {MARK}c{MARK}") == "a b c"
