"""What a training turned out to be: the model's size, and every option as fairseq resolved it."""

import re
from enum import Enum
from pathlib import Path
from typing import Any

PARAMETERS = re.compile(r"num\. shared model params: ([\d,]+)")
GROUPS = ("common", "dataset", "optimization", "checkpoint")
PLACES = {"data", "save_dir", "restore_file", "metrics_file", "user_dir", "plasma_path"}
# each a choice that brings options along, and the option of fairseq-train that makes it
CHOICES = {name: name for name in ("task", "criterion", "optimizer", "lr_scheduler")}
CHOICES["model"] = "arch"


def outcome(checkpoint: Path, log: Path) -> dict[str, Any]:
    """Of a trained run: ``parameters``, and ``options`` as they stand in its checkpoint.

    fairseq fills in its own defaults and the architecture's; what was given on the command line
    is the smaller part.
    """
    import torch  # slow to import

    config = torch.load(checkpoint, map_location="cpu", mmap=True, weights_only=True)["cfg"]
    found = PARAMETERS.search(log.read_text("utf-8", errors="replace")) if log.exists() else None
    return {
        "parameters": int(found[1].replace(",", "")) if found else None,
        "options": resolved(config),
    }


def resolved(config: dict[str, Any]) -> dict[str, Any]:
    """A checkpoint's configuration as one mapping, without where files lie."""
    options: dict[str, Any] = {}
    for group in (*GROUPS, *CHOICES):
        values = dict(config[group])
        name = values.pop("_name", None)
        options.update(values)
        if group in CHOICES:
            options[CHOICES[group]] = name
    return {name: _plain(value) for name, value in sorted(options.items()) if name not in PLACES}


def _plain(value: Any) -> Any:
    """As JSON holds it."""
    if isinstance(value, Enum):
        return str(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
