"""``metrics.jsonl``: a row a validation."""

import json
from pathlib import Path
from typing import Any

from qknorm_fairseq.experiment.workspace import broken, is_number

Row = dict[str, Any]
NEEDED = ("update", "dev_bleu", "elapsed")  # of every row, beside what an arm adds


def read_metrics(folder: Path) -> list[Row]:
    """The rows of a run folder, none before the first validation.

    Raises:
        UserError: when something else stands there.
    """
    path = folder / "metrics.jsonl"
    if not path.exists():
        return []
    try:
        rows = [json.loads(row) for row in path.read_text("utf-8").splitlines()]
    except (ValueError, RecursionError) as error:
        raise broken(path) from error
    for row in rows:
        if not (isinstance(row, dict) and all(is_number(row.get(name)) for name in NEEDED)):
            raise broken(path)
    return rows


def best_row(rows: list[Row]) -> Row:
    """The row of the best checkpoint: fairseq keeps the latest of equals."""
    return max(rows, key=lambda row: (row["dev_bleu"], row["update"]))
