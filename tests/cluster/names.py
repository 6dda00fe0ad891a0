"""What hosts know of each other's names: the three ways that clusters have them."""

from cluster.hosts import Hosts
from cluster.layouts import HOSTS, LOCALHOST

RESOLVABLE, DEBIAN, NONE = NAMES = ("names", "127.0.1.1", "no names")


def lay(hosts: Hosts, names: str) -> None:
    """Write each host's /etc/hosts; there is no name server that knows more.

    RESOLVABLE names have their address on eth0. DEBIAN is what Debian's installer writes: a host knows its own name
    only, as 127.0.1.1.
    """
    everybody = "".join(f"{host.addr()} {host.name}\n" for host in hosts)
    for host in hosts:
        known = {RESOLVABLE: everybody, DEBIAN: f"127.0.1.1 {host.name}\n", NONE: ""}[names]
        host.write(HOSTS, LOCALHOST + known)
