"""What the kernel lists, and what ifaddr makes of the same host."""

from __future__ import annotations

import resource
import sys
from typing import TYPE_CHECKING

import pytest

from mingle_hooks.errors import NetworkError
from mingle_hooks.fabric import addresses

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.hosts import Hosts

SCRIPT = """
from mingle_hooks.fabric import addresses
for found in (addresses.listed(), addresses._by_ifaddr()):
    print(sorted((one.name, one.ifindex, one.address, one.prefix) for one in found))
"""


def test_loopback_is_listed() -> None:
    """With its prefix, on every host."""
    assert ("127.0.0.1", 8) in {(one.address, one.prefix) for one in addresses.listed()}


def test_netlink_and_ifaddr_agree(hosts: Callable[..., Hosts]) -> None:
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
    mine, theirs = host.run([sys.executable, "-c", SCRIPT], check=True).stdout.splitlines()
    assert mine == theirs
    assert all(text in mine for text in ("10.9.0.1", "10.9.1.1", "10.9.2.1", "fd99::1", "fe80::"))


def test_a_kernel_that_gives_no_list_is_an_error_that_says_so() -> None:
    """As in a container that forbids netlink sockets; here the limit of open files is what is in the way."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        with pytest.raises(NetworkError, match="`ulimit -n` allows"):
            addresses.listed()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
