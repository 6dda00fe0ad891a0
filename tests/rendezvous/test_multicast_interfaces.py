"""Which interfaces carry beacons, of those that are listed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mingle_hooks.net.addresses import ListedAddress as Listed
from mingle_hooks.net.addresses import list_addresses as listed
from mingle_hooks.rendezvous.multicast import MOST_INTERFACES, _infos
from mingle_hooks.rendezvous.multicast import choose_carriers as chosen

if TYPE_CHECKING:
    from multicast_expert import IfaceInfo

LO = [Listed("lo", 1, "127.0.0.1", 8), Listed("lo", 1, "::1", 128)]
ETH = [Listed("eth0", 2, "10.0.0.1", 24), Listed("eth0", 2, "10.0.9.1", 24), Listed("eth0", 2, "fe80::1", 64)]
IB = [Listed("ib0", 3, "fd00::1", 64)]
DOCKER = [Listed("docker0", 4, "172.17.0.1", 16)]


def names(found: list[IfaceInfo]) -> list[str]:
    """Return their names."""
    return [info.machine_name for info in found]


def test_an_interface_has_all_of_its_addresses_under_one_name() -> None:
    """In the order in which they were listed, the interfaces by index."""
    eth, ib = _infos([*IB, *ETH])
    assert (eth.machine_name, eth.index, [str(a) for a in eth.ip4_addrs]) == ("eth0", 2, ["10.0.0.1/24", "10.0.9.1/24"])
    assert ([str(a) for a in eth.ip6_addrs], [str(a) for a in ib.ip6_addrs]) == (["fe80::1/64"], ["fd00::1/64"])


@pytest.mark.parametrize(
    ("listed", "nets", "expected"),
    [
        ([*LO, *ETH, *IB, *DOCKER], (), ["eth0", "ib0"]),
        ([*LO, *ETH, *IB, *DOCKER], ("ib0",), ["ib0"]),
        ([*LO, *ETH, *IB, *DOCKER], ("10.0.9.0/24",), ["eth0"]),
        ([*LO, *ETH, *IB, *DOCKER], ("docker0",), ["docker0"]),
        ([*LO[:1], *ETH], (), ["eth0"]),
        ([*LO[:1], *DOCKER], (), ["lo"]),
        ([*LO, *ETH], ("nosuch0",), []),
        ([], (), []),
    ],
)
def test_real_ones_come_before_loopback_and_what_was_asked_for_before_all(
    listed: list[Listed], nets: tuple[str, ...], expected: list[str]
) -> None:
    """What is made for guests counts only where it is named; loopback where nothing else is, also without IPv6."""
    assert names(chosen(_infos(listed), nets)) == expected


def test_few_of_many_are_used() -> None:
    """The kernel joins a socket to 20 groups at most."""
    many = [Listed(f"eth{number}", number, f"10.0.{number}.1", 24) for number in range(2, 30)]
    assert names(chosen(_infos(many), ())) == [f"eth{number}" for number in range(2, 2 + MOST_INTERFACES)]


def test_the_list_has_this_hosts_loopback() -> None:
    """With its index and prefix."""
    assert Listed("lo", 1, "127.0.0.1", 8) in listed()
