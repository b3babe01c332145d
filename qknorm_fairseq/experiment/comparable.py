"""Which runs may stand in one table."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from qknorm_fairseq.experiment.errors import UserError
from qknorm_fairseq.experiment.protocols import PROTOCOLS
from qknorm_fairseq.experiment.recorded import Config, RecordedRun
from qknorm_fairseq.experiment.run import differing


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


def _shared(a: RecordedRun, b: RecordedRun) -> Iterable[tuple[str, Any, Any]]:
    yield "data", a.config["data"], b.config["data"]
    yield "lines of the test set", a.lines, b.lines
    yield "profile", a.config["profile"], b.config["profile"]
    yield "precision", a.precision, b.precision
    for name in PROTOCOLS:
        yield f"{name}'s signature", *(run.scores[name]["signature"] for run in (a, b))


def check_one_arm(a: Path, config_a: Config, b: Path, config_b: Config) -> None:
    """See that two runs of an arm differ in their seed alone.

    Raises:
        UserError: naming both and the options, as they were given, in which they differ.
    """
    changed = [n for n in differing(config_a["options"], config_b["options"]) if n != "seed"]
    if changed:
        raise UserError(
            f"{a} and {b} are not of one arm: {', '.join(changed)} differ; "
            "keep them under different --out"
        )
