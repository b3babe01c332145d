"""Tests of differences, by cases whose answers are known beforehand."""

import numpy as np
import pytest
from recording import arms_with, references, worsened
from sacrebleu.metrics import BLEU
from scipy import stats

from qknorm_fairseq.experiment.comparisons import compare
from qknorm_fairseq.experiment.factorial import FACTORIAL
from qknorm_fairseq.experiment.protocols import from_plain, score
from qknorm_fairseq.experiment.significance import (
    Counts,
    contrast,
    holm,
    interval,
    paired,
    resample,
)
from qknorm_fairseq.experiment.verdict import named_contrasts


def counts_of(hypotheses: list[str], answers: list[str]) -> Counts:
    rows = BLEU(force=True)._extract_corpus_statistics(hypotheses, [answers])
    return np.array(rows, dtype=np.int64)


def test_counts_of_lines_add_up_to_sacrebleus_own_score() -> None:
    answers = references(30)
    hypotheses = worsened(answers, 0.3, 1)
    counts = score(from_plain(hypotheses, "en"), from_plain(answers, "en"))[1]["moses_13a"]
    assert (counts == counts_of(hypotheses, answers)).all()
    half = BLEU._compute_score_from_stats(BLEU(force=True), counts[:15].sum(0).tolist())
    theirs = BLEU(force=True).corpus_score(hypotheses[:15], [answers[:15]])
    assert half.score == pytest.approx(theirs.score, abs=1e-9)


def test_the_same_translations_are_not_told_apart() -> None:
    answers = references(50)
    same = counts_of(worsened(answers, 0.3, 1), answers)
    (found,) = paired(BLEU(force=True), same, [same.copy()])
    assert found.p_bootstrap == found.p_randomisation == 1


def test_one_line_that_differs_is_no_evidence() -> None:
    """No exchange of one line tells two systems apart."""
    answers = references(50)
    hypotheses = worsened(answers, 0.3, 1)
    better = [answers[0], *hypotheses[1:]]
    (found,) = paired(
        BLEU(force=True), counts_of(hypotheses, answers), [counts_of(better, answers)]
    )
    assert min(found.p_bootstrap, found.p_randomisation) == 1


def test_better_on_every_line_is_seen() -> None:
    answers = references(100)
    worse = worsened(answers, 0.5, 1)
    better = [f"{line[: len(line) // 2]} {right[len(line) // 2 :]}" for line, right in
              zip(worse, answers, strict=True)]  # fmt: skip
    rows = counts_of(worse, answers)
    (found,) = paired(BLEU(force=True), rows, [counts_of(better, answers)])
    assert found.p_bootstrap < 0.01
    assert found.p_randomisation < 0.01


def test_two_systems_of_the_same_quality_are_seldom_told_apart() -> None:
    answers = references(100)
    rows = [counts_of(worsened(answers, 0.4, seed), answers) for seed in range(9)]
    found = paired(BLEU(force=True), rows[0], rows[1:])
    assert sum(each.p_randomisation < 0.05 for each in found) <= 3


def test_two_arms_are_tested_as_scipy_does_by_welch() -> None:
    scores = {"a": [10.0, 10.4, 9.7], "b": [10.9, 10.8, 12.0, 11.1]}
    found = contrast(scores, {"b": 1, "a": -1})
    theirs = stats.ttest_ind(scores["b"], scores["a"], equal_var=False)
    assert found.p == pytest.approx(theirs.pvalue, rel=1e-9)
    low, high = theirs.confidence_interval(0.95)
    assert found.margin == pytest.approx((high - low) / 2, rel=1e-9)
    assert found.difference == pytest.approx((high + low) / 2, rel=1e-9)


def test_an_interaction_of_equal_spreads_is_that_of_the_analysis_of_variance() -> None:
    """With one variance for all cells the four-sample t² is the F of the interaction."""
    base = np.array([-0.2, 0.0, 0.2])
    cells = {"p": base + 10, "q": base + 11, "r": base + 10.5, "s": base + 12.3}
    weights = {"p": 1, "q": -1, "r": -1, "s": 1}
    found = contrast({k: list(v) for k, v in cells.items()}, weights)
    within = sum(v.var(ddof=1) * 2 for v in cells.values())
    f = (0.8 / 2) ** 2 * 3 / (within / 8)
    assert found.difference == pytest.approx(0.8)
    assert found.p == pytest.approx(stats.f.sf(f, 1, 8), rel=1e-9)


def test_without_three_runs_or_any_spread_nothing_is_claimed() -> None:
    weights = {"b": 1, "a": -1}
    few = contrast({"a": [10, 11], "b": [12, 13, 14]}, weights)
    assert (few.difference, few.p, few.margin) == (2.5, None, None)
    copies = contrast({"a": [10, 10, 10], "b": [12, 12, 12]}, weights)
    assert (copies.difference, copies.p) == (2, None)
    assert contrast({"a": [10, 10, 10], "b": [10, 10, 10]}, weights).p == 1


def test_holm_by_hand() -> None:
    assert holm([0.01, None, 0.04, 0.03]) == pytest.approx([0.03, None, 0.06, 0.06])
    assert holm([0.5, 0.6]) == [1, 1]
    assert holm([]) == []


# arms whose runs scatter as they do when only the seed differs

SPREAD = 0.3  # BLEU


def simulated(random: np.random.Generator, planted: dict[str, float], noise: float) -> dict[
    str, list[float]
]:  # fmt: skip
    """Three runs an arm on 200 lines: line + the run's shift + noise of run and line."""
    lines = random.normal(15, 10, size=200)
    return {
        arm: [
            float((lines + random.normal(effect, SPREAD) + random.normal(0, noise, 200)).mean())
            for _ in range(3)
        ]
        for arm, effect in planted.items()
    }


def tables(planted: dict[str, float], noise: float) -> list[dict[str, list[float]]]:
    random = np.random.default_rng(2020)
    return [simulated(random, planted, noise) for _ in range(500)]


@pytest.mark.parametrize("noise", [0, 20])
def test_where_nothing_is_planted_a_twentieth_is_found(noise: float) -> None:
    found = []
    for scores in tables(dict.fromkeys(FACTORIAL, 0.0), noise):
        arms = FACTORIAL[1:]
        found += [contrast(scores, {arm: 1, FACTORIAL[0]: -1}).p for arm in arms]
    share = np.mean([p is not None and p < 0.05 for p in found])
    print(f"{share:.1%} starred before correction")
    assert 0.02 <= share <= 0.07


def test_where_nothing_is_planted_hardly_a_table_has_a_star() -> None:
    starred = 0
    for scores in tables(dict.fromkeys(FACTORIAL, 0.0), 0)[:200]:
        results = compare(arms_with(scores))
        effects = results["factorial"]
        each = [*effects["qknorm_at"].values(), *effects["layernorm_at"].values()]
        starred += any(effect["star"] for effect in [*each, effects["interaction"]])
    print(f"{starred} of 200 tables have a star")
    assert starred <= 0.07 * 200


def test_a_planted_point_is_starred_in_most_tables() -> None:
    starred = 0
    for scores in tables({"scalenorm": 0.0, "qknorm": 1.0}, 0)[:200]:
        pooled = compare(arms_with(scores))["comparisons"]
        starred += next(
            c["star"] for c in pooled if (c["seed"], c["protocol"]) == ("pooled", "moses_13a")
        )
    print(f"{starred} of 200 tables have the star")
    assert starred > 0.5 * 200


def test_planted_effects_come_back_and_no_interaction_that_was_not() -> None:
    spread = [-0.1, 0.0, 0.1]
    planted = {"scalenorm": 10.0, "layernorm": 10.5, "qknorm_scalenorm": 12.0, "qknorm": 12.5}
    results = compare(arms_with({arm: [m + s for s in spread] for arm, m in planted.items()}))
    found = results["factorial"]
    for norm in ("scalenorm", "layernorm"):
        assert found["qknorm_at"][norm]["difference"] == pytest.approx(2)
        assert found["qknorm_at"][norm]["star"]
    for attention in ("dot", "qknorm"):
        assert found["layernorm_at"][attention]["difference"] == pytest.approx(0.5)
    assert found["interaction"]["difference"] == pytest.approx(0)
    assert found["interaction"]["p"] == pytest.approx(1)
    assert not found["interaction"]["star"]

    together = {**planted, "qknorm": 14.0}
    results = compare(arms_with({arm: [m + s for s in spread] for arm, m in together.items()}))
    assert results["factorial"]["interaction"]["difference"] == pytest.approx(1.5)
    assert results["factorial"]["interaction"]["star"]


def test_a_comparison_that_stands_in_the_table_twice_is_corrected_for_once() -> None:
    """qknorm_at.scalenorm is also a comparison with the baseline: six in all, not eight."""
    spread = [-0.3, 0.0, 0.3]
    means = {"scalenorm": 10.0, "layernorm": 10.1, "qknorm_scalenorm": 10.2, "qknorm": 12.0}
    results = compare(arms_with({arm: [m + s for s in spread] for arm, m in means.items()}))
    each = named_contrasts(results, "moses_13a").values()
    assert len(each) == 6
    smallest = min(each, key=lambda found: found["p"])
    assert smallest["p_holm"] == pytest.approx(6 * smallest["p"], rel=1e-4)
    effect = results["factorial"]["qknorm_at"]["scalenorm"]
    same = next(c for c in results["comparisons"]
                if (c["b"], c["seed"]) == ("qknorm_scalenorm", "pooled"))  # fmt: skip
    assert (effect["p"], effect["p_holm"]) == (same["p"], same["p_holm"])


def test_the_bootstrap_spreads_the_mean_of_three_runs_as_much_as_they_do() -> None:
    """Lines all alike, the runs alone are resampled: variance s² / 3, not a third less."""
    (line,) = references(1)
    words = line.split()
    each = [[" ".join([*words[:k], *["x"] * (12 - k)])] * 20 for k in (6, 8, 10)]
    runs = [counts_of(hypotheses, [line] * 20) for hypotheses in each]
    scores = [BLEU(force=True).corpus_score(h, [[line] * 20]).score for h in each]
    means = resample({"a": runs}, BLEU(force=True))["a"]
    assert means.mean() == pytest.approx(np.mean(scores), rel=0.05)
    assert means.var() == pytest.approx(np.var(scores, ddof=1) / 3, rel=0.1)


def test_the_interval_over_runs_and_sentences_covers_what_it_should() -> None:
    """Arms of equal quality: the true difference is 0, and is inside nearly always."""
    covered = 0
    for table in range(20):
        random = np.random.default_rng(table)
        answers = references(60, seed=table)
        runs = {
            arm: [
                counts_of(worsened(answers, 0.4 + random.normal(0, 0.02), 10 * i + k), answers)
                for k in range(3)
            ]
            for i, arm in enumerate(("a", "b"))
        }
        low, high = interval(resample(runs, BLEU(force=True)), {"b": 1, "a": -1})
        assert low < high
        covered += low <= 0 <= high
    print(f"{covered} of 20 intervals cover the truth")
    assert covered >= 17
