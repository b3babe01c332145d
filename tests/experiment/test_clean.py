"""Training pairs are left out by rules with a name, and every rule is counted, on or off."""

from typing import Any

import pytest

from qknorm_fairseq.experiment.clean import clean
from qknorm_fairseq.experiment.corpus import Split
from qknorm_fairseq.experiment.errors import UserError
from qknorm_fairseq.experiment.recipe import Recipe

TRAIN = [
    ("a b", "A B"),
    ("", "EMPTY"),
    ("w " * 250 + "w", "LONG"),  # too long, and its sides are uneven
    ("w " * 249 + "w", "v " * 250 + "v"),
    ("x " * 9 + "x", "UNEVEN"),
    ("y " * 8 + "y", "NINE"),
    ("a b", "A B"),
    ("a b", "ANOTHER"),
    ("in dev", "IN DEV"),
    ("in test", "IN TEST"),
    ("in test", "ELSE"),
]
HELD_OUT = [Split(["in dev"], ["IN DEV"]), Split(["in test"], ["IN TEST"])]


def cleaned(**choices: Any) -> tuple[list[str], dict[str, int], dict[str, int]]:
    """The targets' first words, what was dropped, what the rules match."""
    train = Split([s.strip() for s, _ in TRAIN], [t for _, t in TRAIN])
    result = clean(train, Recipe("xx", "yy", 10, **choices), HELD_OUT)
    return [target.split(" ")[0] for target in result.kept.target], result.dropped, result.matched


def test_published_rules_are_on_and_the_others_counted_all_the_same() -> None:
    kept, dropped, matched = cleaned()
    assert kept == ["A", "UNEVEN", "NINE", "A", "ANOTHER", "IN", "IN", "ELSE"]
    assert {name: count for name, count in dropped.items() if count} == {
        "empty_side": 1,
        "too_long": 2,
    }
    assert matched == {
        "empty_side": 1,
        "too_long": 2,
        "length_ratio": 2,  # over 9
        "duplicate": 1,
        "overlap": 2,
    }


@pytest.mark.parametrize(
    ("choice", "rule", "gone"),
    [
        ({"drop_duplicates": True}, "duplicate", {"A": 1}),
        ({"drop_overlap": True}, "overlap", {"IN": 2}),
        ({"max_ratio": 9}, "length_ratio", {"UNEVEN": 1}),
        ({"max_ratio": 8.5}, "length_ratio", {"UNEVEN": 1, "NINE": 1}),
        (
            {"max_words": 1},
            "too_long",
            {"A": 2, "UNEVEN": 1, "NINE": 1, "ANOTHER": 1, "IN": 2, "ELSE": 1},
        ),
    ],
)
def test_each_rule_drops_its_own(choice: dict[str, Any], rule: str, gone: dict[str, int]) -> None:
    before, _, _ = cleaned()
    if choice == {"max_words": 1}:
        with pytest.raises(UserError, match=r"no training pair is left of 11: too_long"):
            cleaned(**choice)
        return
    after, dropped, _ = cleaned(**choice)
    for name, count in gone.items():
        assert before.count(name) - after.count(name) == count
    assert len(before) - len(after) == sum(gone.values()) == dropped[rule]


def test_the_published_rules_can_be_turned_off() -> None:
    kept, dropped, matched = cleaned(drop_empty=False, max_words=0)
    assert len(kept) == len(TRAIN)
    assert sum(dropped.values()) == 0
    assert matched["empty_side"] == 1
    assert matched["too_long"] == 0  # there is no limit to be over


def test_what_emptied_the_training_set_is_named() -> None:
    train = Split(["", "", "w w"], ["a", "b", "c"])
    with pytest.raises(
        UserError,
        match=r"left of 3: empty_side dropped 2 \(--keep-empty\), "
        r"too_long dropped 1 \(--max-words 1\)",
    ):
        clean(train, Recipe("xx", "yy", 10, max_words=1), [])
