#!/usr/bin/env bash
# Sets up, then checks style and types and runs the tests: scripts/test.sh [pytest arguments]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/setup.sh
export OMP_WAIT_POLICY=passive
.venv/bin/ruff check .
.venv/bin/mypy
exec .venv/bin/python -m pytest --numprocesses auto --dist loadfile "$@"
