"""The plugin against numbers that the released code computed.

A fixture is an ``.npz`` of a small model of the released code: its config, parameters,
inputs, activations, losses, gradients and best translations. The same model is built here,
given the same parameters and inputs, and everything that the file holds is compared.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from qknorm_fairseq.criterions.target_vocab_label_smoothed_cross_entropy import (
    TargetVocabLabelSmoothedCrossEntropyCriterion,
)
from qknorm_fairseq.experiment import released
from qknorm_fairseq.experiment.errors import UserError
from qknorm_fairseq.experiment.fixture import INPUTS, Fixture, read_fixture
from qknorm_fairseq.experiment.released import swap_special_numbers, swap_specials
from qknorm_fairseq.sequence_generator import GNMTSequenceGenerator

TOLERANCE = {"float64": 1e-9, "float32": 2e-4}
LENGTH_OVER_SOURCE = 50
NO_ANSWER = "nothing here answers to it"
META = {"config", "specials", "beam_best", "n_params", "name"}  # what is read, or says nothing
META |= {"src_lang_idx", "tgt_lang_idx", "alpha_minus_one_means"}


@dataclass(frozen=True)
class Row:
    """One compared quantity, and the largest difference over the largest value."""

    name: str
    difference: float | None  # None: skipped, for the reason in ``note``
    note: str = ""


class Comparison:
    """A fixture's model, rebuilt, and every quantity of the fixture beside its own."""

    def __init__(self, fixture: Fixture, dtype: str) -> None:
        self.fixture, self.dtype = fixture, getattr(torch, dtype)
        config = fixture.config
        self.source_row = fixture.meta.get("src_lang_idx", 0)
        try:
            options = released.model_options(config)
            options |= {"dropout": 0.0, "word_dropout": 0.0}  # evaluation mode needs none
            self.model = released.build(options, config["joint_vocab_size"])
            self.model.to(self.dtype).eval()
            params = fixture.tensors("param", self.dtype)
            state = released.to_ours(self.model, params, self.source_row)
            for name in fixture.missing_gradients():
                raise UserError(f"grad/{name} is missing")
        except UserError as error:
            raise UserError(f"{fixture.path}: {error}; nothing was compared") from error
        self.model.load_state_dict(self.model.state_dict() | state)
        self.task = released.ModelTask(config["joint_vocab_size"])
        if config["mask_logit"]:
            mask = fixture.tensor("in/logit_mask", self.dtype).bool()
            self.model.decoder.output_projection.allow(swap_specials(mask))

    def rows(self) -> Iterator[Row]:
        """Every key of the fixture, compared or named as skipped."""
        found = self._run()
        gradients = {
            name: parameter.grad if parameter.grad is not None else torch.zeros_like(parameter)
            for name, parameter in self.model.named_parameters(remove_duplicate=False)
        }
        theirs = released.to_theirs(self.model, gradients, self.source_row)
        found |= {f"grad/{name}": (gradient, None) for name, gradient in theirs.items()}
        for key in self.fixture.arrays:
            if key in found:
                ours, used = found[key]
                yield Row(key, _difference(ours, self.fixture.tensor(key, self.dtype), used))
            elif not key.startswith("param/") and key.removeprefix("in/") not in INPUTS:
                yield Row(key, None, NO_ANSWER)
        for key in self.fixture.meta.keys() - META:
            yield Row(f"meta.{key}", None, NO_ANSWER)
        if "n_params" in self.fixture.meta:
            count = sum(parameter.numel() for parameter in self.model.parameters())
            same = count == self.fixture.meta["n_params"]
            yield Row("n_params", 0.0 if same else math.inf)
        yield from self._beams()

    def _run(self) -> dict[str, tuple[Tensor, Tensor | None]]:
        """Forward and backward: key -> (our tensor, which of its elements count)."""
        src, tgt, target = (
            swap_special_numbers(self.fixture.tensor(f"in/{name}", self.dtype))
            for name in ("src", "tgt", "targets")
        )
        pad = self.task.target_dictionary.pad()
        src_real, tgt_real = src.ne(pad), target.ne(pad)
        net_input = {
            "src_tokens": src,
            "src_lengths": src_real.sum(1),
            "prev_output_tokens": tgt,
        }
        found = self._attentions(net_input, src_real, tgt_real)
        features, _ = self.model(**net_input, features_only=True)
        encoded = self.model.encoder(src, net_input["src_lengths"])["encoder_out"][0]
        projection = self.model.decoder.output_projection
        logits = swap_specials(projection(features).movedim(-1, 0)).movedim(0, -1)
        allowed = tgt_real[..., None] & swap_specials(projection.target_mask)
        loss, nll = self._losses({"net_input": net_input, "target": target})
        count = tgt_real.sum()
        self.model.zero_grad()
        (loss / count).backward()
        return found | {
            "out/encoder_out": (encoded.transpose(0, 1), src_real),
            "out/decoder_out": (features, tgt_real),
            "out/logits": (logits, allowed),
            "out/loss": (loss, None),
            "out/nll_loss": (nll, None),
            "out/num_words": (count, None),
            "out/opt_loss": (loss / count, None),
        }

    def _attentions(
        self, net_input: dict[str, Tensor], src_real: Tensor, tgt_real: Tensor
    ) -> dict[str, tuple[Tensor, Tensor | None]]:
        """Outputs and probabilities of the three attentions that the fixtures hold."""
        model = self.model
        found: dict[str, tuple[Tensor, Tensor | None]] = {}

        def watch(name: str, real: Tensor) -> Any:
            def hook(module: Any, args: Any, kwargs: Any, output: Any) -> None:
                asked = {**kwargs, "need_head_weights": True}
                weights = module.forward(*args, **asked)[1].transpose(0, 1)
                packing = kwargs["key_padding_mask"].queries
                found[f"out/{name}"] = packing.unpack(output[0]), real
                found[f"out/{name}.weights"] = weights, real[:, None, :, None].expand_as(weights)

            return hook

        watched = {
            "encoder_self_attn_0": (model.encoder.layers[0].self_attn, src_real),
            "decoder_self_attn_0": (model.decoder.layers[0].self_attn, tgt_real),
            "cross_attn_last": (model.decoder.layers[-1].encoder_attn, tgt_real),
        }
        handles = [
            module.register_forward_hook(watch(name, real), with_kwargs=True)
            for name, (module, real) in watched.items()
        ]
        with torch.no_grad():
            model(**net_input, features_only=True)
        for handle in handles:
            handle.remove()
        return found

    def _losses(self, sample: dict[str, Any]) -> tuple[Tensor, Tensor]:
        smoothing = self.fixture.config["label_smoothing"]
        criterion = TargetVocabLabelSmoothedCrossEntropyCriterion(
            self.task, False, smoothing, "reference"
        )
        sample["ntokens"] = int(sample["target"].ne(criterion.padding_idx).sum())
        loss, _, log = criterion(self.model, sample)
        return loss, log["nll_loss"]

    def _beams(self) -> Iterator[Row]:
        beams = self.fixture.meta["beam_best"]
        if not isinstance(beams, dict):
            yield Row("beam_best", None, "cut at the length limit, where fairseq forces an eos")
            return
        for setting, theirs in beams.items():
            match = re.fullmatch(r"alpha=(-?[\d.]+),beam=(\d+)", setting)
            if not match:
                raise UserError(f"{self.fixture.path}: beam_best {setting!r} is no alpha=A,beam=B")
            ours = self._translate(float(match[1]), int(match[2]))
            yield Row(f"beam_best {setting}", _beam_difference(ours, theirs))

    def _translate(self, alpha: float, beam: int) -> list[dict[str, Any]]:
        src = swap_special_numbers(self.fixture.tensor("in/src", self.dtype))
        generator = GNMTSequenceGenerator(
            [self.model],
            self.task.target_dictionary,
            beam_size=beam,
            gnmt_alpha=max(alpha, 0.0),  # -1 stands for no penalty
            max_length_over_source=LENGTH_OVER_SOURCE,
        )
        lengths = src.ne(self.task.target_dictionary.pad()).sum(1)
        sample = {"net_input": {"src_tokens": src, "src_lengths": lengths}}
        found = generator.generate([self.model], sample, bos_token=self.model.start_token())
        return [
            {
                "tokens": swap_special_numbers(best[0]["tokens"][:-1]).tolist(),
                "score": float(best[0]["score"]),
                "logprob": float(best[0]["positional_scores"].sum()),
            }
            for best in found
        ]


def _difference(ours: Tensor, theirs: Tensor, used: Tensor | None) -> float:
    """max |a - b| / max |b| over the elements that count; infinite for another shape."""
    if ours.shape != theirs.shape:
        return math.inf
    if used is not None:
        ours, theirs = ours[used], theirs[used]
    largest = theirs.abs().max().item() or 1.0
    return _or_infinite((ours - theirs).abs().max().item() / largest)


def _beam_difference(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> float:
    """The largest difference of a score; infinite when a translation is another."""
    if [best["tokens"] for best in ours] != [best["tokens"] for best in theirs]:
        return math.inf
    return max(
        _or_infinite(abs(mine[name] - its[name]) / abs(its[name]))
        for mine, its in zip(ours, theirs, strict=True)
        for name in ("score", "logprob")
    )


def _or_infinite(difference: float) -> float:
    """NaN is no agreement."""
    return math.inf if math.isnan(difference) else difference


def compare(fixture: Fixture, dtype: str) -> tuple[list[Row], float]:
    """All rows of a fixture and the largest difference among them.

    Raises:
        UserError: when what the file holds does not go together.
    """
    try:
        rows = list(Comparison(fixture, dtype).rows())
    except UserError:
        raise
    except Exception as error:  # a file can be wrong in more ways than can be foreseen
        what = f"{type(error).__name__}: {str(error).splitlines()[:1]}"
        raise UserError(f"{fixture.path}: what it holds does not go together ({what})") from error
    return rows, max(row.difference for row in rows if row.difference is not None)


def report(path: Path, dtype: str) -> tuple[str, bool]:
    """A line a quantity, and whether all are within the tolerance of ``dtype``."""
    rows, largest = compare(read_fixture(path), dtype)
    tolerance = TOLERANCE[dtype]
    lines = [f"{path.name}, {dtype}, largest difference over largest value:"]
    for row in rows:
        value = f"skipped: {row.note}"
        if row.difference is not None:
            value = f"{row.difference:.1e}{'' if row.difference <= tolerance else '  above'}"
        lines.append(f"  {row.name:<40} {value}")
    verdict = "ok" if largest <= tolerance else "FAILED"
    lines.append(f"parity: {verdict}, largest relative difference {largest:.1e}")
    return "\n".join(lines), largest <= tolerance
