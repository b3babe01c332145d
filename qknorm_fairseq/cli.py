"""The ``qknorm`` command: arguments in, one function a subcommand, no logic of its own."""

import argparse
import shlex
import signal
import sys
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from qknorm_fairseq.experiment.errors import StageFailed, UserError

if TYPE_CHECKING:  # the subcommands import what they need: --help answers at once
    from qknorm_fairseq.experiment.reproduce import Plan


def main(argv: list[str] | None = None) -> int:
    """Run ``qknorm``; returns the exit status: 0 done, 1 failed, 2 wrong input."""
    signal.signal(signal.SIGTERM, _terminate)
    arguments = _parser().parse_args(argv)
    try:
        arguments.run(arguments)
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
        print(f"qknorm: {place}{error.strerror or error}; mend that or use --out", file=sys.stderr)
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
        arguments.arms.split(","),
        arguments.seeds,
        arguments.profile,
        arguments.precision,
        arguments.jobs,
        arguments.raw_dir,
        arguments.out,
    )
    if arguments.dry_run:
        reproduce.describe(plan)
    else:
        reproduce.reproduce(plan)


def _prepare(arguments: argparse.Namespace) -> None:
    from qknorm_fairseq.experiment import reproduce
    from qknorm_fairseq.experiment.console import Stages

    plan = _one_run_plan(arguments, arm="qknorm", seed=1, profile=None, precision="fp32")
    stages = Stages(total=1)
    reproduce.prepare_stage(plan, stages)
    print(plan.workspace.data(plan.pair.name))


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


def _score(arguments: argparse.Namespace) -> None:
    from qknorm_fairseq.experiment.score import score_files, score_table
    from qknorm_fairseq.experiment.workspace import write_json

    read = [arguments.ref, *(path for _, path in arguments.hyp)]
    if arguments.json and (arguments.json.is_dir() or arguments.json in read):
        raise UserError(f"--json {arguments.json}: name a file of its own")
    results = score_files(arguments.ref, arguments.hyp, arguments.language)
    print(score_table(results))
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
        arguments.pair, [arm], [seed], profile, precision, 1, arguments.raw_dir, arguments.out
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="qknorm",
        description="Query-Key Normalization for low-resource translation, measured.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_reproduce(commands)
    prepare = commands.add_parser("prepare", help="raw text to binarised data")
    _add_common(prepare)
    prepare.set_defaults(run=_prepare)
    train = commands.add_parser("train", help="one run, resumed if begun")
    _add_common(train)
    train.add_argument("arm", metavar="ARM", help="a file in configs/arms, e.g. qknorm")
    train.add_argument("--seed", type=int, default=1)
    _add_training(train)
    train.add_argument(
        "--print-command",
        action="store_true",
        help="print the fairseq-train line, for data prepared before, and stop",
    )
    train.set_defaults(run=_train)
    _add_score(commands)
    _add_parity(commands)
    _add_convert(commands)
    return parser


def _add_reproduce(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser("reproduce", help="the whole experiment on one pair")
    _add_common(parser)
    parser.add_argument(
        "--arms",
        default="scalenorm,qknorm",
        metavar="A,B,…",
        help="the first is the baseline of the others (default: scalenorm,qknorm)",
    )
    parser.add_argument(
        "--seeds", type=_seeds, default=[1], metavar="1,2,…", help="a run an arm for each"
    )
    _add_training(parser)
    parser.add_argument(
        "--jobs", type=int, metavar="N", help="runs at a time (default: one a core or a GPU)"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="list the stages with estimates, and stop"
    )
    parser.set_defaults(run=_reproduce)


def _add_score(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser("score", help="score files of translations, tokenised as they are")
    parser.add_argument("--ref", type=Path, required=True, metavar="REF", help="the reference")
    parser.add_argument(
        "--hyp",
        type=_named_file,
        action="extend",
        nargs="+",
        required=True,
        metavar="NAME=FILE",
        help="a system's translations; the first is the baseline of the others",
    )
    parser.add_argument(
        "--language", default="en", metavar="xx", help="for detokenisation (default: en)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the scores there too")
    parser.set_defaults(run=_score)


def _add_parity(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser("parity", help="compare with numbers of the released code")
    parser.add_argument("fixtures", type=Path, nargs="+", metavar="FIXTURE.npz")
    parser.add_argument("--dtype", choices=("float64", "float32"), default="float64")
    parser.set_defaults(run=_parity)


def _add_convert(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "convert", help="a model of the released code to fairseq, or --to it from fairseq"
    )
    parser.add_argument(
        "model", type=Path, metavar="FILE.pth|RUN", help="with --to: a run's folder or checkpoint"
    )
    parser.add_argument("--to", type=Path, metavar="FILE.pth", help="go back: write this file")
    parser.add_argument("--vocab", type=Path, metavar="FILE", help="vocab.joint")
    parser.add_argument("--mask", type=Path, metavar="FILE", help="mask.LANG.npy; none: all types")
    parser.add_argument("--heads", type=int, metavar="N", help="attention heads: not in the file")
    parser.add_argument(
        "--source-row", type=int, choices=(0, 1), help="the source's language row (default: 0)"
    )
    parser.add_argument(
        "--positions",
        choices=("released", "interleaved"),
        help="QKNorm's code has the released table (default), the other Transformers without Tears",
    )
    parser.add_argument("--no-fix-norm", dest="fix_norm", action="store_false", default=None)
    parser.add_argument("--source", metavar="xx", help="language code (default: src)")
    parser.add_argument("--target", metavar="xx", help="language code (default: that of --mask)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for the checkpoint")
    parser.set_defaults(run=_convert)


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pair", metavar="PAIR", help="a file in configs/pairs, e.g. gl-en, toy")
    parser.add_argument(
        "--raw-dir", type=Path, metavar="DIR", help="folder of train.xx train.yy dev.xx … [.gz]"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("runs"), metavar="DIR", help="default: runs"
    )


def _add_training(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--profile",
        metavar="NAME",
        help="paper, cpu or smoke (default: paper on a GPU, cpu elsewhere, smoke for toy)",
    )
    parser.add_argument("--precision", default="fp32", metavar="P", help="fp32, bf16 or fp16")


def _seeds(text: str) -> list[int]:
    try:
        return [int(seed) for seed in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r}: numbers with commas between, as 1,2,3"
        ) from None


def _named_file(text: str) -> tuple[str, Path]:
    name, equals, file = text.partition("=")
    if not (name and equals and file):
        raise argparse.ArgumentTypeError(f"{text!r}: a name and a file, as qknorm=test.hyp.txt")
    return name, Path(file)


if __name__ == "__main__":
    sys.exit(main())
