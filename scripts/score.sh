#!/usr/bin/env bash
# Scores files of translations: scripts/score.sh --ref REF --hyp NAME=FILE … [--json FILE]
set -euo pipefail
here=$(dirname "${BASH_SOURCE[0]}")
"$here/setup.sh"
exec "$here/../.venv/bin/qknorm" score "$@"
