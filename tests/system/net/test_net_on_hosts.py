"""The addresses of this host, as the kernel and ifaddr list them."""

from __future__ import annotations

import resource
import sys
from typing import TYPE_CHECKING

import pytest

from mingle_hooks.errors import NetworkError
from mingle_hooks.net import addresses

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.hosts import Hosts

SCRIPT = """
from mingle_hooks.net import addresses
for one in addresses.list_addresses():
    print(one.name, f"{one.address}/{one.prefix}")
"""


def test_every_address_is_listed_with_its_interface(hosts: Callable[..., Hosts]) -> None:
    """Both families, several addresses on an interface, labels, a point-to-point link, an interface that is down."""
    host = hosts(1)[0]
    for command in (
        "ip addr add 10.9.0.1/24 dev eth0",
        "ip addr add 10.9.1.1/32 dev eth0 label eth0:1",
        "ip addr add 10.9.2.1 peer 10.9.2.2/32 dev ib0",
        "ip addr add fd99::1/64 dev ib0 nodad",
        "ip link add ends type veth peer name other",
    ):
        host.run(command.split(), check=True)
    found = {tuple(line.split()) for line in host.run([sys.executable, "-c", SCRIPT], check=True).stdout.splitlines()}
    expected = {("lo", "127.0.0.1/8"), ("eth0", "10.9.0.1/24"), ("eth0", "10.9.1.1/32"), ("ib0", "10.9.2.1/32")}
    assert {*expected, ("ib0", "fd99::1/64")} <= found
    assert "fe80" in " ".join(address for _, address in found)


def test_a_kernel_that_gives_no_list_is_an_error_that_says_so() -> None:
    """As in a container that forbids netlink sockets; here the limit of open files is what is in the way."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        with pytest.raises(NetworkError, match="`ulimit -n` allows"):
            addresses.list_addresses()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
