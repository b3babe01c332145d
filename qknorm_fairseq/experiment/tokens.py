"""Text as people write it and as tokens with spaces between, both ways."""

import re
import sys
import unicodedata

from nltk.tokenize.treebank import TreebankWordDetokenizer
from sacremoses import MosesDetokenizer, MosesTokenizer

from qknorm_fairseq.experiment.text import normalise

# sacremoses would part a letter from its accent, its vowel or a joiner: they are of the word
_OF_THE_WORD = "".join(
    chr(c)
    for c in range(sys.maxunicode)
    if unicodedata.category(chr(c)) in ("Mn", "Mc", "Me", "Cf")
)


class MosesTokens:
    """A language's text tokenised by Moses's rules, special characters escaped (``&apos;``).

    Control characters are taken out, as Moses does.
    """

    def __init__(self, language: str) -> None:
        self.tokeniser = MosesTokenizer(lang=language)
        word = self.tokeniser.IsAlnum + _OF_THE_WORD
        letters = self.tokeniser.IsAlpha
        for name in ("ENGLISH_SPECIFIC_APOSTROPHE", "FR_IT_SPECIFIC_APOSTROPHE"):
            rules = [
                (re.compile(rule.pattern.replace(letters, letters + _OF_THE_WORD)), replacement)
                for rule, replacement in getattr(self.tokeniser, name)
            ]
            setattr(self.tokeniser, name, rules)
        self.tokeniser.PAD_NOT_ISALNUM = re.compile(rf"([^{word}\s\.'\`\,\-])"), r" \1 "

    def __call__(self, line: str) -> str:
        return normalise(self.tokeniser.tokenize(line, return_str=True, escape=True))


def moses_tokens(lines: list[str], language: str) -> list[str]:
    """Every line tokenised; see :class:`MosesTokens`."""
    tokenise = MosesTokens(language)
    return [tokenise(line) for line in lines]


def moses_text(lines: list[str], language: str) -> list[str]:
    """Moses escapes (``&apos;``) undone, then tokens joined by Moses's rules."""
    detokeniser = MosesDetokenizer(lang=language)
    return [detokeniser.detokenize(line.split(" "), unescape=True) for line in lines]


def treebank_text(lines: list[str]) -> list[str]:
    """Tokens joined by NLTK's rules for English, escapes kept: the paper's table 3."""
    detokeniser = TreebankWordDetokenizer()
    return [detokeniser.detokenize(line.split()) for line in lines]
