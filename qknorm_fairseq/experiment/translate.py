"""The test set in a run's words, by fairseq-generate with the best checkpoint."""

import re
import sys
from pathlib import Path

from qknorm_fairseq.experiment.binarise import FAIRSEQ_SPLITS
from qknorm_fairseq.experiment.commands import run_logged
from qknorm_fairseq.experiment.console import Progress
from qknorm_fairseq.experiment.corpus import read_lines
from qknorm_fairseq.experiment.errors import StageFailed
from qknorm_fairseq.experiment.run import PIPELINE, PLUGIN, Run
from qknorm_fairseq.experiment.settings import Options, as_arguments
from qknorm_fairseq.experiment.text import unescape
from qknorm_fairseq.experiment.workspace import write_lines

HYPOTHESIS = re.compile(rb"^H-(\d+)\t[^\t]*\t(.*)$")


def translate(run: Run, device: str, split: str = "test") -> None:
    """Translate a split with the best checkpoint and keep the text beside the run.

    Writes ``SPLIT.hyp.txt`` and ``SPLIT.ref.txt`` in the form of the prepared text, pieces
    joined and escapes undone, a line a sentence.

    Raises:
        StageFailed: when a sentence has no translation.
    """
    references = read_lines(run.data / "text" / f"{split}.{run.pair.target}")
    log = run.folder / f"{split}.generate.log"
    log.unlink(missing_ok=True)
    with Progress(run.name, len(references), "sentences") as progress:
        done = 0

        def count(lines: list[bytes]) -> None:
            nonlocal done
            done += sum(line.startswith(b"H-") for line in lines)
            progress.update(done)

        run_logged(generate_command(run, split), log, device, count)
    hypotheses = [unescape(line) for line in parse_hypotheses(log, len(references))]
    for name, lines in (("hyp", hypotheses), ("ref", references)):
        write_lines(run.folder / f"{split}.{name}.txt", lines)


def generate_command(run: Run, split: str) -> list[str]:
    """The fairseq-generate command that translates ``split``."""
    options: Options = {
        **run.languages,
        "user-dir": PLUGIN,
        "task": PIPELINE["task"],
        "path": run.best_checkpoint,
        "gen-subset": FAIRSEQ_SPLITS[split],
        "beam": run.profile.beam,
        "max-tokens": 4096,
        "num-workers": 0,  # none to print into the middle of a line
        "post-process": run.pair.recipe.post_process,
    }
    bin_folder = str(run.data / "bin")
    return [sys.executable, "-m", "fairseq_cli.generate", bin_folder, *as_arguments(options)]


def parse_hypotheses(log: Path, count: int) -> list[str]:
    """The hypotheses of sentence 0 to ``count`` - 1, whatever the order they came in."""
    found: dict[int, str] = {}
    for line in log.read_bytes().split(b"\n"):
        match = HYPOTHESIS.match(line)
        if match:
            found[int(match[1])] = match[2].decode("utf-8")
    missing = [i for i in range(count) if i not in found]
    if missing or len(found) != count:
        raise StageFailed(
            f"{len(found):,} translations of {count:,} sentences; the first without one is "
            f"line {missing[0] + 1 if missing else count + 1}; its log: {log}"
        )
    return [found[i] for i in range(count)]
