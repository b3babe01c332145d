"""The tables of a pair, made from its run folders alone."""

from dataclasses import dataclass
from pathlib import Path

from qknorm_fairseq.experiment import render
from qknorm_fairseq.experiment.comparable import check_comparable
from qknorm_fairseq.experiment.comparisons import Results
from qknorm_fairseq.experiment.errors import UserError
from qknorm_fairseq.experiment.factorial import FACTORIAL
from qknorm_fairseq.experiment.recorded import (
    RecordedRun,
    lost_config,
    missing,
    read_run,
    run_folders,
    seed_folders,
    seed_of,
)
from qknorm_fairseq.experiment.results import collect
from qknorm_fairseq.experiment.score import score_run
from qknorm_fairseq.experiment.settings import Pair, load_arm
from qknorm_fairseq.experiment.workspace import Workspace, write_json, write_text

WRITTEN = {"md": render.markdown, "tex": render.latex, "csv": render.comma_separated}


@dataclass(frozen=True)
class Table:
    """Which runs a table is of."""

    pair: Pair
    workspace: Workspace
    arms: list[str] | None = None  # in its order, the first the baseline; None: all that were begun
    profile: str | None = None  # of the runs that are meant; None: all must have the same
    precision: str | None = None  # likewise

    def folders(self) -> list[Path]:
        """Their folders, if they were begun, whatever their arms."""
        return run_folders(self.workspace, self.pair.name, self.profile, self.precision)


def gather(table: Table) -> Results:
    """The results of the runs that are there, scored, and what is missing.

    Raises:
        UserError: when an arm is unknown, no run is scored, or two cannot be compared.
    """
    pair, workspace = table.pair, table.workspace
    folders = table.folders()
    begun = {folder.parent.name for folder in folders}
    lost = {f.parent.name for f in seed_folders(workspace, pair.name) if lost_config(f)}
    arms = table.arms or _in_order(begun | lost)
    # a name that is no arm's is a slip
    arms = [arm if arm in begun | lost else load_arm(arm).name for arm in arms]
    folders = [folder for folder in folders if folder.parent.name in arms]
    runs: dict[str, list[RecordedRun]] = {}
    for folder in folders:
        if missing(folder) is None:
            runs.setdefault(folder.parent.name, []).append(read_run(folder))
    lacking = _lacking(workspace, pair, arms, folders)
    if not runs:
        why = "; ".join(f"{name} {reason}" for name, reason in lacking.items())
        raise UserError(
            f"{pair.name}: nothing to report from {workspace.root / 'runs' / pair.name}: "
            + (why or f"no run {_of(table.profile, table.precision)}was begun there")
        )
    in_order = {arm: runs[arm] for arm in arms if arm in runs}
    check_comparable(run for each in in_order.values() for run in each)
    return collect(pair, in_order, lacking)


def write_tables(results: Results, workspace: Workspace) -> list[Path]:
    """Write ``results/PAIR.{md,tex,csv,json}``."""
    pair = results["pair"]
    paths = {suffix: workspace.result(pair, suffix) for suffix in (*WRITTEN, "json")}
    texts = {suffix: make(results) for suffix, make in WRITTEN.items()}
    for suffix, text in texts.items():  # nothing is written unless all can be made
        write_text(paths[suffix], text)
    write_json(paths["json"], results)
    return list(paths.values())


def score_again(table: Table) -> int:
    """Score the runs whose translations and references are there, by this sacreBLEU.

    Returns:
        How many there were.

    Raises:
        UserError: when translations and references of a run do not go together.
    """
    pair = table.pair
    data = table.workspace.data(pair.name)
    raw = [data / "raw" / f"test.{pair.target}"] if pair.recipe.tokenises else []
    done = 0
    for folder in table.folders():
        needed = [folder / f"test.{name}" for name in ("hyp.txt", "ref.txt", "done")]
        is_asked_for = table.arms is None or folder.parent.name in table.arms
        if is_asked_for and all(path.exists() for path in needed + raw):
            score_run(folder, pair, data)
            done += 1
    return done


def report(results: Results, workspace: Workspace) -> str:
    """Write the tables; returns what a terminal is to show of them."""
    first, *others = write_tables(results, workspace)
    names = "  ".join([str(first), *(path.suffix for path in others)])
    return f"{render.terminal(results)}\n\n{names}"


def _of(*choices: str | None) -> str:
    named = " and ".join(choice for choice in choices if choice)
    return f"of {named} " if named else ""


def _in_order(arms: set[str]) -> list[str]:
    return [arm for arm in FACTORIAL if arm in arms] + sorted(arms - set(FACTORIAL))


def _lacking(
    workspace: Workspace, pair: Pair, arms: list[str], folders: list[Path]
) -> dict[str, str]:
    """Runs that a full table of these arms and seeds would have, and why they are not in it."""
    lost = [f for f in seed_folders(workspace, pair.name) if f.parent.name in arms]
    lost = [folder for folder in lost if lost_config(folder)]
    seeds = {seed_of(folder) for folder in [*folders, *lost]}
    lacking = {}
    for seed in sorted(seeds):
        for arm in arms:
            folder = workspace.run(pair.name, arm, seed)
            reason = missing(folder)
            if reason or folder not in folders:
                lacking[f"{arm} seed {seed}"] = reason or "of another profile or precision"
    return lacking
