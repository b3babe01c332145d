"""Pairs, arms and profiles: data in ``configs/``, resolved here into fairseq options."""

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


Setting = TypeVar("Setting", Pair, Arm, Profile)


def _load(kind: type[Setting], folder: str, name: str) -> Setting:
    path = CONFIGS / folder / f"{name}.yaml"
    known = sorted(p.stem for p in (CONFIGS / folder).glob("*.yaml"))
    if name not in known:
        what = kind.__name__.lower()
        raise UserError(f"unknown {what} {name!r}; known: {', '.join(known)}; or add {path}")
    try:
        return kind(name=name, **yaml.safe_load(path.read_text("utf-8")))
    except (TypeError, yaml.YAMLError) as error:
        raise UserError(f"{path}: {' '.join(str(error).split())}; mend that file") from error


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
