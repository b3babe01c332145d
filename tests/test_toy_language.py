"""The toy language pair is reproducible, consistent, and no cipher."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import pytest
import sacrebleu

TOY = Path(__file__).resolve().parents[1] / "data" / "toy"
SCRIPT = TOY / "generate.py"
SEEDS = (1, 2, 3)
DIGEST = "61315b128a6c5bfe49d64de47340045e5dabd37eb3393ebf4b2853dc87612d25"


def load() -> ModuleType:
    """Import the generator, which is a script and not part of a package."""
    spec = importlib.util.spec_from_file_location("toy_language", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


toy = load()


@pytest.fixture(scope="module", params=SEEDS)
def seed(request: pytest.FixtureRequest) -> int:
    """Return each seed in turn."""
    return int(request.param)


@pytest.fixture(scope="module")
def corpus(seed: int) -> Any:
    """Return the corpus of a seed."""
    return toy.generate(seed)


@pytest.fixture(scope="module")
def lexicon(seed: int) -> Any:
    """Return the words of a seed."""
    return toy.Lexicon(Random(seed))


def bleu(hypotheses: list[str], references: list[str]) -> float:
    """Return corpus BLEU with the 13a tokeniser."""
    return float(sacrebleu.corpus_bleu(hypotheses, [references], tokenize="13a", force=True).score)


def stem(target: str) -> str:
    """Return what a target word begins with: its stem, as far as that tells it apart."""
    return target[:2] if target[0] in toy.VOWELS else target[:3]


def run(*args: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the script."""
    command = [sys.executable, str(SCRIPT), *map(str, args)]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )


def test_same_seed_same_corpus(corpus: Any, seed: int) -> None:
    assert toy.generate(seed) == corpus
    assert toy.generate(seed + 1) != corpus


def test_corpus_never_drifts() -> None:
    """Fails on a Python that draws otherwise, and when a change alters the language."""
    corpus = toy.generate()
    text = repr([corpus.train, corpus.dev, corpus.test])
    assert hashlib.sha256(text.encode()).hexdigest() == DIGEST


def test_sizes_and_lengths(corpus: Any) -> None:
    assert [len(corpus.train), len(corpus.dev), len(corpus.test)] == [3000, 200, 200]
    lengths = [len(source.split()) for source, _ in corpus.train]
    assert min(lengths) >= 4
    assert max(lengths) <= 16
    assert 9 < sum(lengths) / len(lengths) < 13


def test_no_sentence_twice(corpus: Any) -> None:
    pairs = [*corpus.train, *corpus.dev, *corpus.test]
    sources, targets = zip(*pairs, strict=True)
    assert len(set(sources)) == len(set(targets)) == len(pairs)
    assert not set(sources) & set(targets)


def test_training_shows_every_word(corpus: Any) -> None:
    sources = Counter(word for source, _ in corpus.train for word in source.split())
    stems = Counter(stem(word) for _, target in corpus.train for word in target.split())
    for source, target in [*corpus.dev, *corpus.test]:
        assert min(sources[word] for word in source.split()) >= 5
        assert min(stems[stem(word)] for word in target.split()) >= 5


def test_not_a_cipher(corpus: Any) -> None:
    sources, references = map(list, zip(*corpus.test, strict=True))
    translations = [
        " ".join(filter(None, (corpus.dictionary[word] for word in source.split())))
        for source in sources
    ]
    assert bleu(references, references) == pytest.approx(100)
    assert bleu(translations, references) < 30
    assert bleu(sources, references) < 5


def test_dictionary_is_right(corpus: Any) -> None:
    """The low BLEU of word by word is no fault of the dictionary's: it knows the stems."""
    found = total = 0
    for source, target in corpus.test:
        known = Counter(stem(y) for y in map(corpus.dictionary.get, source.split()) if y)
        needed = Counter(map(stem, target.split()))
        found += sum((known & needed).values())
        total += sum(needed.values())
    assert found / total > 0.9


def test_source_decides_target(lexicon: Any) -> None:
    """With hardly any words, sentences recur by thousands: one source, one target."""
    few = toy.Lexicon(Random(0))
    few.nouns = [lexicon.nouns[0], lexicon.nouns[-1]]
    few.double_nouns = lexicon.double_nouns[:1]
    few.verbs = lexicon.verbs[::9]
    few.adjectives = lexicon.adjectives[-1:]
    few.adverbs = lexicon.adverbs[:1]
    few.article, few.determiners = lexicon.article, lexicon.determiners[:1]
    few.numerals = lexicon.numerals[:1]
    few.prepositions, few.tenses = lexicon.prepositions[:1], lexicon.tenses[:2]
    rng = Random(1)
    targets: dict[str, str] = {}
    recurred = 0
    for _ in range(20_000):
        words, aligned = toy.make_sentence(rng, few)
        source, target = " ".join(words), " ".join(word for word, _ in aligned)
        recurred += source in targets
        assert targets.setdefault(source, target) == target
    assert recurred > 2000


def test_homonyms_follow_their_context(corpus: Any, lexicon: Any) -> None:
    """Read the context off the source and its translation alone."""
    nouns = {noun.source for noun in lexicon.double_nouns}
    verbs = {verb.source for verb in lexicon.verbs}
    handling = {verb.source for verb in lexicon.verbs if verb.handles}
    modifiers = {word.source for word in (*lexicon.adjectives, *lexicon.numerals)}
    modifiers |= {word.source for word in (lexicon.article, *lexicon.determiners)}
    seen: Counter[str] = Counter()
    for source, target in corpus.train:
        words = [word.removesuffix(toy.XX_PLURAL) for word in source.split()]
        for place, word in enumerate(words):
            if word not in corpus.homonyms or words.count(word) > 1:
                continue
            living, lifeless = corpus.homonyms[word]
            (translation,) = [y for y in target.split() if y.startswith((living, lifeless))]
            if word in nouns:  # a thing as the object of a verb of handling, and nowhere else
                before = [x for x in words[:place] if x not in modifiers]
                right = lifeless if before and before[-1] in handling else living
            elif word in verbs and toy.WHO in words:
                continue  # two verbs, and maybe two objects
            elif word in verbs:
                (vowel,) = set(re.findall(r"([ao])(?:ri)?n\b", target))
                right = living if vowel == "a" else lifeless
            else:
                vowel = translation[3]
                right = living if vowel == "a" else lifeless
            assert translation.startswith(right)
            seen[right] += 1
    assert len(corpus.homonyms) == 15
    assert all(seen[right] >= 10 for pair in corpus.homonyms.values() for right in pair)


def shuffled(rng: Random, phrases: list[Any]) -> list[Any]:
    """Deal the nouns, numbers, adjectives and determiners of some phrases out anew."""

    def deal(*names: str) -> list[dict[str, Any]]:
        parts = [{name: getattr(phrase, name) for name in names} for phrase in phrases]
        return rng.sample(parts, len(parts))

    hands = (deal("noun", "living"), deal("plural", "numeral"), deal("adjective", "determiner"))
    return [
        replace(phrase, **nouns, **numbers, **modifiers)
        for phrase, nouns, numbers, modifiers in zip(phrases, *hands, strict=True)
    ]


def test_bag_of_words_does_not_translate(lexicon: Any, seed: int) -> None:
    """Nor for one who knows each word and the sentence's shape, but not what goes where."""
    rng = Random(seed)
    references: list[str] = []
    guesses: list[str] = []
    while len(references) < 300:
        subject = toy.make_phrase(rng, lexicon, 0.0)
        clause = toy.make_clause(rng, lexicon)
        phrases = [subject, *(phrase for _, _, phrase in clause.complements)]
        if any(phrase.relative for phrase in phrases):
            continue
        new_subject, *rest = shuffled(rng, phrases)
        complements = [
            (*complement[:2], phrase)
            for complement, phrase in zip(clause.complements, rest, strict=True)
        ]
        new_clause = replace(clause, complements=tuple(complements))
        for texts, who, what in (
            (references, subject, clause),
            (guesses, new_subject, new_clause),
        ):
            aligned = who.target(toy.NOMINATIVE) + what.target(who.agreement)
            texts.append(" ".join([*(word for word, _ in aligned), "."]))
    assert bleu(guesses, references) < 30


def test_word_order_differs(corpus: Any, lexicon: Any) -> None:
    """The verb closes each target sentence, and never a source sentence with an object."""
    stems = tuple(x for verb in lexicon.verbs for x in (verb.living, verb.lifeless))
    transitive = {verb.source for verb in lexicon.verbs if verb.takes_object}
    for source, target in corpus.train:
        assert target.split()[-2].startswith(stems)
        assert source.split()[-2] not in transitive


def test_writes_what_it_generates(tmp_path: Path) -> None:
    out = tmp_path / "new" / "toy"
    done = run(out, "--seed", 2, PYTHONHASHSEED="7")
    assert (done.returncode, done.stderr) == (0, "")
    corpus = toy.generate(2)
    written = {path.name: path.read_bytes().decode() for path in out.iterdir()}
    assert written == {
        f"{split}.{language}": "".join(pair[side] + "\n" for pair in getattr(corpus, split))
        for split in ("train", "dev", "test")
        for side, language in enumerate(("xx", "yy"))
    }


@pytest.mark.parametrize("blocked", ["folder", "file"])
def test_refuses_what_it_cannot_write(tmp_path: Path, blocked: str) -> None:
    if blocked == "folder":
        (tmp_path / "toy").touch()
    else:
        (tmp_path / "toy" / "train.xx").mkdir(parents=True)
    done = run(tmp_path / "toy")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert str(tmp_path / "toy") in done.stderr
    assert not list(tmp_path.rglob("*.tmp"))


def test_examples_of_the_readme() -> None:
    """Each example is a pair of the training set, once the glosses are taken out."""
    train = dict(toy.generate().train)
    lines = (TOY / "README.md").read_text(encoding="utf-8").splitlines()
    quoted = [" ".join(line.split()) for line in lines if line.startswith("    ")]
    sources = [line for line in quoted if line in train]
    assert len(sources) == 4
    targets = {line.replace("-", "") for line in quoted}
    assert all(train[source] in targets for source in sources)
