"""A pair's data, from wherever its text is to the binarised form: the first two stages."""

import subprocess
import sys
from pathlib import Path

from qknorm_fairseq.experiment import card
from qknorm_fairseq.experiment.console import Stages
from qknorm_fairseq.experiment.errors import StageFailed
from qknorm_fairseq.experiment.fetch import Corpus, fetch, load_corpus
from qknorm_fairseq.experiment.manifest import Manifest, is_prepared, prepared, read_manifest
from qknorm_fairseq.experiment.prepare import prepare
from qknorm_fairseq.experiment.settings import DOWNLOADS, ROOT, Pair
from qknorm_fairseq.experiment.sources import RawText, locate
from qknorm_fairseq.experiment.workspace import Workspace


def fetch_stage(
    pair: Pair, folder: Path | None, workspace: Workspace, stages: Stages
) -> RawText | None:
    """The pair's raw text: what was given, made or fetched; None if it is prepared already."""
    stages.start("fetch", str(folder or pair.generator or pair.corpus or pair.name))
    if folder is None and pair.generator:
        folder = _generate(pair, workspace)
    if folder is None:
        corpus = load_corpus(pair.corpus) if pair.corpus else None
        done = read_manifest(workspace, pair.name)
        theirs = done is None or (corpus is not None and _is_of(corpus, done))
        if corpus is None or not theirs or is_prepared(pair, workspace):
            prepared(pair, workspace)  # or say what is wrong
            stages.done("not needed: the data are prepared")
            return None
        folder = fetch(corpus, DOWNLOADS / corpus.name)
    raw = find_text(pair, folder)
    size = sum(path.stat().st_size for path in raw.inputs) / 1e6
    names = ", ".join(path.name for path in raw.inputs)
    stages.done(f"{names} · {size:,.1f} MB")
    return raw


def _is_of(corpus: Corpus, manifest: Manifest) -> bool:
    """Whether data were made of the corpus itself, and can be made of it again."""
    inputs = {name: file["sha256"] for name, file in manifest.get("inputs", {}).items()}
    return inputs == {file.name: file.sha256 for file in corpus.files}


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
    if raw is None:
        manifest, worked = prepared(pair, workspace), False
    else:
        manifest, worked = prepare(pair, raw, workspace)
    pairs = " / ".join(f"{manifest['pairs'][split]:,}" for split in ("train", "dev", "test"))
    text = f"{pairs} pairs · {manifest['vocabulary']['joint']:,} types"
    stages.done(text if worked else f"{text} · already done")
    if worked or show_card:
        print(f"\n{card.show(manifest)}\n", flush=True)
    return manifest
