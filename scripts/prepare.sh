#!/usr/bin/env bash
# Raw text to binarised data: scripts/prepare.sh PAIR --raw-dir DIR [options]
set -euo pipefail
here=$(dirname "${BASH_SOURCE[0]}")
"$here/setup.sh"
exec "$here/../.venv/bin/qknorm" prepare "$@"
