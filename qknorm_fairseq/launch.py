"""The process in which ``qknorm`` trains: fairseq-train, with bf16 for more than TPUs.

    python -m qknorm_fairseq.launch DATA --user-dir … (the arguments of fairseq-train)

fairseq's command line takes ``--bf16`` to mean a TPU, whatever the machine has. In float32
and float16 this is fairseq-train.
"""

from fairseq_cli import train  # first: it sets the form of the log

# isort: split
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.distributed import utils as distributed_utils

# --user-dir imports nothing of a package that is imported already, as this one is here
import qknorm_fairseq.models
import qknorm_fairseq.tasks.low_resource_translation  # noqa: F401


def main() -> None:
    """Train as the command line says."""
    args = options.parse_args_and_arch(options.get_training_parser())
    args.tpu = False
    distributed_utils.call_main(convert_namespace_to_omegaconf(args), train.main)


if __name__ == "__main__":
    main()
