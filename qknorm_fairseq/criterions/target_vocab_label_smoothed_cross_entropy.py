"""Label smoothing that gives probability to the words of the target language alone."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from fairseq.criterions import register_criterion
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.dataclass import FairseqDataclass
from omegaconf import II
from torch import Tensor

from qknorm_fairseq.modules.output_projection import OutputProjection
from qknorm_fairseq.modules.precision import at_least_float32


class Smoothing(StrEnum):
    """How much of the smoothing the gold type itself gets."""

    reference = "reference"
    fairseq = "fairseq"


@dataclass
class TargetVocabCriterionConfig(FairseqDataclass):
    """Options of the criterion."""

    label_smoothing: float = field(default=0.1, metadata={"help": "epsilon for label smoothing"})
    smoothing: Smoothing = field(
        default=Smoothing.reference,
        metadata={"help": "the released code's convention, or fairseq's"},
    )
    sentence_avg: bool = II("optimization.sentence_avg")


def smoothed_loss(
    logits: Tensor, gold: Tensor, epsilon: float, smoothing: str
) -> tuple[Tensor, Tensor]:
    """Sums of the smoothed loss and of the negative log-likelihood, in nats.

    With p over the A types that may be produced, for each position:
    ``reference``: (1 - e) * -log p(gold) + e * mean of -log p (the released code);
    ``fairseq``: (1 - e - e/(A-1)) * -log p(gold) + e/(A-1) * sum of -log p.
    A gold type that may not be produced has no log-likelihood: its position adds nothing to
    the second sum, and to the first its smoothing alone.

    Args:
        logits: (positions, A).
        gold: (positions,) columns of the gold types, -1 where there is none.
    """
    logits = at_least_float32(logits)
    log_z = logits.logsumexp(dim=-1)
    of_gold = logits.gather(1, gold.clamp(min=0)[:, None])[:, 0]
    nll = (log_z - of_gold).masked_fill(gold < 0, 0.0).sum()
    mean = (log_z - logits.mean(dim=-1)).sum()
    if smoothing == "fairseq":
        types = logits.shape[1]
        each = epsilon / (types - 1)
        return (1 - epsilon - each) * nll + each * types * mean, nll
    return (1 - epsilon) * nll + epsilon * mean, nll


@register_criterion(
    "target_vocab_label_smoothed_cross_entropy", dataclass=TargetVocabCriterionConfig
)
class TargetVocabLabelSmoothedCrossEntropyCriterion(LabelSmoothedCrossEntropyCriterion):
    """Label-smoothed cross-entropy over the types that the model may produce.

    Neither padding nor a type outside the target vocabulary is ever projected.
    """

    def __init__(
        self, task: Any, sentence_avg: bool, label_smoothing: float, smoothing: str
    ) -> None:
        if not 0 <= label_smoothing < 1:
            raise ValueError(f"--label-smoothing {label_smoothing}: must be in [0, 1)")
        super().__init__(task, sentence_avg, label_smoothing)
        self.smoothing = str(smoothing)

    def forward(
        self, model: Any, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, int, dict[str, Any]]:
        """The loss of a batch, the size to divide its gradient by, and what to log.

        ``sample``, fairseq's: ``net_input`` (``src_tokens`` (batch, source), ``src_lengths``,
        ``prev_output_tokens`` (batch, target)), ``target`` (batch, target) and ``ntokens``.
        Sums are in nats; ``reduce`` has no effect. The output projection is applied here, not
        in the model's forward: with ``pytorch_ddp``, do without --find-unused-parameters.

        Raises:
            TypeError: for a model of another kind.
        """
        projection = model.decoder.output_projection
        if not isinstance(projection, OutputProjection):
            raise TypeError(
                "--criterion target_vocab_label_smoothed_cross_entropy needs one of this "
                "plugin's models, such as --arch transformer_qknorm"
            )
        features, _ = model(**sample["net_input"], features_only=True)
        target = sample["target"]
        real = target.ne(self.padding_idx)
        logits = projection.allowed_logits(features[real])
        gold = projection.allowed_columns(target[real])
        loss, nll_loss = smoothed_loss(logits, gold, self.eps, self.smoothing)
        sample_size = len(target) if self.sentence_avg else sample["ntokens"]
        logging_output = {
            "loss": loss.data,
            "nll_loss": nll_loss.data,
            "ntokens": sample["ntokens"],
            "nsentences": len(target),
            "sample_size": sample_size,
        }
        return loss, sample_size, logging_output
