"""What has been prepared under a pair's name, and the pair that goes by that name."""

import re
from pathlib import Path
from typing import Any

from qknorm_fairseq.experiment.errors import UserError
from qknorm_fairseq.experiment.recipe import differences
from qknorm_fairseq.experiment.settings import (
    PAIR_CHOICES,
    SUFFIXES,
    Pair,
    known_names,
    load_pair,
)
from qknorm_fairseq.experiment.workspace import Workspace, read_mapping, sha256

Manifest = dict[str, Any]
NAME = re.compile(r"\w[\w.-]*")


def read_manifest(workspace: Workspace, pair: str) -> Manifest | None:
    """The manifest of a prepared pair, or None."""
    path = workspace.data(pair) / "manifest.json"
    return read_mapping(path) if path.exists() else None


def find_pair(name: str, workspace: Workspace, choices: dict[str, Any]) -> Pair:
    """The pair called ``name``, whether it has a file, was prepared before, or is new.

    Args:
        choices: of the recipe, in place of the pair's own.

    Raises:
        UserError: when it is unknown and the choices do not make one.
    """
    pair = _find(name, workspace, choices).prepared_by(choices)
    if not NAME.fullmatch(pair.name):
        raise UserError(f"pair {pair.name!r}: a name is of letters, digits, dots, dashes and _")
    if ":" in str(workspace.root):
        raise UserError(f"--out {workspace.root}: fairseq splits names at colons; choose another")
    _ = pair.recipe  # raises for choices that make no sense
    return pair


def _find(name: str, workspace: Workspace, choices: dict[str, Any]) -> Pair:
    if name in known_names("pairs") or name.endswith(SUFFIXES):
        return load_pair(name)
    if set(PAIR_CHOICES) <= set(choices):
        return Pair(name, **{choice: choices[choice] for choice in PAIR_CHOICES})
    done = read_manifest(workspace, name) if NAME.fullmatch(name) else None
    if done is None:
        raise UserError(
            f"unknown pair {name!r}; known: {', '.join(known_names('pairs'))}; for another say "
            "--source xx --target yy --merges N, or name a YAML file"
        )
    return pair_of(done, workspace.data(name))


def pair_of(manifest: Manifest, folder: Path) -> Pair:
    """The pair as it was prepared in ``folder``; UserError when the manifest does not say."""
    try:
        return Pair(**manifest["pair"])
    except (KeyError, TypeError) as error:
        raise UserError(
            f"{folder / 'manifest.json'}: broken, or of another version; prepare the pair again "
            "with --source, --target and --merges"
        ) from error


def prepared(pair: Pair, workspace: Workspace) -> Manifest:
    """The manifest of a pair that has been prepared by its recipe, its files as they were.

    Raises:
        UserError: when it has not, or they are not.
    """
    done, folder = read_manifest(workspace, pair.name), workspace.data(pair.name)
    if done is None:
        raise UserError(
            f"{pair.name}: no prepared data in {folder}; say where its text is with --raw-dir DIR"
        )
    changed = differences(done.get("recipe", {}), pair.recipe.record())
    if changed:
        raise UserError(
            f"{folder}: prepared with other settings ({changed}); give the same, or prepare it "
            "anew with --raw-dir DIR"
        )
    for name in changed_files(done, folder):
        raise UserError(
            f"{folder / name}: not what was prepared; prepare it anew with --raw-dir DIR"
        )
    return done


def checksums(folder: Path) -> dict[str, str]:
    """sha256 of all that a training or a score reads of prepared data, by name."""
    names = sorted(
        str(path.relative_to(folder))
        for part in ("raw", "text", "bpe", "bin")
        for path in (folder / part).glob("*")
        if path.is_file() and path.suffix != ".log"
    )
    return {name: sha256(folder / name) for name in names}


def changed_files(manifest: Manifest, folder: Path) -> list[str]:
    """Files of prepared data that are gone, or are not as they were."""
    recorded, found = manifest.get("files", {"manifest.json": ""}), checksums(folder)
    return [name for name, digest in recorded.items() if found.get(name) != digest]
