"""Command-line options from a fairseq dataclass, with switches that can be turned off."""

from argparse import ArgumentError, ArgumentParser, BooleanOptionalAction
from contextlib import suppress
from dataclasses import fields

from fairseq.dataclass import FairseqDataclass
from fairseq.dataclass.utils import gen_parser_from_dataclass


def add_dataclass_arguments(parser: ArgumentParser, config: FairseqDataclass) -> None:
    """Give ``parser`` an option for each field of ``config``, fairseq's way but for bools.

    fairseq makes a switch that is on by default into a flag of the same name that turns it
    off. Here ``--fix-norm`` turns it on and ``--no-fix-norm`` off.
    """
    for field in fields(config):
        if field.type is not bool:
            continue
        with suppress(ArgumentError):  # another part of fairseq has it already
            parser.add_argument(
                "--" + field.name.replace("_", "-"),
                action=BooleanOptionalAction,
                default=getattr(config, field.name),
                help=field.metadata.get("help"),
            )
    gen_parser_from_dataclass(parser, config)  # the others; passes over what is there
