"""Scores against the published translations, and what may not be scored."""

import json
from pathlib import Path

import pytest

from qknorm_fairseq.cli import main
from qknorm_fairseq.experiment.errors import UserError
from qknorm_fairseq.experiment.protocols import Scores, Text, from_plain, from_tokens, score
from qknorm_fairseq.experiment.score import score_files
from qknorm_fairseq.experiment.tokens import moses_text, treebank_text

# Henry et al. 2020: table 2 (multi-bleu) and table 3; the others measured for this project
PUBLISHED = {
    "baseline": {"tokenised": 32.486, "nltk_13a": 32.407, "moses_13a": 32.501, "chrf2pp": 50.92},
    "qknorm": {"tokenised": 33.235, "nltk_13a": 33.184, "moses_13a": 33.257, "chrf2pp": 51.52},
}
TABLE_3 = {"baseline": "32.41", "qknorm": "33.18"}


def test_published_translations_score_as_they_should(
    reference: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs = reference / "outputs"
    words = ["score", "--ref", outputs / "ref.vi", "--language", "vi"]
    words += ["--hyp", *(f"{name}={outputs / name}.tok" for name in PUBLISHED)]
    assert main([str(word) for word in [*words, "--json", tmp_path / "scores.json"]]) == 0
    results = json.loads((tmp_path / "scores.json").read_text())
    for name, expected in PUBLISHED.items():
        found = results["systems"][name]
        assert found.keys() == expected.keys()
        for protocol, value in expected.items():
            assert found[protocol]["score"] == pytest.approx(value, abs=0.01)
        assert f"{found['nltk_13a']['score']:.2f}" == TABLE_3[name]
    comparisons = {c["protocol"]: c for c in results["comparisons"]}
    assert comparisons["tokenised"]["difference"] == pytest.approx(33.235 - 32.486, abs=0.01)
    for comparison in comparisons.values():  # 0.75 ± 0.05 of BLEU, 0.6 of chrF2++
        assert (comparison["a"], comparison["b"]) == ("baseline", "qknorm")
        assert comparison["difference"] == pytest.approx(
            0.60 if comparison["protocol"] == "chrf2pp" else 0.765, abs=0.05
        )
        assert comparison["p_bootstrap"] < 0.01
        assert comparison["p_randomisation"] < 0.01
    printed = capsys.readouterr().out
    assert "1,268 lines" in printed
    assert "tok:13a|smooth:exp|version:" in printed
    assert "p, bootstrap" in printed
    assert "p, randomisation" in printed


def _score(hypotheses: list[str], references: list[str]) -> Scores:
    return score(from_tokens(hypotheses, "en"), from_tokens(references, "en"))[0]


def test_raw_text_is_compared_as_it_is_and_tokenised_for_the_tokens_alone() -> None:
    line = 'It\'s "fine", he said.'
    text = from_plain([line], "en")
    assert text.plain == [line]
    assert text.tokens == ["It &apos;s &quot; fine &quot; , he said ."]
    tokens = from_tokens(text.tokens, "en")
    assert score(tokens, text)[0]["tokenised"]["score"] == pytest.approx(100)
    other = Text(text.tokens, ["something else"])
    assert score(other, text)[0]["moses_13a"]["score"] == 0
    assert score(other, text)[0]["nltk_13a"]["score"] == pytest.approx(100)


def test_each_protocol_says_how_it_was_scored() -> None:
    scores = _score(["a b c d"], ["a b c d"])
    for protocol, token in (("tokenised", "none"), ("nltk_13a", "13a"), ("moses_13a", "13a")):
        signature = scores[protocol]["signature"]
        assert signature.startswith(f"nrefs:1|case:mixed|eff:no|tok:{token}|smooth:exp|version:")
    assert "nc:6|nw:2" in scores["chrf2pp"]["signature"]
    assert all(value["score"] == pytest.approx(100) for value in scores.values())


def test_escapes_are_undone_before_words_are_joined_but_not_for_the_papers_table() -> None:
    line = "It &apos;s &quot; fine &quot; &amp; I don &apos;t mind , he said ."
    assert moses_text([line], "en") == ["It's \"fine\" & I don't mind, he said."]
    assert "&apos;" in treebank_text([line])[0]
    assert moses_text([""], "en") == treebank_text([""]) == [""]


def test_text_that_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="2 hypotheses and 1 references"):
        _score(["a", "b"], ["a"])
    (tmp_path / "ref").write_text("a\nb\n")
    (tmp_path / "hyp").write_text("a\n")
    with pytest.raises(UserError, match="hyp: 1 hypotheses and 2 references"):
        score_files(tmp_path / "ref", [("one", tmp_path / "hyp")], "en")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--hyp", "file"], "'file': a name and a file, as qknorm=test.hyp.txt"),
        (["--hyp", "one=nowhere.txt"], "nowhere.txt"),
        (["--hyp", "a=README.md", "a=setup.py"], "two systems are called a"),
        (["--hyp", "a=README.md", "--json", "tests"], "--json tests: name a file of its own"),
    ],
)
def test_slips_on_the_command_line_are_named(
    words: list[str],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "ref").write_text("a\n")
    (tmp_path / "tests").mkdir()
    for name in ("README.md", "setup.py"):
        (tmp_path / name).write_text("a\n")
    monkeypatch.chdir(tmp_path)
    try:
        status = main(["score", "--ref", str(tmp_path / "ref"), *words])
    except SystemExit as error:
        status = int(error.code or 0)
    assert status == 2
    assert said in capsys.readouterr().err


def test_pieces_that_were_not_joined_are_refused(tmp_path: Path) -> None:
    ref, hyp = tmp_path / "ref", tmp_path / "hyp"
    ref.write_text("a\nword\n")
    for text, line in (("a\nwo@@ rd\n", 2), ("wo@@\nrd\n", 1)):
        hyp.write_text(text)
        with pytest.raises(UserError, match=f"hyp: hypothesis line {line} still has BPE"):
            score_files(ref, [("x", hyp)], "en")
    ref.write_text("a\ntext with @@ in it\n")  # where the references have it, it is text
    assert score_files(ref, [("x", hyp)], "en")["lines"] == 2
