"""One run, an arm with a seed: its options, its folder, and what may not change in it."""

import json
import platform
import shlex
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml

import qknorm_fairseq
from qknorm_fairseq.experiment.errors import UserError
from qknorm_fairseq.experiment.machine import device
from qknorm_fairseq.experiment.manifest import Manifest
from qknorm_fairseq.experiment.metrics import Row, best_row, read_metrics
from qknorm_fairseq.experiment.outcome import outcome
from qknorm_fairseq.experiment.settings import (
    MEASURED,
    Arm,
    Options,
    Pair,
    Profile,
    as_arguments,
    resolve_options,
)
from qknorm_fairseq.experiment.workspace import Workspace, read_mapping, write_json, write_text

PLUGIN = Path(qknorm_fairseq.__file__).parent
PRECISIONS = ("fp32", "bf16", "fp16")

# what the pipeline relies on, whatever the profile; recorded with a run, not compared
PIPELINE: Options = {
    "task": "low_resource_translation",
    "best-checkpoint-metric": "bleu",
    "maximize-best-checkpoint-metric": True,
    "no-epoch-checkpoints": True,
    "validate-interval": 1_000_000,  # validations and saves lie on one grid, of updates
    "save-interval": 1_000_000,
    "log-format": "json",
    "num-workers": 0,  # small batches: a process that prepares them costs more than it saves
}

# a second checkpoint of the grid, should the newest be broken
KEPT: Options = {"keep-interval-updates": 2}

# what may change between the beginning of a run and its end
FREE = {"max-update", "max-epoch", "stop-time-hours", "stop-min-lr", "patience"}
FREE |= {"keep-interval-updates", "log-interval", "log-format"}


@dataclass(frozen=True)
class Run:
    """A training run and where it lies."""

    pair: Pair
    arm: Arm
    profile: Profile
    seed: int
    precision: str
    folder: Path
    data: Path

    @property
    def name(self) -> str:
        return f"{self.arm.name} seed {self.seed}"

    @property
    def log(self) -> Path:
        return self.folder / "train.log"

    @property
    def best_checkpoint(self) -> Path:
        return self.folder / "checkpoints" / "checkpoint_best.pt"

    @property
    def options(self) -> Options:
        """What pair, arm, profile, seed and precision decide: all that makes the result.

        L stays "auto", where it is to be measured, until the data are prepared.
        """
        options = resolve_options(self.pair, self.arm, self.profile)
        if options["qk-scale-length"] == MEASURED:
            manifest = self.data / "manifest.json"
            if manifest.exists():
                options["qk-scale-length"] = read_mapping(manifest)["length_percentile_97_5"]
        options["seed"] = self.seed
        if self.precision != "fp32":
            options[self.precision] = True
        return options

    @property
    def updates(self) -> int:
        """Updates at which the training ends, unless its schedule ends it before."""
        return int(self.options["max-update"])

    def arguments(self) -> list[str]:
        """The words of the fairseq-train command line."""
        pipeline = {
            **self.languages,
            **PIPELINE,
            "eval-bleu-args": json.dumps({"beam": self.profile.beam}),
            **self.dev_bleu,
            "user-dir": PLUGIN,
            "save-dir": self.folder / "checkpoints",
            "metrics-file": self.folder / "metrics.jsonl",
        }
        return [str(self.data / "bin"), *as_arguments({**pipeline, **self.options, **KEPT})]

    @property
    def dev_bleu(self) -> Options:
        """What the task has to know of the text to score it, where that is not its default."""
        recipe = self.pair.recipe
        options: Options = {}
        if recipe.post_process != "subword_nmt":
            options["eval-bleu-remove-bpe"] = recipe.post_process
        if recipe.is_plain:
            options["eval-bleu-tokenize"] = "13a"
        return options

    @property
    def languages(self) -> Options:
        """The pair's languages, which fairseq cannot always tell from file names."""
        return {"source-lang": self.pair.source, "target-lang": self.pair.target}

    def command(self) -> list[str]:
        """What is executed: fairseq-train, by this interpreter and our launcher."""
        return [sys.executable, "-m", "qknorm_fairseq.launch", *self.arguments()]

    def is_finished(self) -> bool:
        """Whether the training has reached its end, as far off as it is wanted now."""
        path = self.folder / "finished.json"
        return path.exists() and read_mapping(path).get("of", 0) >= self.updates

    def mark_finished(self) -> None:
        """Record that the training ended, where it ended, and what was trained.

        Raises:
            UserError: when it left no checkpoint.
        """
        updates = max((row["update"] for row in self.metrics()), default=self.updates)
        trained = outcome(self.trained_checkpoint(), self.log)
        record = {"updates": updates, "of": self.updates, **trained}
        write_json(self.folder / "finished.json", record)

    def trained_checkpoint(self) -> Path:
        """The best checkpoint of a training that ended; UserError when it left none."""
        if not self.best_checkpoint.exists():
            raise UserError(
                f"{self.best_checkpoint}: not there, though the training ended; remove "
                f"{self.folder} to train it anew"
            )
        return self.best_checkpoint

    def best(self) -> Row:
        """The row of the best checkpoint."""
        return best_row(self.metrics())

    def metrics(self) -> list[Row]:
        """The rows of metrics.jsonl, one a validation."""
        return read_metrics(self.folder)

    def check(self, manifest: Manifest) -> None:
        """Make sure that the run folder, if there is one, is this very run's.

        Raises:
            UserError: when it was begun with other options or other data.
        """
        path = self.folder / "config.yaml"
        if not path.exists():
            if any((self.folder / "checkpoints").glob("*.pt")):
                raise UserError(
                    f"{self.folder}: checkpoints of a training that was not begun from here; "
                    "choose another --out, or remove that folder"
                )
            return
        differences = _differences(read_mapping(path, yaml.safe_load), self.config(manifest))
        if differences:
            raise UserError(
                f"{self.folder}: begun with other settings ({'; '.join(differences)}); "
                "restore them, choose another --out, or remove that folder"
            )

    def begin(self, manifest: Manifest) -> None:
        """Make the run folder, unless it is there."""
        path = self.folder / "config.yaml"
        if path.exists():
            return
        config = self.config(manifest)
        line = shlex.join(["fairseq-train", *self.arguments()])
        write_text(self.folder / "command.txt", line + "\n")
        write_text(path, yaml.safe_dump(config, sort_keys=False, allow_unicode=True))

    def config(self, manifest: Manifest) -> dict[str, Any]:
        """What ``config.yaml`` holds."""
        return {
            "pair": self.pair.name,
            "arm": self.arm.name,
            "profile": self.profile.name,
            "options": self.options,
            "data": manifest["fingerprint"],
            "threads": 1,  # of a run on the CPU
            "environment": {  # recorded, not compared
                "qknorm_fairseq": qknorm_fairseq.__version__,
                "python": platform.python_version(),
                **{name: version(name) for name in ("torch", "ve-fairseq", "sacrebleu")},
                "machine": platform.platform(),
                "device": device(),
            },
        }


def make_run(
    workspace: Workspace, pair: Pair, arm: Arm, profile: Profile, seed: int, precision: str
) -> Run:
    """The run of ``arm`` on ``pair`` with ``seed``."""
    if precision not in PRECISIONS:
        raise UserError(f"unknown precision {precision!r}; known: {', '.join(PRECISIONS)}")
    folder = workspace.run(pair.name, arm.name, seed).resolve()
    data = workspace.data(pair.name).resolve()
    return Run(pair, arm, profile, seed, precision, folder, data)


def differing(a: Options, b: Options) -> list[str]:
    """Names of the options that differ, but for those that may change within a run."""
    return sorted(name for name in (a.keys() | b.keys()) - FREE if a.get(name) != b.get(name))


def _differences(begun: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    """What differs, a phrase each: "dropout was 0.3, now 0.2"."""

    def flat(config: dict[str, Any]) -> dict[str, Any]:
        names = ("pair", "arm", "profile", "data")
        return {**{name: config.get(name) for name in names}, **config.get("options", {})}

    old, new = flat(begun), flat(wanted)
    return [
        f"{name} was {old.get(name, 'not set')}, now {new.get(name, 'not set')}"
        for name in differing(old, new)
    ]
