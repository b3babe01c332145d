"""Pieces to fairseq's binary form, by fairseq-preprocess, and no sentence lost."""

import errno
import os
import shutil
import struct
import sys
from pathlib import Path

from qknorm_fairseq.experiment.commands import run_logged
from qknorm_fairseq.experiment.console import Progress
from qknorm_fairseq.experiment.errors import StageFailed

JOINT = ("--joined-dictionary", "--padding-factor", "1")  # one dictionary, and no filler in it
HEAD = struct.Struct("<9sQBQ")  # of an index: magic, version, type of the tokens, sentences
MMAP = (b"MMIDIDX\0\0", 1)
NEARLY_NOTHING = 100_000  # bytes free on a disk that is full
FAIRSEQ_SPLITS = {"train": "train", "dev": "valid", "test": "test"}


def binarise(
    folder: Path, name: str, languages: tuple[str, str], sentences: dict[str, int]
) -> None:
    """Binarise ``folder/bpe`` into ``folder/bin``.

    Args:
        name: of the pair, for the log beside ``folder``. sentences: how many each split has.

    Raises:
        StageFailed: when that fails, or another number of sentences comes out.
        OSError: when the disk is full.
    """
    done = 0
    with Progress("binarising", 2 * len(FAIRSEQ_SPLITS), "files") as progress:

        def count(lines: list[bytes]) -> None:
            nonlocal done
            done += sum(b" sents, " in line for line in lines)
            progress.update(done)

        log = folder.parent / f"{name}.preprocess.log"  # outlives a failure
        log.unlink(missing_ok=True)
        try:
            run_logged(command(folder, languages), log, watch=count)
        except StageFailed as error:
            full = os.strerror(errno.ENOSPC)
            if full in str(error) or shutil.disk_usage(folder).free < NEARLY_NOTHING:
                raise OSError(errno.ENOSPC, full, str(folder.parent)) from error
            raise
    check_counts(folder, languages, sentences)


def command(folder: Path, languages: tuple[str, str]) -> list[str]:
    """The fairseq-preprocess command line."""
    source, target = languages
    words = [sys.executable, "-m", "fairseq_cli.preprocess"]
    words += ["--source-lang", source, "--target-lang", target]
    for split, option in (("train", "trainpref"), ("dev", "validpref"), ("test", "testpref")):
        words += [f"--{option}", str(folder / "bpe" / split)]
    return [*words, "--destdir", str(folder / "bin"), *JOINT]


def check_counts(folder: Path, languages: tuple[str, str], sentences: dict[str, int]) -> None:
    """Make sure that every line became a sentence.

    Raises:
        StageFailed: for the first file of which that is not so.
    """
    for split, expected in sentences.items():
        for language in languages:
            name = f"{FAIRSEQ_SPLITS[split]}.{languages[0]}-{languages[1]}.{language}"
            found = count_sentences(folder / "bin" / f"{name}.idx")
            if found != expected:
                raise StageFailed(
                    f"{split}.{language}: {expected:,} lines became {found:,} sentences in "
                    "fairseq-preprocess: it takes a character for a line's end that is not in "
                    "the table of white space; please report it with the text"
                )


def count_sentences(index: Path) -> int:
    """How many sentences a binarised file has, by its index; importing fairseq takes seconds.

    Raises:
        StageFailed: for another format than ``--dataset-impl mmap`` of this fairseq.
    """
    with index.open("rb") as file:
        head = file.read(HEAD.size)
    magic, version, _, count = HEAD.unpack(head) if len(head) == HEAD.size else (b"", 0, 0, 0)
    if (magic, version) != MMAP:
        raise StageFailed(f"{index}: not an index of fairseq's mmap format; its version changed")
    return int(count)
