"""The files in which the released code keeps a model.

``FILE.pth`` is a bare state dict; ``vocab.joint`` has lines of ``type index count``, the four
specials first; ``mask.LANG.npy`` has 1 for each type that may be produced in LANG.
"""

import os
import re
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from fairseq.data import Dictionary
from torch import Tensor

from qknorm_fairseq.experiment.errors import UserError
from qknorm_fairseq.experiment.released import LANGUAGES, Tensors, swap_specials
from qknorm_fairseq.experiment.workspace import write_lines

SPECIALS = ("_PAD_", "_BOS_", "_EOS_", "_UNK_")


def load(path: Path, what: str) -> Any:
    """A file of torch's, read without running anything in it; ``what`` it should be."""
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except Exception as error:  # torch has no one error for what is not its own
        raise UserError(f"{path}: not a {what} that torch can read") from error


def read_params(file: Path) -> Tensors:
    """The parameters in ``FILE.pth``."""
    params = load(file, "state dict")
    if not isinstance(params, dict) or not all(isinstance(p, Tensor) for p in params.values()):
        raise UserError(f"{file}: not a bare state dict of the released code")
    missing = [name for name in ("word_embedding", LANGUAGES) if name not in params]
    if missing:
        raise UserError(f"{file}: missing parameter {missing[0]}")
    for name, value in params.items():
        if not value.is_floating_point() or value.is_meta or value.layout != torch.strided:
            raise UserError(f"{file}: parameter {name} holds no plain floating-point numbers")
    if params["word_embedding"].dim() != 2:
        shape = tuple(params["word_embedding"].shape)
        raise UserError(f"{file}: word_embedding has the shape {shape}, not (types, width)")
    return dict(params)


def read_vocab(path: Path) -> Dictionary:
    """``vocab.joint`` as a dictionary of fairseq's."""
    dictionary = Dictionary()
    for number, line in enumerate(_text(path).removesuffix("\n").split("\n")):
        where = f"{path}, line {number + 1}"
        match = re.fullmatch(r"(\S+)\s+(\d+)(?:\s+(\d+))?", line)
        if not match or int(match[2]) != number:
            raise UserError(f"{where}: «{line}» should be a type, {number} and its count")
        if number < len(SPECIALS):
            if match[1] != SPECIALS[number]:
                raise UserError(f"{where}: {match[1]!r} should be {SPECIALS[number]}")
            continue
        if match[1] in dictionary.indices:
            raise UserError(f"{where}: {match[1]!r} stands there a second time")
        dictionary.add_symbol(match[1], n=int(match[3] or 1))
    return dictionary


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text ({error})") from error


def vocab_lines(dictionary: Dictionary) -> list[str]:
    """The lines of ``vocab.joint``; fairseq keeps no counts of the specials."""
    words = [*SPECIALS, *dictionary.symbols[len(SPECIALS) :]]
    counts = [0] * len(SPECIALS) + dictionary.count[len(SPECIALS) :]
    return [f"{words[i]} {i} {counts[i]}" for i in range(len(words))]


def read_mask(path: Path, types: int) -> Tensor:
    """``mask.LANG.npy`` in fairseq's order, (types,) True where one may be produced."""
    try:
        mask = np.load(path)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except (OSError, EOFError, ValueError, zipfile.BadZipFile) as error:
        raise UserError(f"{path}: not a NumPy array ({error})") from error
    if (
        not isinstance(mask, np.ndarray)
        or mask.shape != (types,)
        or not np.isin(mask, (0, 1)).all()
    ):
        raise UserError(f"{path}: must hold 0 or 1 for each of {types} types")
    if not mask[SPECIALS.index("_EOS_")]:
        raise UserError(f"{path}: forbids _EOS_: no translation would end")
    return swap_specials(torch.from_numpy(mask.astype(bool)))


def language_of(mask: Path) -> str:
    """LANG of ``mask.LANG.npy``."""
    match = re.fullmatch(r"mask\.(.+)\.npy", mask.name)
    if not match:
        raise UserError(f"{mask}: not named mask.LANG.npy; say the language with --target")
    return match[1]


def write(file: Path, target: str, params: Tensors, dictionary: Dictionary, mask: Tensor) -> None:
    """Write the three files: ``file`` and, beside it, the vocabulary and the mask of ``target``.

    Raises:
        UserError: when one of them is there already; then none is written.
    """
    places = [file, file.parent / "vocab.joint", file.parent / f"mask.{target}.npy"]
    if file in places[1:]:
        raise UserError(f"--to {file}: the name of another of the three files; say FILE.pth")
    for place in places:
        if place.exists():
            raise UserError(f"{place}: is there already; give --to another folder")
    file.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=file.parent) as aside:
        made = [Path(aside) / place.name for place in places]
        torch.save(params, made[0])
        write_lines(made[1], vocab_lines(dictionary))
        with made[2].open("wb") as array:
            np.save(array, swap_specials(mask).numpy().astype(np.uint8))
        for whole, place in zip(made, places, strict=True):
            os.replace(whole, place)
