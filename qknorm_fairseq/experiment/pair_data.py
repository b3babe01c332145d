"""A pair's data, from wherever its text is to the binarised form: the first two stages."""

import subprocess
import sys
from pathlib import Path

from qknorm_fairseq.experiment import card
from qknorm_fairseq.experiment.console import Stages
from qknorm_fairseq.experiment.corpora import load_corpus
from qknorm_fairseq.experiment.errors import StageFailed, UserError
from qknorm_fairseq.experiment.fetch import fetch
from qknorm_fairseq.experiment.manifest import Manifest, prepared, read_manifest
from qknorm_fairseq.experiment.prepare import prepare
from qknorm_fairseq.experiment.settings import DOWNLOADS, ROOT, Pair
from qknorm_fairseq.experiment.sources import RawText, locate
from qknorm_fairseq.experiment.workspace import Workspace


def fetch_stage(
    pair: Pair, folder: Path | None, workspace: Workspace, stages: Stages
) -> RawText | Manifest:
    """The pair's raw text, given, made or fetched; or the manifest, if it is prepared already."""
    stages.start("fetch", str(folder or pair.generator or pair.corpus or pair.name))
    if folder is None and pair.generator:
        folder = _generate(pair, workspace)
    if folder is None:
        try:
            manifest = prepared(pair, workspace)
        except UserError:
            if pair.corpus is None or not _may_be_made_of(pair.corpus, pair, workspace):
                raise
            folder = fetch(load_corpus(pair.corpus), DOWNLOADS / pair.corpus)
        else:
            stages.done("not needed: the data are prepared")
            return manifest
    raw = find_text(pair, folder)
    size = sum(path.stat().st_size for path in raw.inputs) / 1e6
    names = ", ".join(path.name for path in raw.inputs)
    stages.done(f"{names} · {size:,.1f} MB")
    return raw


def _may_be_made_of(corpus: str, pair: Pair, workspace: Workspace) -> bool:
    """Whether there are no data, or those of the corpus itself: text of one's own is kept."""
    done = read_manifest(workspace, pair.name)
    if done is None:
        return True
    inputs = {name: file["sha256"] for name, file in done.get("inputs", {}).items()}
    return inputs == {file.name: file.sha256 for file in load_corpus(corpus).files}


def find_text(pair: Pair, folder: Path) -> RawText:
    """The pair's text in ``folder``; UserError when it is not there."""
    stems = load_corpus(pair.corpus).splits if pair.corpus else None
    return locate(folder, pair.source, pair.target, stems)


def _generate(pair: Pair, workspace: Workspace) -> Path:
    folder = workspace.root / "corpora" / pair.name
    folder.mkdir(parents=True, exist_ok=True)
    script = ROOT / str(pair.generator)
    made = subprocess.run([sys.executable, script, folder], capture_output=True, text=True)
    if made.returncode:
        raise StageFailed(f"{script} failed: {made.stderr.strip()}")
    return folder


def prepare_stage(
    pair: Pair,
    folder: Path | None,
    workspace: Workspace,
    stages: Stages,
    show_card: bool = False,
) -> Manifest:
    """Raw text to binarised data, with the data card when they are new, or if it is wanted."""
    raw = fetch_stage(pair, folder, workspace, stages)
    recipe = pair.recipe
    stages.start("prepare", f"{pair.name}, {recipe.bpe}, {recipe.merges:,}")
    if isinstance(raw, RawText):
        manifest, worked = prepare(pair, raw, workspace)
    else:
        manifest, worked = raw, False
    pairs = " / ".join(f"{manifest['pairs'][split]:,}" for split in ("train", "dev", "test"))
    text = f"{pairs} pairs · {manifest['vocabulary']['joint']:,} types"
    stages.done(text if worked else f"{text} · already done")
    if worked or show_card:
        print(f"\n{card.show(manifest)}\n", flush=True)
    return manifest
