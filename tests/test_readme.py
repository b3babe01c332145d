"""The README's commands run as they stand, and its table is that of the recorded runs."""

import re
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT, Command

README = (ROOT / "README.md").read_text("utf-8")


def commands_under(heading: str) -> list[str]:
    """The shell blocks of a section."""
    section = README.split(f"## {heading}\n")[1].split("\n## ")[0]
    return re.findall(r"```sh\n(.*?)```", section, re.DOTALL)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder that looks like a fresh clone and shares this one's environment."""
    for name in ("qknorm_fairseq", "configs", "scripts", "data", ".venv"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


def run_by_hand(clone: Path, command: Command, updates: int | None) -> None:
    by_hand, hydra = commands_under("By hand, with fairseq's own commands")
    script = f"set -e\n{by_hand}\n{hydra} || true\n"
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
