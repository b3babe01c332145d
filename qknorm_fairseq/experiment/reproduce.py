"""The whole experiment on one pair, from raw text to the table."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qknorm_fairseq.experiment import estimate
from qknorm_fairseq.experiment.comparable import check_one_arm
from qknorm_fairseq.experiment.console import Stages
from qknorm_fairseq.experiment.corpus import read_lines
from qknorm_fairseq.experiment.errors import StageFailed, UserError
from qknorm_fairseq.experiment.lock import own_all, owned
from qknorm_fairseq.experiment.manifest import Manifest, find_pair, prepared
from qknorm_fairseq.experiment.pair_data import find_text, prepare_stage
from qknorm_fairseq.experiment.protocols import PROTOCOLS
from qknorm_fairseq.experiment.recorded import read_config, run_folders
from qknorm_fairseq.experiment.report import Table, gather, report, score_again
from qknorm_fairseq.experiment.run import Run, make_run
from qknorm_fairseq.experiment.settings import Pair, load_arm, load_profile
from qknorm_fairseq.experiment.training import train_all
from qknorm_fairseq.experiment.translate import generate_command, translate
from qknorm_fairseq.experiment.workspace import Workspace, fingerprint, sha256, write_text


@dataclass(frozen=True)
class Plan:
    """What was asked for, defaults filled in."""

    pair: Pair
    runs: list[Run]
    devices: list[str]  # where a run can go on at the same time: GPU numbers, or "cpu"s
    raw_dir: Path | None
    workspace: Workspace

    @property
    def arms(self) -> list[str]:
        """Their names, the first the baseline."""
        return list(dict.fromkeys(run.arm.name for run in self.runs))

    def headline(self) -> str:
        """The first line that is printed: what runs, and on what."""
        first = self.runs[0]
        seeds = dict.fromkeys(run.seed for run in self.runs)
        used = self.devices[: len(self.runs)]
        if used[0] == "cpu":
            where = f"CPU, {len(used)} at a time, one thread each"
        else:
            where = f"GPU {' '.join(dict.fromkeys(used))}, {len(used)} at a time"
        return (
            f"{self.pair.name} · profile {first.profile.name} · arms {' '.join(self.arms)} · "
            f"seed{'s' if len(seeds) > 1 else ''} {' '.join(map(str, seeds))} · "
            f"{first.precision} · {where}"
        )


def find_gpus() -> list[str]:
    """The numbers of the GPUs that torch can use."""
    import torch  # slow to import

    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return (visible.split(",") if visible else [str(n) for n in range(count)])[:count]


def make_plan(
    pair_name: str,
    arm_names: list[str],
    seeds: list[int],
    profile_name: str | None,
    precision: str,
    jobs: int | None,
    raw_dir: Path | None,
    out: Path,
    choices: dict[str, Any] | None = None,
) -> Plan:
    """Fill in the defaults and check every name before anything is done.

    Args:
        choices: of the pair's recipe, in place of its own.
    """
    workspace = Workspace(out.resolve())
    if min(seeds) < 0:
        raise UserError(f"--seeds {min(seeds)}: a seed is a whole number, not below 0")
    pair = find_pair(pair_name, workspace, choices or {})
    gpus = find_gpus()
    if precision == "fp16" and not gpus:
        raise UserError("--precision fp16 needs a GPU; use bf16 or fp32")
    if jobs is not None and jobs < 1:
        raise UserError(f"--jobs {jobs}: at least one run must go on at a time")
    profile = load_profile(profile_name or pair.default_profile or ("paper" if gpus else "cpu"))
    arms = [load_arm(name) for name in dict.fromkeys(arm_names)]
    runs = [
        make_run(workspace, pair, arm, profile, seed, precision)
        for seed in dict.fromkeys(seeds)
        for arm in arms
    ]
    if "max-update" not in runs[0].options:
        raise UserError(
            f"{pair.name}, profile {profile.name}: no max-update; set it in the pair's file"
        )
    devices = gpus or ["cpu"] * len(os.sched_getaffinity(0))
    devices = [devices[i % len(devices)] for i in range(jobs)] if jobs else devices
    return Plan(pair, runs, devices, raw_dir, workspace)


@contextmanager
def _trained(plan: Plan, stages_in_all: int) -> Iterator[Stages]:
    """The data prepared, the runs trained, and for the block their folders owned."""
    print(plan.headline(), flush=True)
    stages = Stages(total=stages_in_all)
    prepare_stage(plan.pair, plan.raw_dir, plan.workspace, stages)
    with (
        owned(plan.workspace.data_lock(plan.pair.name), shared=True),
        own_all(run.folder for run in plan.runs) as locks,
    ):
        manifest = prepared(plan.pair, plan.workspace)  # now that nobody else can change them
        _train_stage(plan, stages, manifest, locks)
        yield stages


def reproduce(plan: Plan) -> None:
    """Run every stage that is not done yet, and print the tables."""
    first = plan.runs[0]
    table = Table(plan.pair, plan.workspace, plan.arms, first.profile.name, first.precision)
    with _trained(plan, stages_in_all=6) as stages:
        _translate_stage(plan, stages)
        stages.start("score", ", ".join(PROTOCOLS))
        scored = score_again(table)
        stages.done(f"{scored} run{'s' if scored != 1 else ''} scored")
        stages.start("compare", "arms and runs, by tests over sentences and over seeds")
        tables = report(gather(table), plan.workspace)
        stages.done("tables written")
    print(f"\n{tables}")
    print(f"each run's checkpoints, logs and translations: {plan.runs[0].folder.parents[1]}")


def train(plan: Plan) -> None:
    """Prepare the data and train the runs, no more."""
    with _trained(plan, stages_in_all=3):
        print("\n".join(str(run.folder) for run in plan.runs))


def describe(plan: Plan) -> None:
    """Print what :func:`reproduce` would do, with estimates, and do nothing."""
    if plan.raw_dir:
        find_text(plan.pair, plan.raw_dir)
    print(plan.headline())
    print("\n".join(estimate.lines(plan.pair, plan.runs, len(plan.devices))))


def _train_stage(plan: Plan, stages: Stages, manifest: Manifest, locks: dict[Path, int]) -> None:
    """Train each run to its end and see that it looked at the whole dev set."""
    waiting = [run for run in plan.runs if not run.is_finished()]
    stages.start("train", ", ".join(run.name for run in waiting) or "nothing to do")
    for run in plan.runs:
        run.check(manifest)
    _check_seeds(plan, manifest)
    for run in plan.runs:
        run.begin(manifest)
    train_all(waiting, plan.devices, locks)
    for run in plan.runs:
        seen, there = [row["dev_lines"] for row in run.metrics()], manifest["pairs"]["dev"]
        if set(seen) != {there}:
            raise StageFailed(f"{run.name}: dev BLEU is of {seen} lines, the set has {there:,}")
    stages.done(f"{_count(waiting)} trained" if waiting else f"{_count(plan.runs)} · already done")


def _check_seeds(plan: Plan, manifest: Manifest) -> None:
    """See that runs of other seeds, which will stand in the same table, are of these arms."""
    for run in plan.runs:
        wanted = run.config(manifest)
        for folder in run_folders(plan.workspace, plan.pair.name, run.profile.name, run.precision):
            if folder.parent.name == run.arm.name:
                check_one_arm(folder, read_config(folder), run.folder, wanted)


def _translate_stage(plan: Plan, stages: Stages) -> None:
    split = read_lines(plan.runs[0].data / "text" / f"test.{plan.pair.target}")
    stages.start("translate", f"test set, {len(split):,} lines, with each run's best checkpoint")
    worked = [_translate_unless_done(run, plan.devices[0]) for run in plan.runs]
    stages.done(_count(plan.runs) + ("" if any(worked) else " · already done"))


def _count(runs: list[Run]) -> str:
    return f"{len(runs)} run{'s' if len(runs) != 1 else ''}"


def _translate_unless_done(run: Run, device: str) -> bool:
    made_of = [sha256(run.trained_checkpoint()), generate_command(run, "test")]
    results = [run.folder / f"test.{name}.txt" for name in ("hyp", "ref")]
    marker = run.folder / "test.done"

    def key() -> str:
        return fingerprint([*made_of, *(sha256(path) for path in results if path.exists())])

    if marker.exists() and marker.read_text() == key():
        return False
    translate(run, device)
    write_text(marker, key())
    return True
