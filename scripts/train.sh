#!/usr/bin/env bash
# One training run, resumed if begun: scripts/train.sh PAIR ARM [options]
set -euo pipefail
here=$(dirname "${BASH_SOURCE[0]}")
"$here/setup.sh"
exec "$here/../.venv/bin/qknorm" train "$@"
