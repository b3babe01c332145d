"""What decides how a pair's text becomes data: a value to each choice, checked."""

import re
from dataclasses import asdict, dataclass, fields
from typing import Any

from qknorm_fairseq.experiment.errors import UserError

TEXTS = ("tokenised", "raw")
# segmentation -> the library that does it, and fairseq's name for undoing it
SEGMENTATIONS = {
    "subword-nmt": ("subword-nmt", "subword_nmt"),
    "sentencepiece-bpe": ("sentencepiece", "sentencepiece"),
    "sentencepiece-unigram": ("sentencepiece", "sentencepiece"),
}
MOST_MERGES = 1_000_000
LANGUAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


@dataclass(frozen=True)
class Recipe:
    """How a pair is prepared. ``preparation`` of a pair's file holds any of these by name.

    Raises:
        UserError: for a value that makes no sense.
    """

    source: str
    target: str
    merges: int  # joint BPE merges; for sentencepiece the size of its vocabulary
    text: str = "tokenised"  # how the raw text comes: a "raw" one is tokenised here
    bpe: str = "subword-nmt"
    vocabulary_threshold: int = 0  # a piece rarer than that in its language is split further
    bpe_dropout: float = 0.0  # probability to skip a merge (Provilkov et al. 2020), training only
    bpe_dropout_copies: int = 10  # of the training pairs, each segmented anew
    drop_empty: bool = True  # the cleaning rules, on training pairs alone
    max_words: int = 250  # the longest side; 0: any; "over ~200-250 words" (Nguyen & Salazar)
    max_ratio: float = 0.0  # of the sides' lengths in words; 0: any
    drop_duplicates: bool = False
    drop_overlap: bool = False  # with dev or test

    def __post_init__(self) -> None:
        for name, (right, what) in _RIGHT.items():
            value = getattr(self, name)
            if not right(value):
                raise UserError(f"{option(name)} {value!r}: must be {what}")
        for name in ("bpe_dropout", "max_ratio"):  # 9 is 9.0, however it was written
            object.__setattr__(self, name, float(getattr(self, name)))
        if self.source == self.target:
            raise UserError(f"source and target are both {self.source!r}; name two languages")
        # sentencepiece's sampling is not the same twice, whatever its seed
        for name in ("bpe_dropout", "vocabulary_threshold"):
            if self.bpe != "subword-nmt" and getattr(self, name):
                raise UserError(f"{option(name)} is for subword-nmt alone, not for {self.bpe}")

    @property
    def tokenises(self) -> bool:
        """Whether the text is tokenised here: sentencepiece takes it as it comes."""
        return self.text == "raw" and self.bpe == "subword-nmt"

    @property
    def is_plain(self) -> bool:
        """Whether the prepared text has no tokens, but is as people write it."""
        return self.text == "raw" and not self.tokenises

    @property
    def post_process(self) -> str:
        """What undoes the segmentation, as fairseq's ``--post-process`` calls it."""
        return SEGMENTATIONS[self.bpe][1]

    @property
    def copies(self) -> int:
        """How often each training pair stands in the binarised data."""
        return self.bpe_dropout_copies if self.bpe_dropout else 1

    @property
    def libraries(self) -> list[str]:
        """What does the work, by the names under which it is installed."""
        return [SEGMENTATIONS[self.bpe][0], *(["sacremoses"] if self.tokenises else [])]

    def record(self) -> dict[str, Any]:
        """The choices that decide the outcome."""
        choices = asdict(self)
        if not self.bpe_dropout:
            del choices["bpe_dropout_copies"]
        return choices


def _is_count(value: Any, least: int = 0) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_language(value: Any) -> bool:
    return isinstance(value, str) and LANGUAGE.fullmatch(value) is not None


_CODE = 'a language code, in quotes where YAML reads another thing ("no")'
_RIGHT = {
    "source": (_is_language, _CODE),
    "target": (_is_language, _CODE),
    "merges": (
        lambda value: _is_count(value, 1) and value <= MOST_MERGES,
        f"a whole number above 0, at most {MOST_MERGES:,}",
    ),
    "text": (lambda value: value in TEXTS, " or ".join(TEXTS)),
    "bpe": (lambda value: value in [*SEGMENTATIONS], " or ".join(SEGMENTATIONS)),
    "vocabulary_threshold": (_is_count, "a whole number, 0 for none"),
    "bpe_dropout": (lambda value: _is_number(value) and 0 <= value < 1, "from 0 to below 1"),
    "bpe_dropout_copies": (lambda value: _is_count(value, 1), "a whole number above 0"),
    "drop_empty": (lambda value: isinstance(value, bool), "true or false"),
    "max_words": (_is_count, "a whole number, 0 for no limit"),
    "max_ratio": (
        lambda value: _is_number(value) and (value == 0 or value >= 1),
        "at least 1, or 0 for no limit",
    ),
    "drop_duplicates": (lambda value: isinstance(value, bool), "true or false"),
    "drop_overlap": (lambda value: isinstance(value, bool), "true or false"),
}
CHOICES = tuple(field.name for field in fields(Recipe))


def option(name: str) -> str:
    """A choice as an option of the command line."""
    return "--" + name.replace("_", "-")


def differences(before: dict[str, Any], now: dict[str, Any]) -> str:
    """What two records differ in, for a person."""
    return "; ".join(
        f"{name.replace('_', '-')} was {before.get(name, 'not set')}, now {value}"
        for name, value in now.items()
        if before.get(name) != value
    )
