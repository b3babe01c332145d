"""What tests share: --slow, where reference data lie, and a tiny prepared pair."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import tiny
import torch
from hypothesis import settings

from qknorm_fairseq.experiment.prepare import prepare
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


@pytest.fixture(scope="session")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """An output folder in which the pair ``tiny`` (60 / 13 / 11 pairs) is prepared."""
    folder = tmp_path_factory.mktemp("tiny")
    raw = tiny.write_corpus(folder / "raw", tiny.SPLITS)
    workspace = Workspace(folder / "out")
    prepare(tiny.PAIR, raw, workspace)
    return workspace
