#!/usr/bin/env bash
# The whole experiment on one pair, from raw text to the table: scripts/reproduce.sh PAIR [options]
set -euo pipefail
here=$(dirname "${BASH_SOURCE[0]}")
"$here/setup.sh"
exec "$here/../.venv/bin/qknorm" reproduce "$@"
