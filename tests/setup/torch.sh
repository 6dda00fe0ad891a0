#!/bin/sh
# usage: torch.sh PYTHON
# Installs torch for the tests that run a real torch.distributed program, when what pip would take is a build
# for CPUs. Builds for GPUs are gigabytes that no test needs: TORCH=1 installs one all the same, and TORCH=0
# asks for none. Without torch those tests are skipped, loudly.
set -u
python=$1
wanted=torch==2.13.0

say() { printf '!!! %s\n' "$*" >&2; }

[ "${TORCH:-}" != 0 ] || exit 0
"$python" -c 'import importlib.metadata as m, sys; sys.exit(not m.version("torch").startswith("2.13.0"))' 2>/dev/null && exit 0

report=$(mktemp) || exit
trap 'rm -f "$report"' EXIT
if ! "$python" -m pip install --quiet --dry-run --report "$report" "$wanted" 2>/dev/null; then
    say "NO TORCH: pip finds no $wanted for this machine; the tests that need it will be skipped"
    exit 0
fi
if [ "${TORCH:-}" != 1 ] && grep -q '"name": *"nvidia-' "$report"; then
    say "NO TORCH: pip would take a build for GPUs, of gigabytes; the tests that need it will be skipped"
    say "to have them run: make test TORCH=1, or give pip the index https://download.pytorch.org/whl/cpu"
    exit 0
fi
"$python" -m pip install --quiet "$wanted" numpy || say "NO TORCH: the installation failed; the tests that need it will be skipped"
