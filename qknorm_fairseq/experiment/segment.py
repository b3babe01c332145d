"""Words into pieces of a joint vocabulary and back, by subword-nmt or sentencepiece."""

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Protocol, TextIO

import sentencepiece
from subword_nmt.apply_bpe import BPE
from subword_nmt.learn_bpe import learn_bpe

from qknorm_fairseq.experiment.console import Progress
from qknorm_fairseq.experiment.corpus import Split
from qknorm_fairseq.experiment.errors import UserError
from qknorm_fairseq.experiment.recipe import Recipe
from qknorm_fairseq.experiment.workspace import write_lines

SEED = 1  # of BPE-dropout: the data are the same each time they are made


class Segmenter(Protocol):
    """Escaped text to pieces with spaces between."""

    def segment(self, line: str, language: str, dropout: float = 0.0) -> str:
        """The pieces of a line; each merge is skipped with probability ``dropout``."""
        ...

    def join(self, pieces: str) -> str:
        """The line that :meth:`segment` was given."""
        ...


def learn(recipe: Recipe, train: Split, folder: Path) -> Segmenter:
    """Learn from both sides of the training text, keep what was learnt in ``folder``.

    Raises:
        UserError: when there is too little text for what is asked.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lines = [*train.source, *train.target]
    if recipe.bpe != "subword-nmt":
        _learn_sentencepiece(lines, recipe, folder)
        return load(recipe, folder)
    _learn_merges(lines, recipe.merges, folder / "codes")
    if recipe.vocabulary_threshold:
        whole = load(replace(recipe, vocabulary_threshold=0), folder)
        for language, side in train.sides(recipe.source, recipe.target):
            counts = Counter(chain(*(whole.segment(line, language).split() for line in side)))
            rows = [f"{piece} {count}" for piece, count in counts.most_common()]
            write_lines(folder / f"vocab.{language}", rows)
    return load(recipe, folder)


def load(recipe: Recipe, folder: Path) -> Segmenter:
    """What :func:`learn` has kept in ``folder``."""
    if recipe.bpe == "subword-nmt":
        return _SubwordNMT(recipe, folder)
    return _SentencePiece(folder)


class _SubwordNMT:
    """Sennrich et al. 2016; a piece that goes on within its word ends in ``@@``."""

    def __init__(self, recipe: Recipe, folder: Path) -> None:
        self.by_language = {
            language: _bpe(folder, language, recipe.vocabulary_threshold)
            for language in (recipe.source, recipe.target)
        }

    def segment(self, line: str, language: str, dropout: float = 0.0) -> str:
        return str(self.by_language[language].segment(line, dropout))

    def join(self, pieces: str) -> str:
        return f"{pieces} ".replace("@@ ", "").rstrip(" ")


class _SentencePiece:
    """Kudo & Richardson 2018; a piece that begins a word begins with ``▁``."""

    def __init__(self, folder: Path) -> None:
        self.model = sentencepiece.SentencePieceProcessor(
            model_file=str(folder / "sentencepiece.model")
        )

    def segment(self, line: str, language: str, dropout: float = 0.0) -> str:
        assert dropout == 0.0, "a recipe has dropout with subword-nmt alone"
        return " ".join(self.model.encode(line, out_type=str))

    def join(self, pieces: str) -> str:
        return pieces.replace(" ", "").replace("▁", " ").strip(" ")


@contextmanager
def seeded() -> Iterator[None]:
    """BPE-dropout that comes out the same each time; subword-nmt draws from the global source."""
    state = random.getstate()
    random.seed(SEED)
    try:
        yield
    finally:
        random.setstate(state)


def _bpe(folder: Path, language: str, threshold: int) -> BPE:
    known = None
    if threshold:
        rows = (folder / f"vocab.{language}").read_bytes().decode("utf-8").split("\n")[:-1]
        counts = (row.rsplit(" ", 1) for row in rows)
        known = {piece for piece, count in counts if int(count) >= threshold}
        known = known or {""}  # none at all would mean no threshold to subword-nmt
    with (folder / "codes").open(encoding="utf-8", newline="\n") as file:
        return BPE(file, vocab=known)


def _learn_merges(lines: Iterable[str], merges: int, path: Path) -> None:
    log = path.with_name("learn.log")
    with (
        Progress("learning BPE", merges, "merges") as progress,
        path.open("w", encoding="utf-8", newline="\n") as file,
        log.open("w") as err,
        redirect_stderr(err),  # subword-nmt draws a bar of its own
    ):
        try:
            learn_bpe(lines, _CountedLines(file, progress), merges)
        except ValueError:  # not one pair of symbols
            progress.update(0)
    if path.read_bytes().count(b"\n") < 2:  # the first line is the version
        raise UserError(
            "the training text is too little to learn BPE from: no two letters stand together "
            "twice; give more text"
        )


def _learn_sentencepiece(lines: list[str], recipe: Recipe, folder: Path) -> None:
    longest = max(len(line.encode("utf-8")) for line in lines)
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_prefix=str(folder / "sentencepiece"),
            model_type=recipe.bpe.removeprefix("sentencepiece-"),
            vocab_size=recipe.merges,
            character_coverage=1.0,  # small corpora can afford every character
            normalization_rule_name="identity",  # text in, the same text out
            remove_extra_whitespaces=False,  # there are none
            max_sentence_length=max(4192, longest + 1),  # longer ones it would pass over in silence
            num_threads=1,  # the same pieces each time
            minloglevel=2,
        )
    except (RuntimeError, ValueError) as error:
        cause = " ".join((str(error).rpartition("] ")[2] or str(error)).split())
        raise UserError(f"--merges {recipe.merges}: sentencepiece says: {cause}") from error


class _CountedLines:
    """A text file that shows how many lines have been written to it."""

    def __init__(self, file: TextIO, progress: Progress) -> None:
        self.file, self.progress, self.count = file, progress, 0

    def write(self, text: str) -> None:
        self.file.write(text)
        self.count += text.count("\n")
        self.progress.update(self.count)
