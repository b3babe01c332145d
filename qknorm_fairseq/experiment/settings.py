"""Pairs, arms and profiles: data in ``configs/``, resolved here into fairseq options."""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import yaml

from qknorm_fairseq.experiment.errors import UserError
from qknorm_fairseq.experiment.recipe import CHOICES, Recipe

PACKAGE = Path(__file__).resolve().parents[1]
# an installed package carries configs/ and data/toy/ within it, a checkout beside it
ROOT = PACKAGE if (PACKAGE / "configs").is_dir() else PACKAGE.parent
CONFIGS = ROOT / "configs"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
DOWNLOADS = CACHE / "qknorm_fairseq" if ROOT == PACKAGE else ROOT / "data"

# fairseq-train options, spelled as on its command line without the dashes;
# True stands for a flag without a value, False for its --no- form
Options = dict[str, Any]

SCALE_LENGTH = "qk-scale-length"  # L
PAIR_CHOICES = ("source", "target", "merges")  # those that every pair makes
# choices that decide into how many pieces a sentence is cut
LENGTHS_HANG_ON = (*PAIR_CHOICES, "text", "bpe", "vocabulary_threshold", "bpe_dropout")
MEASURED = "auto"  # in place of L: what preparing the data finds

SUFFIXES = (".yaml", ".yml")  # of a file of settings that is named by its path


@dataclass(frozen=True)
class Pair:
    """A language pair: its text, how it is prepared, and what each profile needs to know of it."""

    name: str
    source: str
    target: str
    merges: int
    preparation: dict[str, Any] = field(default_factory=dict)  # further choices of the recipe
    corpus: str | None = None  # a file in configs/corpora, from which the text is fetched
    default_profile: str | None = None
    generator: str | None = None  # a script that makes the corpus, in place of a download
    options: Options = field(default_factory=dict)
    profiles: dict[str, Options] = field(default_factory=dict)
    paper: dict[str, float] = field(default_factory=dict)  # arm -> published test BLEU

    @property
    def recipe(self) -> Recipe:
        """How the pair is prepared; UserError for a choice that makes no sense."""
        choices = {str(name).replace("-", "_"): value for name, value in self.preparation.items()}
        possible = [name for name in CHOICES if name not in PAIR_CHOICES]
        unknown = sorted(set(choices) - set(possible))
        if unknown:
            known = ", ".join(name.replace("_", "-") for name in possible)
            raise UserError(f"preparation: unknown {', '.join(unknown)}; known: {known}")
        return Recipe(self.source, self.target, self.merges, **choices)

    def prepared_by(self, choices: dict[str, Any]) -> "Pair":
        """The pair with these choices of the recipe in place of its own.

        L is measured anew where sentences are not cut into the same pieces as before, and what
        was published of two languages is not of two others.
        """
        own = {name: value for name, value in choices.items() if name in PAIR_CHOICES}
        others = {name: value for name, value in choices.items() if name not in PAIR_CHOICES}
        mine = {str(name).replace("-", "_"): value for name, value in self.preparation.items()}
        pair = replace(self, **own, preparation={**mine, **others})
        before, now = self.recipe.record(), pair.recipe.record()
        if any(before.get(name) != now.get(name) for name in LENGTHS_HANG_ON):
            options = {name: value for name, value in self.options.items() if name != SCALE_LENGTH}
            pair = replace(pair, options=options)
        if (pair.source, pair.target) != (self.source, self.target):
            pair = replace(pair, paper={})
        return pair


@dataclass(frozen=True)
class Arm:
    """One system of the comparison: an architecture and the options that differ."""

    name: str
    arch: str
    description: str
    options: Options = field(default_factory=dict)


@dataclass(frozen=True)
class Profile:
    """How much is spent: sizes, schedule, decoding."""

    name: str
    description: str
    options: Options
    beam: int
    minutes: dict[str, float] = field(default_factory=dict)  # pair -> measured, an arm


def _is_mapping_of(kind: type | tuple[type, ...]) -> Callable[[Any], bool]:
    return lambda value: (
        isinstance(value, dict) and all(isinstance(item, kind) for item in value.values())
    )


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and value > 0


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


# key of a settings file -> what is right for it, and how to say so
RIGHT: dict[str, tuple[Callable[[Any], bool], str]] = {
    "arch": (_is_text, "the name of an architecture"),
    "corpus": (_is_text, "the name of a corpus"),
    "preparation": (_is_mapping_of(object), "a mapping of choices to values"),
    "beam": (_is_count, "a whole number above 0"),
    "options": (
        _is_mapping_of((str, int, float, type(None))),
        "a mapping of options to numbers, words, true or false",
    ),
    "profiles": (_is_mapping_of(dict), "a mapping of profiles to mappings of options"),
    "paper": (_is_mapping_of((int, float)), "a mapping of arms to numbers"),
}

Setting = TypeVar("Setting")


def known_names(folder: str) -> list[str]:
    """The settings of a kind that there are, by the folder of ``configs/`` they lie in."""
    return sorted(path.stem for path in (CONFIGS / folder).glob("*.yaml"))


def load(kind: Callable[..., Setting], folder: str, name: str) -> Setting:
    """The settings called ``name`` in a folder of ``configs/``, or in a YAML file of any place.

    Raises:
        UserError: when there are none, or they are not right.
    """
    path = CONFIGS / folder / f"{name}.yaml"
    known = known_names(folder)
    if name.endswith(SUFFIXES):  # a file of the user's own
        path = Path(name)
        if not path.is_file():
            raise UserError(f"{path}: no such file")
    elif name not in known:
        what = {"corpora": "corpus"}.get(folder, folder.removesuffix("s"))
        raise UserError(f"unknown {what} {name!r}; known: {', '.join(known)}; or add {path}")
    try:
        values = yaml.safe_load(path.read_text("utf-8"))
        given = {key: value for key, value in values.items() if value is not None}
        setting = kind(name=path.stem, **given)
    except (AttributeError, TypeError, UnicodeDecodeError, yaml.YAMLError) as error:
        what = re.sub(r"^\w+\.__init__\(\) ", "", " ".join(str(error).split()))
        raise UserError(f"{path}: {what}; mend that file") from error
    for key, (right, what) in RIGHT.items():
        value = getattr(setting, key, None)
        if value is not None and not right(value):
            raise UserError(f"{path}: {key} is {value!r}, but must be {what}; mend that file")
    return setting


def load_pair(name: str) -> Pair:
    """The pair called ``name``; UserError when there is none, or its recipe makes no sense."""
    pair = load(Pair, "pairs", name)
    try:
        _ = pair.recipe
    except UserError as error:
        path = name if name.endswith(SUFFIXES) else CONFIGS / "pairs" / f"{name}.yaml"
        raise UserError(f"{path}: {error}; mend that file") from error
    return pair


def load_arm(name: str) -> Arm:
    """The arm called ``name``; UserError when there is none."""
    return load(Arm, "arms", name)


def load_profile(name: str) -> Profile:
    """The profile called ``name``; UserError when there is none."""
    return load(Profile, "profiles", name)


def resolve_options(pair: Pair, arm: Arm, profile: Profile) -> Options:
    """All options of a run; what is more particular wins: profile, pair, arm.

    A pair that says nothing of L has it measured.
    """
    return {
        SCALE_LENGTH: MEASURED,
        **profile.options,
        **pair.options,
        **pair.profiles.get(profile.name, {}),
        "arch": arm.arch,
        **arm.options,
    }


def as_arguments(options: Options) -> list[str]:
    """Options as words of a command line."""
    words: list[str] = []
    for name, value in options.items():
        if value is True:
            words.append(f"--{name}")
        elif value is False:
            words.append(f"--no-{name}")
        elif value is not None:
            words += [f"--{name}", str(value)]
    return words
