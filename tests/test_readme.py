"""The README's commands run as they stand, and its table is that of the recorded runs."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT, Command

from qknorm_fairseq.experiment.factorial import FACTORIAL
from qknorm_fairseq.experiment.recorded import run_folders, seed_of
from qknorm_fairseq.experiment.render import as_markdown
from qknorm_fairseq.experiment.report import Table, gather, write_tables
from qknorm_fairseq.experiment.run import make_run
from qknorm_fairseq.experiment.settings import load_arm, load_pair, load_profile
from qknorm_fairseq.experiment.tables import sections
from qknorm_fairseq.experiment.workspace import Workspace

EVIDENCE = Workspace(ROOT / "tests" / "evidence")
EVIDENCE_MANIFEST = json.loads((EVIDENCE.data("gl-en") / "manifest.json").read_text())
README = (ROOT / "README.md").read_text("utf-8")


def commands_under(heading: str) -> list[str]:
    """The shell blocks of a section."""
    section = README.split(f"## {heading}\n")[1].split("\n## ")[0]
    return re.findall(r"```sh\n(.*?)```", section, re.DOTALL)


def test_the_tables_are_those_of_the_recorded_runs(tmp_path: Path) -> None:
    """Built anew from what each run recorded, without a line of the corpus."""
    results = gather(Table(load_pair("gl-en"), EVIDENCE))
    for path in write_tables(results, Workspace(tmp_path)):
        assert path.read_text() == EVIDENCE.result("gl-en", path.suffix[1:]).read_text()
    assert results["verdict"] in README
    for section in sections(results):
        if section.key in ("factorial", "arms", "runs"):
            assert as_markdown(section) in README, section.title


def test_the_recorded_runs_are_of_this_profile() -> None:
    folders = run_folders(EVIDENCE, "gl-en")
    assert {folder.parent.name for folder in folders} == set(FACTORIAL)
    for folder in folders:
        arm, seed = load_arm(folder.parent.name), seed_of(folder)
        run = make_run(EVIDENCE, load_pair("gl-en"), arm, load_profile("cpu"), seed, "fp32")
        run.check({"fingerprint": EVIDENCE_MANIFEST["fingerprint"]})
        rows = run.metrics()
        assert {row["dev_lines"] for row in rows} == {682}
        assert rows[-1]["update"] == run.updates


def test_the_checksums_are_those_of_the_recorded_data() -> None:
    for name, file in EVIDENCE_MANIFEST["inputs"].items():
        assert f"{file['sha256']}  {name}" in README


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder that looks like a fresh clone and shares this one's environment."""
    for name in ("qknorm_fairseq", "configs", "scripts", "data", ".venv"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


def run_by_hand(clone: Path, command: Command, updates: int | None) -> None:
    by_hand, hydra = commands_under("By hand, with fairseq's own commands")
    script = f"set -e\n{by_hand}\n{hydra}\n"
    script = script.replace("scripts/prepare.sh", "qknorm prepare")  # set up already
    if updates:
        script = re.sub(r"--max-update \d+", f"--max-update {updates}", script)
        script = script.replace("-name toy", f"-name toy optimization.max_update={updates}")
    done: subprocess.CompletedProcess[str] = command("bash", "-c", script, cwd=clone)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert len(re.findall(r"^H-\d+\t", done.stdout, re.MULTILINE)) == 200 + 3
    assert "Generate test with beam=4: BLEU4 = " in done.stdout
    assert (clone / "runs/hydra/checkpoints/checkpoint_best.pt").exists(), done.stdout[-3000:]


def test_the_commands_by_hand_run(clone: Path, command: Command) -> None:
    run_by_hand(clone, command, updates=3)


@pytest.mark.slow
def test_the_commands_by_hand_run_as_they_stand(clone: Path, command: Command) -> None:
    run_by_hand(clone, command, updates=None)
