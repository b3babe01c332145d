"""What tests share: --slow, where reference data lie, and a tiny prepared pair."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
import yaml
from fairseq.options import get_preprocessing_parser
from fairseq_cli import preprocess
from hypothesis import settings

from qknorm_fairseq.experiment import binarise, commands
from qknorm_fairseq.experiment import settings as experiment
from qknorm_fairseq.experiment.prepare import prepare
from qknorm_fairseq.experiment.sources import locate
from qknorm_fairseq.experiment.workspace import Workspace

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
SHARED = ROOT.parent / "shared"

settings.register_profile("no deadline", deadline=None)  # other work slows a machine
settings.load_profile("no deadline")

Command = Callable[..., "subprocess.CompletedProcess[str]"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the slow tests too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--slow"):
        for item in items:
            if "slow" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="slow: needs --slow"))


@pytest.fixture(autouse=True)
def _one_thread_and_a_seed() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(1)


def _folder(variable: str, default: str) -> Path:
    path = Path(os.environ.get(variable, SHARED / default))
    if not path.is_dir():
        pytest.skip(f"{variable} names no folder, and {default} is not beside the checkout")
    return path


@pytest.fixture(scope="session")
def reference() -> Path:
    """Numbers and translations of the published implementation."""
    return _folder("QKNORM_REFERENCE", "reference")


@pytest.fixture(scope="session")
def corpora() -> Path:
    """Real parallel text."""
    return _folder("QKNORM_CORPORA", "corpora")


@pytest.fixture(scope="session")
def command() -> Command:
    """Run a command of the environment from a folder; its output comes back as text."""

    def run(
        *words: object, cwd: Path = ROOT, text: str | None = None
    ) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [str(word) for word in words],
            cwd=cwd,
            env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"},
            input=text,
            capture_output=True,
            text=True,
        )

    return run


@pytest.fixture(scope="module")
def configs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """In place of the project's settings: the real arms, the pair and the profile ``tiny``."""
    folder = tmp_path_factory.mktemp("configs")
    real, experiment.CONFIGS = experiment.CONFIGS, folder
    shutil.copytree(real / "arms", folder / "arms")
    pair = {"source": "xx", "target": "yy", "merges": 10, "default_profile": "tiny"}
    pair["paper"] = {"scalenorm": 22.01, "qknorm": 24.21}
    pair["options"] = {"qk-scale-length": 79}
    for name, value in (("pairs", pair), ("profiles", tiny.PROFILE)):
        (folder / name).mkdir()
        (folder / name / "tiny.yaml").write_text(yaml.safe_dump(value))
    yield folder
    experiment.CONFIGS = real


@pytest.fixture
def quick_preprocess(monkeypatch: pytest.MonkeyPatch) -> None:
    """fairseq-preprocess in this process: it takes longer to start than to run."""
    run_logged = commands.run_logged

    def run(command: list[str], *rest: Any, **options: Any) -> None:
        if command[1:3] == ["-m", "fairseq_cli.preprocess"]:
            preprocess.main(get_preprocessing_parser().parse_args(command[3:]))
        else:
            run_logged(command, *rest, **options)

    monkeypatch.setattr(binarise, "run_logged", run)


@pytest.fixture(scope="session")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """An output folder in which the pair ``tiny`` (60 / 13 / 11 pairs) is prepared."""
    folder = tmp_path_factory.mktemp("tiny")
    raw = tiny.write_corpus(folder / "raw", tiny.SPLITS)
    workspace = Workspace(folder / "out")
    prepare(tiny.PAIR, locate(raw, "xx", "yy"), workspace)
    return workspace
