#!/usr/bin/env bash
# Speed and memory beside stock fairseq: scripts/benchmark.sh [--full] [--json FILE]
set -euo pipefail
here=$(dirname "${BASH_SOURCE[0]}")
"$here/setup.sh"
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
exec "$here/../.venv/bin/qknorm" benchmark "$@"
