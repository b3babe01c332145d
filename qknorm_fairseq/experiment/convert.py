"""Checkpoints of the released code as fairseq checkpoints, and back.

Heads, FixNorm, the positions and which language row is the source's are in none of the
released code's files, and must be said. The values are carried over in the dtype that they
have, so a round trip gives the same bits.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from fairseq import options
from fairseq.data import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from omegaconf import OmegaConf

import qknorm_fairseq.tasks.low_resource_translation  # noqa: F401  (registers the task)
from qknorm_fairseq.experiment import released
from qknorm_fairseq.experiment import released_files as files
from qknorm_fairseq.experiment.errors import UserError
from qknorm_fairseq.experiment.released import MASK, Tensors
from qknorm_fairseq.experiment.run import PLUGIN
from qknorm_fairseq.experiment.settings import as_arguments
from qknorm_fairseq.experiment.workspace import whole_folder, write_lines

CHECKPOINT = "checkpoint.pt"


@dataclass(frozen=True)
class Untold:
    """What the released code's files do not tell of a model."""

    heads: int | None
    positions: str = "released"  # QKNorm's code; "interleaved": Transformers without Tears
    fix_norm: bool = True
    source_row: int | None = None  # of ``lang_embedding``; None: 0
    source: str = "src"
    target: str | None = None  # None: the mask's language


def from_released(
    file: Path, vocab: Path | None, mask: Path | None, untold: Untold, out: Path | None
) -> list[str]:
    """Make ``out`` with a fairseq checkpoint and its dictionaries.

    Returns lines that say where it lies and how to translate with it.

    Raises:
        UserError: when the files are not what they should be, or do not go together.
    """
    if vocab is None or out is None or untold.heads is None:
        raise UserError("converting a .pth needs --vocab, --heads and --out")
    target = untold.target or (files.language_of(mask) if mask else "tgt")
    if target == untold.source:
        raise UserError(f"--source and --target are both {target}")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out}: is there already; choose another --out, or remove it")
    params = files.read_params(file)
    dictionary = files.read_vocab(vocab)
    types = len(dictionary)
    try:
        model_options = released.model_options(_config(params, untold), untold.positions)
        model = released.build(model_options, types)
        state = model.state_dict() | released.to_ours(model, params, untold.source_row or 0)
    except UserError as error:
        raise UserError(f"{file}: {error}") from error
    if mask is not None:
        state[MASK] = files.read_mask(mask, types)
    with whole_folder(out) as folder:
        for language in (untold.source, target):
            dictionary.save(str(folder / f"dict.{language}.txt"))
        checkpoint = _checkpoint(state, model_options, (untold.source, target), out)
        checkpoint["extra_state"]["released_source_row"] = untold.source_row or 0
        torch.save(checkpoint, folder / CHECKPOINT)
    return [
        f"{out / CHECKPOINT}",
        f"fairseq-interactive {out} --user-dir {PLUGIN} --task low_resource_translation "
        f"--source-lang {untold.source} --target-lang {target} --path {out / CHECKPOINT} --beam 4",
    ]


def to_released(run: Path, file: Path, source_row: int | None = None) -> list[str]:
    """Write a run's best checkpoint, or a checkpoint file, as the released code's files.

    ``vocab.joint`` and ``mask.LANG.npy`` are put beside ``file``. Returns lines that tell
    what those files do not hold.

    Raises:
        UserError: when there is no such checkpoint, or that code has no such model.
    """
    path = _find_checkpoint(run)
    checkpoint = files.load(path, "fairseq checkpoint")
    try:
        model_options, task = checkpoint["cfg"]["model"], checkpoint["cfg"]["task"]
        state: Tensors = checkpoint["model"]
        target = task["target_lang"]
    except (KeyError, TypeError) as error:
        raise UserError(f"{path}: not a checkpoint of this plugin ({error} is missing)") from error
    dictionary = _find_dictionary(path, Path(str(task["data"])), target)
    if source_row is None:
        source_row = checkpoint.get("extra_state", {}).get("released_source_row", 0)
    try:
        _refuse_what_they_lack(model_options)
        model = released.build(dict(model_options), len(dictionary))
        params = released.to_theirs(model, state, source_row)
    except (UserError, KeyError) as error:
        raise UserError(f"{path}: {error}") from error
    beside = {
        file: lambda aside: torch.save(params, aside),
        file.parent / "vocab.joint": lambda aside: write_lines(
            aside, files.vocab_lines(dictionary)
        ),
        file.parent / f"mask.{target}.npy": lambda aside: files.write_mask(aside, state[MASK]),
    }
    for there in beside:
        if there.exists():
            raise UserError(f"{there}: is there already; name another file with --to")
    file.parent.mkdir(parents=True, exist_ok=True)
    for place, write in beside.items():
        files.write_whole(place, write)
    return [
        f"not told by these files: {model_options['encoder_attention_heads']} heads, "
        f"{'' if model_options['fix_norm'] else 'no '}FixNorm, {model_options['positions']} "
        f"positions, row {source_row} of lang_embedding is the source's",
        *_warnings(model_options),
    ]


def _warnings(model_options: dict[str, Any]) -> list[str]:
    if model_options["decoder_start"] == "bos":
        return []
    return [
        "this model was trained to start from </s>, the released code starts from _BOS_: "
        "it would translate badly there"
    ]


def _config(params: Tensors, untold: Untold) -> dict[str, Any]:
    """The released code's config, from the names and shapes of its parameters."""

    def layers(side: str) -> int:
        return len({name.split(".")[2] for name in params if name.startswith(f"{side}.ffs.")})

    feed_forward = params.get("encoder.ffs.0.in_proj.weight")
    encoder_layers = layers("encoder")
    return {
        "embed_dim": params["word_embedding"].shape[-1],
        "ff_dim": 0 if feed_forward is None else len(feed_forward),
        "num_enc_layers": encoder_layers,
        "num_dec_layers": layers("decoder"),
        "num_heads": untold.heads,
        "use_bias": "out_bias" in params,
        "fix_norm": untold.fix_norm,
        "scnorm": "encoder.scales.0.scale" in params,
        # PreNorm has one more norm than it has sublayers
        "pre_act": any(name.startswith(f"encoder.scales.{2 * encoder_layers}.") for name in params),
        "mha_sup": "encoder.atts.0.mha_scale.scale" in params,
        "seq_len_threshold": 79,  # g has a value already
    }


def _checkpoint(
    state: Tensors, model_options: dict[str, Any], languages: tuple[str, str], data: Path
) -> dict[str, Any]:
    """What fairseq keeps in a checkpoint, for a training that has not begun."""
    arguments: dict[str, Any] = {
        "task": "low_resource_translation",
        "source-lang": languages[0],
        "target-lang": languages[1],
        "criterion": "target_vocab_label_smoothed_cross_entropy",
        "arch": model_options["_name"],
        **{
            name.replace("_", "-"): value
            for name, value in model_options.items()
            if name != "_name"
        },
    }
    parser = options.get_training_parser()
    args = options.parse_args_and_arch(parser, [str(data.resolve()), *as_arguments(arguments)])
    cfg = convert_namespace_to_omegaconf(args)
    return {
        "args": None,
        "cfg": OmegaConf.to_container(cfg, resolve=True, enum_to_str=True),
        "model": state,
        "optimizer_history": [
            {"optimizer_name": "none", "lr_scheduler_state": {}, "num_updates": 0}
        ],
        "last_optimizer_state": None,
        "task_state": {},
        "extra_state": {},
    }


def _find_checkpoint(run: Path) -> Path:
    if run.is_file():
        return run
    for path in (run / "checkpoints" / "checkpoint_best.pt", run / CHECKPOINT):
        if path.exists():
            return path
    raise UserError(f"{run}: no run with a checkpoint; give a run's folder or a checkpoint file")


def _find_dictionary(checkpoint: Path, data: Path, language: str) -> Dictionary:
    for folder in (checkpoint.parent, data):
        path = folder / f"dict.{language}.txt"
        if path.exists():
            return Dictionary.load(str(path))
    raise UserError(f"{checkpoint}: its dictionary {data}/dict.{language}.txt is not there")


def _refuse_what_they_lack(model_options: dict[str, Any]) -> None:
    """Raise UserError for an option of the plugin that the released code does not have."""
    fixed = {"normalize_values": False, "activation_fn": "relu"}
    for name, value in fixed.items():
        if model_options[name] != value:
            raise UserError(f"the released code has no model with {name} {model_options[name]}")
    for name in ("attention_heads", "normalize_before", "ffn_embed_dim"):
        if model_options[f"encoder_{name}"] != model_options[f"decoder_{name}"]:
            raise UserError(f"the released code has one {name} for encoder and decoder")
