#!/bin/sh
# usage: torch.sh PYTHON
# Installs torch, accelerate, jax, lightning and Dask for the tests that run real programs of theirs, and CycloneDX's
# schemas; torch when what pip
# would take is a build for CPUs. Builds for GPUs are gigabytes that no test needs: TORCH=1 installs one all the same,
# and TORCH=0 asks for none of them. Without them those tests are skipped, loudly.
set -u
python=$1
wanted=torch==2.13.0
others='accelerate==1.15.0 jax==0.10.2 lightning==2.6.6 distributed==2026.8.0 cyclonedx-python-lib[json-validation]==11.12.0'

say() { printf '!!! %s\n' "$*" >&2; }

[ "${TORCH:-}" != 0 ] || exit 0

has() { # NAME==VERSION, or a build of it such as 2.13.0+cpu
    "$python" -c 'import importlib.metadata as m, sys
name, _, version = sys.argv[1].partition("==")
name = name.partition("[")[0]
sys.exit(m.version(name).partition("+")[0] != version)' "$1" 2>/dev/null
}

install_others() { # after torch, as accelerate would bring another one
    for other in $others; do
        if has "$other"; then continue; fi
        case $other in
        accelerate* | lightning*) has "$wanted" || continue ;;
        esac
        "$python" -m pip install --quiet "$other" ||
            say "NO ${other%%=*}: the installation failed; the tests that need it will be skipped"
    done
}
trap install_others EXIT

if has "$wanted"; then exit 0; fi

report=$(mktemp) || exit
trap 'rm -f "$report"; install_others' EXIT
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
