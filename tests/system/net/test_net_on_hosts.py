"""The addresses of this host, as the kernel and ifaddr list them."""

import sys
from collections.abc import Callable

from cluster.hosts import Hosts

SCRIPT = """
from mingle_hooks.net.addresses import interface_of, interfaces, list_addresses, usable
for one in list_addresses():
    print(one.name, f"{one.address}/{one.prefix}")
found = interfaces()
for one in found:
    print(one.name, one.kind)
print("usable", *(one.host for one in usable(found)))
print("carriers", *map(interface_of, ("10.9.1.1", "fd99::1")))
"""


def test_every_address_is_listed_with_its_interface(hosts: Callable[..., Hosts]) -> None:
    """Both families, several addresses on an interface, labels, a point-to-point link, an interface that is down.

    A veth called eth0 is a network, docker's bridge is none.
    """
    host = hosts(1)[0]
    for command in (
        "ip addr add 10.9.0.1/24 dev eth0",
        "ip addr add 10.9.1.1/32 dev eth0 label eth0:1",
        "ip addr add 10.9.2.1 peer 10.9.2.2/32 dev ib0",
        "ip addr add fd99::1/64 dev ib0 nodad",
        "ip link add docker0 type veth peer name veth9",
        "ip addr add 172.17.0.1/16 dev docker0",
        "ip link set docker0 up",
        "ip link set veth9 up",
    ):
        host.run(command.split(), check=True)
    found = {tuple(line.split()) for line in host.run([sys.executable, "-c", SCRIPT], check=True).stdout.splitlines()}
    expected = {("lo", "127.0.0.1/8"), ("eth0", "10.9.0.1/24"), ("eth0", "10.9.1.1/32"), ("ib0", "10.9.2.1/32")}
    kinds = {("eth0", "ethernet"), ("docker0", "virtual"), ("veth9", "virtual"), ("carriers", "eth0", "ib0")}
    assert {*expected, *kinds, ("ib0", "fd99::1/64")} <= found
    assert "fe80" in " ".join(address for _, address, *_ in found)
    (usable,) = [addresses for name, *addresses in found if name == "usable"]
    assert {"10.9.0.1", "10.9.1.1", "10.9.2.1", "fd99::1"} <= {*usable}
    assert "172.17.0.1" not in usable
