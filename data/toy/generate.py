"""Write a parallel corpus in two made-up languages, ``xx`` and ``yy``.

``xx`` is isolating, with the order subject - verb - object: small words say
what endings say in ``yy``, which is agglutinative, with the order subject -
object - verb.  README.md describes both.  All choices rest on the method
``random()`` of ``random.Random(seed)``, whose sequence Python promises to keep:
a seed gives the same corpus everywhere.

    python generate.py OUT_DIR [--seed N]
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TypeVar

T = TypeVar("T")
Pair = tuple[str, str]
Aligned = list[tuple[str, str]]  # target words, each with the source word it renders

SIZES = {"train": 3000, "dev": 200, "test": 200}
LENGTHS = range(4, 17)  # words in a source sentence, its full stop included
MIN_SEEN = 5  # how often training must show each source word of dev and test
RELATIVE = 0.15  # the probability of a relative clause with a subject or an object

VOWELS, XX_CONSONANTS, YY_CONSONANTS = "aeiou", "bfklmnptw", "bdhjklmnrstvz"
TO, NOT, WHO, WHO_STEM = "um", "en", "ok", "ub"
XX_PLURAL, YY_PLURAL = "s", "ri"
LIVING, LIFELESS = "ao"  # the class vowel, which begins an ending
NOMINATIVE, ACCUSATIVE, DATIVE = "", "n", "s"
OBLIQUES = "lktm"  # locative, comitative, ablative, benefactive
NEGATIVE, PRESENT, PAST, FUTURE = "ev", "", "id", "us"


@dataclass(frozen=True)
class Word:
    """A source word and the two target stems that animacy chooses between.

    A word with one translation has the same stem twice; a plain noun has its
    stem on the side that tells whether it is living, and "" on the other.
    """

    source: str
    living: str = ""
    lifeless: str = ""

    def stem(self, living: bool) -> str:
        """Return the stem for, or used of, a living being or a thing."""
        return self.living if living else self.lifeless


@dataclass(frozen=True)
class Verb(Word):
    """A verb, whose stem follows its object; ``handles``: that object is a thing."""

    takes_object: bool = True
    takes_recipient: bool = False
    handles: bool = False


@dataclass(frozen=True)
class NounPhrase:
    """A noun, which means a living being or a thing, and what goes with it."""

    noun: Word
    living: bool
    plural: bool
    determiner: Word
    numeral: Word | None
    adjective: Word | None
    relative: Clause | None

    @property
    def agreement(self) -> str:
        """What all that agrees with the noun shows, before the case."""
        return (LIVING if self.living else LIFELESS) + YY_PLURAL * self.plural

    def source(self) -> list[str]:
        """Say it in xx: determiner, numeral, adjective, noun, relative clause."""
        before = (self.determiner, self.numeral, self.adjective)
        noun = self.noun.source + XX_PLURAL * self.plural
        after = [WHO, *self.relative.source()] if self.relative else []
        return [*(word.source for word in before if word), noun, *after]

    def target(self, case: str) -> Aligned:
        """Say it in yy: numeral, noun, adjective, determiner, relative clause."""
        words = [(self.numeral.living, self.numeral.source)] if self.numeral else []
        ending = self.agreement + case
        noun = self.noun.source + XX_PLURAL * self.plural
        words.append((self.noun.stem(self.living) + ending, noun))
        for word in (self.adjective, self.determiner):
            if word and word.stem(self.living):
                words.append((word.stem(self.living) + ending, word.source))
        if self.relative:
            words += [(WHO_STEM + self.agreement, WHO), *self.relative.target(self.agreement)]
        return words


@dataclass(frozen=True)
class Clause:
    """A verb with its complements and adverb, but without its subject.

    A complement is a preposition of xx ("" for the object), the case it becomes
    in yy, and a noun phrase.  In yy they stand in the opposite order.
    """

    verb: Verb
    tense: tuple[str, str]  # the auxiliary in xx, "" in the present, and the suffix in yy
    negated: bool
    complements: tuple[tuple[str, str, NounPhrase], ...]
    adverb: Word | None

    def source(self) -> list[str]:
        """Say it in xx: auxiliary, negation, verb, complements, adverb."""
        words = [self.tense[0], NOT * self.negated, self.verb.source]
        for preposition, _, phrase in self.complements:
            words += [preposition, *phrase.source()]
        words.append(self.adverb.source if self.adverb else "")
        return [word for word in words if word]

    def target(self, agreement: str) -> Aligned:
        """Say it in yy: adverb, complements and last the verb, agreeing with the subject."""
        words = [(self.adverb.living, self.adverb.source)] if self.adverb else []
        for _, case, phrase in reversed(self.complements):
            words += phrase.target(case)
        living = all(phrase.living for _, case, phrase in self.complements if case == ACCUSATIVE)
        suffixes = NEGATIVE * self.negated + self.tense[1] + agreement
        return [*words, (self.verb.stem(living) + suffixes, self.verb.source)]


def pick(rng: Random, items: Sequence[T]) -> T:
    """Return one of the items, by ``random()`` alone."""
    return items[int(rng.random() * len(items))]


def word_maker(rng: Random, consonants: str, taken: list[str]) -> Callable[[str], str]:
    """Return a function that invents a word of a shape such as "CVC".

    No word begins another, so that no ending makes two words alike.
    """

    def make(shape: str) -> str:
        while True:
            word = "".join(pick(rng, consonants if kind == "C" else VOWELS) for kind in shape)
            if not any(word.startswith(old) or old.startswith(word) for old in taken):
                taken.append(word)
                return word

    return make


class Lexicon:
    """The words of both languages; those of the closed classes begin with a vowel."""

    def __init__(self, rng: Random) -> None:
        xx = word_maker(rng, XX_CONSONANTS, [TO, NOT, WHO])
        yy = word_maker(rng, YY_CONSONANTS, [WHO_STEM])

        def one(source: str = "CVCV", target: str = "CVC") -> tuple[str, str, str]:
            stem = yy(target)
            return xx(source), stem, stem

        def two() -> tuple[str, str, str]:
            return xx("CVCV"), yy("CVC"), yy("CVC")

        self.nouns = [Word(xx("CVCV"), living=yy("CVC")) for _ in range(34)]
        self.nouns += [Word(xx("CVCV"), lifeless=yy("CVC")) for _ in range(34)]
        self.double_nouns = [Word(*two()) for _ in range(6)]  # things only when handled
        self.verbs = [Verb(*one(), takes_object=False) for _ in range(8)]
        self.verbs += [Verb(*one()) for _ in range(14)] + [Verb(*two()) for _ in range(5)]
        self.verbs += [Verb(*one(), handles=True) for _ in range(7)]
        self.verbs += [Verb(*one(), handles=True, takes_recipient=True) for _ in range(6)]
        self.adjectives = [Word(*one()) for _ in range(26)] + [Word(*two()) for _ in range(4)]
        self.adverbs = [Word(*one(target="CVCV")) for _ in range(8)]
        self.article = Word(xx("VC"))  # yy has none
        self.determiners = [Word(*one("VC", "VC")) for _ in range(4)]
        self.numerals = [Word(*one("VC", "VCV")) for _ in range(4)]
        self.prepositions = [(xx("VC"), case) for case in OBLIQUES]
        self.tenses = [("", PRESENT), (xx("VC"), PAST), (xx("VC"), FUTURE)]


def make_phrase(rng: Random, lexicon: Lexicon, odds: float, handled: bool = False) -> NounPhrase:
    """Make up a noun phrase; ``odds``: the probability of a relative clause."""
    nouns = [noun for noun in lexicon.nouns if noun.lifeless or not handled]
    noun = pick(rng, lexicon.double_nouns if rng.random() < (0.3 if handled else 0.1) else nouns)
    numeral = pick(rng, lexicon.numerals) if rng.random() < 0.15 else None
    return NounPhrase(
        noun=noun,
        living=bool(noun.living) and not handled,
        plural=bool(numeral) or rng.random() < 0.3,
        determiner=lexicon.article if rng.random() < 0.5 else pick(rng, lexicon.determiners),
        numeral=numeral,
        adjective=pick(rng, lexicon.adjectives) if rng.random() < 0.6 else None,
        relative=make_clause(rng, lexicon, embedded=True) if rng.random() < odds else None,
    )


def make_clause(rng: Random, lexicon: Lexicon, embedded: bool = False) -> Clause:
    """Make up a clause; an embedded one has nothing after its verb and object.

    Otherwise one could not tell which of two verbs an adverbial belongs to.
    """
    verb = pick(rng, [v for v in lexicon.verbs if not (embedded and v.takes_recipient)])
    tense, negated = pick(rng, lexicon.tenses), rng.random() < 0.2
    complements = []
    if verb.takes_object:
        direct = make_phrase(rng, lexicon, 0.0 if embedded else RELATIVE, verb.handles)
        complements.append(("", ACCUSATIVE, direct))
    if verb.takes_recipient:
        complements.append((TO, DATIVE, make_phrase(rng, lexicon, 0.0)))
    if not embedded and rng.random() < (0.5 if verb.takes_object else 0.9):
        complements.append((*pick(rng, lexicon.prepositions), make_phrase(rng, lexicon, 0.0)))
    adverb = pick(rng, lexicon.adverbs) if not embedded and rng.random() < 0.3 else None
    return Clause(verb, tense, negated, tuple(complements), adverb)


def make_sentence(rng: Random, lexicon: Lexicon) -> tuple[list[str], Aligned]:
    """Make up a sentence of a permitted length, in both languages."""
    while True:
        subject, clause = make_phrase(rng, lexicon, RELATIVE), make_clause(rng, lexicon)
        source = [*subject.source(), *clause.source(), "."]
        if len(source) in LENGTHS:
            target = subject.target(NOMINATIVE) + clause.target(subject.agreement)
            return source, [*target, (".", ".")]


@dataclass(frozen=True)
class Corpus:
    """Sentence pairs, and what the evaluation of a translation may want to know.

    ``dictionary`` maps each source word to the word that renders it most often
    in ``train``, or to "" where at most an ending does.  ``homonyms`` maps each
    source word with two translations to their stems: (living, lifeless).
    """

    train: list[Pair]
    dev: list[Pair]
    test: list[Pair]
    dictionary: dict[str, str]
    homonyms: dict[str, tuple[str, str]]


def generate(seed: int = 1) -> Corpus:
    """Make a corpus in which no sentence of either language occurs twice."""
    rng = Random(seed)
    lexicon = Lexicon(rng)
    splits: dict[str, list[Pair]] = {split: [] for split in SIZES}
    used: set[str] = set()
    renderings: defaultdict[str, Counter[str]] = defaultdict(Counter)
    seen: Counter[str] = Counter()
    for split, pairs in splits.items():
        while len(pairs) < SIZES[split]:
            source, target = make_sentence(rng, lexicon)
            pair = " ".join(source), " ".join(word for word, _ in target)
            rare = split != "train" and any(seen[word] < MIN_SEEN for word in source)
            if rare or used.intersection(pair):
                continue
            if split == "train":
                seen.update(source)
                for rendering, word in target:
                    renderings[word][rendering] += 1
            used.update(pair)
            pairs.append(pair)
    words = [*lexicon.double_nouns, *lexicon.verbs, *lexicon.adjectives]
    return Corpus(
        **splits,
        dictionary={w: max(renderings[w], key=renderings[w].__getitem__, default="") for w in seen},
        homonyms={w.source: (w.living, w.lifeless) for w in words if w.living != w.lifeless},
    )


def write(corpus: Corpus, out_dir: Path) -> None:
    """Write ``{train,dev,test}.{xx,yy}``, each complete or not at all."""
    out_dir.mkdir(parents=True, exist_ok=True)
    for split in SIZES:
        for side, language in enumerate(("xx", "yy")):
            path = out_dir / f"{split}.{language}"
            temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
            text = "".join(pair[side] + "\n" for pair in getattr(corpus, split))
            try:
                temporary.write_bytes(text.encode())
                temporary.replace(path)
            finally:
                temporary.unlink(missing_ok=True)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Write a corpus in two made-up languages.")
    parser.add_argument("out_dir", type=Path, metavar="OUT_DIR", help="made if missing")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="default: 1")
    args = parser.parse_args()
    try:
        write(generate(args.seed), args.out_dir)
    except OSError as error:
        print(f"generate.py: cannot write to {args.out_dir}: {error.strerror}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
