"""``metrics.jsonl``: a row a validation."""

import json
from pathlib import Path
from typing import Any

from qknorm_fairseq.experiment.errors import UserError

Row = dict[str, Any]


def read_metrics(folder: Path) -> list[Row]:
    """The rows of a run folder, none before the first validation.

    Raises:
        UserError: when something else stands there.
    """
    path = folder / "metrics.jsonl"
    try:
        return [json.loads(row) for row in path.read_text().splitlines()] if path.exists() else []
    except ValueError as error:
        raise UserError(f"{path}: broken; restore it, or remove {folder}") from error


def best_row(rows: list[Row]) -> Row:
    """The row of the best checkpoint: fairseq keeps the latest of equals."""
    return max(rows, key=lambda row: (row["dev_bleu"], row["update"]))
