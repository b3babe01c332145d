"""fairseq's translation task with what small corpora need: no sentence lost, dev BLEU true."""

import hashlib
from argparse import ArgumentParser
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

import torch
from fairseq.distributed.utils import get_global_rank
from fairseq.logging import metrics
from fairseq.tasks import register_task
from fairseq.tasks.fairseq_task import FairseqTask
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from sacrebleu.metrics import BLEU
from torch import Tensor

from qknorm_fairseq.arguments import add_dataclass_arguments
from qknorm_fairseq.criterions.target_vocab_label_smoothed_cross_entropy import (
    TargetVocabLabelSmoothedCrossEntropyCriterion,
)
from qknorm_fairseq.dev_bleu import DEV_BLEU
from qknorm_fairseq.sequence_generator import (
    GNMTSequenceGenerator,
    GNMTSequenceGeneratorWithAlignment,
)
from qknorm_fairseq.tasks.metrics_file import MetricsFile
from qknorm_fairseq.tasks.target_vocabulary import check_mask, occurring_types

BLEU_ORDER = 4

# fairseq's option of generation -> its default, and what this task has in its place
REPLACED: dict[str, tuple[Any, str]] = {
    "lenpen": (1, "--gnmt-alpha"),
    "unnormalized": (False, "--gnmt-alpha 0"),
    "max_len_a": (0, "--max-length-over-source"),
    "max_len_b": (200, "--max-length-over-source"),
}


def _option(default: Any, help_text: str) -> Any:
    return field(default=default, metadata={"help": help_text})


@dataclass
class LowResourceTranslationConfig(TranslationConfig):
    """fairseq's options of ``translation``, some with other defaults, and our own."""

    # get_batch_iterator looks for this: with it a resumed run sees the same batches
    rebuild_batches: bool = _option(True, "build the batches anew for each epoch")
    gnmt_alpha: float = _option(
        0.6, "exponent of the length penalty ((5 + length) / 6)^alpha (Wu et al. 2016, eq. 14)"
    )
    max_length_over_source: int = _option(
        50, "longest translation, in tokens beyond the length of its own source sentence"
    )
    eval_bleu: bool = _option(True, "translate the dev set at each validation and score it")
    eval_bleu_args: Optional[str] = _option(
        '{"beam": 4}', "generation args for BLEU scoring, as a JSON string"
    )
    eval_bleu_remove_bpe: Optional[str] = field(
        default="@@ ",
        metadata={"help": "remove BPE before computing BLEU", "argparse_const": "@@ "},
    )
    eval_bleu_reference: Optional[str] = _option(
        None, "raw dev reference, a line a sentence (default: DATA/valid.ref.TARGET)"
    )
    eval_bleu_tokenize: str = _option(
        "none", "sacreBLEU tokeniser of dev BLEU; for text that is not tokenised: 13a"
    )
    metrics_file: Optional[str] = _option(None, "append a JSON row to this file per validation")


@register_task("low_resource_translation", dataclass=LowResourceTranslationConfig)
class LowResourceTranslationTask(TranslationTask):
    """Translation for pairs where every sentence counts.

    What differs from fairseq's ``translation``: batches of any size, so that no last one is
    dropped; batches rebuilt each epoch; GNMT's length penalty and a length limit for each
    sentence; dev BLEU over all dev sentences against the raw reference.
    """

    cfg: LowResourceTranslationConfig

    def __init__(self, cfg: LowResourceTranslationConfig, src_dict: Any, tgt_dict: Any) -> None:
        super().__init__(cfg, src_dict, tgt_dict)
        if cfg.eval_bleu_detok != "space" or cfg.eval_bleu_print_samples:
            raise ValueError(
                "--eval-bleu-detok and --eval-bleu-print-samples: not of this task, whose dev "
                "BLEU is tokenised"
            )
        self.metrics_file = MetricsFile(cfg.metrics_file) if cfg.metrics_file else None
        self.references: list[str] | None = None  # read for training alone
        self.target_types: Tensor | None = None  # likewise
        self.masks_targets = False
        self.bleu = BLEU(tokenize=cfg.eval_bleu_tokenize, force=True)

    @classmethod
    def add_args(cls, parser: ArgumentParser) -> None:
        """Add this task's options to ``parser``."""
        add_dataclass_arguments(parser, LowResourceTranslationConfig())

    def get_batch_iterator(self, dataset: Any, *args: Any, **kwargs: Any) -> Any:
        """fairseq's, with batches of any size: it drops a last one that is not of 8."""
        kwargs["required_batch_size_multiple"] = 1
        return super().get_batch_iterator(dataset, *args, **kwargs)

    def inference_step(
        self,
        generator: Any,
        models: Any,
        sample: Any,
        prefix_tokens: Any = None,
        constraints: Any = None,
    ) -> Any:
        """Translate a batch, from the symbol that the model was trained to start from."""
        # not by their class: in several processes fairseq wraps a model that is training
        starts = {
            model.start_token() if hasattr(model, "start_token") else self.tgt_dict.eos()
            for model in models
        }
        if len(starts) > 1:
            raise ValueError("an ensemble of models with different --decoder-start")
        with torch.no_grad():
            return generator.generate(
                models,
                sample,
                prefix_tokens=prefix_tokens,
                constraints=constraints,
                bos_token=starts.pop(),
            )

    def build_generator(
        self,
        models: Any,
        args: Any,
        seq_gen_cls: Any = None,
        extra_gen_cls_kwargs: dict[str, Any] | None = None,
        prefix_allowed_tokens_fn: Any = None,
    ) -> Any:
        """fairseq's generator for ``args``, with the penalty and the limit of this task.

        Raises:
            ValueError: for an option of fairseq's in whose place the task has its own.
        """
        for name, (default, instead) in REPLACED.items():
            if getattr(args, name, default) != default:
                option = "--" + name.replace("_", "-")
                raise ValueError(f"{option} does nothing in this task; use {instead}")
        if seq_gen_cls is None:
            extra_gen_cls_kwargs = {
                **(extra_gen_cls_kwargs or {}),
                "gnmt_alpha": self.cfg.gnmt_alpha,
                "max_length_over_source": self.cfg.max_length_over_source,
            }
            seq_gen_cls = GNMTSequenceGenerator
            if getattr(args, "print_alignment", False):
                seq_gen_cls = GNMTSequenceGeneratorWithAlignment
                extra_gen_cls_kwargs["print_alignment"] = args.print_alignment
        return super().build_generator(
            models, args, seq_gen_cls, extra_gen_cls_kwargs, prefix_allowed_tokens_fn
        )

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """Build the model; for training, read the raw dev reference too.

        A new model learns here which types the target language has.

        Raises:
            FileNotFoundError: when the reference is not there.
        """
        if self.cfg.eval_bleu and not from_checkpoint:
            self.references = self._read_reference()
            DEV_BLEU.expected = True
        model = super().build_model(cfg, from_checkpoint)
        self.masks_targets = getattr(cfg, "target_vocab_mask", False)
        if self.masks_targets and not from_checkpoint:
            self.target_types = self._find_target_types()
            model.decoder.output_projection.allow(self.target_types)
        return model

    def _find_target_types(self) -> Tensor:
        def sentences() -> Iterator[Tensor]:
            for shard in range(len(self.cfg.data.split(":"))):
                self.load_dataset(self.cfg.train_subset, epoch=shard + 1, combine=True)
                yield from self.datasets[self.cfg.train_subset].tgt

        return occurring_types(sentences(), self.tgt_dict)

    def build_criterion(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """fairseq's, if it can do with a model that does not produce every type.

        Raises:
            ValueError: when it cannot: its loss would be infinite.
        """
        criterion = super().build_criterion(cfg, from_checkpoint)
        if self.masks_targets and not isinstance(
            criterion, TargetVocabLabelSmoothedCrossEntropyCriterion
        ):
            raise ValueError(
                "this criterion counts types that the model does not produce; use --criterion "
                "target_vocab_label_smoothed_cross_entropy, or say --no-target-vocab-mask"
            )
        return criterion

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps of the task: which dictionary its rows are of."""
        return {"dictionary": self._dictionary_digest()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Called by fairseq with a checkpoint that is to translate, or to train on.

        Raises:
            ValueError: when it was trained with another dictionary.
        """
        if state_dict.get("dictionary", self._dictionary_digest()) != self._dictionary_digest():
            raise ValueError(
                f"{self.cfg.data}: its dictionary is not the checkpoint's; the data were "
                "prepared anew since: give the data that the checkpoint was trained on"
            )

    def _dictionary_digest(self) -> str:
        symbols = [*self.src_dict.symbols, "", *self.tgt_dict.symbols]
        return hashlib.sha256("\n".join(symbols).encode()).hexdigest()

    def begin_epoch(self, epoch: int, model: Any) -> None:
        """Called by fairseq before each epoch, when a checkpoint has been loaded, if any.

        Raises:
            ValueError: when that checkpoint's model may not produce a type of the target.
        """
        allowed = getattr(model.decoder.output_projection, "target_mask", None)
        if allowed is None or (allowed.all() and not self.masks_targets):
            return
        if self.target_types is None:  # the options ask for no mask, the checkpoint has one
            self.target_types = self._find_target_types()
        check_mask(allowed.cpu(), self.target_types, self.tgt_dict)

    def load_dataset(self, split: str, *args: Any, **kwargs: Any) -> None:
        """Load a split.

        Raises:
            ValueError: in training, for a dev set that is not the raw reference's.
        """
        super().load_dataset(split, *args, **kwargs)
        if self.references is None or split == self.cfg.train_subset:
            return
        if split != "valid":
            raise ValueError(
                f"--valid-subset {split}: dev BLEU is of the subset «valid» alone; leave the "
                "option out, or say --no-eval-bleu"
            )
        if len(self.references) != len(self.datasets[split]):
            raise ValueError(
                f"the raw dev reference has {len(self.references)} lines, the binarised "
                f"dev set {len(self.datasets[split])} sentences: prepare the data again"
            )

    def _read_reference(self) -> list[str]:
        path = Path(
            self.cfg.eval_bleu_reference
            or Path(self.cfg.data.split(":")[0]) / f"valid.ref.{self.cfg.target_lang}"
        )
        if not path.exists():
            raise FileNotFoundError(
                f"{path}: no raw dev reference to score against; write the dev set's target "
                "side there, name it with --eval-bleu-reference, or say --no-eval-bleu"
            )
        return path.read_bytes().decode("utf-8").removesuffix("\n").split("\n")

    def valid_step(self, sample: Any, model: Any, criterion: Any) -> tuple[Any, Any, Any]:
        """Loss of one dev batch; with ``eval_bleu`` also the n-gram counts of its BLEU."""
        loss, sample_size, log = FairseqTask.valid_step(self, sample, model, criterion)
        if self.references is not None:
            hypotheses = self.inference_step(self.sequence_generator, [model], sample)
            texts = [self._text(beams[0]["tokens"]) for beams in hypotheses]
            references = [self.references[i] for i in sample["id"].tolist()]
            score = self.bleu.corpus_score(texts, [references])
            log["_bleu_lines"] = len(texts)
            log["_bleu_sys_len"], log["_bleu_ref_len"] = score.sys_len, score.ref_len
            for n in range(BLEU_ORDER):
                log[f"_bleu_correct_{n}"] = score.counts[n]
                log[f"_bleu_total_{n}"] = score.totals[n]
        return loss, sample_size, log

    def _text(self, tokens: Tensor) -> str:
        """The words of a hypothesis as the test set will be scored: BPE joined."""
        return str(self.tgt_dict.string(tokens.int().cpu(), self.cfg.eval_bleu_remove_bpe))

    def reduce_metrics(self, logging_outputs: list[dict[str, Any]], criterion: Any) -> None:
        """Sum the n-gram counts over batches; BLEU of the sums is the corpus's BLEU."""
        FairseqTask.reduce_metrics(self, logging_outputs, criterion)
        if not any("_bleu_lines" in log for log in logging_outputs):
            return
        names = ["_bleu_lines", "_bleu_sys_len", "_bleu_ref_len"]
        names += [f"_bleu_{kind}_{n}" for kind in ("correct", "total") for n in range(BLEU_ORDER)]
        for name in names:  # as scalars: arrays would bring numpy into the checkpoint
            metrics.log_scalar_sum(name, sum(int(log.get(name, 0)) for log in logging_outputs))
        metrics.log_derived("bleu", _bleu_of_sums)

    def begin_valid_epoch(self, epoch: int, model: Any) -> None:
        """Called by fairseq before each validation."""
        self.epoch = epoch

    def post_validate(self, model: Any, stats: dict[str, Any], agg: Any) -> None:
        """Called by fairseq after each validation: write its row, tell the schedule."""
        if self.metrics_file and get_global_rank() == 0:
            lines = int(agg["_bleu_lines"].sum) if "_bleu_lines" in agg else None
            self.metrics_file.write(stats, self.epoch, lines)
        if "bleu" in stats:
            DEV_BLEU.announce(int(stats["num_updates"]), float(stats["bleu"]))


def _bleu_of_sums(meters: dict[str, Any]) -> float:
    def total(name: str) -> int:
        return int(meters[f"_bleu_{name}"].sum)

    score = BLEU.compute_bleu(
        correct=[total(f"correct_{n}") for n in range(BLEU_ORDER)],
        total=[total(f"total_{n}") for n in range(BLEU_ORDER)],
        sys_len=total("sys_len"),
        ref_len=total("ref_len"),
        smooth_method="exp",
    )
    return float(round(score.score, 4))
