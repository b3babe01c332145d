"""Runs as their folders tell of them: what tables are made of, and made again from."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import yaml

from qknorm_fairseq.experiment.errors import UserError
from qknorm_fairseq.experiment.metrics import Row, best_row, read_metrics
from qknorm_fairseq.experiment.protocols import PROTOCOLS, LineStatistics, Scores
from qknorm_fairseq.experiment.run import FREE
from qknorm_fairseq.experiment.settings import Options
from qknorm_fairseq.experiment.workspace import Workspace, read_mapping, write_json

SCORES, STATISTICS = "scores.json", "line_statistics.npz"
# options by which two runs of one arm may differ
OF_A_RUN = {"seed", *FREE, *(name.replace("-", "_") for name in FREE)}


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
        options = self.finished.get("options")
        return options and _of_the_arm(options)


def given(config: Config) -> Options:
    """The options that a run's ``config.yaml`` gives, without those of a run alone."""
    return _of_the_arm(config["options"])


def _of_the_arm(options: Options) -> Options:
    return {name: value for name, value in options.items() if name not in OF_A_RUN}


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
    if not isinstance(config.get("options"), dict) or not {"profile", "data"} <= set(config):
        raise UserError(f"{path}: broken; restore it, or remove {folder}")
    return config


def seed_of(folder: Path) -> int:
    return int(folder.name.removeprefix("seed"))


def run_folders(
    workspace: Workspace, pair: str, profile: str | None = None, precision: str | None = None
) -> list[Path]:
    """Folders of a pair's begun runs, in order of arms and seeds.

    Args:
        profile: of those that are meant; None: any.
        precision: likewise.
    """
    begun = [
        path.parent
        for path in (workspace.root / "runs" / pair).glob("*/seed*/config.yaml")
        if path.parent.name.removeprefix("seed").isdecimal()
    ]
    meant = [
        folder
        for folder in begun
        if profile in (None, read_config(folder)["profile"])
        and precision in (None, precision_of(read_config(folder)))
    ]
    return sorted(meant, key=lambda folder: (folder.parent.name, seed_of(folder)))


def write_scores(folder: Path, scores: Scores, statistics: LineStatistics, lines: int) -> None:
    """Keep a run's scores, and beside them the counts of each line."""
    counts: dict[str, Any] = {name: rows.astype(np.int32) for name, rows in statistics.items()}
    aside = folder / f".{os.getpid()}.{STATISTICS}"  # savez appends .npz to any other name
    np.savez_compressed(aside, **counts)
    aside.replace(folder / STATISTICS)
    write_json(folder / SCORES, {**scores, "lines": lines})


def read_run(folder: Path) -> RecordedRun:
    """The scored run that lies in ``folder``.

    Raises:
        UserError: when a file of it is broken.
    """
    scores = read_mapping(folder / SCORES)
    lines = scores.pop("lines", None)
    rows = read_metrics(folder)
    if set(scores) != set(PROTOCOLS) or not isinstance(lines, int) or not rows:
        raise UserError(f"{folder}: its scores or metrics are broken; restore or remove it")
    finished = folder / "finished.json"
    return RecordedRun(
        folder=folder,
        config=read_config(folder),
        finished=read_mapping(finished) if finished.exists() else {},
        metrics=rows,
        scores=scores,
        lines=lines,
        statistics=_read_statistics(folder / STATISTICS, scores, lines),
    )


def _read_statistics(path: Path, scores: Scores, lines: int) -> LineStatistics | None:
    """The counts, if they are there; UserError where they are not those of the scores."""
    if not path.exists():
        return None
    try:
        with np.load(path) as file:
            statistics = {name: file[name].astype(np.int64) for name in PROTOCOLS}
        for name, rows in statistics.items():
            score = PROTOCOLS[name].metric()._compute_score_from_stats(rows.sum(0)).score
            if len(rows) != lines or abs(score - scores[name]["score"]) > 1e-4:
                raise ValueError(name)
    except (ValueError, KeyError, IndexError, OSError, BadZipFile) as error:
        raise UserError(
            f"{path}: not the counts of {SCORES} beside it; score the run again, or remove it"
        ) from error
    return statistics


def missing(folder: Path) -> str | None:
    """What a run still lacks for the table, or None."""
    if (folder / SCORES).exists():
        return None
    if not (folder / "config.yaml").exists():
        return "not begun"
    if not list((folder / "checkpoints").glob("*.pt")):
        return "never reached a checkpoint"
    rows = read_metrics(folder)
    if not (folder / "finished.json").exists():
        last = rows[-1]["update"] if rows else 0
        return f"not trained to its end, last validated after update {last:,}"
    return "trained, not translated"


def check_comparable(runs: Iterable[RecordedRun]) -> None:
    """See that differences between runs are those of arms and seeds alone.

    Raises:
        UserError: naming two runs that differ in data, test set, signature, profile or
            precision, or two of one arm that differ in an option.
    """
    first: RecordedRun | None = None
    of_arm: dict[str, RecordedRun] = {}
    for run in runs:
        first = first or run
        for what, a, b in _shared(first, run):
            if a != b:
                raise UserError(
                    f"{first.folder} and {run.folder} cannot be compared: {what} {a} and {b}; "
                    "keep them under different --out, or choose with --arms and --profile"
                )
        same = of_arm.setdefault(run.arm, run)
        check_one_arm(same.folder, same.config, run.folder, run.config)


def check_one_arm(a: Path, config_a: Config, b: Path, config_b: Config) -> None:
    """See that two runs of an arm differ in their seed alone.

    Raises:
        UserError: naming both and the options in which they differ.
    """
    changed = differing([given(config_a), given(config_b)])
    if changed:
        raise UserError(
            f"{a} and {b} are not of one arm: {', '.join(changed)} differ; "
            "keep them under different --out"
        )


def _shared(a: RecordedRun, b: RecordedRun) -> Iterable[tuple[str, Any, Any]]:
    yield "data", a.config.get("data"), b.config.get("data")
    yield "lines of the test set", a.lines, b.lines
    yield "profile", a.config["profile"], b.config["profile"]
    yield "precision", a.precision, b.precision
    for name in PROTOCOLS:
        yield f"{name}'s signature", *(run.scores[name]["signature"] for run in (a, b))


def differing(each: Sequence[Options]) -> dict[str, list[Any]]:
    """Options that are not the same in all -> the value in each, None where there is none."""
    names = sorted(set().union(*each))
    values = {name: [options.get(name) for options in each] for name in names}
    return {name: row for name, row in values.items() if any(v != row[0] for v in row)}
