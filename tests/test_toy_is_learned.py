"""The made-up language by one command: learned with attention, and not without it."""

import json
import shutil
import time
from pathlib import Path

import pytest

from qknorm_fairseq import cli
from qknorm_fairseq.experiment import settings

UNIFORM = (
    "{arch: transformer_qknorm, description: x, options: {qk-scale-init: 0, qk-scale-fixed: true}}"
)


@pytest.mark.slow
def test_the_toy_language_needs_attention(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    configs = tmp_path / "configs"
    shutil.copytree(settings.CONFIGS, configs)
    (configs / "arms" / "uniform.yaml").write_text(UNIFORM)
    monkeypatch.setattr(settings, "CONFIGS", configs)
    words = ["reproduce", "toy", "--arms", "scalenorm,qknorm,uniform", "--out", str(tmp_path / "o")]
    assert cli.main(words) == 0
    arms = json.loads((tmp_path / "o/results/toy.json").read_text())["arms"]
    bleu = {name: arm["scores"]["moses_13a"]["mean"] for name, arm in arms.items()}
    print(bleu)
    assert bleu["scalenorm"] >= 60
    assert bleu["qknorm"] >= 60
    assert bleu["uniform"] < 30
    for name in ("scalenorm", "qknorm"):
        rows = (tmp_path / f"o/runs/toy/{name}/seed1/metrics.jsonl").read_text().splitlines()
        assert len(rows) >= 10
    capsys.readouterr()
    began = time.monotonic()
    assert cli.main(words) == 0
    assert time.monotonic() - began < 20
    assert capsys.readouterr().out.count("already done") == 3
