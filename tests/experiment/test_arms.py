"""What may differ between the arms of the 2 × 2, listed by hand for every pair and profile."""

from itertools import product
from pathlib import Path
from typing import Any, cast

import pytest
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from omegaconf import OmegaConf

from qknorm_fairseq.experiment.factorial import EFFECTS, FACTORIAL
from qknorm_fairseq.experiment.outcome import resolved
from qknorm_fairseq.experiment.run import make_run
from qknorm_fairseq.experiment.settings import (
    known_names,
    load_arm,
    load_pair,
    load_profile,
)
from qknorm_fairseq.experiment.workspace import Workspace

ATTENTION = {"arch", "qk_norm"}
NORM = {"arch", "residual_norm"}
MAY_DIFFER = {
    ("scalenorm", "qknorm"): ATTENTION | NORM,
    ("scalenorm", "qknorm_scalenorm"): ATTENTION,
    ("layernorm", "qknorm"): ATTENTION,
    ("scalenorm", "layernorm"): NORM,
    ("qknorm_scalenorm", "qknorm"): NORM,
    ("layernorm", "qknorm_scalenorm"): ATTENTION | NORM,
}
VALUES = {
    "scalenorm": ("none", "scalenorm"),
    "layernorm": ("none", "layernorm"),
    "qknorm_scalenorm": ("l2", "scalenorm"),
    "qknorm": ("l2", "layernorm"),
}


def as_fairseq_reads_it(pair: str, profile: str, arm: str, folder: Path) -> dict[str, Any]:
    """A run's options with fairseq's defaults, the task's and the architecture's filled in."""
    run = make_run(
        Workspace(folder), load_pair(pair), load_arm(arm), load_profile(profile), 1, "fp32"
    )
    words = [word if word != "auto" else "79" for word in run.arguments()]
    parser = options.get_training_parser()
    config = convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, words))
    container = cast(dict[str, Any], OmegaConf.to_container(config, resolve=True))
    return resolved(container)


@pytest.mark.parametrize(
    ("pair", "profile"), product(known_names("pairs"), known_names("profiles"))
)
def test_the_arms_differ_in_attention_and_norm_alone(
    pair: str, profile: str, tmp_path: Path
) -> None:
    arms = {arm: as_fairseq_reads_it(pair, profile, arm, tmp_path) for arm in FACTORIAL}
    for arm, options_of_arm in arms.items():
        assert (options_of_arm["qk_norm"], options_of_arm["residual_norm"]) == VALUES[arm]
        assert options_of_arm["arch"] == f"transformer_{arm}"
    for (a, b), allowed in MAY_DIFFER.items():
        one, other = arms[a], arms[b]
        assert one.keys() == other.keys()
        assert {name for name in one if one[name] != other[name]} == allowed


def test_an_effect_is_that_of_arms_that_differ_in_one_of_the_two() -> None:
    for name, weights in EFFECTS.items():
        plus, minus = ({VALUES[a] for a, w in weights.items() if w == sign} for sign in (1, -1))
        if name == "interaction":
            assert plus == {("none", "scalenorm"), ("l2", "layernorm")}
            assert len(minus) == 2
            continue
        ((attention, norm),), ((was, norm_was),) = plus, minus
        if name.startswith("qknorm_at"):
            assert (attention, was, norm) == ("l2", "none", norm_was)
            assert name.endswith(norm)
        else:
            assert (norm, norm_was, attention) == ("layernorm", "scalenorm", was)
            assert name.endswith({"none": "dot", "l2": "qknorm"}[attention])
