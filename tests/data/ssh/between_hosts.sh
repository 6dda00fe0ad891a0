#!/bin/sh
# As OpenSSH's client: options, a host, and words that the login shell of the host reads in an environment of its own.
while [ "${1#-}" != "$1" ]; do [ "$1" != -o ] || shift; shift; done
place=${0%/bin/ssh}
host=$1; shift
pid=$(sed -n "s/^$host //p" "$place/hosts")
# Waits for as long as no packet comes through, and no longer, as nothing listens there.
[ ! -e "$place/needs_network" ] || bash -c "exec 3<>/dev/tcp/$host/22" 2>/dev/null
case $* in
*/"__main__.py sweep "*) # it sees the processes of all test hosts, which are one machine
    net=$(readlink "/proc/$pid/ns/net" | tr '[]' '??')
    for its in $(find /proc/[0-9]*/ns/net -maxdepth 0 -lname "$net" 2>/dev/null); do
        its=${its%/ns/net}
        ! grep -qz "^MINGLE_RUN_ID=" "$its/environ" 2>/dev/null || kill -9 "${its##*/}"
    done
    exit 0
    ;;
esac
exec nsenter --target "$pid" --net --mount --uts -- env -i HOME=/root USER=root SHELL=/bin/sh SSH_CLIENT=me \
  PATH=/usr/bin:/bin /bin/sh -c "$*"
