"""The data card of a prepared pair: what the text is, and what was done to it."""

import unicodedata
from collections import Counter
from itertools import chain
from typing import Any

import numpy as np
from tabulate import tabulate

from qknorm_fairseq.experiment.clean import USUAL_RATIO, words
from qknorm_fairseq.experiment.corpus import Split
from qknorm_fairseq.experiment.recipe import Recipe

PERCENTILES = (50, 75, 90, 95, 97.5, 99, 100)  # the paper's appendix looks at 75 to 100
SPECIALS = 4  # <s> <pad> </s> <unk>

Card = dict[str, Any]


def measure(recipe: Recipe, text: dict[str, Split], pieces: dict[str, Split]) -> Card:
    """Figures of the prepared text (words) and of what the model reads (pieces).

    ``length_percentiles`` are of the training text's pieces with eos, both sides pooled,
    linear between ranks, not rounded: L of Henry et al. 2020, section 3, is that of 97.5.
    """
    vocabularies = [
        {piece for line in side for piece in line.split()}
        for _, side in pieces["train"].sides(recipe.source, recipe.target)
    ]
    joint = vocabularies[0] | vocabularies[1]
    lengths = [words(line) + 1 for side in _sides(pieces["train"]) for line in side]
    percentiles = {
        f"{p:g}": float(value)
        for p, value in zip(PERCENTILES, np.percentile(lengths, PERCENTILES), strict=True)
    }
    return {
        "vocabulary": {
            "joint": len(joint) + SPECIALS,
            "source": len(vocabularies[0]),
            "target": len(vocabularies[1]),
        },
        "length_percentile_97_5": percentiles["97.5"],
        "length_percentiles": percentiles,
        "card": {
            "text": {
                split: {
                    language: _describe(side)
                    for language, side in sides.sides(recipe.source, recipe.target)
                }
                for split, sides in text.items()
            },
            "unknown": {
                split: {
                    language: _share_unknown(side, joint)
                    for language, side in pieces[split].sides(recipe.source, recipe.target)
                }
                for split in ("dev", "test")
            },
            "overlap": {split: _overlap(text["train"], text[split]) for split in ("dev", "test")},
        },
    }


def _sides(split: Split) -> tuple[list[str], list[str]]:
    return split.source, split.target


def _describe(lines: list[str]) -> Card:
    counts = Counter(chain(*(line.split() for line in lines)))
    lengths = [words(line) for line in lines]
    middle, high = np.percentile(lengths, [50, 95])
    return {
        "words": sum(lengths),
        "types": len(counts),
        "length": {
            "mean": round(float(np.mean(lengths)), 2),
            "50": float(middle),
            "95": float(high),
            "longest": max(lengths),
        },
        "scripts": _scripts(counts),
    }


def _scripts(counts: Counter[str]) -> dict[str, float]:
    """Shares of the letters by script, the commonest first: the first word of Unicode's names."""
    letters: Counter[str] = Counter()
    for word, count in counts.items():
        for letter in word:
            if letter.isalpha():
                letters[letter] += count
    scripts: Counter[str] = Counter()
    for letter, count in letters.items():
        scripts[unicodedata.name(letter, "UNNAMED").split(" ")[0]] += count
    total = sum(scripts.values())
    return {script: round(count / total, 6) for script, count in scripts.most_common(5)}


def _share_unknown(pieces: list[str], known: set[str]) -> float:
    counts = Counter(chain(*(line.split() for line in pieces)))
    unknown = sum(count for piece, count in counts.items() if piece not in known)
    return round(unknown / max(1, sum(counts.values())), 6)


def _overlap(train: Split, other: Split) -> Card:
    """Lines of ``other`` that training has too: whole pairs, and each side alone."""
    pairs, sources, targets = set(train.pairs()), set(train.source), set(train.target)
    return {
        "pairs": sum(pair in pairs for pair in other.pairs()),
        "source": sum(line in sources for line in other.source),
        "target": sum(line in targets for line in other.target),
    }


def show(manifest: dict[str, Any]) -> str:
    """The card for a terminal."""
    recipe, card = manifest["recipe"], manifest["card"]
    languages = recipe["source"], recipe["target"]
    rows = []
    for split, sides in card["text"].items():
        for language in languages:
            side = sides[language]
            length = side["length"]
            unknown = card["unknown"].get(split, {}).get(language)
            rows.append(
                [
                    f"{split}.{language}",
                    f"{manifest['pairs'][split]:,}",
                    f"{side['words']:,}",
                    f"{side['types']:,}",
                    f"{length['mean']:.1f}",
                    f"{length['95']:.0f}",
                    f"{length['longest']:,}",
                    "" if unknown is None else f"{unknown:.2%}",
                    " ".join(f"{name} {share:.1%}" for name, share in _main(side["scripts"])),
                ]
            )
    header = ["", "pairs", "words", "types", "mean", "95 %", "longest", "unknown", "scripts"]
    align = ["left", *["right"] * 7, "left"]
    table = tabulate(rows, header, colalign=align, disable_numparse=True)
    return "\n".join([table, "", *_notes(manifest)])


def _main(scripts: dict[str, float]) -> list[tuple[str, float]]:
    return [(name.lower(), share) for name, share in scripts.items() if share >= 0.001][:3]


def _notes(manifest: dict[str, Any]) -> list[str]:
    recipe, vocabulary = manifest["recipe"], manifest["vocabulary"]
    percentiles = manifest["length_percentiles"]
    dropped = [f"{name} {count:,}" for name, count in manifest["dropped"].items() if count]
    spared = [f"{name} {count:,}" for name, count in manifest["spared"].items() if count]
    if not recipe["max_ratio"]:
        spared = [
            text.replace("length_ratio", f"length_ratio (over {USUAL_RATIO})") for text in spared
        ]
    overlap = ", ".join(
        f"{counts['pairs']:,} pairs of {split} ({counts['source']:,} sources, "
        f"{counts['target']:,} targets)"
        for split, counts in manifest["card"]["overlap"].items()
    )
    lengths = ", ".join(f"{p} % {value:g}" for p, value in percentiles.items())
    read = manifest["pairs"]["train"] + sum(manifest["dropped"].values())
    lines = [*map(_extracted, manifest["extraction"].items())]
    lines += [
        f"{recipe['bpe']}, {recipe['merges']:,}: {vocabulary['joint']:,} types, "
        f"{vocabulary['source']:,} in {recipe['source']}, "
        f"{vocabulary['target']:,} in {recipe['target']}",
        f"tokens a training sentence, with eos: {lengths}; L = {percentiles['97.5']:g}",
        f"dropped of {read:,} training pairs: {', '.join(dropped) or 'none'}",
        f"kept, though a rule that is off matches: {', '.join(spared) or 'none'}",
        f"training has {overlap}",
    ]
    undone = manifest["tokens_undone"]
    if undone:
        lines.append(
            f"Moses's tokens, undone, give {undone['same']:,} of the {undone['lines']:,} lines of "
            "dev and test as they came"
        )
    for cut in manifest["cut"]:
        lines.append(
            f"{cut['split']}.{cut['language']}, line {cut['line']:,}: {cut['pieces']:,} tokens, "
            "cut for the model, whole for the score"
        )
    lines += ["", "sha256 of the raw files"]
    return lines + [f"{file['sha256']}  {name}" for name, file in manifest["inputs"].items()]


def _extracted(found: tuple[str, dict[str, int]]) -> str:
    split, counts = found
    left_out = [
        f"{name} {count:,}" for name, count in counts.items() if name not in ("rows", "pairs")
    ]
    return f"{split}: {counts['rows']:,} rows, {counts['pairs']:,} pairs; {', '.join(left_out)}"
