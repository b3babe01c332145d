#!/usr/bin/env bash
# Makes .venv beside the code and installs everything pinned; safe to repeat, quick when done.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

stamp=.venv/installed.sha256
wanted=$(cat requirements.txt setup.py scripts/setup.sh <(pwd -P) | sha256sum)
if [[ -f $stamp && $(<"$stamp") == "$wanted" && -x .venv/bin/qknorm ]]; then exit 0; fi

exec 9<requirements.txt
flock 9  # two first calls at once: one sets up, the other waits
if [[ -f $stamp && $(<"$stamp") == "$wanted" && -x .venv/bin/qknorm ]]; then exit 0; fi

if [[ $(uname -sm) != "Linux x86_64" ]]; then
  echo "setup.sh: fairseq has prebuilt wheels for Linux on x86-64 alone; this is $(uname -sm)" >&2
  exit 2
fi
for python in python3.12 python3.11 python3 ""; do
  if [[ -z $python ]]; then
    echo "setup.sh: Python 3.11 or 3.12 is needed and was not found; install one of them" >&2
    exit 2
  fi
  "$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info[:2] not in {(3, 11), (3, 12)})' \
    2>/dev/null && break
done

log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "setting up .venv with $("$python" --version) (two minutes or so)" >&2
rm -rf .venv
"$python" -m venv .venv
pip() { .venv/bin/python -m pip --disable-pip-version-check --quiet "$@" >"$log" 2>&1 ||
  { cat "$log" >&2; echo "setup.sh: installing failed; mend the cause above and call it again" >&2; exit 1; }; }
pip install setuptools==84.2.1 wheel==0.48.0
# torch with what it brings along: where it is a CUDA build, NVIDIA's libraries in their versions
pip install --constraint requirements.txt torch==2.13.0
pip install --no-deps --no-build-isolation -r requirements.txt
pip install --no-deps --no-build-isolation --editable .
echo "$wanted" >"$stamp"
