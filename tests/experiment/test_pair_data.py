"""The text is given, made or fetched, and fetched only when there is need of it."""

import json
import shutil
from pathlib import Path

import pytest
import tiny
import yaml

from qknorm_fairseq.experiment import pair_data
from qknorm_fairseq.experiment.workspace import sha256

pytestmark = pytest.mark.usefixtures("quick_preprocess")


@pytest.fixture
def fetched(tmp_path: Path, configs: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A corpus «talks» that seems to be fetched; the names of what was fetched."""
    place = tiny.write_corpus(tmp_path / "downloads/talks", {"train": 40, "dev": 4, "test": 5})
    for path in place.glob("dev.*"):
        path.rename(path.with_name(path.name.replace("dev", "tst2012")))
    calls: list[str] = []

    def fetch(corpus: object, folder: Path) -> Path:
        assert folder == place
        calls.append(folder.name)
        return folder

    monkeypatch.setattr(pair_data, "fetch", fetch)
    monkeypatch.setattr(pair_data, "DOWNLOADS", tmp_path / "downloads")
    (configs / "corpora").mkdir(exist_ok=True)
    corpus = {
        "description": "for tests",
        "licence": "none",
        "form": "parallel",
        "splits": {"train": "train", "dev": "tst2012", "test": "test"},
        "files": [
            {
                "name": path.name,
                "bytes": path.stat().st_size,
                "sha256": sha256(path),
                "urls": ["http://127.0.0.1/x"],
            }
            for path in sorted(place.iterdir())
        ],
    }
    (configs / "corpora/talks.yaml").write_text(yaml.safe_dump(corpus))
    pair = {"source": "xx", "target": "yy", "merges": 10, "corpus": "talks"}
    (configs / "pairs/talks.yaml").write_text(yaml.safe_dump(pair))
    return calls


def test_a_corpus_is_fetched_once_and_again_for_other_settings(
    fetched: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["prepare", "talks", "--out", tmp_path / "out"]
    assert tiny.qknorm(*words) == 0
    first = capsys.readouterr().out
    assert "[1/2] fetch      talks" in first
    assert "train.xx" in first  # the card
    assert tiny.qknorm(*words) == 0
    again = capsys.readouterr().out
    assert "not needed: the data are prepared" in again
    assert again[again.index("\n\n") :] == first[first.index("\n\n") :]
    assert fetched == ["talks"]
    assert tiny.qknorm(*words, "--merges", "12") == 0
    assert fetched == ["talks", "talks"]
    manifest = json.loads((tmp_path / "out/data/talks/manifest.json").read_text())
    assert manifest["recipe"]["merges"] == 12
    assert set(manifest["inputs"]) == {
        f"{stem}.{side}" for stem in ("train", "tst2012", "test") for side in ("xx", "yy")
    }


def test_text_that_is_given_is_not_fetched(fetched: list[str], tmp_path: Path) -> None:
    shutil.copytree(tmp_path / "downloads/talks", tmp_path / "mine")
    words = ["prepare", "talks", "--raw-dir", tmp_path / "mine", "--out", tmp_path / "out"]
    assert tiny.qknorm(*words) == 0
    assert fetched == []


def test_what_was_made_of_other_text_is_not_replaced_by_the_corpus(
    fetched: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = tiny.write_corpus(tmp_path / "mine", {"train": 30, "dev": 3, "test": 3})
    words = ["prepare", "talks", "--out", tmp_path / "out"]
    assert tiny.qknorm(*words, "--raw-dir", raw, "--merges", "12") == 0
    assert tiny.qknorm(*words) == 2
    assert "prepared with other settings (merges was 12, now 10)" in capsys.readouterr().err
    assert fetched == []
