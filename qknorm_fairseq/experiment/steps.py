"""What a line of a pair goes through on its way to the model."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from qknorm_fairseq.experiment import segment
from qknorm_fairseq.experiment.corpus import decode
from qknorm_fairseq.experiment.errors import UserError
from qknorm_fairseq.experiment.recipe import Recipe
from qknorm_fairseq.experiment.text import escape, normalise
from qknorm_fairseq.experiment.tokens import MosesTokens


class Tokeniser:
    """The first step: raw text to the form in which the corpus comes or is made to come."""

    def __init__(self, recipe: Recipe, language: str) -> None:
        self.tokens = MosesTokens(language) if recipe.tokenises else None

    def __call__(self, line: str) -> str:
        return self.tokens(line) if self.tokens else line


class Steps:
    """All steps of a prepared pair: white space, tokens, escapes, pieces."""

    def __init__(self, recipe: Recipe, codes: Path, language: str) -> None:
        if language not in (recipe.source, recipe.target):
            known = f"{recipe.source} or {recipe.target}"
            raise UserError(f"--language {language}: the pair's are {known}")
        self.language = language
        self.tokenise = Tokeniser(recipe, language)
        self.segmenter = segment.load(recipe, codes)

    def pieces(self, line: str) -> str:
        """A line of new text as the model reads it."""
        return self.segmenter.segment(escape(self.tokenise(normalise(line))), self.language)


def apply(steps: Steps, lines: Iterable[bytes]) -> Iterator[bytes]:
    """Lines of UTF-8, as a binary stream gives them, each in pieces; never another number.

    Raises:
        UserError: for a line that is not UTF-8 or holds a NUL.
    """
    offset = 0
    for number, line in enumerate(lines, 1):
        text = decode(line.removesuffix(b"\n"), "standard input", number, offset)
        offset += len(line)
        yield f"{steps.pieces(text)}\n".encode()
