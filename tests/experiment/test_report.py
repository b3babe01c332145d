"""Tables from run folders: complete, partly run, and what may not be in one table."""

import csv
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from recording import record, references, worsened
from tiny import qknorm

from qknorm_fairseq.experiment.factorial import FACTORIAL
from qknorm_fairseq.experiment.protocols import PROTOCOLS
from qknorm_fairseq.experiment.report import WRITTEN
from qknorm_fairseq.experiment.tidy import OF_A_RUN
from qknorm_fairseq.experiment.workspace import Workspace

pytestmark = pytest.mark.usefixtures("configs")

ANSWERS = references(60)
SHARES = dict(zip(FACTORIAL, (0.40, 0.40, 0.33, 0.25), strict=True))  # of words that are wrong


def record_all(
    folder: Path, seeds: int, arms: tuple[str, ...] = FACTORIAL, counts: bool = True
) -> None:
    """Without the lines' counts no run is tested against another, which takes a second each."""
    for i, arm in enumerate(arms):
        for seed in range(1, seeds + 1):
            hypotheses = worsened(ANSWERS, SHARES[arm] + 0.01 * seed, 10 * i + seed)
            norm = "scalenorm" if arm.endswith("scalenorm") else "layernorm"
            run = record(Workspace(folder), arm, seed, hypotheses, ANSWERS, {"residual_norm": norm})
            if not counts:
                (run / "line_statistics.npz").unlink()


def report(folder: Path, *words: str) -> dict[str, Any]:
    assert qknorm("report", "tiny", "--out", folder, *words) == 0
    return json.loads((folder / "results/tiny.json").read_text())


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory, configs: Path) -> Path:
    """The 2 × 2 with three seeds, its tables made."""
    folder = tmp_path_factory.mktemp("full")
    record_all(folder, seeds=3)
    report(folder)
    return folder


def test_the_four_arms_give_every_effect(full: Path) -> None:
    results = json.loads((full / "results/tiny.json").read_text())
    assert list(results["arms"]) == list(FACTORIAL)
    factorial = results["factorial"]
    means = {arm: results["arms"][arm]["scores"]["moses_13a"]["mean"] for arm in FACTORIAL}
    at = factorial["qknorm_at"]
    assert at["layernorm"]["difference"] == pytest.approx(
        means["qknorm"] - means["layernorm"], abs=1e-3
    )
    assert factorial["interaction"]["difference"] == pytest.approx(
        at["layernorm"]["difference"] - at["scalenorm"]["difference"], abs=1e-3
    )
    effects = [*at.values(), *factorial["layernorm_at"].values(), factorial["interaction"]]
    for effect in effects:
        low, high = effect["interval"]
        assert low < effect["difference"] < high
        assert effect["p"] <= effect["p_holm"]
        assert effect["star"] == (effect["p_holm"] < 0.05)
    assert at["layernorm"]["star"]  # a third of the errors fewer
    assert "Shown: " in results["verdict"]
    assert "QKNorm at LayerNorm" in results["verdict"].split("Not shown")[0]
    by_seed = [c for c in results["comparisons"] if c["seed"] != "pooled"]
    assert len(by_seed) == 3 * 3 * 4
    assert all(c["p_bootstrap"] and c["p_randomisation"] for c in by_seed)


def test_the_same_figures_stand_in_every_form(full: Path) -> None:
    results = json.loads((full / "results/tiny.json").read_text())
    markdown, tex = ((full / f"results/tiny.{s}").read_text() for s in ("md", "tex"))
    rows = list(csv.DictReader((full / "results/tiny.csv").open()))
    kinds = {"run", "mean", "difference", "effect", "paper", "option", "environment", "verdict"}
    assert {row["kind"] for row in rows} == kinds | set(OF_A_RUN)
    for arm in FACTORIAL:
        for protocol, score in results["arms"][arm]["scores"].items():
            cell = f"{score['mean']:.2f} ± {score['sd']:.2f}"
            assert cell in markdown
            assert cell.replace("±", r"$\pm$") in tex
            of_runs = [
                float(row["value"])
                for row in rows
                if (row["kind"], row["b"], row["protocol"]) == ("run", arm, protocol)
            ]
            assert of_runs == score["runs"]
            assert score["signature"] in markdown
    assert "| interaction " in markdown.replace("the interaction of the two", "interaction")
    assert "| torch 2.13.0" in markdown
    assert "12,345" in markdown


def test_the_latex_has_nothing_that_breaks_it(full: Path) -> None:
    tex = (full / "results/tiny.tex").read_text()
    for begun in ("table", "tabular"):
        assert tex.count(rf"\begin{{{begun}}}") == tex.count(rf"\end{{{begun}}}") > 3
    body = "\n".join(line for line in tex.split("\n") if not line.startswith("%"))
    assert not re.search(r"(?<!\\)[#%_^~]", re.sub(r"\\label\{.*?\}", "", body))
    assert re.sub(r"\\.", "", body).count("$") % 2 == 0
    assert "|" not in body
    assert not re.search("[±−×·–<>]", body.replace("$<$", ""))
    columns = [len(spec) for spec in re.findall(r"\\begin\{tabular\}\{(\w+)\}", tex)]
    tables = re.findall(r"\\toprule(.*?)\\bottomrule", tex, re.DOTALL)
    for number, table in zip(columns, tables, strict=True):
        for row in table.strip().split(r"\\")[:-1]:
            assert len(re.findall(r"(?<!\\)&", row)) == number - 1


def test_options_that_differ_are_those_of_the_resolved_runs(full: Path) -> None:
    results = json.loads((full / "results/tiny.json").read_text())
    assert set(results["options"]) == {"arch", "residual_norm"}
    assert results["options"]["residual_norm"]["qknorm"] == ["layernorm"]
    assert "are the same in every run\n" in (full / "results/tiny.md").read_text()


def test_an_option_that_one_run_alone_has_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever its name, and though its arm's first run had not."""
    record_all(tmp_path, seeds=2, arms=("scalenorm", "qknorm"), counts=False)
    run = Workspace(tmp_path).run("tiny", "qknorm", 2)
    resolved = json.loads((run / "finished.json").read_text())["options"]
    change(run, "finished.json", options={**resolved, "dropout": 0.9, "max_update": 99})
    results = report(tmp_path)
    assert results["options"]["dropout"] == {"scalenorm": [None], "qknorm": [None, 0.9]}
    assert results["options"]["max_update"]["qknorm"] == [None, 99]
    assert "– / 0.9" in capsys.readouterr().out


def test_a_run_that_did_not_record_its_options_is_named(tmp_path: Path) -> None:
    record_all(tmp_path, seeds=1, arms=("scalenorm", "qknorm"), counts=False)
    (Workspace(tmp_path).run("tiny", "qknorm", 1) / "finished.json").unlink()
    assert report(tmp_path)["options_not_recorded"] == ["qknorm seed 1"]
    markdown = (tmp_path / "results/tiny.md").read_text()
    assert "- qknorm seed 1: did not record their parameters and resolved options" in markdown


def test_a_run_whose_settings_are_lost_is_named(tmp_path: Path) -> None:
    record_all(tmp_path, seeds=2, arms=("scalenorm", "qknorm"), counts=False)
    for seed in (1, 2):
        (Workspace(tmp_path).run("tiny", "qknorm", seed) / "config.yaml").unlink()
    assert report(tmp_path)["missing"] == {
        f"qknorm seed {seed}": "its config.yaml is missing" for seed in (1, 2)
    }


def test_runs_that_are_copies_of_each_other_are_not_tested(tmp_path: Path) -> None:
    for arm, share in (("scalenorm", 0.4), ("qknorm", 0.3)):
        for seed in (1, 2, 3):
            run = record(Workspace(tmp_path), arm, seed, worsened(ANSWERS, share, 1), ANSWERS)
            (run / "line_statistics.npz").unlink()
    verdict = report(tmp_path)["verdict"]
    assert "Not tested, for want of 3 runs that differ: qknorm − scalenorm +" in verdict


def test_tables_that_cannot_all_be_made_leave_those_that_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_all(tmp_path, seeds=1, arms=("scalenorm", "qknorm"), counts=False)
    report(tmp_path)
    before = {path: path.read_bytes() for path in (tmp_path / "results").iterdir()}
    assert len(before) == 4
    (Workspace(tmp_path).run("tiny", "qknorm", 1) / "finished.json").unlink()

    def fail(results: object) -> str:
        raise OSError("no")

    monkeypatch.setitem(WRITTEN, "csv", fail)
    assert qknorm("report", "tiny", "--out", tmp_path) == 2
    assert {path: path.read_bytes() for path in (tmp_path / "results").iterdir()} == before


def test_two_seeds_are_marked_and_claim_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record_all(tmp_path, seeds=2, counts=False)
    results = report(tmp_path)
    assert results["arms"]["qknorm"]["scores"]["moses_13a"]["sd"] > 0
    for c in results["comparisons"]:
        if c["seed"] == "pooled":
            assert (c["p"], c["p_holm"], c["interval"], c["star"]) == (None, None, None, False)
    printed = capsys.readouterr().out
    assert "two runs an arm" in printed
    assert "With two runs an arm nothing is shown" in printed
    assert "*" not in printed.replace("*:", "")


def test_a_partly_run_matrix_says_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record_all(tmp_path, seeds=2, arms=("scalenorm", "qknorm"), counts=False)
    workspace = Workspace(tmp_path)
    begun = workspace.run("tiny", "layernorm", 1)
    record(workspace, "layernorm", 1, ANSWERS, ANSWERS)
    for name in ("scores.json", "line_statistics.npz", "finished.json", "metrics.jsonl"):
        (begun / name).unlink()
    results = report(tmp_path, "--factorial")
    assert list(results["arms"]) == ["scalenorm", "qknorm"]
    assert "factorial" not in results
    assert results["missing"] == {
        "layernorm seed 1": "never reached a checkpoint",
        "qknorm_scalenorm seed 1": "not begun",
        "layernorm seed 2": "not begun",
        "qknorm_scalenorm seed 2": "not begun",
    }
    assert "never reached a checkpoint" in capsys.readouterr().out
    assert "| layernorm seed 1 " in (tmp_path / "results/tiny.md").read_text()


def test_runs_that_never_reached_a_checkpoint_make_no_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = record(Workspace(tmp_path), "qknorm", 1, ANSWERS, ANSWERS)
    for path in folder.iterdir():
        if path.name != "config.yaml":
            path.unlink()
    assert qknorm("report", "tiny", "--out", tmp_path) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "nothing to report" in error
    assert "qknorm seed 1 never reached a checkpoint" in error
    assert not (tmp_path / "results").exists()


def test_without_the_counts_of_lines_there_is_no_interval(tmp_path: Path) -> None:
    record_all(tmp_path, seeds=3, arms=("scalenorm", "qknorm"))
    (Workspace(tmp_path).run("tiny", "qknorm", 2) / "line_statistics.npz").unlink()
    for c in report(tmp_path)["comparisons"]:
        if c["seed"] == "pooled":
            assert c["interval"] is None
            assert 0 < c["p"] < 1
        else:
            assert (c["p_bootstrap"] is None) == (c["seed"] == 2)


def change(folder: Path, name: str, **values: Any) -> None:
    path = folder / name
    read = yaml.safe_load if name.endswith("yaml") else json.loads
    value = {**read(path.read_text()), **values}
    path.write_text(yaml.safe_dump(value) if name.endswith("yaml") else json.dumps(value))


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        ("config.yaml", {"data": "other"}, "data the same and other"),
        ("config.yaml", {"profile": "paper"}, "profile tiny and paper"),
        ("config.yaml", {"options": {"bf16": True}}, "precision fp32 and bf16"),
        ("scores.json", {"lines": 59}, "line_statistics.npz: not the counts"),
        (
            "scores.json",
            {"tokenised": {"score": 1.0, "signature": "v:3"}},
            "line_statistics.npz: not the counts of scores.json",
        ),
    ],
)
def test_runs_that_cannot_be_compared_are_both_named(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    values: dict[str, Any],
    said: str,
) -> None:
    record_all(tmp_path, seeds=1, arms=("scalenorm", "qknorm"))
    folder = Workspace(tmp_path).run("tiny", "qknorm", 1)
    change(folder, name, **values)
    assert qknorm("report", "tiny", "--out", tmp_path) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert said in error
    assert str(folder) in error
    if name == "config.yaml":
        assert str(Workspace(tmp_path).run("tiny", "scalenorm", 1)) in error


@pytest.mark.parametrize("what", ["signature", "lines", "option"])
def test_runs_scored_otherwise_are_both_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    record_all(tmp_path, seeds=2, arms=("scalenorm", "qknorm"))
    folder = Workspace(tmp_path).run("tiny", "qknorm", 2)
    (folder / "line_statistics.npz").unlink()
    if what == "signature":
        score = json.loads((folder / "scores.json").read_text())["moses_13a"]["score"]
        change(folder, "scores.json", moses_13a={"score": score, "signature": "tok:intl"})
    elif what == "lines":
        change(folder, "scores.json", lines=59)
    else:
        change(folder, "config.yaml", options={"lr": 0.1})
    assert qknorm("report", "tiny", "--out", tmp_path) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert str(folder) in error
    assert {
        "signature": "moses_13a's signature",
        "lines": "lines of the test set 60 and 59",
        "option": "are not of one arm: lr differ",
    }[what] in error


def test_a_choice_of_profile_leaves_the_others_out(tmp_path: Path) -> None:
    record_all(tmp_path, seeds=2, arms=("scalenorm", "qknorm"), counts=False)
    change(Workspace(tmp_path).run("tiny", "qknorm", 2), "config.yaml", profile="paper")
    results = report(tmp_path, "--profile", "tiny")
    assert results["arms"]["qknorm"]["seeds"] == [1]
    assert results["missing"] == {"qknorm seed 2": "of another profile or precision"}


NUMBERLESS = {"score": "12", "signature": "v"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("line_statistics.npz", "PK\x03\x04 half a fi"),
        ("scores.json", '{"tokenised": {"sco'),
        ("scores.json", json.dumps({**dict.fromkeys(PROTOCOLS, NUMBERLESS), "lines": 60})),
        ("scores.json", json.dumps({**dict.fromkeys(PROTOCOLS, 12), "lines": 60})),
        ("scores.json", json.dumps({"tokenised": {"score": 1.0, "signature": "v"}, "lines": 60})),
        ("metrics.jsonl", '{"update": 10, "dev_b'),
        ("metrics.jsonl", '{"update": 10, "elapsed": 3}'),
        ("metrics.jsonl", '{"update": 10, "elapsed": 3, "dev_bleu": NaN}'),
        ("metrics.jsonl", "[10]"),
        ("metrics.jsonl", ""),
        ("finished.json", '{"options": "all"}'),
        ("finished.json", '{"parameters": "abc"}'),
        ("scores.json", "[" * 100_000),
        ("metrics.jsonl", f'{{"update": {"9" * 400}, "elapsed": 3, "dev_bleu": 1}}'),
        ("line_statistics.npz", ""),
        ("config.yaml", "options: {1: 2}\nprofile: tiny\ndata: the same\n"),
        ("config.yaml", "options: {}\nprofile: tiny\ndata: the same\nenvironment: foo\n"),
        ("config.yaml", "options: none\nprofile: tiny\ndata: the same\n"),
    ],
)
def test_a_broken_file_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: str
) -> None:
    folder = record(Workspace(tmp_path), "qknorm", 1, ANSWERS, ANSWERS)
    (folder / name).write_text(text)
    assert qknorm("report", "tiny", "--out", tmp_path) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert f"{folder / name}: " in error
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("seed", range(12))
def test_counts_with_a_byte_changed_are_named_or_as_they_were(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], seed: int
) -> None:
    folder = record(Workspace(tmp_path), "qknorm", 1, ANSWERS, ANSWERS)
    path = folder / "line_statistics.npz"
    content = bytearray(path.read_bytes())
    content[np.random.default_rng(seed).integers(len(content))] ^= 0xFF
    path.write_bytes(bytes(content))
    status = qknorm("report", "tiny", "--out", tmp_path)
    error = capsys.readouterr().err
    assert (status, error.count("\n")) in ((2, 1), (0, 0))
    assert status == 0 or f"{path}: not the counts of scores.json" in error


def test_scores_that_are_not_numbers_are_not_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = record(Workspace(tmp_path), "qknorm", 1, ANSWERS, ANSWERS)
    scores = (folder / "scores.json").read_text()
    (folder / "scores.json").write_text(re.sub(r'"score": [\d.]+', '"score": NaN', scores))
    assert qknorm("report", "tiny", "--out", tmp_path) == 2
    assert f"{folder / 'scores.json'}: broken" in capsys.readouterr().err


def test_folders_that_are_no_seeds_are_left_alone(tmp_path: Path) -> None:
    folder = record(Workspace(tmp_path), "qknorm", 1, ANSWERS, ANSWERS)
    for name in ("seed01", "seedling", "old seed1"):
        shutil.copytree(folder, folder.with_name(name))
    assert report(tmp_path)["arms"]["qknorm"]["seeds"] == [1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--arms", "qknorm,relu"], "unknown arm 'relu'; known: "),
        (["--profile", "paper"], "no run of paper was begun there"),
        (["--profile", "tiny", "--precision", "bf16"], "no run of tiny and bf16 was begun there"),
    ],
)
def test_choices_that_nothing_answers_to_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    record(Workspace(tmp_path), "qknorm", 1, ANSWERS, ANSWERS)
    assert qknorm("report", "tiny", "--out", tmp_path, *words) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert said in error


@pytest.mark.parametrize("words", [["--arms", "qknorm,"], ["--factorial", "--arms", "qknorm"]])
def test_slips_in_the_choice_of_arms_are_refused(words: list[str]) -> None:
    for command in ("report", "reproduce"):
        with pytest.raises(SystemExit) as refused:
            qknorm(command, "tiny", *words)
        assert refused.value.code == 2
