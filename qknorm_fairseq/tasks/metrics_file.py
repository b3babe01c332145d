"""One JSON row a validation, in a file that tools can read while training runs."""

import json
import os
import time
from pathlib import Path
from typing import Any

from fairseq.logging import metrics


class MetricsFile:
    """``metrics.jsonl``: a row for each validation, none twice.

    Rows hold ``update``, ``epoch``, ``lr``, ``train_loss`` and ``gnorm`` (means since the
    epoch began), ``dev_loss`` (losses in bits a token, label smoothing included),
    ``dev_bleu``, ``dev_lines`` and ``elapsed`` (seconds, over all resumes).
    """

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self.since = time.monotonic()

    def write(self, stats: dict[str, Any], epoch: int, dev_lines: int | None) -> None:
        """Add the row of a validation, in place of rows from there on (a resumed run's)."""
        kept = [old for old in self.rows() if old["update"] < stats["num_updates"]]
        now = time.monotonic()
        elapsed = (kept[-1]["elapsed"] if kept else 0.0) + now - self.since
        self.since = now
        row = {**self._row(stats, epoch, dev_lines), "elapsed": round(elapsed, 1)}
        text = "".join(json.dumps(r) + "\n" for r in [*kept, row])
        aside = self.path.with_suffix(".tmp")
        aside.write_text(text, encoding="utf-8")
        os.replace(aside, self.path)

    def rows(self) -> list[dict[str, Any]]:
        """The rows written so far."""
        if not self.path.exists():
            return []
        return [json.loads(line) for line in self.path.read_text("utf-8").splitlines()]

    @staticmethod
    def _row(stats: dict[str, Any], epoch: int, dev_lines: int | None) -> dict[str, Any]:
        train = metrics.get_smoothed_values("train")
        return {
            "update": int(stats["num_updates"]),
            "epoch": epoch,
            "lr": train.get("lr"),
            "train_loss": train.get("loss"),
            "dev_loss": float(stats["loss"]),
            "dev_bleu": float(stats["bleu"]) if "bleu" in stats else None,
            "dev_lines": dev_lines,
            "gnorm": train.get("gnorm"),
        }
