#!/bin/sh
# usage: debian.sh PYTHON VENV
# Installs what the tests run on: a real Slurm, network namespaces and a firewall, and every shell; and what it takes
# to make VENV with PYTHON, where it is not made yet. Only what is missing, only as root on Debian or Ubuntu. Elsewhere,
# and when something cannot be had, it says so and ends well: the tests that need it are then skipped, loudly.
set -u
python=$1
venv=$2
packages='
    slurmctld slurmd slurm-client munge
    iproute2 nftables
    dash mksh ksh fish tcsh csh zsh busybox
    shellcheck
    man-db groff-base
    environment-modules
    rpm lintian rpmlint
    python3-venv
'

# Prints the package that this Python lacks to make an environment. Debian's is of no use to another one.
lacks='
import sys
try:
    import ensurepip, venv
except ImportError:
    if sys.base_prefix != "/usr":
        sys.exit("!!! NOT INSTALLED: %s has no ensurepip, and is not Debian'"'"'s" % sys.executable)
    print("python%d.%d-venv" % sys.version_info[:2])
'

if ! [ -x "$venv/bin/python" ]; then
    case $python in
    python3*) command -v "$python" >/dev/null || packages="$python $python-venv $packages" ;;
    esac
    if command -v "$python" >/dev/null; then packages="$("$python" -c "$lacks") $packages"; fi
fi

# shellcheck disable=SC2086 # a list of words
"$(dirname "$0")/packages.sh" $packages
exit 0
