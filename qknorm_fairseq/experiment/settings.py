"""Pairs, arms and profiles: data in ``configs/``, resolved here into fairseq options."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import yaml

from qknorm_fairseq.experiment.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = ROOT / "configs"

# fairseq-train options, spelled as on its command line without the dashes;
# True stands for a flag without a value, False for its --no- form
Options = dict[str, Any]


@dataclass(frozen=True)
class Pair:
    """A language pair: its text, its BPE, and what each profile needs to know of it."""

    name: str
    source: str
    target: str
    merges: int  # joint BPE merges
    default_profile: str | None = None
    generator: str | None = None  # a script that makes the corpus, in place of a download
    options: Options = field(default_factory=dict)
    profiles: dict[str, Options] = field(default_factory=dict)
    paper: dict[str, float] = field(default_factory=dict)  # arm -> published test BLEU


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
    "source": (_is_text, 'a language code, in quotes where YAML reads another thing ("no")'),
    "target": (_is_text, 'a language code, in quotes where YAML reads another thing ("no")'),
    "arch": (_is_text, "the name of an architecture"),
    "merges": (_is_count, "a whole number above 0"),
    "beam": (_is_count, "a whole number above 0"),
    "options": (_is_mapping_of(object), "a mapping of options to values"),
    "profiles": (_is_mapping_of(dict), "a mapping of profiles to mappings of options"),
    "paper": (_is_mapping_of((int, float)), "a mapping of arms to numbers"),
}

Setting = TypeVar("Setting", Pair, Arm, Profile)


def _load(kind: type[Setting], folder: str, name: str) -> Setting:
    path = CONFIGS / folder / f"{name}.yaml"
    known = sorted(p.stem for p in (CONFIGS / folder).glob("*.yaml"))
    if name not in known:
        what = kind.__name__.lower()
        raise UserError(f"unknown {what} {name!r}; known: {', '.join(known)}; or add {path}")
    try:
        values = yaml.safe_load(path.read_text("utf-8"))
        given = {key: value for key, value in values.items() if value is not None}
        setting = kind(name=name, **given)
    except (AttributeError, TypeError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError(f"{path}: {' '.join(str(error).split())}; mend that file") from error
    for key, (right, what) in RIGHT.items():
        value = getattr(setting, key, None)
        if value is not None and not right(value):
            raise UserError(f"{path}: {key} is {value!r}, but must be {what}; mend that file")
    return setting


def load_pair(name: str) -> Pair:
    """The pair called ``name``; UserError when there is none."""
    return _load(Pair, "pairs", name)


def load_arm(name: str) -> Arm:
    """The arm called ``name``; UserError when there is none."""
    return _load(Arm, "arms", name)


def load_profile(name: str) -> Profile:
    """The profile called ``name``; UserError when there is none."""
    return _load(Profile, "profiles", name)


def resolve_options(pair: Pair, arm: Arm, profile: Profile) -> Options:
    """All options of a run; what is more particular wins: profile, pair, arm."""
    return {
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
