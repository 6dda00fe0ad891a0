#!/bin/sh
# Installs what the tests run on: a real Slurm, network namespaces and a firewall, and every shell.
# Only what is missing, only as root on Debian or Ubuntu, and no service is started. Elsewhere, and when
# something cannot be had, it says so and ends well: the tests that need it are then skipped, loudly.
set -u

packages='
    slurmctld slurmd slurm-client munge
    iproute2 nftables
    dash mksh ksh fish tcsh csh zsh busybox
    shellcheck
    man-db groff-base
    environment-modules
'

say() { printf '!!! %s\n' "$*" >&2; }

# shellcheck source=/dev/null
. /etc/os-release 2>/dev/null || ID=unknown
case " ${ID} ${ID_LIKE:-} " in
*' debian '* | *' ubuntu '*) ;;
*)
    say "NOT INSTALLED: this is ${ID}, not Debian or Ubuntu; wanted are the likes of: $packages"
    exit 0
    ;;
esac

missing=
for package in $packages; do
    case $(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null) in
    installed) ;;
    *) missing="$missing $package" ;;
    esac
done
[ -n "$missing" ] || exit 0
if [ "$(id -u)" -ne 0 ]; then
    say "NOT INSTALLED, for this is not root:$missing"
    say "tests that need them, or network namespaces, will be skipped; as root: make tools"
    exit 0
fi

# invoke-rc.d asks this file whether a package may start its service. One that is there is the admin's.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod 755 "$policy"
fi

export DEBIAN_FRONTEND=noninteractive
echo "installing:$missing"
apt-get update -q >/dev/null || say "apt-get update failed; trying with the package lists that are here"
# shellcheck disable=SC2086 # a list of words
if ! apt-get install -q -y --no-install-recommends $missing >/dev/null; then
    say "SOME OF THESE COULD NOT BE INSTALLED:$missing"
    say "the tests that need them will be skipped"
fi
