"""A file of numbers that the released code computed, and whether it is one."""

import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from qknorm_fairseq.experiment import released
from qknorm_fairseq.experiment.errors import UserError

SPECIALS = {"pad": 0, "bos": 1, "eos": 2, "unk": 3}
INPUTS = ("src", "tgt", "targets", "logit_mask")
LOSSES = ("loss", "nll_loss", "num_words", "opt_loss")  # what every fixture holds
LAYERS = ("num_enc_layers", "num_dec_layers")
FLOATS = (np.float64, np.float32)
SIZES = ("embed_dim", "ff_dim", *LAYERS, "num_heads", "joint_vocab_size")
SWITCHES = ("use_bias", "fix_norm", "pre_act", "mask_logit", "mha_sup", "scnorm")

# options of the released code's config that are of training, or read elsewhere
NOT_OF_THE_MODEL = {
    *("dropout", "att_dropout", "ff_dropout", "word_dropout", "label_smoothing", "mask_logit"),
    *("joint_vocab_size", "lang_vocab_size", "beam_size", "beam_alpha"),
}


@dataclass(frozen=True)
class Fixture:
    """A file of the reference's numbers."""

    path: Path
    meta: dict[str, Any]
    arrays: dict[str, np.ndarray]

    @property
    def config(self) -> dict[str, Any]:
        return self.meta["config"]

    def tensor(self, name: str, dtype: torch.dtype) -> Tensor:
        value = torch.from_numpy(np.array(self.arrays[name]))
        return value.to(dtype) if value.is_floating_point() else value.long()

    def tensors(self, kind: str, dtype: torch.dtype) -> dict[str, Tensor]:
        """All that stands under ``kind/``, by the rest of its name."""
        keys = [key for key in self.arrays if key.startswith(f"{kind}/")]
        return {key.removeprefix(f"{kind}/"): self.tensor(key, dtype) for key in keys}

    def missing_gradients(self) -> list[str]:
        """Parameters without a gradient, where others have one."""
        params, gradients = (
            {key.removeprefix(kind) for key in self.arrays if key.startswith(kind)}
            for kind in ("param/", "grad/")
        )
        return sorted(params - gradients) if gradients else []


def read_fixture(path: Path) -> Fixture:
    """Read a fixture.

    Raises:
        UserError: when it is none, or something in it is missing or unknown.
    """
    try:
        with np.load(path) as file:
            arrays = {name: file[name] for name in file.files}
        meta = json.loads(str(arrays.pop("meta")))
        config = meta["config"]
        options = released.OPTIONS.keys() | released.CHOICES.keys() | NOT_OF_THE_MODEL
        missing = [
            *(f"option {name}" for name in sorted(options - config.keys())),
            *(f"meta.{name}" for name in ("specials", "beam_best") if name not in meta),
            *(f"in/{name}" for name in INPUTS if f"in/{name}" not in arrays),
        ]
    except (OSError, EOFError, KeyError, ValueError, TypeError, zipfile.BadZipFile) as error:
        raise UserError(f"{path}: not a parity fixture ({error})") from error
    wrong = [f"{name} is missing" for name in missing]
    wrong += [f"unknown option {name}" for name in sorted(config.keys() - options)]
    wrong = wrong or _wrong_options(meta) or _wrong_arrays(config, arrays)
    if wrong:
        raise UserError(f"{path}: {wrong[0]}; nothing was compared")
    return Fixture(path, meta, arrays)


def _wrong_options(meta: dict[str, Any]) -> list[str]:
    """What cannot stand in ``meta``, a phrase each."""
    config, wrong = meta["config"], []
    source_row = meta.get("src_lang_idx", 0)
    if meta["specials"] != SPECIALS or config["lang_vocab_size"] != 2:
        wrong.append(f"specials must be {SPECIALS} and languages two")
    if source_row not in (0, 1) or meta.get("tgt_lang_idx", 1 - source_row) != 1 - source_row:
        wrong.append("src_lang_idx and tgt_lang_idx must be 0 and 1, or 1 and 0")
    for name in SIZES:
        if type(config[name]) is not int or config[name] < 1:
            wrong.append(f"option {name} is {config[name]!r}, but must be a whole number above 0")
    for name in SWITCHES:
        if type(config[name]) is not bool:
            wrong.append(f"option {name} is {config[name]!r}, but must be true or false")
    if not isinstance(meta["beam_best"], dict | list) or not meta["beam_best"]:
        wrong.append("beam_best must be a list, or a dictionary by setting")
    for name in ("label_smoothing", "seq_len_threshold"):
        if not isinstance(config[name], int | float):
            wrong.append(f"option {name} is {config[name]!r}, but must be a number")
    return wrong


def _wrong_arrays(config: dict[str, Any], arrays: dict[str, np.ndarray]) -> list[str]:
    """What does not go together, a phrase each."""
    wrong, types = [], config["joint_vocab_size"]
    for name in ("src", "tgt", "targets"):
        tokens = arrays[f"in/{name}"]
        numbers = tokens.dtype.kind in "iu" and tokens.ndim == 2 and tokens.size > 0
        if not numbers or not 0 <= tokens.min() <= tokens.max() < types:
            wrong.append(f"in/{name} must be batch × length of type numbers")
    src, tgt, targets, mask = (arrays[f"in/{name}"].shape for name in INPUTS)
    if tgt != targets or src[:1] != tgt[:1]:
        wrong.append(f"in/src {src}, in/tgt {tgt} and in/targets {targets} are not of one batch")
    if mask != (types,):
        wrong.append(f"in/logit_mask has the shape {mask}, not ({types},)")
    elif not np.isin(arrays["in/logit_mask"], (0, 1)).all():
        wrong.append("in/logit_mask must hold 0 or 1")
    wrong += [
        f"{key} holds {array.dtype}, not floats"
        for key, array in arrays.items()
        if key.startswith(("param/", "grad/", "out/")) and array.dtype not in FLOATS
    ]
    wrong += [f"out/{name} is missing" for name in LOSSES if f"out/{name}" not in arrays]
    return wrong
