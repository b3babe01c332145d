"""The options of the ``qknorm`` command."""

import argparse
from pathlib import Path

from qknorm_fairseq.experiment.factorial import FACTORIAL


def make_parser() -> argparse.ArgumentParser:
    """The parser of ``qknorm``; ``command`` of its result names the subcommand."""
    parser = argparse.ArgumentParser(
        prog="qknorm",
        description="Query-Key Normalization for low-resource translation, measured.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_reproduce(commands)
    prepare = commands.add_parser("prepare", help="raw text to binarised data")
    _add_common(prepare)
    apply = commands.add_parser("apply", help="new text, as a prepared pair's model reads it")
    apply.add_argument("pair", metavar="PAIR")
    apply.add_argument("--language", metavar="xx", help="of the text (default: the source)")
    _add_out(apply)
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
    _add_report(commands)
    _add_score(commands)
    _add_parity(commands)
    _add_convert(commands)
    _add_benchmark(commands)
    return parser


def _add_reproduce(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser("reproduce", help="the whole experiment on one pair")
    _add_common(parser)
    arms = parser.add_mutually_exclusive_group()
    arms.add_argument(
        "--arms",
        type=_names,
        default=["scalenorm", "qknorm"],
        metavar="A,B,…",
        help="the first is the baseline of the others (default: scalenorm,qknorm)",
    )
    _add_factorial(arms)
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


def _add_factorial(arms: "argparse._MutuallyExclusiveGroup") -> None:
    arms.add_argument(
        "--factorial",
        dest="arms",
        action="store_const",
        const=list(FACTORIAL),
        help=f"the 2 × 2 of attention and residual norm: {','.join(FACTORIAL)}",
    )


def _add_report(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser("report", help="the tables, from what has been run")
    parser.add_argument("pair", metavar="PAIR")
    arms = parser.add_mutually_exclusive_group()
    arms.add_argument(
        "--arms",
        type=_names,
        metavar="A,B,…",
        help="the first is the baseline of the others (default: all that were run)",
    )
    _add_factorial(arms)
    parser.add_argument("--profile", metavar="NAME", help="of the runs that are meant")
    parser.add_argument("--precision", metavar="P", help="of the runs that are meant")
    _add_out(parser)


def _add_score(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser("score", help="score files of translations")
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
    parser.add_argument(
        "--text", choices=("tokenised", "raw"), default="tokenised", help="form of all files"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the scores there too")


def _add_parity(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser("parity", help="compare with numbers of the released code")
    parser.add_argument("fixtures", type=Path, nargs="+", metavar="FIXTURE.npz")
    parser.add_argument("--dtype", choices=("float64", "float32"), default="float64")


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


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pair", metavar="PAIR", help="a file in configs/pairs, e.g. gl-en, toy")
    parser.add_argument(
        "--raw-dir",
        type=Path,
        metavar="DIR",
        help="folder of train.xx train.yy dev.xx … [.gz], or the TED archive or its TSV files, "
        "in place of a download",
    )
    _add_out(parser)
    _add_preparation(parser)


def _add_out(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out", type=Path, default=Path("runs"), metavar="DIR", help="default: runs"
    )


def _add_preparation(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how the text is prepared, where the pair does not say")
    add = group.add_argument
    add("--source", metavar="xx", help="language code; with --target and --merges any pair")
    add("--target", metavar="yy", help="language code")
    add("--merges", type=int, metavar="N", help="joint BPE merges; sentencepiece: its types")
    add("--text", metavar="FORM", help="tokenised (default) or raw")
    add("--bpe", metavar="NAME", help="subword-nmt, sentencepiece-bpe or sentencepiece-unigram")
    add("--vocabulary-threshold", type=int, metavar="N", help="split pieces rarer in a language")
    add("--bpe-dropout", type=float, metavar="P", help="skip merges, in training (try 0.1)")
    add("--bpe-dropout-copies", type=int, metavar="K", help="of the training text (10)")
    add(
        "--keep-empty",
        dest="drop_empty",
        action="store_false",
        default=None,
        help="keep training pairs with an empty side",
    )
    add("--max-words", type=int, metavar="N", help="of a training sentence (250; 0: any)")
    add("--max-ratio", type=float, metavar="R", help="of the sides' words in training (any)")
    add("--drop-duplicates", action="store_true", default=None, help="in training")
    add(
        "--drop-overlap",
        action="store_true",
        default=None,
        help="training pairs that stand in dev or test",
    )


def _add_training(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--profile",
        metavar="NAME",
        help="paper, cpu or smoke (default: paper on a GPU, cpu elsewhere, smoke for toy)",
    )
    parser.add_argument("--precision", default="fp32", metavar="P", help="fp32, bf16 or fp16")


def _names(text: str) -> list[str]:
    names = list(dict.fromkeys(name.strip() for name in text.split(",")))
    if not all(names):
        raise argparse.ArgumentTypeError(f"{text!r}: names with commas between")
    return names


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


def _add_benchmark(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser("benchmark", help="speed and memory beside stock fairseq")
    parser.add_argument(
        "--full", action="store_true", help="all four arms, and batches of 4,096 tokens"
    )
    parser.add_argument("--device", default="cpu", metavar="D", help="cpu (default) or cuda")
    parser.add_argument("--rounds", type=int, default=10, metavar="N", help="default: 10")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
