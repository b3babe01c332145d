"""Warnings of a model in training that is about to go wrong."""

import logging

import pytest
import tiny
import torch
from torch import nn

from qknorm_fairseq.health import Health, first_bad_module
from qknorm_fairseq.models.transformer_qknorm import TransformerQKNorm


def sample(padded: bool = False) -> dict[str, dict[str, torch.Tensor]]:
    src, lengths, tgt = tiny.batch(padded)
    return {"net_input": {"src_tokens": src, "src_lengths": lengths, "prev_output_tokens": tgt}}


def scales(model: TransformerQKNorm) -> list[nn.Parameter]:
    return [p for name, p in model.named_parameters() if name.endswith("qk.g")]


def test_a_g_that_crosses_zero_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    model, health = tiny.build(), Health()
    health.look_at_scales(model)
    scales(model)[1].data.fill_(0.5)
    health.look_at_scales(model)
    assert not caplog.records
    for value in (-0.25, -0.5):
        scales(model)[1].data.fill_(value)
        health.look_at_scales(model)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "self_attn.qk.g has crossed zero: -0.2500" in caplog.text


@pytest.mark.parametrize("padded", [False, True])
def test_attention_without_entropy_is_warned_of_once(
    padded: bool, caplog: pytest.LogCaptureFixture
) -> None:
    model, health = tiny.build().train(), Health()
    short = sample()  # a first word has nothing but itself to look at: no reason to warn
    short["net_input"]["prev_output_tokens"] = short["net_input"]["prev_output_tokens"][:, :2]
    health.look_at_attention(model, short)
    assert not caplog.records, caplog.text
    for g in scales(model):
        g.data.fill_(1e6)
    for _ in range(2):
        health.look_at_attention(model, sample(padded))
    assert len(caplog.records) == len(scales(model)) == 1 + 2 * 2
    assert "encoder.layers.0.self_attn attends to one key alone: entropy " in caplog.text
    assert model.training


def test_looking_changes_no_number(caplog: pytest.LogCaptureFixture) -> None:
    model = tiny.build().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    given = sample()
    state = torch.get_rng_state()
    health = Health()
    health.look_at_scales(model)
    health.look_at_attention(model, given)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_where_it_broke_first() -> None:
    model, given = tiny.build().eval(), sample()["net_input"]

    def run() -> None:
        model(**given)

    def named() -> list[tuple[str, nn.Parameter]]:
        return list(model.named_parameters())

    assert first_bad_module(model, run, named()) == "the loss"
    model.decoder.layers[1].fc1.weight.grad = torch.full((40, 32), float("nan"))
    assert first_bad_module(model, run, named()) == "the gradient of decoder.layers.1.fc1.weight"
    handle = model.encoder.layers[0].fc2.register_forward_hook(lambda m, i, out: out * torch.inf)
    assert first_bad_module(model, run, named()) == "encoder.layers.0.fc2"
    handle.remove()
    model.encoder.layers[0].self_attn.qk.g.data.fill_(float("inf"))
    assert first_bad_module(model, run, named()) == "encoder.layers.0.self_attn.qk.g"
