"""From raw text to binarised data: tokens, cleaning, pieces, one joint dictionary.

``data/PAIR`` then holds ``text/`` (the lines as they are scored), ``bpe/`` (as the model reads
them, with codes), ``bin/`` (what fairseq reads), ``raw/`` (dev and test as they came, where they
were tokenised here) and ``manifest.json``. The folder appears whole or not at all.
"""

import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

from qknorm_fairseq.experiment import card, segment
from qknorm_fairseq.experiment.binarise import binarise
from qknorm_fairseq.experiment.clean import clean, words
from qknorm_fairseq.experiment.console import Progress
from qknorm_fairseq.experiment.corpus import Split
from qknorm_fairseq.experiment.errors import UserError
from qknorm_fairseq.experiment.recipe import Recipe, differences
from qknorm_fairseq.experiment.settings import PAIR_CHOICES, SUFFIXES, Pair, known_names, load_pair
from qknorm_fairseq.experiment.sources import RawText
from qknorm_fairseq.experiment.steps import Tokeniser
from qknorm_fairseq.experiment.text import escape
from qknorm_fairseq.experiment.workspace import (
    Workspace,
    fingerprint,
    read_mapping,
    sha256,
    whole_folder,
    write_json,
    write_lines,
)

Manifest = dict[str, Any]
NAME = re.compile(r"\w[\w.-]*")

MAX_PIECES = 1000  # of a sentence: models take 1,024 tokens, profiles batches of it


def read_manifest(workspace: Workspace, pair: str) -> Manifest | None:
    """The manifest of a prepared pair, or None."""
    path = workspace.data(pair) / "manifest.json"
    return read_mapping(path) if path.exists() else None


def find_pair(name: str, workspace: Workspace, choices: dict[str, Any]) -> Pair:
    """The pair called ``name``, whether it has a file, was prepared before, or is new.

    Args:
        choices: of the recipe, in place of the pair's own.

    Raises:
        UserError: when it is unknown and the choices do not make one.
    """
    if name in known_names("pairs") or name.endswith(SUFFIXES):
        return _checked(load_pair(name).prepared_by(choices))
    done = read_manifest(workspace, name)
    if done is not None and "pair" in done:
        return _checked(Pair(**done["pair"]).prepared_by(choices))
    if not set(PAIR_CHOICES) <= set(choices):
        raise UserError(
            f"unknown pair {name!r}; known: {', '.join(known_names('pairs'))}; for another say "
            "--source xx --target yy --merges N, or name a YAML file"
        )
    if not NAME.fullmatch(name):
        raise UserError(f"pair {name!r}: a name is of letters, digits, dots, dashes and _")
    return _checked(
        Pair(name, **{choice: choices[choice] for choice in PAIR_CHOICES}).prepared_by(choices)
    )


def _checked(pair: Pair) -> Pair:
    _ = pair.recipe  # raises for choices that make no sense
    return pair


def is_prepared(pair: Pair, workspace: Workspace) -> bool:
    """Whether there are data of the pair's recipe."""
    done = read_manifest(workspace, pair.name)
    return done is not None and done.get("recipe") == pair.recipe.record()


def prepared(pair: Pair, workspace: Workspace) -> Manifest:
    """The manifest of a pair that has been prepared by its recipe.

    Raises:
        UserError: when it has not.
    """
    done, folder = read_manifest(workspace, pair.name), workspace.data(pair.name)
    if done is None:
        raise UserError(
            f"{pair.name}: no prepared data in {folder}; say where its text is with --raw-dir DIR"
        )
    if not is_prepared(pair, workspace):
        changed = differences(done.get("recipe", {}), pair.recipe.record())
        raise UserError(
            f"{folder}: prepared with other settings ({changed}); give the same, or prepare it "
            "anew with --raw-dir DIR"
        )
    return done


def prepare(pair: Pair, raw: RawText, workspace: Workspace) -> tuple[Manifest, bool]:
    """Prepare ``pair`` from ``raw``, unless that has been done.

    Returns:
        the manifest, and whether anything had to be done.

    Raises:
        UserError: for raw text that is wrong, or when runs were trained on other data.
        StageFailed: when the binarised data do not hold every line.
    """
    inputs = {path.name: {"sha256": sha256(path)} for path in raw.inputs}
    record = pair.recipe.record()
    key = fingerprint([inputs, record])
    done = read_manifest(workspace, pair.name)
    if done is not None and done.get("fingerprint") == key:
        return done, False
    trained = workspace.runs_on_other_data(pair.name, key)
    if trained:
        raise UserError(
            f"{trained[0]}: trained on other data than this text and these settings give now; "
            "give what it had, choose another --out, or remove that folder"
        )
    splits, extraction = raw.read()
    with whole_folder(workspace.data(pair.name)) as folder:
        manifest = {
            "fingerprint": key,
            "inputs": inputs,
            "extraction": extraction,
            "pair": asdict(pair),
            "recipe": record,
            **_prepare_into(folder, pair.name, pair.recipe, splits),
        }
        write_json(folder / "manifest.json", manifest)
    return manifest, True


def _prepare_into(folder: Path, name: str, recipe: Recipe, raw: dict[str, Split]) -> Manifest:
    text = {split: _tokenise(recipe, split, sides) for split, sides in raw.items()}
    if recipe.tokenises:
        _write(folder / "raw", recipe, {split: raw[split] for split in ("dev", "test")})
    cleaned = clean(text["train"], recipe, [text["dev"], text["test"]])
    text["train"] = cleaned.kept
    escaped = {split: _each(sides, escape) for split, sides in text.items()}
    segmenter = segment.learn(recipe, escaped["train"], folder / "bpe")
    pieces = {split: _segment(segmenter, recipe, split, sides) for split, sides in escaped.items()}
    cut = _fit(recipe, pieces)
    fitting = [
        i for i, pair in enumerate(pieces["train"].pairs()) if max(map(words, pair)) <= MAX_PIECES
    ]
    dropped = {**cleaned.dropped, "too_many_pieces": len(text["train"]) - len(fitting)}
    for splits in (text, escaped, pieces):
        splits["train"] = _pick(splits["train"], fitting)
    if not fitting:
        raise UserError(f"no training pair has at most {MAX_PIECES:,} pieces; split the sentences")
    model_reads = {**pieces, "train": _copies(segmenter, recipe, escaped["train"], pieces["train"])}
    _write(folder / "text", recipe, text)
    _write(folder / "bpe", recipe, model_reads)
    counts = {split: len(sides) for split, sides in model_reads.items()}
    binarise(folder, name, (recipe.source, recipe.target), counts)
    # in-training dev BLEU is scored against this text, not against decoded type numbers
    write_lines(folder / "bin" / f"valid.ref.{recipe.target}", escaped["dev"].target)
    return {
        "pairs": {split: len(sides) for split, sides in text.items()},
        "copies": recipe.copies,
        "dropped": dropped,
        "matched": {**cleaned.matched, "too_many_pieces": dropped["too_many_pieces"]},
        "cut": cut,
        **card.measure(recipe, text, model_reads),
    }


def _each(sides: Split, step: Any) -> Split:
    return Split([step(line) for line in sides.source], [step(line) for line in sides.target])


def _pick(sides: Split, numbers: list[int]) -> Split:
    return Split([sides.source[i] for i in numbers], [sides.target[i] for i in numbers])


def _write(folder: Path, recipe: Recipe, splits: dict[str, Split]) -> None:
    for split, sides in splits.items():
        for language, lines in sides.sides(recipe.source, recipe.target):
            write_lines(folder / f"{split}.{language}", lines)


def _tokenise(recipe: Recipe, split: str, raw: Split) -> Split:
    if not recipe.tokenises:
        return raw
    sides = []
    for language, lines in raw.sides(recipe.source, recipe.target):
        tokenise, done = Tokeniser(recipe, language), []
        with Progress(f"tokenising {split}.{language}", len(lines), "lines") as progress:
            for line in lines:
                done.append(tokenise(line))
                progress.update(len(done))
        sides.append(done)
    return Split(*sides)


def _segment(
    segmenter: segment.Segmenter, recipe: Recipe, split: str, text: Split, dropout: float = 0.0
) -> Split:
    return Split(
        *(
            segment.segment_all(segmenter, lines, language, f"BPE {split}.{language}", dropout)
            for language, lines in text.sides(recipe.source, recipe.target)
        )
    )


def _copies(segmenter: segment.Segmenter, recipe: Recipe, text: Split, pieces: Split) -> Split:
    """The training pairs as the model reads them: with BPE-dropout, so many times anew."""
    if not recipe.bpe_dropout:
        return pieces
    every = Split([], [])
    with segment.seeded():
        for number in range(1, recipe.copies + 1):
            copy = _segment(segmenter, recipe, f"train, copy {number}", text, recipe.bpe_dropout)
            for side, new, whole in zip(
                (every.source, every.target),
                (copy.source, copy.target),
                (pieces.source, pieces.target),
                strict=True,
            ):
                # one that has become too long for the model stays as it was
                side += [
                    n if words(n) <= MAX_PIECES else w for n, w in zip(new, whole, strict=True)
                ]
    return every


def _fit(recipe: Recipe, pieces: dict[str, Split]) -> list[dict[str, Any]]:
    """Cut what is too long for a model in dev and test, and say what was cut."""
    cut = []
    for split in ("dev", "test"):
        for language, lines in pieces[split].sides(recipe.source, recipe.target):
            for i, line in enumerate(lines):
                count = words(line)
                if count > MAX_PIECES:
                    lines[i] = " ".join(line.split(" ")[:MAX_PIECES])
                    where = {"split": split, "language": language, "line": i + 1}
                    cut.append({**where, "pieces": count})
    return cut
