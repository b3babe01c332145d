"""Attention alone, a process a case: time, and the memory that it takes at the most."""

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

from qknorm_fairseq.modules.attention import attend
from qknorm_fairseq.modules.qk_norm import DotProduct, QueryKeyNorm

HEADS, HEAD_DIM = 8, 64
LENGTHS = (32, 128, 512, 1024, 2048, 4096)
KINDS = ("qknorm", "dot")
DROPOUTS = (0.0, 0.3)
MIB = 2**20


def measure(device: torch.device) -> list[dict[str, Any]]:
    """A row for each kind, dropout and length: ``ms`` and ``mib``, forward and backward."""
    return [
        {
            "kind": kind,
            "dropout": dropout,
            "length": length,
            **_apart(kind, dropout, length, device),
        }
        for kind in KINDS
        for dropout in DROPOUTS
        for length in LENGTHS
    ]


def memory_ratio(rows: list[dict[str, Any]], kind: str = "qknorm") -> float:
    """Memory at length 4,096 over that at 1,024, without dropout."""
    of = {row["length"]: row["mib"] for row in rows if (row["kind"], row["dropout"]) == (kind, 0)}
    return round(of[4096] / of[1024], 3)


def _apart(kind: str, dropout: float, length: int, device: torch.device) -> dict[str, float]:
    case = [f"--{name}={value}" for name, value in (("dropout", dropout), ("length", length))]
    words = [sys.executable, "-m", __name__, f"--kind={kind}", f"--device={device}", *case]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def run_case(kind: str, dropout: float, length: int, device: torch.device) -> dict[str, float]:
    """One case in this process: queries, keys and values of one sentence, eight heads of 64."""
    treatment = DotProduct(HEAD_DIM) if kind == "dot" else QueryKeyNorm(HEADS, 12.6)
    treatment = treatment.to(device)

    def step(size: int) -> None:
        q, k, v = (torch.randn(1, HEADS, size, HEAD_DIM, device=device) for _ in range(3))
        for x in (q, k, v):
            x.requires_grad_()
        out = attend(treatment.query(q), treatment.key(k), v, dropout=dropout)
        out.backward(torch.ones_like(out))
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    step(16)  # what is loaded once is not the attention's
    before = _reset_peak(device)
    times = []
    for _ in range(5 if length <= 1024 else 2):
        began = time.perf_counter()
        step(length)
        times.append(time.perf_counter() - began)
    mib = (_peak(device) - before) / MIB
    return {"ms": round(1000 * statistics.median(times), 3), "mib": round(mib, 2)}


def _reset_peak(device: torch.device) -> int:
    """Bytes in use now, from which the peak counts."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return torch.cuda.memory_allocated(device)
    Path("/proc/self/clear_refs").write_text("5")  # Linux: VmHWM begins anew
    return _status("VmRSS")


def _peak(device: torch.device) -> int:
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else _status("VmHWM")


def _status(name: str) -> int:
    line = next(x for x in Path("/proc/self/status").read_text().split("\n") if x.startswith(name))
    return int(line.split()[1]) * 1024


def main() -> None:
    """One case, as JSON on standard output."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", choices=KINDS, required=True)
    parser.add_argument("--dropout", type=float, required=True)
    parser.add_argument("--length", type=int, required=True)
    parser.add_argument("--device", default="cpu")
    case = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    print(json.dumps(run_case(case.kind, case.dropout, case.length, torch.device(case.device))))


if __name__ == "__main__":
    main()
