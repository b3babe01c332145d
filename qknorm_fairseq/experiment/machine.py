"""What a run is computed on."""

import platform
from pathlib import Path


def processor() -> str:
    """The processor's name as Linux knows it."""
    names = Path("/proc/cpuinfo")
    lines = names.read_text().split("\n") if names.exists() else []
    model = (line.split(": ")[1] for line in lines if line.startswith("model name"))
    return next(model, platform.processor() or "unknown")


def device() -> str:
    """The name of the first GPU that may be used, else of the processor."""
    import torch  # slow to import

    return torch.cuda.get_device_name(0) if torch.cuda.is_available() else processor()
