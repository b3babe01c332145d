"""AdamW in one pass over the parameters, on a CPU too: torch's own."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.optim import FairseqOptimizer, register_optimizer
from fairseq.optim.adam import FairseqAdam
from omegaconf import II


@dataclass
class FusedAdamConfig(FairseqDataclass):
    """Options of the optimiser, named as fairseq's ``adam`` has them."""

    adam_betas: Any = field(default=(0.9, 0.999), metadata={"help": "betas for Adam optimizer"})
    adam_eps: float = field(default=1e-8, metadata={"help": "epsilon for Adam optimizer"})
    weight_decay: float = field(default=0.0, metadata={"help": "weight decay, decoupled"})
    lr: list[float] = II("optimization.lr")


@register_optimizer("fused_adam", dataclass=FusedAdamConfig)
class FusedAdam(FairseqAdam):
    """Adam (Kingma & Ba 2015, algorithm 1), as ``torch.optim.Adam`` of the released code.

    fairseq's ``adam`` adds epsilon to the second moment's root before its bias is corrected,
    this one after; and it walks over the parameters several times where there is no apex. With
    --memory-efficient-fp16 only fairseq's will do: it keeps float32 moments of half weights.
    """

    def __init__(self, cfg: FusedAdamConfig, params: Iterable[torch.nn.Parameter]) -> None:
        FairseqOptimizer.__init__(self, cfg)
        self._optimizer = torch.optim.AdamW(params, fused=True, **self.optimizer_config)

    @property
    def supports_flat_params(self) -> bool:
        """True: each weight is updated by itself, so --fp16 may join them into one tensor."""
        return True
