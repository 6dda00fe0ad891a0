"""An ssh between test hosts, which have none: it enters the host of that name."""

from __future__ import annotations

from pathlib import Path

from cluster.hosts import Hosts

_SSH = """\
#!/bin/sh
# As OpenSSH's client: options, a host, and words that the login shell of the host reads in an environment of its own.
while [ "${{1#-}}" != "$1" ]; do [ "$1" != -o ] || shift; shift; done
host=$1; shift
pid=$(sed -n "s/^$host //p" {place}/hosts)
{reach}case $* in
*/"__main__.py sweep "*) # it sees the processes of all test hosts, which are one machine
    net=$(readlink "/proc/$pid/ns/net" | tr '[]' '??')
    for its in $(find /proc/[0-9]*/ns/net -maxdepth 0 -lname "$net" 2>/dev/null); do
        its=${{its%/ns/net}}
        ! grep -qz "^MINGLE_RUN_ID=" "$its/environ" 2>/dev/null || kill -9 "${{its##*/}}"
    done
    exit 0
    ;;
esac
exec nsenter --target "$pid" --net --mount --uts -- env -i HOME=/root USER=root SHELL=/bin/sh SSH_CLIENT=me \\
  PATH=/usr/bin:/bin /bin/sh -c "$*"
"""
# Waits for as long as no packet comes through, and no longer, as nothing listens there.
_REACH = """bash -c "exec 3<>/dev/tcp/$host/22" 2>/dev/null
"""


def ssh(hosts: Hosts, place: Path, *, needs_network: bool = False) -> Path:
    """Write it, and return the directory that it is in; it may reach hosts that no packet reaches."""
    (place / "bin").mkdir()
    (place / "bin/ssh").write_text(_SSH.format(place=place, reach=_REACH * needs_network))
    (place / "bin/ssh").chmod(0o755)
    (place / "hosts").write_text("".join(f"{host.name} {host.pid}\n" for host in hosts))
    return place / "bin"
