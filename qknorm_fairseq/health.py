"""Looks at a model in training for what has gone wrong, or is about to. Changes nothing."""

import logging
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from qknorm_fairseq.models.layers import FairseqAttention
from qknorm_fairseq.modules.qk_norm import QueryKeyNorm

logger = logging.getLogger(__name__)

LOW_ENTROPY = 1e-3  # nats
QUANTILE = 0.75  # of queries: a first word has one key to look at


def first_bad_module(
    model: nn.Module, run: Callable[[], None], parameters: Iterable[tuple[str, nn.Parameter]]
) -> str:
    """The name of what first is not finite: a parameter, a module's output, or a gradient.

    Args:
        run: a forward pass of the batch that broke.
        parameters: the model's, in order, with the gradients that broke.
    """
    named = list(parameters)
    for name, parameter in named:
        if not parameter.isfinite().all():
            return name
    bad: list[str] = []

    def watch(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            first = output[0] if isinstance(output, tuple) else output
            if isinstance(first, Tensor) and not first.isfinite().all():
                bad.append(name)

        return hook

    with ExitStack() as hooks:
        for name, module in model.named_modules():
            if not any(module.children()):  # parts, not wholes
                hooks.callback(module.register_forward_hook(watch(name)).remove)
        run()
    if bad:
        return bad[0]
    for name, parameter in reversed(named):  # the gradient comes from the end
        if parameter.grad is not None and not parameter.grad.isfinite().all():
            return f"the gradient of {name}"
    return "the loss"


class Health:
    """Warns, once for each module, of a g that crosses zero and of attention that is a point."""

    def __init__(self) -> None:
        self.signs: dict[str, float] = {}
        self.warned: set[str] = set()

    def look_at_scales(self, model: nn.Module) -> None:
        """Warn of each g whose sign is another than when first seen."""
        for name, module in model.named_modules():
            if isinstance(module, QueryKeyNorm):
                smallest = float(module.g.detach().min())
                sign = self.signs.setdefault(name, smallest)
                if sign * smallest < 0:
                    self._warn(f"{name}.g", f"has crossed zero: {smallest:.4f}")

    def look_at_attention(self, model: nn.Module, sample: dict[str, Any]) -> None:
        """Warn of each attention that has no entropy left on a batch."""
        names = {
            module: name
            for name, module in model.named_modules()
            if isinstance(module, FairseqAttention) and name not in self.warned
        }
        if not sample or not names:
            return

        def hook(module: Any, args: Any, kwargs: Any, output: Any) -> None:
            weights = module.forward(*args, **{**kwargs, "need_head_weights": True})[1]
            entropies = torch.special.entr(weights.float()).sum(-1)  # (heads, batch, query)
            words = kwargs["key_padding_mask"].queries.pack(entropies.permute(1, 2, 0))
            entropy = float(words.flatten().quantile(QUANTILE))
            if entropy < LOW_ENTROPY:
                self._warn(names[module], f"attends to one key alone: entropy {entropy:.1e}")

        with ExitStack() as hooks, torch.no_grad():
            for module in names:
                handle = module.register_forward_hook(hook, with_kwargs=True)
                hooks.callback(handle.remove)
            was_training = model.training
            model.eval()
            model(**sample["net_input"], features_only=True)
            model.train(was_training)

    def _warn(self, name: str, what: str) -> None:
        if name not in self.warned:
            self.warned.add(name)
            logger.warning("%s %s", name, what)
