"""The ranking runs on made-up interfaces, the listing on this host's own."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from ipaddress import ip_interface
from typing import TYPE_CHECKING

import pytest
from needs import need

from mingle_hooks.errors import NetworkError, UsageError
from mingle_hooks.net.addresses import Interface, interfaces, preference, usable
from mingle_hooks.net.addresses import interface_of as name_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def make(name: str, *addresses: str, kind: str = "ethernet", speed: int | None = None, **more: object) -> Interface:
    index = int(more.get("index", 5))  # type: ignore[call-overload]
    return Interface(name, index, kind, speed, bool(more.get("up", True)), tuple(map(ip_interface, addresses)))


LO = make("lo", "127.0.0.1/8", "::1/128", kind="loopback", index=1)
ETH0 = make("eth0", "10.77.0.1/24", "fd00:77::1/64", "fe80::1/64", speed=1000, index=2)
ETH1 = make("eth1", "10.79.0.1/24", speed=25_000, index=3)
IB0 = make("ib0", "10.78.0.1/24", kind="infiniband", speed=100, index=4)
DOCKER = make("docker0", "172.17.0.1/16", kind="virtual", index=6)
ALL = (LO, ETH0, ETH1, IB0, DOCKER)


def hosts(*interfaces: Interface, **options: object) -> list[str]:
    return [candidate.host for candidate in usable(interfaces, **options)]  # type: ignore[arg-type]


def test_infiniband_comes_first_then_speed_then_ipv4() -> None:
    assert hosts(*ALL) == ["10.78.0.1", "10.79.0.1", "10.77.0.1", "fd00:77::1"]


def test_of_equal_interfaces_the_lower_index_comes_first() -> None:
    assert hosts(make("b", "10.0.0.2/8", index=9), make("a", "10.0.0.1/8", index=8)) == [
        "10.0.0.1",
        "10.0.0.2",
    ]


def test_an_unknown_speed_comes_last() -> None:
    assert hosts(make("wg0", "10.9.0.1/24", index=1), ETH0)[-1] == "10.9.0.1"


def test_preferences_are_the_only_ones_that_count_and_set_the_order() -> None:
    prefer = [preference("10.77.0.0/16"), preference("ib0")]
    assert hosts(*ALL, prefer=prefer) == ["10.77.0.1", "10.78.0.1"]


def test_an_ipv6_network_can_be_preferred() -> None:
    assert hosts(*ALL, prefer=[preference("fd00::/8")]) == ["fd00:77::1"]


def test_a_bridge_for_guests_counts_only_when_it_is_named() -> None:
    assert hosts(DOCKER, prefer=[preference("docker0")]) == ["172.17.0.1"]
    assert hosts(DOCKER, prefer=[preference("172.17.0.0/16")]) == ["172.17.0.1"]


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("127.0.0.1/8", "loopback"),
        ("::1/128", "loopback"),
        ("169.254.3.4/16", "link-local"),
        ("fe80::1/64", "link-local"),
        ("224.0.0.1/32", "not a host's address"),
        ("0.0.0.0/0", "not a host's address"),
    ],
)
def test_what_others_cannot_reach_never_counts_even_when_named(address: str, reason: str) -> None:
    with pytest.raises(NetworkError) as caught:
        usable([make("eth0", address)], prefer=[preference("eth0")])
    assert reason in caught.value.seen


def test_the_error_tells_why_each_interface_was_left_out() -> None:
    down = make("eth7", "10.7.0.1/24", up=False)
    with pytest.raises(NetworkError) as caught:
        usable([LO, DOCKER, down, make("eth8")])
    assert caught.value.seen == (
        "lo 127.0.0.1, lo ::1 (loopback), docker0 172.17.0.1 (virtual), eth7 10.7.0.1 (down), eth8 (no address)"
    )


def test_the_error_names_the_networks_that_were_asked_for() -> None:
    with pytest.raises(NetworkError) as caught:
        usable(ALL, prefer=[preference("ib9"), preference("10.1.0.0/16")])
    assert "ib9 or 10.1.0.0/16" in caught.value.expected


def test_of_many_addresses_a_few_are_told_and_why_not() -> None:
    many = [make(f"eth{i}", f"10.1.{i}.1/24") for i in range(30)]
    with pytest.raises(NetworkError) as caught:
        usable(many, prefer=[preference("ib0")])
    assert caught.value.seen.startswith("eth0 10.1.0.1, eth1 10.1.1.1, ")
    assert caught.value.seen.endswith("eth5 10.1.5.1 and 24 more (not on a requested network)")


def test_no_interface_at_all_is_said() -> None:
    with pytest.raises(NetworkError, match="no network interface"):
        usable([])


@pytest.mark.parametrize("text", ["ib0", "enp0s31f6", "bond0.100", "10.0.0.0/8", "10.0.0.5/8", "10.0.0.5", "fd00::/8"])
def test_names_and_networks_are_preferences(text: str) -> None:
    assert preference(text).text == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "^lo",
        "=ib0",
        "a/b",
        "-x",
        "a b",
        "x" * 16,
        "10.0.0.0/33",
        "1.2.3",
        "$(id)",
        "ib0\n",
        "ib0;id",
        "ü0",
    ],
)
def test_other_text_is_no_preference(text: str) -> None:
    with pytest.raises(UsageError):
        preference(text)


def tree(root: Path, name: str, **attributes: str) -> str:
    folder = root / "sys/class/net" / name
    folder.mkdir(parents=True)
    for attribute, value in attributes.items():
        (folder / attribute).write_text(value + "\n")
    return str(root)


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"type": "32", "speed": "100000", "operstate": "up"}, ("infiniband", 100_000, True)),
        ({"type": "772", "operstate": "unknown"}, ("loopback", None, True)),
        ({"type": "1", "speed": "-1", "operstate": "down"}, ("ethernet", None, False)),
        ({"type": "1", "speed": "4294967295", "operstate": "up"}, ("ethernet", None, True)),
        ({"type": "768", "operstate": "unknown"}, ("virtual", None, True)),
    ],
)
def test_kind_speed_and_state_come_from_sysfs(
    tmp_path: Path, attributes: dict[str, str], expected: tuple[str, int | None, bool]
) -> None:
    (lo,) = [found for found in interfaces(tree(tmp_path, "lo", **attributes)) if found.name == "lo"]
    assert (lo.kind, lo.speed_mbps, lo.up) == expected


def test_loopback_of_this_host_is_listed_with_its_address() -> None:
    (lo,) = [found for found in interfaces() if found.name == "lo"]
    assert lo.kind == "loopback"
    assert ip_interface("127.0.0.1/8") in lo.addresses


def test_without_sysfs_an_interface_with_an_address_counts_as_up(tmp_path: Path) -> None:
    (lo,) = [found for found in interfaces(str(tmp_path)) if found.name == "lo"]
    assert (lo.kind, lo.up) == ("loopback", True)


def test_the_interface_of_a_local_address_is_found() -> None:
    assert name_of("127.0.0.1") == "lo"


def test_an_address_of_nobody_has_no_interface() -> None:
    assert name_of("192.0.2.254") is None


@pytest.fixture
def namespace() -> Iterator[str]:
    """Yield a network namespace of this test's own, gone afterwards."""
    need("root", "ip", "namespaces")
    name = f"mingle-{uuid.uuid4().hex[:8]}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        yield name
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=True)


PROBE = """
import json
from mingle_hooks.net.addresses import interfaces, interface_of as name_of, usable
names = [(i.name, i.kind, i.up) for i in interfaces()]
print(json.dumps([names, [c.host for c in usable(interfaces())], name_of("10.5.0.2"), name_of("fd05::1")]))
"""


def test_a_real_namespace_is_read_as_it_is(namespace: str) -> None:
    """A veth called eth0 is a network, docker's bridge is none; second and IPv6 addresses are found too."""
    script = (
        "ip link set lo up; ip link add eth0 type veth peer name veth9;"
        "ip link set eth0 up; ip link set veth9 up;"
        "ip address add 10.5.0.1/24 dev eth0; ip address add 10.5.0.2/24 dev eth0 label eth0:two;"
        "ip -6 address add fd05::1/64 dev eth0 nodad;"
        "ip link add docker0 type veth peer name peer0; ip link set docker0 up; ip link set peer0 up;"
        "ip address add 172.17.0.1/16 dev docker0"
    )
    enter = ["ip", "netns", "exec", namespace]
    subprocess.run([*enter, "sh", "-ec", script], check=True)
    done = subprocess.run([*enter, sys.executable, "-c", PROBE], check=True, stdout=subprocess.PIPE)
    names, hosts, second, six = json.loads(done.stdout)
    assert ["eth0", "ethernet", True] in names
    assert ["docker0", "virtual", True] in names
    assert ["veth9", "virtual", True] in names
    assert hosts == ["10.5.0.1", "10.5.0.2", "fd05::1"]
    assert (second, six) == ("eth0", "eth0")
