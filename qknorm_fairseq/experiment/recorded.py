"""Runs as their folders tell of them: what tables are made of, and made again from."""

import os
import re
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import yaml

from qknorm_fairseq.experiment.errors import UserError
from qknorm_fairseq.experiment.metrics import Row, best_row, read_metrics
from qknorm_fairseq.experiment.protocols import PROTOCOLS, LineStatistics, Scores
from qknorm_fairseq.experiment.settings import Options
from qknorm_fairseq.experiment.workspace import (
    Workspace,
    broken,
    is_number,
    read_mapping,
    write_json,
)

SCORES, STATISTICS = "scores.json", "line_statistics.npz"
# What numpy and zipfile raise for a file that is not, or no longer, an archive of arrays. A changed
# byte may also make an entry seem encrypted (RuntimeError) or packed in a way that Python does not
# know (NotImplementedError, which is one): that too is a broken file, and no fault of this program.
UNREADABLE = (
    *(ValueError, TypeError, KeyError, IndexError, AttributeError, OSError, EOFError),
    *(zlib.error, BadZipFile, RuntimeError),
)
SEED_FOLDER = re.compile(r"seed(0|[1-9]\d*)")
Config = dict[str, Any]


@dataclass(frozen=True)
class RecordedRun:
    """A run that was trained, translated and scored."""

    folder: Path
    config: Config  # config.yaml
    finished: dict[str, Any]  # finished.json
    metrics: list[Row]  # metrics.jsonl
    scores: Scores
    lines: int  # of the test set
    statistics: LineStatistics | None  # None where they were not kept

    @property
    def arm(self) -> str:
        return self.folder.parent.name

    @property
    def seed(self) -> int:
        return seed_of(self.folder)

    @property
    def name(self) -> str:
        return f"{self.arm} seed {self.seed}"

    @property
    def precision(self) -> str:
        return precision_of(self.config)

    @property
    def best(self) -> Row:
        """The row of the best checkpoint."""
        return best_row(self.metrics)

    @property
    def resolved(self) -> Options | None:
        """All options as fairseq resolved them, its defaults and the architecture's included.

        None where the folder does not tell.
        """
        return self.finished.get("options")


def precision_of(config: Config) -> str:
    """The precision of a run, from its ``config.yaml``."""
    return next((name for name in ("fp16", "bf16") if config["options"].get(name)), "fp32")


def read_config(folder: Path) -> Config:
    """A run's ``config.yaml``.

    Raises:
        UserError: when it is broken.
    """
    path = folder / "config.yaml"
    config = read_mapping(path, yaml.safe_load)
    options, environment = config.get("options"), config.get("environment", {})
    sound = isinstance(options, dict) and all(isinstance(name, str) for name in options)
    if not (sound and isinstance(environment, dict) and {"profile", "data"} <= set(config)):
        raise broken(path)
    return config


def seed_of(folder: Path) -> int:
    return int(folder.name.removeprefix("seed"))


def seed_folders(workspace: Workspace, pair: str) -> list[Path]:
    """Folders of a pair's runs, in order of arms and seeds."""
    folders = (workspace.root / "runs" / pair).glob("*/seed*/")
    runs = [folder for folder in folders if SEED_FOLDER.fullmatch(folder.name)]
    return sorted(runs, key=lambda folder: (folder.parent.name, seed_of(folder)))


def run_folders(
    workspace: Workspace, pair: str, profile: str | None = None, precision: str | None = None
) -> list[Path]:
    """Those of runs that were begun, and of a profile and a precision where they are named."""

    def is_meant(folder: Path) -> bool:
        if not (folder / "config.yaml").exists():
            return False
        config = read_config(folder)
        return profile in (None, config["profile"]) and precision in (None, precision_of(config))

    return [folder for folder in seed_folders(workspace, pair) if is_meant(folder)]


def write_scores(folder: Path, scores: Scores, statistics: LineStatistics, lines: int) -> None:
    """Keep a run's scores, and beside them the counts of each line."""
    counts: dict[str, Any] = {name: rows.astype(np.int32) for name, rows in statistics.items()}
    aside = folder / f".{os.getpid()}.{STATISTICS}"  # savez appends .npz to any other name
    try:
        np.savez_compressed(aside, **counts)
        aside.replace(folder / STATISTICS)
    finally:
        aside.unlink(missing_ok=True)
    write_json(folder / SCORES, {**scores, "lines": lines})


def read_run(folder: Path) -> RecordedRun:
    """The scored run that lies in ``folder``.

    Raises:
        UserError: when a file of it is broken.
    """
    scores, lines = _read_scores(folder / SCORES)
    rows = read_metrics(folder)
    if not rows:
        raise broken(folder / "metrics.jsonl")
    return RecordedRun(
        folder=folder,
        config=read_config(folder),
        finished=_read_finished(folder / "finished.json"),
        metrics=rows,
        scores=scores,
        lines=lines,
        statistics=_read_statistics(folder / STATISTICS, scores, lines),
    )


def _read_scores(path: Path) -> tuple[Scores, int]:
    scores = read_mapping(path)
    lines = scores.pop("lines", None)
    sound = scores.keys() == PROTOCOLS.keys() and is_number(lines)
    for value in scores.values():
        sound = sound and isinstance(value, dict) and is_number(value.get("score"))
        sound = sound and isinstance(value.get("signature"), str)
    if not sound:
        raise UserError(f"{path}: broken; restore it, or remove it to leave the run out")
    return scores, lines


def _read_finished(path: Path) -> dict[str, Any]:
    finished = read_mapping(path) if path.exists() else {}
    size = finished.get("parameters")
    if not isinstance(finished.get("options", {}), dict) or not (size is None or is_number(size)):
        raise broken(path)
    return finished


def _read_statistics(path: Path, scores: Scores, lines: int) -> LineStatistics | None:
    """The counts, if they are there; UserError where they are not those of the scores."""
    if not path.exists():
        return None
    try:
        with np.load(path) as file:
            statistics = {name: file[name] for name in PROTOCOLS}
        for name, rows in statistics.items():
            if rows.ndim != 2 or rows.dtype != np.int32 or len(rows) != lines:
                raise ValueError(name)
            statistics[name] = rows.astype(np.int64)
            score = PROTOCOLS[name].metric()._compute_score_from_stats(rows.sum(0)).score
            if not abs(score - scores[name]["score"]) <= 1e-4:
                raise ValueError(name)
    except UNREADABLE as error:
        raise UserError(
            f"{path}: not the counts of {SCORES} beside it; score the run again, or remove it"
        ) from error
    return statistics


def lost_config(folder: Path) -> bool:
    """Whether a run was trained here and can no longer be told by its settings."""
    left = (folder / name for name in (SCORES, "metrics.jsonl", "checkpoints"))
    return not (folder / "config.yaml").exists() and any(path.exists() for path in left)


def missing(folder: Path) -> str | None:
    """What a run still lacks for the table, or None."""
    if not (folder / "config.yaml").exists():
        return "its config.yaml is missing" if lost_config(folder) else "not begun"
    if (folder / SCORES).exists():
        return None
    if not list((folder / "checkpoints").glob("*.pt")):
        return "never reached a checkpoint"
    if not (folder / "finished.json").exists():
        rows = read_metrics(folder)
        last = rows[-1]["update"] if rows else 0
        return f"not trained to its end, last validated after update {last:,}"
    return "trained, not translated"


def forget_results(folder: Path) -> None:
    """Remove what was found with a model that is now trained on: it is no longer this run's."""
    stale = [SCORES, STATISTICS, "finished.json", "test.done", "test.hyp.txt"]
    for name in [*stale, "test.hyp.detok.txt"]:
        (folder / name).unlink(missing_ok=True)
