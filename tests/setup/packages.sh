#!/bin/sh
# usage: packages.sh PACKAGE...
# Installs those of these packages that are missing, as root on Debian or Ubuntu, and leaves no service of theirs
# started or enabled. Where that cannot be done it says so in one line, and ends with 1.
set -u

say() { printf '!!! %s\n' "$*" >&2; }

release=${DPKG_ROOT:-}/etc/os-release
ID=$(uname -s)
# shellcheck source=/dev/null
[ ! -r "$release" ] || . "$release"
case " ${ID} ${ID_LIKE:-} " in
*' debian '* | *' ubuntu '*) ;;
*)
    say "NOT INSTALLED: this is ${ID}, not Debian or Ubuntu; wanted are the likes of: $*"
    exit 1
    ;;
esac

is_installed() {
    [ "$(dpkg-query --show --showformat='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

all_installed() { # on one line, with a blank on either side of each
    dpkg-query --show --showformat='${db:Status-Status} ${binary:Package}\n' | sed -n 's/^installed / /p' | tr '\n' ' '
}

missing=
for package; do
    is_installed "$package" || missing="$missing $package"
done
[ -n "$missing" ] || exit 0
if [ "$(id -u)" -ne 0 ]; then
    say "NOT INSTALLED, as this is not root:$missing"
    exit 1
fi

# invoke-rc.d asks this file whether a package may start its service. One that is there is the admin's.
policy=${DPKG_ROOT:-}/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod 755 "$policy"
fi

get() { # the arguments of apt-get; without a network it is not to try for minutes
    DEBIAN_FRONTEND=noninteractive apt-get -q -y -o Acquire::Retries=0 -o APT::Update::Error-Mode=any "$@" 2>&1
}

echo "installing:$missing"
before=$(all_installed)
updated=yes
if ! told=$(get update); then
    updated=
    say "apt-get update failed: $(echo "$told" | grep '^E: ' | head -n 1); trying with the package lists that are here"
fi
# shellcheck disable=SC2086 # a list of words
if ! get install --no-install-recommends $missing >/dev/null && [ -n "$updated" ]; then
    # One that this release does not have is not to keep the others away.
    for package in $missing; do
        get install --no-install-recommends "$package" >/dev/null
    done
fi

# Nobody but these tests has asked for the services of what was not here before.
for package in $(all_installed); do
    case "$before " in *" $package "*) continue ;; esac
    for unit in $(dpkg-query --listfiles "$package" | sed -n 's|.*/systemd/system/\([^/]*\.[a-z]*\)$|\1|p'); do
        if command -v systemctl >/dev/null; then systemctl --quiet disable "$unit" >/dev/null 2>&1; fi
    done
    for script in $(dpkg-query --listfiles "$package" | sed -n 's|^/etc/init\.d/||p'); do
        if command -v update-rc.d >/dev/null; then update-rc.d "$script" disable >/dev/null 2>&1; fi
    done
done

failed=
for package in $missing; do
    is_installed "$package" || failed="$failed $package"
done
if [ -n "$failed" ]; then
    say "NOT INSTALLED, as apt-get could not:$failed"
    exit 1
fi
