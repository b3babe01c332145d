"""What an experiment will take, as far as that is known beforehand."""

from qknorm_fairseq.experiment.protocols import PROTOCOLS
from qknorm_fairseq.experiment.run import Run
from qknorm_fairseq.experiment.settings import Options, Pair

BYTES_PER_PARAMETER = 12  # weight and Adam's two moments, in float32
CHECKPOINTS = 3  # best, last and the newest of the grid


def parameters(options: Options, types: int) -> int:
    """Parameters of the Transformer that ``options`` describe, its norms aside."""
    width = int(options["encoder-embed-dim"])
    total = types * width
    for side, attentions in (("encoder", 1), ("decoder", 2)):
        attention = 4 * width * (width + 1)
        inner = int(options[f"{side}-ffn-embed-dim"])
        feed_forward = 2 * width * inner + width + inner
        total += int(options[f"{side}-layers"]) * (attentions * attention + feed_forward)
    return total


def lines(pair: Pair, runs: list[Run], at_a_time: int) -> list[str]:
    """The stages, a line each, with time and disk."""
    options, profile = runs[0].options, runs[0].profile
    minutes = profile.minutes.get(pair.name)
    waiting = [run.name for run in runs if not run.is_finished()]
    rounds = -(-len(waiting) // at_a_time)
    time = (
        f"about {minutes * rounds:.0f} min, by a measurement on two cores of an AMD EPYC"
        if minutes is not None
        else "time not measured for this pair and profile"
    )
    size = BYTES_PER_PARAMETER * parameters(options, types=pair.merges + 200)
    disk = len(runs) * CHECKPOINTS * size / 1e6
    return [
        f"[1/6] fetch      {pair.corpus or pair.generator or 'the text, from --raw-dir'}",
        "[2/6] prepare    under 3 min for 133,000 pairs · about 3 times the raw text on disk",
        f"[3/6] train      {', '.join(waiting) or 'nothing: all done'}",
        f"                 {runs[0].updates:,} updates each · {time} · {disk:,.0f} MB on disk",
        "[4/6] translate  the test set with each run's best checkpoint",
        f"[5/6] score      {', '.join(PROTOCOLS)}",
        "[6/6] compare    arms and runs; the tables",
    ]
