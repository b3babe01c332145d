"""From raw text to binarised data: tokens, cleaning, pieces, one joint dictionary.

``data/PAIR`` then holds ``text/`` (the lines as they are scored), ``bpe/`` (as the model reads
them, with codes), ``bin/`` (what fairseq reads), ``raw/`` (dev and test as they came, where they
were tokenised here) and ``manifest.json``. The folder appears whole or not at all.
"""

import re
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from qknorm_fairseq import __version__
from qknorm_fairseq.experiment import card, segment
from qknorm_fairseq.experiment.binarise import binarise
from qknorm_fairseq.experiment.clean import clean, words
from qknorm_fairseq.experiment.console import each_shown
from qknorm_fairseq.experiment.corpus import Split
from qknorm_fairseq.experiment.errors import UserError
from qknorm_fairseq.experiment.lock import owned
from qknorm_fairseq.experiment.manifest import Manifest, changed_files, checksums, read_manifest
from qknorm_fairseq.experiment.recipe import Recipe
from qknorm_fairseq.experiment.settings import Pair
from qknorm_fairseq.experiment.sources import RawText
from qknorm_fairseq.experiment.steps import Tokeniser
from qknorm_fairseq.experiment.text import escape
from qknorm_fairseq.experiment.tokens import moses_text
from qknorm_fairseq.experiment.workspace import (
    Workspace,
    fingerprint,
    sha256,
    whole_folder,
    write_json,
    write_lines,
)

# what decides a training and a test score; runs belong to data in which these are the same
TRAINED_ON = re.compile(r"(raw|text|bpe)/(train|dev|test)\.|bin/valid\.ref")
MAX_PIECES = 1000  # of a sentence: models take 1,024 tokens, profiles batches of it


def prepare(pair: Pair, raw: RawText, workspace: Workspace) -> tuple[Manifest, bool]:
    """Prepare ``pair`` from ``raw``, unless that has been done.

    Returns:
        the manifest, and whether anything had to be done.

    Raises:
        UserError: for raw text that is wrong, when runs were trained on other data, or when
            another process prepares the pair.
        StageFailed: when the binarised data do not hold every line.
    """
    inputs = {path.name: {"sha256": sha256(path)} for path in raw.inputs}
    recipe, tools = pair.recipe.record(), _tools(pair.recipe)
    made_of = fingerprint([inputs, recipe, tools])
    done = read_manifest(workspace, pair.name)
    target = workspace.data(pair.name)
    if done is not None and done.get("made_of") == made_of and not changed_files(done, target):
        return _with_options_of(pair, done, workspace), False
    splits, extraction = raw.read()
    with owned(workspace.data_lock(pair.name)), whole_folder(target) as folder:
        manifest = _prepare_into(folder, pair.name, pair.recipe, splits)
        files = checksums(folder)
        digest = fingerprint({name: files[name] for name in files if TRAINED_ON.match(name)})
        trained = workspace.runs_on_other_data(pair.name, digest)
        if trained:
            raise UserError(
                f"{trained[0]}: trained on other data than this text and these settings give "
                "now; give what it had, choose another --out, or remove that folder"
            )
        manifest = {
            "fingerprint": digest,
            "made_of": made_of,
            "inputs": inputs,
            "pair": asdict(pair),
            "recipe": recipe,
            "tools": tools,
            "extraction": extraction,
            "files": files,
            **manifest,
        }
        write_json(folder / "manifest.json", manifest)
    return manifest, True


def _tools(recipe: Recipe) -> dict[str, str]:
    """The versions of all that has a hand in the outcome."""
    names = [*recipe.libraries, "ve-fairseq"]
    return {"qknorm_fairseq": __version__, **{name: version(name) for name in names}}


def _with_options_of(pair: Pair, done: Manifest, workspace: Workspace) -> Manifest:
    """The manifest, with what the pair says now of things that the data do not hang on."""
    if done["pair"] != asdict(pair):
        done = {**done, "pair": asdict(pair)}
        write_json(workspace.data(pair.name) / "manifest.json", done)
    return done


def _prepare_into(folder: Path, name: str, recipe: Recipe, raw: dict[str, Split]) -> Manifest:
    text = {split: _tokenise(recipe, split, sides) for split, sides in raw.items()}
    if recipe.tokenises:
        _write(folder / "raw", recipe, {split: raw[split] for split in ("dev", "test")})
    cleaned = clean(text["train"], recipe, [text["dev"], text["test"]])
    text["train"] = cleaned.kept
    escaped = {split: sides.map(escape) for split, sides in text.items()}
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
        "matched": cleaned.matched,
        "spared": cleaned.spared,
        "cut": cut,
        "tokens_undone": _count_undone(recipe, raw, text) if recipe.tokenises else None,
        **card.measure(recipe, text, model_reads),
    }


def _pick(sides: Split, numbers: list[int]) -> Split:
    return Split([sides.source[i] for i in numbers], [sides.target[i] for i in numbers])


def _write(folder: Path, recipe: Recipe, splits: dict[str, Split]) -> None:
    for split, sides in splits.items():
        for language, lines in sides.sides(recipe.source, recipe.target):
            write_lines(folder / f"{split}.{language}", lines)


def _tokenise(recipe: Recipe, split: str, raw: Split) -> Split:
    if not recipe.tokenises:
        return raw
    return Split(
        *(
            each_shown(lines, Tokeniser(recipe, language), f"tokenising {split}.{language}")
            for language, lines in raw.sides(recipe.source, recipe.target)
        )
    )


def _count_undone(recipe: Recipe, raw: dict[str, Split], text: dict[str, Split]) -> dict[str, int]:
    """Lines of dev and test, and those that undoing their tokens gives back as they came."""
    lines = same = 0
    for split in ("dev", "test"):
        for (language, before), (_, tokens) in zip(
            raw[split].sides(recipe.source, recipe.target),
            text[split].sides(recipe.source, recipe.target),
            strict=True,
        ):
            after = moses_text(tokens, language)
            lines += len(before)
            same += sum(a == b for a, b in zip(before, after, strict=True))
    return {"lines": lines, "same": same}


def _segment(
    segmenter: segment.Segmenter, recipe: Recipe, split: str, text: Split, dropout: float = 0.0
) -> Split:
    def side(language: str, lines: list[str]) -> list[str]:
        def pieces(line: str) -> str:
            return segmenter.segment(line, language, dropout)

        return each_shown(lines, pieces, f"BPE {split}.{language}")

    return Split(side(recipe.source, text.source), side(recipe.target, text.target))


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
