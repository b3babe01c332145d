"""The built models: what is asked for is there, and padding or caching changes nothing."""

from typing import Any

import pytest
import torch
from fairseq import options, tasks
from fairseq.data import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import MODEL_REGISTRY, build_model
from fairseq.modules.fairseq_dropout import FairseqDropout
from omegaconf import OmegaConf
from tiny import EOS, PAD, SIZES, TOLERANCE, Task, batch, build
from torch import Tensor, nn

from qknorm_fairseq.models.layers import Dropout, FairseqAttention
from qknorm_fairseq.modules.qk_norm import DotProduct, QueryKeyNorm
from qknorm_fairseq.modules.residual_norm import LayerNorm, ScaleNorm

# architecture -> what its attention and its residual norm must be
ARMS: dict[str, tuple[type[nn.Module], type[nn.Module]]] = {
    "transformer_qknorm": (QueryKeyNorm, LayerNorm),
    "transformer_scalenorm": (DotProduct, ScaleNorm),
    "transformer_layernorm": (DotProduct, LayerNorm),
    "transformer_qknorm_scalenorm": (QueryKeyNorm, ScaleNorm),
}


@pytest.fixture(params=list(ARMS))
def arch(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def check_is_arm(model: nn.Module, arch: str) -> None:
    """The model has the attention, the norms and the sizes asked for, everywhere."""
    attention, norm = ARMS[arch]
    attentions = [m for m in model.modules() if isinstance(m, FairseqAttention)]
    assert len(attentions) == 1 + 2 * 2
    assert {type(m.qk) for m in attentions} == {attention}
    sites = [m for name, m in model.named_modules() if name.endswith("layer_norm")]
    assert len(sites) == (2 * 1 + 1) + (3 * 2 + 1)
    assert {type(m) for m in sites} == {norm}
    others = [m for m in model.modules() if isinstance(m, nn.LayerNorm | ScaleNorm)]
    assert {id(m) for m in others} == {id(m) for m in sites}, "a norm that is none of the sites"
    encoder, decoder = model.encoder, model.decoder
    assert isinstance(encoder, nn.Module) and isinstance(decoder, nn.Module)
    assert (len(encoder.layers), len(decoder.layers)) == (1, 2)  # type: ignore[arg-type]
    shapes = {name: tuple(p.shape) for name, p in model.named_parameters()}
    assert shapes["encoder.embed_tokens.weight"][1] == 32
    assert shapes["encoder.layers.0.fc1.weight"] == (48, 32)
    assert shapes["decoder.layers.1.fc1.weight"] == (40, 32)
    assert encoder.layers[0].self_attn.num_heads == 2  # type: ignore[index,union-attr]
    assert decoder.layers[0].encoder_attn.num_heads == 4  # type: ignore[index,union-attr]
    scales = [name for name in shapes if name.endswith("qk.g")]
    assert len(scales) == (5 if attention is QueryKeyNorm else 0)


def test_model_by_name(arch: str) -> None:
    check_is_arm(build(arch), arch)


def test_model_by_arch(arch: str) -> None:
    parser = options.get_training_parser()
    words = ["data", "--task", "low_resource_translation", "--arch", arch]
    for name, value in SIZES.items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    args = options.parse_args_and_arch(parser, input_args=words)
    cfg = convert_namespace_to_omegaconf(args)
    assert cfg.task.rebuild_batches
    check_is_arm(build_model(cfg.model, Task()), arch)


def test_switches_can_be_turned_off_by_arch() -> None:
    parser = options.get_training_parser()
    words = ["data", "--task", "low_resource_translation", "--arch", "transformer_qknorm"]
    words += ["--no-fix-norm", "--no-encoder-normalize-before", "--qk-scale-init", "0"]
    words += ["--qk-scale-fixed", "--qk-scale-per", "head", "--no-eval-bleu"]
    cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, input_args=words))
    assert not cfg.task.eval_bleu
    model = build_model(cfg.model, Task())
    assert not model.encoder.embed_tokens.fix_norm
    assert not model.encoder.layers[0].normalize_before
    assert model.decoder.layers[0].normalize_before
    g = model.decoder.layers[0].self_attn.qk.g
    assert g.numel() == 8 and not g.any() and not g.requires_grad


def test_every_registered_part_is_there() -> None:
    assert "low_resource_translation" in tasks.TASK_REGISTRY
    assert set(ARMS) <= set(MODEL_REGISTRY)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("prenorm", [True, False])
def test_padding_does_not_change_output(
    arch: str, dtype: torch.dtype, left: bool, prenorm: bool
) -> None:
    names = ("encoder_normalize_before", "decoder_normalize_before")
    model = build(arch, **dict.fromkeys(names, prenorm)).to(dtype).eval()
    src, lengths, tgt = batch(left=left)
    together = model(src, lengths, tgt)[0]
    for i in range(3):
        own_src, own_tgt = src[i][src[i].ne(1)], tgt[i][tgt[i].ne(1)]
        alone = model(own_src[None], lengths[i : i + 1], own_tgt[None])[0]
        difference = (together[i, : len(own_tgt)] - alone[0]).abs().max()
        assert difference <= TOLERANCE[dtype]


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_incremental_decoding_equals_full_pass(arch: str, dtype: torch.dtype) -> None:
    model = build(arch).to(dtype).eval()
    src, lengths, tgt = batch()
    encoded = model.encoder(src, lengths)
    full = model.decoder(tgt, encoder_out=encoded)[0]
    state: dict[str, Any] = {}
    steps = [
        model.decoder(tgt[:, : n + 1], encoder_out=encoded, incremental_state=state)[0]
        for n in range(tgt.shape[1])
    ]
    real = tgt.ne(1)
    difference = (torch.cat(steps, 1) - full)[real].abs().max()
    assert difference <= TOLERANCE[dtype]


def test_a_gradient_through_single_steps_is_refused() -> None:
    model = build()
    src, lengths, tgt = batch()
    encoded = model.encoder(src, lengths)
    with pytest.raises(RuntimeError, match="no_grad"):
        model.decoder(tgt[:, :1], encoder_out=encoded, incremental_state={})


def test_every_dropout_is_ours(arch: str) -> None:
    parts = [m for m in build(arch).modules() if isinstance(m, FairseqDropout)]
    assert len(parts) == 2 + 2 * (1 + 2) and {type(m) for m in parts} == {Dropout}


@torch.no_grad()
def test_the_cache_follows_the_beam() -> None:
    model = build().double().eval()
    src, lengths, tgt = batch(padded=False)
    order = torch.tensor([2, 0])  # a sentence leaves, two change places
    encoded = model.encoder(src, lengths)
    state: dict[str, Any] = {}
    for n in range(3):
        model.decoder(tgt[:, : n + 1], encoder_out=encoded, incremental_state=state)
    model.decoder.reorder_incremental_state_scripting(state, order)
    moved = model.encoder.reorder_encoder_out(encoded, order)
    step = model.decoder(tgt[order, :4], encoder_out=moved, incremental_state=state)[0]
    full = model.decoder(tgt[order, :4], encoder_out=moved)[0]
    torch.testing.assert_close(step[:, -1], full[:, -1], rtol=0, atol=1e-12)


def test_g_of_every_module_receives_a_gradient_and_acts() -> None:
    model = build(qk_scale_length=20).double()
    src, lengths, tgt = batch()
    out = model(src, lengths, tgt)[0]
    out.square().mean().backward()
    scales = {name: p for name, p in model.named_parameters() if name.endswith("qk.g")}
    assert len(scales) == 5
    for name, g in scales.items():
        assert g.shape == () and g.item() == pytest.approx(8.5699, abs=1e-4)  # log2(380)
        assert g.grad is not None and g.grad != 0, name
        with torch.no_grad():
            g.add_(0.5)
            assert not torch.equal(model(src, lengths, tgt)[0], out), name
            g.sub_(0.5)


def test_the_same_forward_with_and_without_attention_weights() -> None:
    model = build().double().eval()
    src, lengths, tgt = batch()
    logits, extra = model(src, lengths, tgt)
    assert extra["attn"][0] is None
    asked, with_weights = model(src, lengths, tgt, alignment_layer=1)
    torch.testing.assert_close(asked, logits, rtol=0, atol=1e-12)
    weights = with_weights["attn"][0]  # (batch, target, source), the mean over heads
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 7).double())
    assert weights[1, 0, :3].abs().max() == 0  # padding on the left


def test_no_padding_or_future_is_attended_to_in_training_mode() -> None:
    model = build(dropout=0.0, word_dropout=0.0).double().train()
    src, lengths, tgt = batch()
    before = model(src, lengths, tgt)[0]
    changed = tgt.clone()
    changed[:2, 4] = 5  # in the third sentence there is padding
    after = model(src, lengths, changed)[0]
    torch.testing.assert_close(after[:, :4], before[:, :4], rtol=0, atol=0)
    assert not torch.equal(after[:2, 4], before[:2, 4])


def test_a_loaded_checkpoint_gives_the_same_logits_bit_for_bit(arch: str) -> None:
    model = build(arch).eval()
    src, lengths, tgt = batch()
    other = build(arch).eval()
    assert not torch.equal(other(src, lengths, tgt)[0], model(src, lengths, tgt)[0])
    other.load_state_dict(model.state_dict(), strict=True)
    assert torch.equal(other(src, lengths, tgt)[0], model(src, lengths, tgt)[0])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_half_precision_model_runs_and_keeps_its_gains(arch: str, dtype: torch.dtype) -> None:
    model = build(arch).to(dtype)
    src, lengths, tgt = batch()
    out = model(src, lengths, tgt)[0]
    assert out.dtype == dtype and out.isfinite().all()
    out.float().square().mean().backward()
    gains = [p for name, p in model.named_parameters() if ".g" in name or "layer_norm" in name]
    assert gains and all(p.dtype == torch.float32 for p in gains)
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_the_first_gradient_is_of_reasonable_size(arch: str) -> None:
    model = build(arch)
    src, lengths, tgt = batch()
    model(src, lengths, tgt)[0].logsumexp(-1).mean().backward()
    assert all(p.grad is not None and p.grad.norm() < 100 for p in model.parameters())


def test_options_that_do_not_go_together_are_refused() -> None:
    with pytest.raises(ValueError, match="share one table"):
        build(encoder_embed_dim=64)
    with pytest.raises(ValueError, match="3 attention heads do not divide the width 32"):
        build(encoder_attention_heads=3)
    task = Task()
    task.cfg.left_pad_target = True
    with pytest.raises(ValueError, match="left-pad-target"):
        build_model(OmegaConf.create({"_name": "transformer_qknorm", **SIZES}), task)
    task = Task()
    task.target_dictionary = Dictionary()
    with pytest.raises(ValueError, match="joined-dictionary"):
        build_model(OmegaConf.create({"_name": "transformer_qknorm", **SIZES}), task)


PAPER = {  # (V, layers, heads) of gl-en, sk-en and en-he -> Henry et al. 2020, table 1
    (3164, 4, 4): 31_051_880,
    (8217, 6, 8): 48_356_907,
    (8304, 6, 8): 48_401_538,
}


@pytest.mark.parametrize("size", PAPER)
def test_as_many_parameters_as_the_paper_says(size: tuple[int, int, int]) -> None:
    types, layers, heads = size
    task = Task()
    for i in range(types - len(task.source_dictionary)):
        task.source_dictionary.add_symbol(f"more{i}")
    options: dict[str, Any] = {"_name": "transformer_qknorm"}
    for side in ("encoder", "decoder"):
        options |= {f"{side}_layers": layers, f"{side}_attention_heads": heads}
    with torch.device("meta"):  # counted, not filled
        model = build_model(OmegaConf.create(options), task)
    assert sum(parameter.numel() for parameter in model.parameters()) == PAPER[size]


def test_words_are_dropped_in_training_alone_and_the_batch_stays_as_it_was() -> None:
    model = build(dropout=0.0, word_dropout=0.5)
    src, lengths, tgt = batch()
    before = src.clone(), tgt.clone()
    model.train()
    first, second = model(src, lengths, tgt)[0], model(src, lengths, tgt)[0]
    assert not torch.equal(first, second)
    assert torch.equal(src, before[0]) and torch.equal(tgt, before[1])
    model.eval()
    assert torch.equal(model(src, lengths, tgt)[0], model(src, lengths, tgt)[0])


@pytest.mark.parametrize("side", ["source", "target"])
def test_words_are_dropped_on_both_sides(side: str) -> None:
    model = build(dropout=0.0, word_dropout=1 - 1e-9).train()
    src, lengths, tgt = batch()
    seen: dict[str, Tensor] = {}
    watched = {"source": model.encoder, "target": model.decoder}[side]
    watched.register_forward_pre_hook(
        lambda module, args, kwargs: seen.update(tokens=args[0] if args else kwargs["src_tokens"]),
        with_kwargs=True,
    )
    model(src, lengths, tgt)
    given = {"source": src, "target": tgt}[side]
    assert torch.equal(seen["tokens"], given.where(given.eq(PAD), torch.tensor(3)))


def test_the_decoder_starts_from_what_was_asked_for() -> None:
    src, lengths, tgt = batch()
    from_eos, from_bos = build(), build(decoder_start="bos")
    from_bos.load_state_dict(from_eos.state_dict())
    from_eos.eval(), from_bos.eval()
    assert (from_eos.start_token(), from_bos.start_token()) == (EOS, 0)
    changed = tgt.clone()
    changed[:, 0] = 0
    assert torch.equal(from_bos(src, lengths, tgt)[0], from_eos(src, lengths, changed)[0])
    assert not torch.equal(from_bos(src, lengths, tgt)[0], from_eos(src, lengths, tgt)[0])


def test_each_part_can_be_left_out(arch: str) -> None:
    whole = {name for name, _ in build(arch).named_parameters()}
    bare = build(arch, language_embeddings=False, output_bias=False, linear_bias=False)
    gone = whole - {name for name, _ in bare.named_parameters()}
    assert "encoder.embed_positions.language" in gone
    assert "decoder.output_projection.bias" in gone
    assert any("fc1.bias" in name for name in gone) and any("q_proj.bias" in n for n in gone)
    src, lengths, tgt = batch()
    assert bare(src, lengths, tgt)[0].isfinite().all()


def test_first_values_are_those_of_the_released_code() -> None:
    model = build(encoder_embed_dim=256, decoder_embed_dim=256)
    layer = model.decoder.layers[0]
    for projection in (layer.self_attn.q_proj, layer.encoder_attn.out_proj):
        assert projection.weight.std().item() == pytest.approx((2 / (5 * 256)) ** 0.5, rel=0.05)
        assert projection.bias.abs().max() == 0
    fan = sum(layer.fc1.weight.shape)
    assert layer.fc1.weight.std().item() == pytest.approx((2 / fan) ** 0.5, rel=0.05)
    assert layer.fc1.bias.abs().max() == 0
    language = model.encoder.embed_positions.language
    assert language.std().item() == pytest.approx(256**-0.5, rel=0.2)
    assert model.decoder.output_projection.bias.abs().max() == 0
    assert model.encoder.embed_tokens.weight.abs().max() <= 0.01


@pytest.mark.parametrize("probability", [-0.1, 1.0, float("nan")])
def test_a_word_dropout_that_is_no_probability_is_refused(probability: float) -> None:
    with pytest.raises(ValueError, match="--word-dropout"):
        build(word_dropout=probability)
