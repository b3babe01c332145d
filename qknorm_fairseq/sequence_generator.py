"""Beam search with GNMT's length penalty and a length limit for each sentence."""

import math
from contextlib import ExitStack
from typing import Any

import torch
from fairseq.search import BeamSearch
from fairseq.sequence_generator import SequenceGenerator, SequenceGeneratorWithAlignment
from torch import Tensor

from qknorm_fairseq.modules.output_projection import OutputProjection


class SourceLengthBeamSearch(BeamSearch):
    """Beam search in which a sentence ends at its own limit, whatever it is batched with.

    fairseq's limit comes from the width of the padded batch: the same sentence may get
    nine tokens alone and fifty beside a long one.
    """

    needs_src_lengths = True  # the generator then calls set_src_lengths at every step

    def __init__(self, tgt_dict: Any, max_length_over_source: int) -> None:
        super().__init__(tgt_dict)
        self.max_length_over_source = max_length_over_source

    def set_src_lengths(self, src_lengths: Tensor) -> None:
        """(batch,) lengths of the sources still being translated, with eos."""
        self.limits = src_lengths + self.max_length_over_source

    def step(self, step: int, lprobs: Tensor, *args: Any, **kwargs: Any) -> Any:
        """One step; a sentence at its limit is left with eos alone, at eos's own price.

        ``lprobs`` is (batch, beam, types).
        """
        at_limit = self.limits <= step
        if at_limit.any():
            not_eos = torch.arange(lprobs.shape[-1], device=lprobs.device) != self.eos
            lprobs = lprobs.masked_fill(at_limit[:, None, None] & not_eos, -math.inf)
        return super().step(step, lprobs, *args, **kwargs)


class _GNMT:
    """Ranks a fairseq generator's hypotheses by log P / ((5 + |Y|) / 6)^alpha.

    A part to mix into one of fairseq's generators, which mypy cannot see behind ``super()``.

    Wu et al. (2016), eq. 14, without the coverage term; |Y| counts eos.

    Args:
        gnmt_alpha: exponent of the penalty; 0 ranks by log-probability.
        max_length_over_source: tokens a translation may have beyond its source's.
    """

    def __init__(
        self,
        models: Any,
        tgt_dict: Any,
        *,
        gnmt_alpha: float,
        max_length_over_source: int,
        search_strategy: Any = None,
        **kwargs: Any,
    ) -> None:
        if search_strategy is None or type(search_strategy) is BeamSearch:
            search_strategy = SourceLengthBeamSearch(tgt_dict, max_length_over_source)
        kwargs.update(
            search_strategy=search_strategy,
            normalize_scores=False,
            max_len_a=1,  # the widest sentence's limit; the search has each one's own
            max_len_b=max_length_over_source,
        )
        super().__init__(models, tgt_dict, **kwargs)  # type: ignore[call-arg]
        self.gnmt_alpha = gnmt_alpha

    def generate(self, *args: Any, **kwargs: Any) -> list[list[dict[str, Tensor]]]:
        """fairseq's; what no step changes is computed once for all of them."""
        with torch.no_grad(), ExitStack() as stack:
            for model in self.model.models:  # type: ignore[attr-defined]
                projection = getattr(model.decoder, "output_projection", None)
                if isinstance(projection, OutputProjection):
                    stack.enter_context(projection.held())
            found: list[list[dict[str, Tensor]]] = super().generate(  # type: ignore[misc]
                *args, **kwargs
            )
        return found

    def finalize_hypos(
        self,
        step: int,
        bbsz_idx: Tensor,
        eos_scores: Tensor,
        tokens: Tensor,
        scores: Tensor,
        finalized: list[list[dict[str, Tensor]]],
        *args: Any,
    ) -> list[int]:
        """Collect in ``finalized`` the hypotheses that end at ``step``, scores penalised."""
        done: list[int] = super().finalize_hypos(  # type: ignore[misc]
            step, bbsz_idx, eos_scores, tokens, scores, finalized, *args
        )
        length = step + 1  # with eos; only this step's hypotheses have it
        penalty = ((5 + length) / 6) ** self.gnmt_alpha
        for hypotheses in finalized:
            for hypothesis in hypotheses:
                if len(hypothesis["tokens"]) == length:
                    hypothesis["score"] = hypothesis["score"] / penalty
        return done


class GNMTSequenceGenerator(_GNMT, SequenceGenerator):
    """Beam search with GNMT's penalty and a limit for each sentence."""


class GNMTSequenceGeneratorWithAlignment(_GNMT, SequenceGeneratorWithAlignment):
    """The same for ``--print-alignment``."""
