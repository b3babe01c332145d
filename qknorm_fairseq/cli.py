"""The ``qknorm`` command: arguments in, one function a subcommand, no logic of its own."""

import argparse
import shlex
import signal
import sys
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qknorm_fairseq.command_line import make_parser
from qknorm_fairseq.experiment.errors import StageFailed, UserError

if TYPE_CHECKING:  # the subcommands import what they need: --help answers at once
    from qknorm_fairseq.experiment.reproduce import Plan


def main(argv: list[str] | None = None) -> int:
    """Run ``qknorm``; returns the exit status: 0 done, 1 failed, 2 wrong input."""
    signal.signal(signal.SIGTERM, _terminate)
    arguments = make_parser().parse_args(argv)
    try:
        COMMANDS[arguments.command](arguments)
    except UserError as error:
        print(f"qknorm: {error}", file=sys.stderr)
        return 2
    except StageFailed as error:
        print(f"qknorm: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # who read what is printed has gone
        return 1
    except OSError as error:  # a full disk, a folder that may not be written to
        place = f"{error.filename}: " if error.filename else ""
        print(
            f"qknorm: {place}{error.strerror or error}; mend that, or choose another folder",
            file=sys.stderr,
        )
        return 2
    except KeyboardInterrupt:
        if sys.stderr.isatty():
            print(file=sys.stderr)  # the cursor stands behind a bar or a ^C
        print("qknorm: stopped; the same command goes on", file=sys.stderr)
        return 130
    return 0


def _terminate(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _reproduce(arguments: argparse.Namespace) -> None:
    from qknorm_fairseq.experiment import reproduce

    plan = reproduce.make_plan(
        arguments.pair,
        arguments.arms,
        arguments.seeds,
        arguments.profile,
        arguments.precision,
        arguments.jobs,
        arguments.raw_dir,
        arguments.out,
        _choices(arguments),
    )
    if arguments.dry_run:
        reproduce.describe(plan)
    else:
        reproduce.reproduce(plan)


def _prepare(arguments: argparse.Namespace) -> None:
    from qknorm_fairseq.experiment.console import Stages
    from qknorm_fairseq.experiment.manifest import find_pair
    from qknorm_fairseq.experiment.pair_data import prepare_stage
    from qknorm_fairseq.experiment.workspace import Workspace

    workspace = Workspace(arguments.out.resolve())
    pair = find_pair(arguments.pair, workspace, _choices(arguments))
    prepare_stage(pair, arguments.raw_dir, workspace, Stages(total=2), show_card=True)
    print(workspace.data(pair.name))


def _apply(arguments: argparse.Namespace) -> None:
    from qknorm_fairseq.experiment import steps
    from qknorm_fairseq.experiment.manifest import pair_of, prepared, read_manifest
    from qknorm_fairseq.experiment.settings import SUFFIXES
    from qknorm_fairseq.experiment.workspace import Workspace

    workspace = Workspace(arguments.out.resolve())
    name = arguments.pair
    name = Path(name).stem if name.endswith(SUFFIXES) else name
    manifest = read_manifest(workspace, name)
    if manifest is None:
        raise UserError(f"{name}: not prepared in {workspace.root}; prepare it first")
    pair = pair_of(manifest, workspace.data(name))
    prepared(pair, workspace)  # its codes are what they were
    through = steps.Steps(
        pair.recipe, workspace.data(pair.name) / "bpe", arguments.language or pair.source
    )
    for line in steps.apply(through, sys.stdin.buffer):
        sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()


def _train(arguments: argparse.Namespace) -> None:
    from qknorm_fairseq.experiment import reproduce

    plan = _one_run_plan(
        arguments, arguments.arm, arguments.seed, arguments.profile, arguments.precision
    )
    if arguments.print_command:
        print(shlex.join(["fairseq-train", *plan.runs[0].arguments()]))
        return
    reproduce.train(plan)


def _parity(arguments: argparse.Namespace) -> None:
    _quiet_fairseq()
    from qknorm_fairseq.experiment.parity import report

    failed = []
    for path in arguments.fixtures:
        text, agrees = report(path, arguments.dtype)
        print(text, flush=True)
        if not agrees:
            failed.append(path.name)
    if failed:
        raise StageFailed(f"numbers differ from the reference's: {', '.join(failed)}")


def _convert(arguments: argparse.Namespace) -> None:
    _quiet_fairseq()
    from qknorm_fairseq.experiment import convert

    names = [field.name for field in fields(convert.ModelFacts)]
    facts = convert.ModelFacts(**{name: getattr(arguments, name) for name in names})
    files = arguments.vocab, arguments.mask, facts
    if arguments.to:
        if arguments.out:
            raise UserError("--out says nothing with --to, which names the file")
        for line in convert.to_released(arguments.model, arguments.to, *files):
            print(line, file=sys.stderr)
        print(arguments.to)
    else:
        print("\n".join(convert.from_released(arguments.model, *files, arguments.out)))


def _report(arguments: argparse.Namespace) -> None:
    from qknorm_fairseq.experiment.manifest import find_pair
    from qknorm_fairseq.experiment.report import Table, gather, report, score_again
    from qknorm_fairseq.experiment.workspace import Workspace

    workspace = Workspace(arguments.out.resolve())
    pair = find_pair(arguments.pair, workspace, {})
    table = Table(pair, workspace, arguments.arms, arguments.profile, arguments.precision)
    score_again(table)
    print(report(gather(table), workspace))


def _score(arguments: argparse.Namespace) -> None:
    from qknorm_fairseq.experiment.score import score_files, score_table
    from qknorm_fairseq.experiment.workspace import write_json

    read = [arguments.ref, *(path for _, path in arguments.hyp)]
    if arguments.json and (arguments.json.is_dir() or arguments.json in read):
        raise UserError(f"--json {arguments.json}: name a file of its own")
    results = score_files(
        arguments.ref, arguments.hyp, arguments.language, raw=arguments.text == "raw"
    )
    print(score_table(results))
    if arguments.json:
        write_json(arguments.json, results)


def _benchmark(arguments: argparse.Namespace) -> None:
    _quiet_fairseq()
    from qknorm_fairseq.benchmark import table
    from qknorm_fairseq.experiment.workspace import write_json

    device = table.find_device(arguments.device)
    results = table.run(device, arguments.rounds, arguments.full)
    print(f"\n{table.show(results)}")
    if arguments.json:
        write_json(arguments.json, results)


def _quiet_fairseq() -> None:
    import logging

    for name in ("fairseq", "hydra"):
        logging.getLogger(name).setLevel(logging.WARNING)


def _one_run_plan(
    arguments: argparse.Namespace, arm: str, seed: int, profile: str | None, precision: str
) -> "Plan":
    from qknorm_fairseq.experiment.reproduce import make_plan

    return make_plan(
        arguments.pair,
        [arm],
        [seed],
        profile,
        precision,
        1,
        arguments.raw_dir,
        arguments.out,
        _choices(arguments),
    )


def _choices(arguments: argparse.Namespace) -> dict[str, Any]:
    """What was said on the command line of how the pair is to be prepared."""
    from qknorm_fairseq.experiment.recipe import CHOICES

    given = {name: getattr(arguments, name) for name in CHOICES}
    return {name: value for name, value in given.items() if value is not None}


COMMANDS = {
    "reproduce": _reproduce,
    "prepare": _prepare,
    "apply": _apply,
    "train": _train,
    "report": _report,
    "score": _score,
    "parity": _parity,
    "benchmark": _benchmark,
    "convert": _convert,
}

if __name__ == "__main__":
    sys.exit(main())
