"""From raw text to binarised data: clean, joint BPE, one joint dictionary.

``data/PAIR`` then holds ``raw/`` (the text as it came), ``bpe/`` (with its codes),
``bin/`` (what fairseq reads) and ``manifest.json``. The folder appears whole or not at all.
"""

import json
import logging
import sys
from dataclasses import astuple
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from qknorm_fairseq.experiment import bpe
from qknorm_fairseq.experiment.commands import run_logged
from qknorm_fairseq.experiment.console import Progress
from qknorm_fairseq.experiment.corpus import SPLITS, Split, clean, find_files, read_split
from qknorm_fairseq.experiment.errors import StageFailed, UserError
from qknorm_fairseq.experiment.settings import Pair
from qknorm_fairseq.experiment.workspace import (
    Workspace,
    fingerprint,
    sha256,
    whole_folder,
    write_json,
    write_lines,
)

Manifest = dict[str, Any]

MAX_WORDS = 250  # "sentences over ~200-250 words" are dropped (Nguyen & Salazar's README)
MAX_PIECES = 1000  # of a sentence, after BPE: models take 1,024 tokens, profiles batches of it
SPECIALS = 4  # <s> <pad> </s> <unk>
JOINT = ("--joined-dictionary", "--padding-factor", "1")  # one dictionary, and no filler in it
FAIRSEQ_SPLITS = {"train": "train", "dev": "valid", "test": "test"}


def read_manifest(workspace: Workspace, pair: str) -> Manifest | None:
    """The manifest of a prepared pair, or None."""
    path = workspace.data(pair) / "manifest.json"
    return json.loads(path.read_text("utf-8")) if path.exists() else None


def prepare(pair: Pair, raw_dir: Path | None, workspace: Workspace) -> tuple[Manifest, bool]:
    """Prepare ``pair`` from the text in ``raw_dir``, unless that has been done.

    Without ``raw_dir``, data prepared before are used as they are.

    Returns:
        the manifest, and whether anything had to be done.

    Raises:
        UserError: for raw text that is missing or wrong.
        StageFailed: when the binarised data do not hold every line.
    """
    done = read_manifest(workspace, pair.name)
    if raw_dir is None:
        if done is None:
            raise UserError(
                f"{pair.name}: no prepared data in {workspace.data(pair.name)}; "
                "say where its text is with --raw-dir DIR"
            )
        if done["recipe"] != _recipe(pair):
            raise UserError(
                f"{workspace.data(pair.name)}: prepared with other settings "
                f"({done['recipe']}, now {_recipe(pair)}); prepare it anew with --raw-dir DIR"
            )
        return done, False
    files = find_files(raw_dir, pair.source, pair.target)
    inputs = {path.name: {"sha256": sha256(path)} for path in files.values()}
    key = fingerprint([inputs, _recipe(pair)])
    if done is not None and done["fingerprint"] == key:
        return done, False
    trained = workspace.runs_on_other_data(pair.name, key)
    if trained:
        raise UserError(
            f"{trained[0]}: trained on other data than {raw_dir} and {pair.merges} merges give "
            "now; give the text that it had, choose another --out, or remove that folder"
        )
    splits = {split: read_split(files, split, pair.source, pair.target) for split in SPLITS}
    with whole_folder(workspace.data(pair.name)) as folder:
        manifest = _prepare_into(folder, pair, splits)
        manifest = {"fingerprint": key, "inputs": inputs, "recipe": _recipe(pair), **manifest}
        write_json(folder / "manifest.json", manifest)
    return manifest, True


def _recipe(pair: Pair) -> dict[str, Any]:
    """All that decides the outcome but the text."""
    return {
        "source": pair.source,
        "target": pair.target,
        "merges": pair.merges,
        "max_words": MAX_WORDS,
        "bpe": f"subword-nmt {version('subword-nmt')}",
    }


def _prepare_into(folder: Path, pair: Pair, raw: dict[str, Split]) -> Manifest:
    train, dropped = clean(raw["train"], MAX_WORDS)
    if not len(train):
        raise UserError(f"no training pair is left after cleaning: {dropped}")
    splits = {**raw, "train": train}
    for split, sides in splits.items():
        write_lines(folder / "raw" / f"{split}.{pair.source}", sides.source)
        write_lines(folder / "raw" / f"{split}.{pair.target}", sides.target)
    codes = bpe.learn(chain(train.source, train.target), pair.merges, folder / "bpe" / "codes")
    pieces = {
        split: Split(
            bpe.apply(codes, sides.source, f"{split}.{pair.source}"),
            bpe.apply(codes, sides.target, f"{split}.{pair.target}"),
        )
        for split, sides in splits.items()
    }
    for split, sides in pieces.items():
        write_lines(folder / "bpe" / f"{split}.{pair.source}", sides.source)
        write_lines(folder / "bpe" / f"{split}.{pair.target}", sides.target)
    _check_lengths(pair, pieces)
    _binarise(folder, pair)
    _check_sentence_counts(folder, pair, {split: len(sides) for split, sides in splits.items()})
    # in-training dev BLEU is scored against this text, not against decoded type numbers
    write_lines(folder / "bin" / f"valid.ref.{pair.target}", raw["dev"].target)
    return {
        "pairs": {split: len(sides) for split, sides in splits.items()},
        "dropped": dropped,
        **_measure(pieces["train"]),
    }


def _binarise_command(folder: Path, pair: Pair) -> list[str]:
    text = folder / "bpe"
    command = [sys.executable, "-m", "fairseq_cli.preprocess"]
    command += ["--source-lang", pair.source, "--target-lang", pair.target]
    for split, name in (("train", "trainpref"), ("dev", "validpref"), ("test", "testpref")):
        command += [f"--{name}", str(text / split)]
    return [*command, "--destdir", str(folder / "bin"), *JOINT]


def _binarise(folder: Path, pair: Pair) -> None:
    done = 0
    with Progress("binarising", 2 * len(SPLITS), "files") as progress:

        def count(lines: list[bytes]) -> None:
            nonlocal done
            done += sum(b" sents, " in line for line in lines)
            progress.update(done)

        log = folder.parent / f"{pair.name}.preprocess.log"  # outlives a failure
        log.unlink(missing_ok=True)
        run_logged(_binarise_command(folder, pair), log, watch=count)


def _check_lengths(pair: Pair, pieces: dict[str, Split]) -> None:
    for split, sides in pieces.items():
        for language, side in ((pair.source, sides.source), (pair.target, sides.target)):
            for number, line in enumerate(side, 1):
                length = len(line.split())
                if length > MAX_PIECES:
                    raise UserError(
                        f"{split}.{language}, line {number}: {length:,} BPE tokens, more than "
                        f"the {MAX_PIECES:,} that the models take; split «{line[:40]}…»"
                    )


def _check_sentence_counts(folder: Path, pair: Pair, expected: dict[str, int]) -> None:
    logging.getLogger("fairseq").setLevel(logging.WARNING)
    from fairseq.data import data_utils  # slow to import

    for split, count in expected.items():
        for language in (pair.source, pair.target):
            name = f"{FAIRSEQ_SPLITS[split]}.{pair.source}-{pair.target}.{language}"
            binarised = data_utils.load_indexed_dataset(str(folder / "bin" / name))
            if len(binarised) != count:
                raise StageFailed(
                    f"{split}.{language}: {count:,} lines became {len(binarised):,} sentences; "
                    "a carriage return breaks lines: replace it in the text"
                )


def _measure(train: Split) -> Manifest:
    source, target = ({piece for line in side for piece in line.split()} for side in astuple(train))
    lengths = [len(line.split()) + 1 for line in chain(train.source, train.target)]  # with eos
    return {
        "vocabulary": {
            "joint": len(source | target) + SPECIALS,
            "source": len(source),
            "target": len(target),
        },
        "length_percentile_97_5": float(np.percentile(lengths, 97.5)),
    }
