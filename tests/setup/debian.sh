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
    rpm
'

# Prints the packages that this Python lacks. Those of Debian are of no use to another one.
lacks='
import os, sys, sysconfig
name, lacks = "python%d.%d" % sys.version_info[:2], []
try:
    import ensurepip, venv
except ImportError:
    lacks.append(name + "-venv")
if not os.path.exists(sysconfig.get_path("include") + "/Python.h"):
    lacks.append(name + "-dev")
if lacks and sys.base_prefix != "/usr":
    sys.exit("!!! NOT INSTALLED: %s has no ensurepip or no Python.h, and is not Debian'"'"'s" % sys.executable)
print(" ".join(lacks))
'

# Of netifaces, which the project requires, there is only the source.
if ! "$venv/bin/python" -c 'import netifaces' 2>/dev/null; then
    command -v cc >/dev/null || packages="gcc libc6-dev $packages"
    case $python in
    python3*) command -v "$python" >/dev/null || packages="$python $python-venv $python-dev $packages" ;;
    esac
    if command -v "$python" >/dev/null; then packages="$("$python" -c "$lacks") $packages"; fi
fi

# shellcheck disable=SC2086 # a list of words
"$(dirname "$0")/packages.sh" $packages
exit 0
