"""metrics.jsonl: a row a validation, none twice, time added up over resumes."""

import json
from pathlib import Path
from typing import Any

import pytest
from fairseq.logging import metrics

from qknorm_fairseq.tasks.metrics_file import MetricsFile


@pytest.fixture(autouse=True)
def _training_metrics() -> None:
    metrics.reset()
    with metrics.aggregate("train"):
        metrics.log_scalar("loss", 5.0)
        metrics.log_scalar("gnorm", 1.5)
        metrics.log_scalar("lr", 0.001, weight=0)


def stats(update: int, bleu: float) -> dict[str, Any]:
    return {"num_updates": update, "loss": 6.0, "bleu": bleu}


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_row_holds_what_is_promised(tmp_path: Path) -> None:
    MetricsFile(str(tmp_path / "m.jsonl")).write(stats(10, 1.0), epoch=2, dev_lines=13)
    (row,) = rows(tmp_path / "m.jsonl")
    assert row.pop("elapsed") >= 0
    assert row == {
        "update": 10,
        "epoch": 2,
        "lr": 0.001,
        "train_loss": 5.0,
        "dev_loss": 6.0,
        "dev_bleu": 1.0,
        "dev_lines": 13,
        "gnorm": 1.5,
    }


def test_a_resumed_run_replaces_the_rows_that_it_goes_through_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    path = tmp_path / "m.jsonl"
    first = MetricsFile(str(path))
    for update in (10, 20, 30):
        clock[0] += 5
        first.write(stats(update, update), 1, 13)
    clock[0] = 7.0  # another process, resumed from update 20
    second = MetricsFile(str(path))
    for update in (30, 40):
        clock[0] += 5
        second.write(stats(update, update + 0.5), 1, 13)
    assert [row["update"] for row in rows(path)] == [10, 20, 30, 40]
    assert [row["dev_bleu"] for row in rows(path)] == [10, 20, 30.5, 40.5]
    assert [row["elapsed"] for row in rows(path)] == [5, 10, 15, 20]
