"""Checkpoints of the released code as fairseq checkpoints, and back.

Heads, FixNorm, the positions and which language row is the source's are in none of the
released code's files, and must be said. The values are carried over in the dtype that they
have, so a round trip gives the same bits.
"""

import re
import shlex
import warnings
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from fairseq import options
from fairseq.data import Dictionary, data_utils
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from omegaconf import OmegaConf

import qknorm_fairseq.tasks.low_resource_translation  # noqa: F401  (registers the task)
from qknorm_fairseq.experiment import released
from qknorm_fairseq.experiment import released_files as files
from qknorm_fairseq.experiment.errors import UserError
from qknorm_fairseq.experiment.released import MASK, Tensors
from qknorm_fairseq.experiment.run import PIPELINE, PLUGIN
from qknorm_fairseq.experiment.settings import as_arguments
from qknorm_fairseq.experiment.workspace import whole_folder

CHECKPOINT = "checkpoint.pt"
TASK = PIPELINE["task"]


@dataclass(frozen=True)
class ModelFacts:
    """What the released code's files do not tell of a model; None: not said."""

    heads: int | None = None
    positions: str | None = None  # QKNorm's code: "released"; "interleaved": the other
    fix_norm: bool | None = None
    source_row: int | None = None  # of ``lang_embedding``
    source: str | None = None
    target: str | None = None


def from_released(
    file: Path, vocab: Path | None, mask: Path | None, facts: ModelFacts, out: Path | None
) -> list[str]:
    """Make ``out`` with a fairseq checkpoint and its dictionaries.

    Returns lines that say where it lies and how to translate with it.

    Raises:
        UserError: when the files are not what they should be, or do not go together.
    """
    if vocab is None or out is None or facts.heads is None:
        raise UserError("converting a .pth needs --vocab, --heads and --out")
    source = facts.source or "src"
    target = facts.target or (files.language_of(mask) if mask else "tgt")
    if target == source:
        raise UserError(f"--source and --target are both {target}")
    for language in (source, target):
        if not re.fullmatch(r"[A-Za-z0-9_-]+", language):
            raise UserError(f"{language!r} is no language code")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out}: is there already; choose another --out, or remove it")
    params = files.read_params(file)
    dictionary = files.read_vocab(vocab)
    source_row = facts.source_row or 0
    try:
        options = released.model_options(_config(params, facts), facts.positions or "released")
        model = released.build(options, len(dictionary))
        state = model.state_dict() | released.to_ours(model, params, source_row)
    except UserError as error:
        raise UserError(f"{file}: {error}") from error
    if mask is not None:
        state[MASK] = files.read_mask(mask, len(dictionary))
    with whole_folder(out) as folder:
        for language in (source, target):
            dictionary.save(str(folder / f"dict.{language}.txt"))
        checkpoint = _checkpoint(state, options, (source, target), out)
        checkpoint["extra_state"]["released_source_row"] = source_row
        torch.save(checkpoint, folder / CHECKPOINT)
    words = ["fairseq-interactive", out, "--user-dir", PLUGIN, "--task", TASK, "--source-lang"]
    words += [source, "--target-lang", target, "--path", out / CHECKPOINT, "--beam", "4"]
    return [str(out / CHECKPOINT), shlex.join(str(word) for word in words)]


def to_released(
    run: Path, file: Path, vocab: Path | None, mask: Path | None, facts: ModelFacts
) -> list[str]:
    """Write a run's best checkpoint, or a checkpoint file, as the released code's files.

    ``vocab.joint`` and ``mask.LANG.npy`` are put beside ``file``. Returns lines that tell
    what those files do not hold.

    Raises:
        UserError: when there is no such checkpoint, or that code has no such model.
    """
    known = {field.name: getattr(facts, field.name) for field in fields(facts)}
    for name, value in {**known, "vocab": vocab, "mask": mask, "source_row": None}.items():
        if value is not None:
            option = "--no-fix-norm" if name == "fix_norm" else f"--{name}"
            raise UserError(f"{option} says nothing with --to: the checkpoint knows it")
    path = _find_checkpoint(run)
    checkpoint = files.load(path, "fairseq checkpoint")
    try:
        options, task = checkpoint["cfg"]["model"], checkpoint["cfg"]["task"]
        state: Tensors = checkpoint["model"]
        language, dictionary = _find_dictionary(path, str(task["data"]), task["target_lang"])
        row = facts.source_row
        if row is None:
            row = (checkpoint["extra_state"] or {}).get("released_source_row", 0)
        if row not in (0, 1):
            raise UserError(f"released_source_row is {row!r}, but must be 0 or 1")
        _refuse_what_they_lack(options)
        model = released.build(dict(options), len(dictionary))
        model.load_state_dict(state)
        params = released.to_theirs(model, state, row)
        notes = _untold(options, row)
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: not a checkpoint of this plugin ({error})") from error
    except RuntimeError as error:  # torch: names or shapes
        raise UserError(f"{path}: {' '.join(str(error).split())[:200]}") from error
    except UserError as error:
        where = "" if str(path) in str(error) else f"{path}: "
        raise UserError(f"{where}{error}") from error
    files.write(file, language, params, dictionary, state[MASK])
    return notes


def _untold(options: dict[str, Any], row: int) -> list[str]:
    notes = [
        f"not told by these files: {options['encoder_attention_heads']} heads, "
        f"{'' if options['fix_norm'] else 'no '}FixNorm, {options['positions']} positions, "
        f"row {row} of lang_embedding is the source's"
    ]
    if options["decoder_start"] != "bos":
        notes.append(
            "this model was trained to start from </s>, the released code starts from _BOS_: "
            "it would translate badly there"
        )
    return notes


def _config(params: Tensors, facts: ModelFacts) -> dict[str, Any]:
    """The released code's config, from the names and shapes of its parameters."""

    def count(kind: str) -> int:
        """How many ``kind`` there are, by the highest number of one."""
        prefix = f"{kind}."
        numbers = [name.removeprefix(prefix).split(".")[0] for name in params if prefix in name]
        return max((int(number) + 1 for number in numbers if number.isdigit()), default=0)

    def any_ends_with(*endings: str) -> bool:
        return any(name.endswith(endings) for name in params)

    inner = params.get("encoder.ffs.0.in_proj.weight")
    layers = count("encoder.atts"), count("decoder.atts")
    return {
        "embed_dim": params["word_embedding"].shape[-1],
        "ff_dim": 0 if inner is None else len(inner),
        "num_enc_layers": layers[0],
        "num_dec_layers": layers[1],
        "num_heads": facts.heads,
        "use_bias": any_ends_with("out_bias", ".biases"),
        "fix_norm": facts.fix_norm is not False,
        "scnorm": any(".scales." in name and name.endswith(".scale") for name in params),
        # PreNorm has a norm more than it has sublayers
        "pre_act": count("encoder.scales") > 2 * layers[0]
        or count("decoder.scales") > 3 * layers[1],
        "mha_sup": any_ends_with(".mha_scale.scale"),
        "seq_len_threshold": 79,  # g has a value already
    }


def _checkpoint(
    state: Tensors, model_options: dict[str, Any], languages: tuple[str, str], data: Path
) -> dict[str, Any]:
    """What fairseq keeps in a checkpoint, for a training that has not begun."""
    arguments: dict[str, Any] = {
        "task": TASK,
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
    words = [str(data.resolve()), *as_arguments(arguments)]
    with warnings.catch_warnings():  # fairseq's use of Hydra is an old one
        warnings.simplefilter("ignore")
        args = options.parse_args_and_arch(options.get_training_parser(), words)
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
    best = "checkpoint_best.pt"
    for path in (run / "checkpoints" / best, run / best, run / CHECKPOINT):
        if path.exists():
            return path
    raise UserError(f"{run}: no run with a checkpoint; give a run's folder or a checkpoint file")


def _find_dictionary(checkpoint: Path, data: str, language: str | None) -> tuple[str, Dictionary]:
    """The target language and its dictionary, beside the checkpoint or with its data."""
    for folder in (checkpoint.parent, Path(data.split(":")[0])):
        target = language
        if target is None and folder.is_dir():  # fairseq-train has found it out by itself
            target = data_utils.infer_language_pair(str(folder))[1]
        path = folder / f"dict.{target}.txt"
        if path.exists():
            try:
                return str(target), Dictionary.load(str(path))
            except (ValueError, RuntimeError) as error:
                raise UserError(f"{path}: not a dictionary of fairseq's ({error})") from error
    raise UserError(f"its dictionary is not there: {path}")


def _refuse_what_they_lack(options: dict[str, Any]) -> None:
    """Raise UserError for an option of the plugin that the released code does not have."""
    known: dict[str, set[Any]] = {
        "normalize_values": {False},
        "activation_fn": {"relu"},
        "residual_norm": {"layernorm", "scalenorm"},
        "positions": {"released", "interleaved"},
        "output_bias": {options["linear_bias"]},
    }
    for name in ("attention_heads", "normalize_before", "ffn_embed_dim"):
        known[f"decoder_{name}"] = {options[f"encoder_{name}"]}
    for name, values in known.items():
        if options[name] not in values:
            raise UserError(f"the released code has no model with {name} {options[name]}")
