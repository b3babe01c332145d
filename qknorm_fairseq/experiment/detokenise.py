"""Tokenised text as people write it: what a detokenised BLEU compares."""

from nltk.tokenize.treebank import TreebankWordDetokenizer
from sacremoses import MosesDetokenizer


def moses(lines: list[str], language: str) -> list[str]:
    """Moses escapes (``&apos;``) undone, then tokens joined by Moses's rules."""
    detokeniser = MosesDetokenizer(lang=language)
    return [detokeniser.detokenize(line.split(" "), unescape=True) for line in lines]


def treebank(lines: list[str], language: str) -> list[str]:
    """Tokens joined by NLTK's rules for English, escapes kept: the paper's table 3."""
    detokeniser = TreebankWordDetokenizer()
    return [detokeniser.detokenize(line.split()) for line in lines]


def as_it_comes(lines: list[str], language: str) -> list[str]:
    """The lines, tokenised as they are."""
    return lines
