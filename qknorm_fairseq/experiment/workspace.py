"""Where everything lies under the output folder, and how files get there whole."""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from qknorm_fairseq.experiment.errors import UserError


@dataclass(frozen=True)
class Workspace:
    """The output folder: ``data/PAIR``, ``runs/PAIR/ARM/seedN``, ``results/PAIR.*``."""

    root: Path

    def data(self, pair: str) -> Path:
        return self.root / "data" / pair

    def data_lock(self, pair: str) -> Path:
        """What one owns to replace the data of a pair, or shares to read them."""
        return self.root / "data" / f".{pair}.lock"

    def run(self, pair: str, arm: str, seed: int) -> Path:
        return self.root / "runs" / pair / arm / f"seed{seed}"

    def runs_on_other_data(self, pair: str, fingerprint: str) -> list[Path]:
        """Folders of begun runs whose data are not those of ``fingerprint``."""
        configs = sorted((self.root / "runs" / pair).glob("*/seed*/config.yaml"))
        return [
            path.parent
            for path in configs
            if read_mapping(path, yaml.safe_load).get("data") != fingerprint
        ]

    def result(self, pair: str, suffix: str) -> Path:
        return self.root / "results" / f"{pair}.{suffix}"


def read_mapping(path: Path, parse: Callable[[str], Any] = json.loads) -> dict[str, Any]:
    """A mapping that this program has written, as JSON or by ``parse``.

    Raises:
        UserError: when something else stands there now.
    """
    try:
        value = parse(path.read_text("utf-8"))
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise broken(path) from error
    if not isinstance(value, dict):
        raise broken(path)
    return value


def broken(path: Path) -> UserError:
    """What to say of a file that is not what this program wrote there."""
    return UserError(f"{path}: broken; restore it, or remove {path.parent}")


def is_number(value: Any) -> bool:
    """Whether something that was read is a number, and a finite one of usual size."""
    return type(value) in (int, float) and abs(value) < 1e15


def sha256(path: Path) -> str:
    """Hex digest of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fingerprint(value: Any) -> str:
    """Short digest of anything that JSON can hold."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def write_text(path: Path, text: str) -> None:
    """Write a file aside and rename it, so that it is there whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        aside.write_bytes(text.encode("utf-8"))
        os.replace(aside, path)
    except OSError as error:  # a full disk is not said with a name
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        aside.unlink(missing_ok=True)


def write_lines(path: Path, lines: list[str]) -> None:
    """A line each, ended by a line feed."""
    write_text(path, "".join(f"{line}\n" for line in lines))


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """A folder to fill, which takes the name ``path`` only when the block ends well.

    One process at a time may do so.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    left = re.compile(rf"\.{re.escape(path.name)}\.\d+\.(new|old)")
    for other in path.parent.iterdir():  # of processes that were killed
        if left.fullmatch(other.name):
            if other.suffix == ".old" and not path.exists():  # in the middle of the exchange
                os.replace(other, path)
            shutil.rmtree(other, ignore_errors=True)
    aside, old = (path.with_name(f".{path.name}.{os.getpid()}.{name}") for name in ("new", "old"))
    aside.mkdir()
    try:
        yield aside
        if path.exists():
            os.replace(path, old)
        os.replace(aside, path)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
