"""Which training pairs are left out, by rules with a name. Dev and test know no rule."""

from collections.abc import Callable
from dataclasses import dataclass

from qknorm_fairseq.experiment.corpus import Split
from qknorm_fairseq.experiment.errors import UserError
from qknorm_fairseq.experiment.recipe import Recipe

USUAL_RATIO = 9  # what is counted where no limit is set: that of Moses's clean-corpus-n


@dataclass(frozen=True)
class Rule:
    """What it leaves out, whether it is asked for, and by which option."""

    matches: Callable[[str, str], bool]
    on: bool
    option: str


@dataclass(frozen=True)
class Cleaned:
    """The pairs that are left, and how many each rule dropped, matches, and matches of those."""

    kept: Split
    dropped: dict[str, int]
    matched: dict[str, int]
    spared: dict[str, int]


def rules(recipe: Recipe, held_out: list[Split]) -> dict[str, Rule]:
    """The rules in the order in which they are applied; lengths are in words before BPE."""
    max_words, max_ratio = recipe.max_words, recipe.max_ratio or USUAL_RATIO
    elsewhere = {pair for split in held_out for pair in split.pairs()}
    seen: set[tuple[str, str]] = set()

    def is_empty(source: str, target: str) -> bool:
        return not (source and target)

    def is_long(source: str, target: str) -> bool:
        return max_words > 0 and max(words(source), words(target)) > max_words

    def is_uneven(source: str, target: str) -> bool:
        low, high = sorted((words(source), words(target)))
        return low > 0 and high > max_ratio * low

    def is_repeated(source: str, target: str) -> bool:
        if (source, target) in seen:
            return True
        seen.add((source, target))
        return False

    return {
        "empty_side": Rule(is_empty, recipe.drop_empty, "--keep-empty"),
        "too_long": Rule(is_long, max_words > 0, f"--max-words {max_words}"),
        "length_ratio": Rule(is_uneven, recipe.max_ratio > 0, f"--max-ratio {max_ratio}"),
        "duplicate": Rule(is_repeated, recipe.drop_duplicates, "--drop-duplicates"),
        "overlap": Rule(lambda *pair: pair in elsewhere, recipe.drop_overlap, "--drop-overlap"),
    }


def words(line: str) -> int:
    """Words of a line whose white space is plain."""
    return line.count(" ") + 1 if line else 0


def clean(train: Split, recipe: Recipe, held_out: list[Split]) -> Cleaned:
    """Apply the rules; a pair is dropped by the first that matches and is on.

    Raises:
        UserError: when no pair is left.
    """
    applied = rules(recipe, held_out)
    dropped, matched, spared = (dict.fromkeys(applied, 0) for _ in range(3))
    kept = Split([], [])
    for pair in train.pairs():
        hits = [name for name, rule in applied.items() if rule.matches(*pair)]
        for name in hits:
            matched[name] += 1
        culprit = next((name for name in hits if applied[name].on), None)
        if culprit:
            dropped[culprit] += 1
        else:
            kept.source.append(pair[0])
            kept.target.append(pair[1])
            for name in hits:
                spared[name] += 1
    if not len(kept):
        guilty = [
            f"{name} dropped {count:,} ({applied[name].option})"
            for name, count in sorted(dropped.items(), key=lambda item: -item[1])
            if count
        ]
        raise UserError(
            f"no training pair is left of {len(train):,}: {', '.join(guilty)}; "
            "mend the text or loosen that rule"
        )
    return Cleaned(kept, dropped, matched, spared)
