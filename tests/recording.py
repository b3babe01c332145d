"""Runs that were never trained: in memory with the scores one gives them, or as folders."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from qknorm_fairseq.experiment.protocols import PROTOCOLS, from_plain, score
from qknorm_fairseq.experiment.recorded import RecordedRun, write_scores
from qknorm_fairseq.experiment.workspace import Workspace

CONFIG: dict[str, Any] = {
    "pair": "tiny",
    "profile": "tiny",
    "options": {"lr": 0.005},
    "data": "the same",
    "environment": {"torch": "2.13.0", "machine": "a machine"},
}


WORDS = [f"w{i}" for i in range(40)]


def references(lines: int, seed: int = 0) -> list[str]:
    random = np.random.default_rng(seed)
    return [" ".join(random.choice(WORDS, size=12)) for _ in range(lines)]


def worsened(lines: list[str], share: float, seed: int) -> list[str]:
    """Of each line, about a share of the words replaced by one that is never right."""
    random = np.random.default_rng(seed)
    return [
        " ".join("x" if random.random() < share else word for word in line.split())
        for line in lines
    ]


def run_with(arm: str, seed: int, value: float) -> RecordedRun:
    """A run of so many points under every protocol, without its lines' counts."""
    scores = {name: {"score": value, "signature": "v"} for name in PROTOCOLS}
    metrics = [{"update": 10, "dev_bleu": value, "elapsed": 60}]
    folder = Path("runs/tiny") / arm / f"seed{seed}"
    return RecordedRun(folder, CONFIG, {}, metrics, scores, 100, None)


def arms_with(scores: dict[str, list[float]]) -> dict[str, list[RecordedRun]]:
    """Arms whose runs have these scores, seeds counted from 1."""
    return {
        arm: [run_with(arm, seed, value) for seed, value in enumerate(values, 1)]
        for arm, values in scores.items()
    }


def record(
    workspace: Workspace,
    arm: str,
    seed: int,
    hypotheses: list[str],
    references: list[str],
    options: dict[str, Any] | None = None,
    **changed: Any,
) -> Path:
    """The folder of a finished, scored run of the pair ``tiny``."""
    folder = workspace.run("tiny", arm, seed)
    folder.mkdir(parents=True)
    config = {**CONFIG, "arm": arm, **changed}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    resolved = {"lr": 0.005, "seed": seed, "arch": f"transformer_{arm}", **(options or {})}
    finished = {"updates": 10, "of": 10, "parameters": 12_345, "options": resolved}
    (folder / "finished.json").write_text(json.dumps(finished))
    row = {"update": 10, "dev_bleu": 12.5, "elapsed": 90.0}
    (folder / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    texts = (from_plain(lines, "en") for lines in (hypotheses, references))
    write_scores(folder, *score(*texts), len(references))
    return folder
