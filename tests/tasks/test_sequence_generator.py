"""Beam search: GNMT's scores, and a hypothesis that does not depend on its batch."""

from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq.distributed import ModuleProxyWrapper
from fairseq.models.transformer import TransformerEncoderBase
from tiny import EOS, PAD, TYPES, Task, batch, build
from torch import Tensor, nn

from qknorm_fairseq.models.transformer_qknorm import Encoder, TransformerQKNorm
from qknorm_fairseq.modules.output_projection import OutputProjection
from qknorm_fairseq.modules.packing import Packing
from qknorm_fairseq.sequence_generator import GNMTSequenceGenerator
from qknorm_fairseq.tasks.low_resource_translation import (
    LowResourceTranslationConfig,
    LowResourceTranslationTask,
)


def model() -> TransformerQKNorm:
    """A random model, less flat than at its start, so that hypotheses differ and end."""
    torch.manual_seed(4)
    made = build().double().eval()
    with torch.no_grad():
        made.decoder.layer_norm.weight.mul_(3.0)
    return made


def translate(
    model: TransformerQKNorm, src: Tensor, alpha: float = 0.6, over: int = 4, beam: int = 4
) -> list[list[dict[str, Tensor]]]:
    generator = GNMTSequenceGenerator(
        [model],
        Task().target_dictionary,
        beam_size=beam,
        gnmt_alpha=alpha,
        max_length_over_source=over,
    )
    net_input = {"src_tokens": src, "src_lengths": src.ne(PAD).sum(1)}
    return generator.generate([model], {"net_input": net_input, "id": torch.arange(len(src))})


def log_probability(model: TransformerQKNorm, src: Tensor, tokens: Tensor) -> float:
    """Of a whole hypothesis in one pass: the decoder's, with no cache and no beam."""
    previous = torch.cat([torch.tensor([EOS]), tokens[:-1]])[None]
    logits = model(src[None], torch.tensor([len(src)]), previous)[0][0]
    return logits.log_softmax(-1).gather(1, tokens[:, None]).sum().item()


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_scores_are_log_probabilities_over_gnmts_penalty(alpha: float) -> None:
    network, (src, lengths, _) = model(), batch()
    hypotheses = translate(network, src, alpha)
    seen: set[int] = set()
    for row, length, beams in zip(src, lengths.tolist(), hypotheses, strict=True):
        assert len(beams) == 4
        scores = [float(hypothesis["score"]) for hypothesis in beams]
        assert scores == sorted(scores, reverse=True)
        for hypothesis in beams:
            tokens = hypothesis["tokens"]
            assert tokens[-1] == EOS  # and it is counted
            penalty = ((5 + len(tokens)) / 6) ** alpha
            expected = log_probability(network, row[-length:], tokens) / penalty
            assert float(hypothesis["score"]) == pytest.approx(expected, abs=1e-9)
            seen.add(len(tokens))
    assert len(seen) > 2, "all of a length: the penalty was not put to the test"


@pytest.mark.parametrize("over", [-2, 0, 4])
def test_a_sentence_alone_and_in_any_batch_gets_the_same_hypothesis(over: int) -> None:
    network, (src, lengths, _) = model(), batch()
    together = translate(network, src, over=over)
    shuffled = translate(network, src[[2, 0, 1]], over=over)
    for i, length in enumerate(lengths.tolist()):
        alone = translate(network, src[i : i + 1, -length:], over=over)
        for other in (alone[0], shuffled[[1, 2, 0][i]]):
            for mine, its in zip(together[i], other, strict=True):
                assert torch.equal(mine["tokens"], its["tokens"])
                assert float(mine["score"]) == pytest.approx(float(its["score"]), abs=1e-9)


def test_each_sentence_has_its_own_limit() -> None:
    network, (src, lengths, _) = model(), batch()
    with torch.no_grad():  # a model that never wants to end
        network.decoder.layer_norm.bias.copy_(
            -9 * network.decoder.embed_tokens(torch.tensor([EOS]))[0]
        )
    for length, beams in zip(lengths.tolist(), translate(network, src, over=2), strict=True):
        assert {len(hypothesis["tokens"]) for hypothesis in beams} == {length + 2 + 1}


def test_the_first_symbol_is_never_eos_and_padding_never_comes() -> None:
    network, (src, _, _) = model(), batch()
    hypotheses: list[Any] = [h["tokens"] for beams in translate(network, src) for h in beams]
    assert all(tokens[0] != EOS for tokens in hypotheses)
    assert all((tokens != PAD).all() and (tokens < TYPES).all() for tokens in hypotheses)


class Wrapped(nn.Module):
    """As fairseq hands a model that trains in several processes to the task."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module


@pytest.mark.parametrize("wrap", [lambda m: m, lambda m: ModuleProxyWrapper(Wrapped(m))])
@pytest.mark.parametrize("start", ["eos", "bos"])
def test_the_task_starts_a_translation_where_the_model_was_trained_to(
    wrap: Callable[[nn.Module], nn.Module], start: str
) -> None:
    cfg, dictionary = LowResourceTranslationConfig(), Task().target_dictionary
    task = LowResourceTranslationTask(cfg, dictionary, dictionary)
    seen: list[Any] = []
    generator = SimpleNamespace(generate=lambda *args, bos_token, **more: seen.append(bos_token))
    task.inference_step(generator, [wrap(build(decoder_start=start))], {})
    assert seen == [{"eos": EOS, "bos": dictionary.bos()}[start]]
    with pytest.raises(ValueError, match="different --decoder-start"):
        task.inference_step(generator, [build(), build(decoder_start="bos")], {})


def one_row_a_hypothesis(monkeypatch: pytest.MonkeyPatch) -> None:
    """fairseq's way: the source is repeated for each hypothesis, and the rows made anew."""
    monkeypatch.setattr(Encoder, "reorder_encoder_out", TransformerEncoderBase.reorder_encoder_out)
    monkeypatch.setattr(OutputProjection, "held", lambda self: nullcontext())


@pytest.mark.parametrize("beam", [1, 2, 5])
@pytest.mark.parametrize("alignment", [False, True])
def test_hypotheses_that_share_their_source_are_those_that_do_not(
    beam: int, alignment: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sentences of different lengths end at different steps, and rows move up."""
    network, (src, _, _) = model(), batch()
    network.decoder.layers[-1].need_attn = alignment
    shared = translate(network, src, over=12, beam=beam)
    one_row_a_hypothesis(monkeypatch)
    apart = translate(network, src, over=12, beam=beam)
    assert len({len(hypothesis["tokens"]) for beams in shared for hypothesis in beams}) > 1
    for ours, theirs in zip(shared, apart, strict=True):
        assert len(ours) == len(theirs) == beam
        for a, b in zip(ours, theirs, strict=True):
            assert a["tokens"].equal(b["tokens"])
            assert torch.allclose(a["score"], b["score"], rtol=1e-12, atol=1e-12)
            assert a["attention"].numel() == b["attention"].numel()
            assert (a["attention"].numel() > 0) == alignment
            assert torch.allclose(a["attention"], b["attention"], rtol=0, atol=1e-12)


def test_the_source_is_projected_once_a_sentence_and_the_words_once_a_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network, (src, _, _) = model(), batch()
    rows: list[int] = []
    made: list[int] = []
    attention = network.decoder.layers[0].encoder_attn
    project, make = attention.project_key_value, OutputProjection._rows

    def counted_project(x: Tensor, packing: Packing) -> tuple[Tensor, Tensor]:
        rows.append(packing.batch)
        return project(x, packing)

    def counted_make(self: OutputProjection) -> tuple[Tensor, Tensor | None]:
        made.append(1)
        return make(self)

    monkeypatch.setattr(attention, "project_key_value", counted_project)
    monkeypatch.setattr(OutputProjection, "_rows", counted_make)
    translate(network, src)
    assert rows == [len(src)]
    assert len(made) == 1


def test_a_model_that_has_translated_learns_as_before() -> None:
    """What was held for a translation is let go: weights may change, and gradients flow."""
    network, (src, lengths, target) = model(), batch()
    translate(network, src)
    before, _ = network(src, lengths, target)
    with torch.no_grad():
        network.decoder.output_projection.bias.add_(1.0)
    after, _ = network(src, lengths, target)
    assert torch.allclose(after, before + 1.0)
    after.sum().backward()
    assert network.decoder.output_projection.weight.grad.abs().sum() > 0


def test_hypotheses_do_not_move_to_another_sentence() -> None:
    """They share its keys and values."""
    encoder, (src, lengths, _) = model().encoder, batch()
    shared = encoder.reorder_encoder_out(
        encoder(src, lengths), torch.arange(3).repeat_interleave(2)
    )
    encoder.reorder_encoder_out(shared, torch.tensor([1, 1, 4, 5]))
    with pytest.raises(ValueError, match="another sentence"):
        encoder.reorder_encoder_out(shared, torch.tensor([0, 2, 2, 3, 4, 5]))
    with pytest.raises(ValueError, match="3 rows are no beams of 2"):
        encoder.reorder_encoder_out(shared, torch.tensor([0, 1, 2]))
