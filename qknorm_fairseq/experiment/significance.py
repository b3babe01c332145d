"""Which differences are more than chance: between two runs, and between arms.

Two questions, kept apart. *Would these two runs differ on other sentences like these?* is asked
of one pair of runs, by sacreBLEU's paired tests, which resample lines (:func:`paired`). *Would
these two arms differ if they were trained again?* is asked of several runs an arm, their scores
the sample and the test set as it is (:func:`contrast`): this alone speaks of the arms.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.significance import PairedTest
from scipy import stats

Counts = NDArray[np.int64]  # (lines, counts) of a run, under one protocol
Weights = Mapping[str, float]  # arm -> weight, e.g. {"qknorm": 1, "scalenorm": -1}

FEWEST_RUNS = 3  # an arm: from two, a spread is hardly known
RESAMPLES = 1000
SEED = 12345  # sacreBLEU's own


class Counted:
    """A sacreBLEU metric whose hypotheses are each line's counts already."""

    def __init__(self, metric: BLEU | CHRF) -> None:
        metric.num_refs = 1  # known after a first score alone
        self.get_signature = metric.get_signature
        self._compute_score_from_stats = metric._compute_score_from_stats
        self._aggregate_and_compute = metric._aggregate_and_compute

    def _extract_corpus_statistics(self, rows: Counts, references: None) -> Counts:
        return rows


@dataclass(frozen=True)
class Paired:
    """Two runs on the same lines: how seldom chance alone makes so large a difference.

    Of the two, randomisation is the two-sided test that it is taken for. sacreBLEU's bootstrap
    compares with the mean absolute difference, and its p is about half of a two-sided one.
    """

    p_bootstrap: float
    p_randomisation: float


def paired(metric: BLEU | CHRF, baseline: Counts, others: Sequence[Counts]) -> list[Paired]:
    """sacreBLEU's paired bootstrap and paired approximate randomisation against ``baseline``.

    Koehn (2004); Riezler & Maxwell (2005). Both count resampled differences that are larger than
    the one found, and so take one that never changes, as of two systems that are the same or
    differ in one line, for beyond chance. With k lines that differ no exchange of lines between
    the systems can give a p below 2^(1 − k): neither may these.
    """
    systems = [("baseline", baseline), *((str(i), rows) for i, rows in enumerate(others))]
    found: list[list[float]] = []
    for kind in ("bs", "ar"):
        test = PairedTest(
            systems,
            {"score": Counted(metric)},
            references=None,
            test_type=kind,
            n_jobs=1,  # a pool's processes would take over how signals are answered here
        )
        _, results = test()
        (column,) = (values for name, values in results.items() if name != "System")
        found.append([result.p_value for result in column[1:]])
    least = [min(1.0, 2.0 ** (1 - _lines_that_differ(baseline, rows))) for rows in others]
    return [
        Paired(max(bootstrap, floor), max(randomisation, floor))
        for bootstrap, randomisation, floor in zip(*found, least, strict=True)
    ]


def _lines_that_differ(a: Counts, b: Counts) -> int:
    return int((a != b).any(axis=1).sum())


@dataclass(frozen=True)
class Contrast:
    """A weighted sum of arms' mean scores, and how sure it is over runs.

    ``p`` and ``margin`` are None where an arm has fewer than three runs, or no spread is seen.
    """

    difference: float
    p: float | None
    margin: float | None  # half the width of Student's 95 % interval


def contrast(scores: Mapping[str, Sequence[float]], weights: Weights) -> Contrast:
    """Welch's t-test, two-sided, of a weighted sum of means: no arm's variance is another's.

    With the weights 1 and −1 it is Welch's test (1947) of two arms; with 1, −1, −1, 1 that of
    their interaction. Degrees of freedom by Satterthwaite (1946).

    Args:
        scores: of each arm's runs.
    """
    runs = {arm: np.array(scores[arm], dtype=np.float64) for arm in weights}
    difference = float(sum(weight * runs[arm].mean() for arm, weight in weights.items()))
    if min(len(values) for values in runs.values()) < FEWEST_RUNS:
        return Contrast(difference, None, None)
    parts = {
        arm: weight**2 * float(runs[arm].var(ddof=1)) / len(runs[arm])
        for arm, weight in weights.items()
    }
    variance = sum(parts.values())
    scale = max(float(np.abs(values).max()) for values in runs.values())
    if sqrt(variance) <= 1e-9 * scale:  # runs that are copies of each other
        return Contrast(difference, 1.0 if abs(difference) <= 1e-9 * scale else None, None)
    shares = {arm: part / variance for arm, part in parts.items()}
    freedom = 1 / sum(share**2 / (len(runs[arm]) - 1) for arm, share in shares.items())
    error = sqrt(variance)
    p = 2 * float(stats.t.sf(abs(difference) / error, freedom))
    return Contrast(difference, p, float(stats.t.ppf(0.975, freedom)) * error)


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's (1979) correction: what each p is worth when all of these were looked at.

    None, of a comparison that could not be tested, stays None and does not count.
    """
    tested = sorted((p, i) for i, p in enumerate(p_values) if p is not None)
    corrected: list[float | None] = [None] * len(p_values)
    highest = 0.0
    for rank, (p, i) in enumerate(tested):
        highest = max(highest, min(1.0, (len(tested) - rank) * p))
        corrected[i] = highest
    return corrected


def resample(
    runs: Mapping[str, Sequence[Counts]], metric: BLEU | CHRF
) -> dict[str, NDArray[np.float64]]:
    """Arms' mean scores over other runs and sentences: a hierarchical bootstrap.

    Each of 1,000 resamples draws, with replacement, sentences, the same ones for all arms, and of
    every arm one run fewer than it has: drawing as many would make the spread of few runs too
    small, by (n − 1)/n in its variance (Rao & Wu 1988).

    Args:
        runs: arm -> each run's counts, (lines, counts).

    Returns:
        arm -> (resamples,)
    """
    random = np.random.default_rng(SEED)
    lines = len(next(iter(runs.values()))[0])
    times = random.multinomial(lines, np.full(lines, 1 / lines), size=RESAMPLES)
    means = {}
    for arm, each in runs.items():
        scores = np.array(  # (resamples, runs)
            [[metric._compute_score_from_stats(sums).score for sums in times @ c] for c in each]
        ).T
        drawn = random.integers(len(each), size=(RESAMPLES, max(len(each) - 1, 1)))
        means[arm] = np.take_along_axis(scores, drawn, axis=1).mean(axis=1)
    return means


def interval(resampled: Mapping[str, NDArray[np.float64]], weights: Weights) -> tuple[float, float]:
    """95 % percentile interval of a weighted sum of arms' mean scores.

    It says how far a difference might move; whether there is one, Welch's test says alone.
    """
    totals = sum(weight * resampled[arm] for arm, weight in weights.items())
    low, high = np.percentile(totals, [2.5, 97.5])
    return float(low), float(high)
