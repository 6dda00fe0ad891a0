"""Interfaces and their addresses, on made-up and known machines, the host's names, and ports."""

import errno
import io
import os
import pwd
import re
import socket
import struct
import subprocess
import sys
from contextlib import ExitStack
from ipaddress import ip_interface
from pathlib import Path
from typing import Any

import pytest
from cluster.machines import carrier, grow, recorded, route, route6, seen, tables
from hypothesis import example, given, strategies as st
from needs import only_with
from support.gathering import free_ports

from mingle_hooks.errors import NetworkError, NoPortError, UsageError
from mingle_hooks.net import addresses as net
from mingle_hooks.net.addresses import DEFAULT_RANGE, bound, candidates, ephemeral_range, hold, keep, listen

# The ranking runs on made-up interfaces, the listing on this host's own.


def make(name: str, *addresses: str, kind: str = "ethernet", speed: int | None = None, **more: object) -> net.Interface:
    index = int(more.get("index", 5))  # type: ignore[call-overload]
    return net.Interface(name, index, kind, speed, bool(more.get("up", True)), tuple(map(ip_interface, addresses)))


LO = make("lo", "127.0.0.1/8", "::1/128", kind="loopback", index=1)
ETH0 = make("eth0", "10.77.0.1/24", "fd00:77::1/64", "fe80::1/64", speed=1000, index=2)
ETH1 = make("eth1", "10.79.0.1/24", speed=25_000, index=3)
IB0 = make("ib0", "10.78.0.1/24", kind="infiniband", speed=100, index=4)
DOCKER = make("docker0", "172.17.0.1/16", kind="virtual", index=6)
ALL = (LO, ETH0, ETH1, IB0, DOCKER)


def hosts(*interfaces: net.Interface, **options: object) -> list[str]:
    return [candidate.host for candidate in net.usable(interfaces, **options)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("interfaces", "prefer", "found"),
    [
        (ALL, (), ["10.78.0.1", "10.79.0.1", "10.77.0.1", "fd00:77::1"]),
        ((make("wg0", "10.9.0.1/24", index=1), ETH0), (), ["10.77.0.1", "fd00:77::1", "10.9.0.1"]),
        ((make("b", "10.0.0.2/8", index=9), make("a", "10.0.0.1/8", index=8)), (), ["10.0.0.1", "10.0.0.2"]),
        (ALL, ("10.77.0.0/16", "ib0"), ["10.77.0.1", "10.78.0.1"]),
        (ALL, ("fd00::/8",), ["fd00:77::1"]),
    ],
    ids=["as usual", "unknown speed", "lower index", "preferences", "IPv6"],
)
def test_infiniband_comes_first_then_speed_then_ipv4(
    interfaces: tuple[net.Interface, ...], prefer: tuple[str, ...], found: list[str]
) -> None:
    """Where nothing is preferred: else only what is counts, in that order."""
    assert hosts(*interfaces, prefer=[net.preference(text) for text in prefer]) == found


@pytest.mark.parametrize("interface", [DOCKER, make("lo", "172.17.0.1/32", kind="loopback")], ids=lambda one: one.name)
def test_a_bridge_for_guests_and_a_virtual_address_on_lo_count_only_when_named(interface: net.Interface) -> None:
    assert hosts(interface, ETH0)[0] == "10.77.0.1"
    with pytest.raises(NetworkError, match=interface.kind):
        hosts(interface)
    for text in (interface.name, "172.17.0.0/16"):
        assert hosts(interface, prefer=[net.preference(text)]) == ["172.17.0.1"]


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        *((address, "loopback") for address in ("127.0.0.1/8", "::1/128")),
        *((address, "link-local") for address in ("169.254.3.4/16", "fe80::1/64")),
        *((address, "not a host's address") for address in ("224.0.0.1/32", "0.0.0.0/0")),
    ],
)
def test_what_others_cannot_reach_never_counts_even_when_named(address: str, reason: str) -> None:
    with pytest.raises(NetworkError) as caught:
        net.usable([make("eth0", address)], prefer=[net.preference("eth0")])
    assert reason in caught.value.seen


MANY = [make(f"eth{i}", f"10.1.{i}.1/24") for i in range(30)]
FEW = ", ".join(f"eth{i} 10.1.{i}.1" for i in range(6))
LEFT_OUT = "lo 127.0.0.1, lo ::1 (loopback), docker0 172.17.0.1 (virtual), eth7 10.7.0.1 (down), eth8 (no address)"


@pytest.mark.parametrize(
    ("found", "prefer", "expected", "seen"),
    [
        ([LO, DOCKER, make("eth7", "10.7.0.1/24", up=False), make("eth8")], [], "an address that", LEFT_OUT),
        ([], [], "an address that", "no network interface"),
        (MANY[:7], ["ib9"], "on ib9 that", f"{FEW} and 1 more (not on a requested network)"),
        (MANY[:6], ["ib9"], "on ib9 that", f"{FEW} (not on a requested network)"),
        (MANY, ["ib9", "10.2.0.0/16"], "on ib9 or 10.2.0.0/16", f"{FEW} and 24 more (not on a requested network)"),
    ],
)
def test_the_error_explains_why_each_interface_was_left_out(
    found: list[net.Interface], prefer: list[str], expected: str, seen: str
) -> None:
    """A few of many addresses, with the networks that were asked for."""
    with pytest.raises(NetworkError) as caught:
        net.usable(found, prefer=[net.preference(text) for text in prefer])
    assert (expected in caught.value.expected, caught.value.seen) == (True, seen)


NAMED = ("w", "x" * 15, "ib0", "enp0s31f6", "bond0.100", "10.0.0.0/8", "10.0.0.5/8", "10.0.0.5", "fd00::/8")
UNNAMED = (
    *("", " ", "^lo", "=ib0", "a/b", "-x", "a b", "x" * 16, "10.0.0.0/33", "1.2.3", "$(id)", "ib0\n", "ib0;id", "ü0"),
)


def test_names_and_networks_are_preferences_and_no_other_text_is() -> None:
    assert [net.preference(text).text for text in NAMED] == [*NAMED]
    for text in UNNAMED:
        with pytest.raises(UsageError):
            net.preference(text)


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
        ({"type": "1", "speed": "1", "operstate": "up"}, ("ethernet", 1, True)),
        ({"type": "1", "speed": "0", "operstate": "up"}, ("ethernet", None, True)),
        ({"type": "1", "speed": "4294967294", "operstate": "up"}, ("ethernet", 4_294_967_294, True)),
        ({"type": "768", "operstate": "unknown"}, ("virtual", None, True)),
    ],
)
def test_kind_speed_and_state_come_from_sysfs(
    tmp_path: Path, attributes: dict[str, str], expected: tuple[str, int | None, bool]
) -> None:
    (lo,) = [found for found in net.interfaces(tree(tmp_path, "lo", **attributes)) if found.name == "lo"]
    assert (lo.kind, lo.speed_mbps, lo.up) == expected


def test_loopback_of_this_host_is_found_with_its_address_also_without_sysfs(tmp_path: Path) -> None:
    for root in ("/", str(tmp_path)):
        (lo,) = [found for found in net.interfaces(root) if found.name == "lo"]
        assert (lo.kind, lo.up) == ("loopback", True)
        assert ip_interface("127.0.0.1/8") in lo.addresses
    assert (net.interface_of("127.0.0.1"), net.interface_of("192.0.2.254")) == ("lo", None)


def test_without_netlink_sockets_only_loopback_has_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a container forbids them, the kernel lists neither interfaces nor addresses; one node can train."""

    def forbidden() -> None:
        raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))

    monkeypatch.setattr("socket.if_nameindex", forbidden)
    monkeypatch.setattr("ifaddr.get_adapters", forbidden)
    # A member asks once all have started: its frameworks can still choose.
    assert (net.interface_of("127.0.0.1"), net.interface_of("192.0.2.254")) == ("lo", None)
    for asks in (net.interfaces, lambda: net.is_preferred("192.0.2.254", [net.preference("eth0")])):
        with pytest.raises(NetworkError, match=r"Address family not supported by protocol; try .*allowing netlink"):
            asks()


# Which interface the world is on, on known machines and on made-up ones, from trees of /sys and /proc.


MACHINES = recorded()
LOOPBACK = carrier("lo", "127.0.0.1/8", kind="loopback")
# Its InfiniBand has addresses too, and nothing on the machine says that its owner wants Ethernet: NCCL alone takes ib0.
AZURE = "Azure ND H100 v5"


def rail(number: int, network: str = "192.168.{}.5/24", speed: int = 400_000) -> dict[str, Any]:
    return carrier(f"gpu{number}rdma0", network.format(number), speed=speed)


RAILS = [rail(number) for number in range(8)]
HOST = carrier("eno0", "10.4.0.7/22", speed=1_000)
MADE_UP = {
    # Oracle's images put all of them into one network (/etc/oci-hpc/rdma-network.conf, 255.255.0.0).
    "OCI: a NIC of the machine, and sixteen rails": (
        [
            *(carrier(f"rdma{n}", f"192.168.{n}.7/16", speed=100_000) for n in range(16)),
            carrier("eth0", "10.0.0.7/24", speed=50_000),
        ],
        "eth0",
    ),
    "MI300X: 1 Gb/s for the host, and eight rails": ([HOST, *RAILS], "eno0"),
    "a host whose other network has no known speed": ([carrier("ens3", "10.0.0.7/24"), *RAILS], "ens3"),
    "a host whose other network has IPv6 only": ([carrier("eno0", "fd00::7/64", speed=1_000), *RAILS], "eno0"),
    "rails, and docker's bridge": ([*RAILS, carrier("docker0", "172.17.0.1/16", kind="virtual")], "gpu0rdma0"),
    "four rails": ([HOST, *RAILS[:4]], "eno0"),
    "eight of one network are rails": ([HOST, *(rail(n, "192.168.0.{}/24") for n in range(8))], "eno0"),
    "seven of one network are none": ([HOST, *(rail(n, "192.168.0.{}/24") for n in range(7))], "gpu0rdma0"),
    "three with RDMA are no rails": ([HOST, *RAILS[:3]], "gpu0rdma0"),
    "four of one network are no rails": ([HOST, *(rail(n, "192.168.0.{}/24") for n in range(4))], "gpu0rdma0"),
    "four of two speeds are no rails": ([HOST, *RAILS[:2], *(rail(n, speed=100_000) for n in (2, 3))], "gpu0rdma0"),
}


def first(root: Path, interfaces: list[dict[str, Any]], **options: Any) -> str:
    return net.usable(seen(root, interfaces), root=str(root), **options)[0].interface.name


@pytest.mark.parametrize("name", [name for name in MACHINES if name != AZURE])
def test_on_a_known_machine_the_world_is_on_the_network_that_its_site_wants(name: str, tmp_path: Path) -> None:
    """As networks.json has it of the maker's and the users' documentation."""
    one = MACHINES[name]
    grow(tmp_path, one["interfaces"], one["rdma"], one["default_route"])
    assert first(tmp_path, one["interfaces"]) in one["wanted"]


def test_azures_infiniband_comes_first_unless_its_own_file_says_otherwise(tmp_path: Path) -> None:
    """Azure's images for these machines have NCCL_SOCKET_IFNAME=eth0 in /etc/nccl.conf."""
    one = MACHINES[AZURE]
    grow(tmp_path, one["interfaces"], one["rdma"], one["default_route"])
    assert first(tmp_path, one["interfaces"]) == "ib0"
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/nccl.conf").touch(0o777)
    (tmp_path / "etc/nccl.conf").write_text("NCCL_IB_PCI_RELAXED_ORDERING=1\nNCCL_SOCKET_IFNAME=eth0\n")
    assert first(tmp_path, one["interfaces"], environ={}) == "eth0"
    assert first(tmp_path, one["interfaces"], environ={"NCCL_SOCKET_IFNAME": "=ib3"}) == "ib3"


@pytest.mark.parametrize("name", MADE_UP)
def test_rails_come_last_where_anything_else_is_usable(name: str, tmp_path: Path) -> None:
    """At least four Ethernet interfaces of one speed, each with an RDMA device and a network of its own; or eight."""
    interfaces, wanted = MADE_UP[name]
    grow(tmp_path, [LOOPBACK, *interfaces], [one["name"] for one in interfaces if "rdma" in one["name"]])
    assert first(tmp_path, [LOOPBACK, *interfaces]) == wanted


def test_a_rail_is_one_by_its_rdma_device_and_explained_and_taken_on_request(tmp_path: Path) -> None:
    """Four fast interfaces, each on a network of its own, and one of them with an RDMA device, are no rails."""
    interfaces = [LOOPBACK, HOST, *RAILS]
    grow(tmp_path / "one", interfaces, ["gpu0rdma0"])
    assert first(tmp_path / "one", interfaces) == "gpu0rdma0"
    grow(tmp_path, interfaces, [one["name"] for one in RAILS])
    assert first(tmp_path, interfaces, prefer=[net.preference("gpu3rdma0")]) == "gpu3rdma0"
    found = net.usable(seen(tmp_path, interfaces), environ={"NCCL_SOCKET_IFNAME": "eno"})
    assert [one.why for one in found] == ["set for NCCL by the environment", *["an RDMA rail"] * 8]


TWO = [LOOPBACK, *(carrier(f"eth{n}", f"10.{n}.0.7/24", f"fd0{n}::7/64", speed=1_000) for n in (0, 1))]


@pytest.mark.parametrize(
    ("ipv4", "ipv6", "wanted"),
    [
        ("", "", "eth0"),
        (route("eth1"), "", "eth1"),
        (route("eth0", metric=100) + route("eth1", metric=50), "", "eth1"),
        (route("eth0", metric=50) + route("eth1", metric=50), "", "eth0"),
        (route("eth1", to="10.1.0.0/24"), "", "eth0"),
        (route("eth1", to="0.0.0.0/1"), "", "eth0"),
        (route("eth1", flags=2), "", "eth0"),
        (route("eth1", flags=0x203), "", "eth0"),
        ("", route6("eth1"), "eth1"),
        ("", route6("eth0", metric=2048) + route6("eth1", metric=1024), "eth1"),
        ("", route6("lo", flags=0x200203) + route6("eth1"), "eth1"),
        ("", route6("eth1", to="fd01::/64"), "eth0"),
        (route("eth0"), route6("eth1"), "eth0"),
        ("eth1 half a line\n", "neither is this\n", "eth0"),
    ],
)
def test_of_one_speed_the_default_routes_interface_is_first(ipv4: str, ipv6: str, wanted: str, tmp_path: Path) -> None:
    """By the kernel's tables, IPv4's before IPv6's; without tables there is none."""
    assert net.default_interface(str(tmp_path)) is None
    grow(tmp_path, TWO)
    tables(tmp_path, ipv4, ipv6)
    found = net.usable(seen(tmp_path, TWO))
    assert found[0].interface.name == wanted
    assert [one.address.version for one in found] == [4, 4, 6, 6]
    faster = [*TWO, carrier("eth9", "10.9.0.7/24", speed=25_000)]
    grow(tmp_path / "faster", faster, default="eth0")
    assert first(tmp_path / "faster", faster) == "eth9"


def test_a_bridge_of_docker_s_is_known_by_its_network_s_id() -> None:
    """A site's own bridge is no network of guests."""
    names = ("br-0123456789ab", "docker0", "veth12", "br-0123456789ag", "br-01", "xbr-0123456789ab", "br0", "eth0")
    names = ("tmfifo_net0", *names)  # to a BlueField card, with the same address on each host
    assert [name for name in names if net.is_virtual_name(name)] == [*names[:4]]


HOSTNAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}")

PRINT = [sys.executable, "-c", "from mingle_hooks.net.addresses import machine_id as identity; print(identity())"]


@pytest.mark.parametrize("before", [[], pytest.param(["unshare", "--net"], marks=only_with("root", "namespaces"))])
def test_processes_of_one_machine_and_network_namespace_have_the_same_identity(before: list[str]) -> None:
    other = subprocess.run([*before, *PRINT], check=True, text=True, stdout=subprocess.PIPE).stdout.strip()
    assert (other == net.machine_id()) is (not before)
    assert re.fullmatch("[0-9a-f]{16}", other)


@given(st.text(alphabet="aZ09_.-$ \n`é²", max_size=6) | st.text(alphabet="a.", min_size=250, max_size=256))
@example(socket.gethostname())
@example("")
@example("-a.b")
def test_a_hosts_name_has_letters_digits_and_little_else_and_others_take_it(text: str) -> None:
    """An underscore replaces what does not belong into a name."""
    assert net.is_hostname(text) == bool(HOSTNAME.fullmatch(text))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(socket, "gethostname", lambda: text)
        assert net.hostname() == (re.sub(r"[^A-Za-z0-9_.-]|^[.-]", "_", text) or "unnamed")


# NCCL's files as NCCL 2.30 reads them, and its list of interfaces.


def site(root: Path, text: str) -> str:
    """Write /etc/nccl.conf below this root."""
    (root / "etc").mkdir(exist_ok=True)
    (root / "etc/nccl.conf").write_text(text)
    return str(root / "etc/nccl.conf")


def own(root: Path, text: str) -> dict[str, str]:
    """Write a user's file, and return the environment that names it."""
    (root / "own.conf").write_text(text)
    return {"NCCL_CONF_FILE": str(root / "own.conf")}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *((text, "1") for text in ("NCCL_X=1\n", "NCCL_X=1", "# a comment\nNCCL_X=1\n", "NCCL_X=1\nNCCL_X=2\n")),
        ("NCCL_X=\n", ""),
        ("NCCL_X=a=b # c \n", "a=b # c "),
        ("NCCL_X=1\r\n", "1\r"),
        ("NCCL_X=" + "a" * 2000 + "\n", "a" * 1023),
        *((text, None) for text in ("#NCCL_X=1\n", " NCCL_X=1\n", "NCCL_X =1\n", "export NCCL_X=1\n", "NCCL_X\n", "")),
    ],
)
def test_a_line_is_taken_as_nccl_takes_it(text: str, value: str | None, tmp_path: Path) -> None:
    """Nothing is stripped, and of two lines the first counts."""
    site(tmp_path, text)
    found = net.nccl_settings({"NCCL_CONF_FILE": "/nowhere"}, str(tmp_path)).get("NCCL_X")
    assert (found.value if found else None) == value


def test_the_users_file_comes_before_the_sites_and_the_environment_before_both(tmp_path: Path) -> None:
    """setenv(3) without overwriting, in this order; an empty variable is one too, and HOME names no file."""
    path = site(tmp_path, "NCCL_A=site\nNCCL_B=site\nNCCL_C=site\nNCCL_D=site\n")
    environ = {**own(tmp_path, "NCCL_A=own\nNCCL_B=own\n"), "NCCL_A": "mine", "NCCL_D": ""}
    assert net.nccl_settings(environ, str(tmp_path)) == {
        "NCCL_B": net.NcclSetting("own", environ["NCCL_CONF_FILE"]),
        "NCCL_C": net.NcclSetting("site", path),
    }
    (tmp_path / ".nccl.conf").write_text("NCCL_X=1\n")  # NCCL asks getpwuid(3)
    if str(tmp_path) != pwd.getpwuid(os.getuid()).pw_dir:
        assert "NCCL_X" not in net.nccl_settings({"HOME": str(tmp_path)}, str(tmp_path))


@pytest.mark.parametrize("name", [".", "pipe", "none", "", "a\0b", "large"])
def test_a_file_that_is_not_regular_is_ignored_without_waiting(tmp_path: Path, name: str) -> None:
    """A file that is no text is read all the same."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_text("NCCL_X=1\n" + "#" * (1 << 17))
    environ = {"NCCL_CONF_FILE": str(tmp_path / "x")[:-1] + name}
    assert net.nccl_settings(environ, str(tmp_path)) == {}
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/nccl.conf").write_bytes(b"\xff\0=\xfe\nNCCL_X=1\n")
    assert net.nccl_settings(environ, str(tmp_path))["NCCL_X"].value == "1"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("eth", ["eth0", "eth1", "eth10"]),
        ("eth1", ["eth1", "eth10"]),
        ("=eth1", ["eth1"]),
        ("=eth1,ib0", ["eth1", "ib0"]),
        ("eth1:1,ib", ["eth1", "eth10", "ib0"]),
        ("^eth", ["ib0"]),
        ("^=eth1", ["eth0", "eth10", "ib0"]),
        ("^docker,lo", ["eth0", "eth1", "eth10", "ib0"]),
        (",ib0,", ["ib0"]),
        ("bond0", []),
    ],
)
def test_a_list_of_interfaces_is_nccls(text: str, names: list[str]) -> None:
    """Beginnings of names, `=` for whole ones, `^` for all others."""
    assert [name for name in ("eth0", "eth1", "eth10", "ib0") if net.is_nccl_interface(text, name)] == names


def test_nccls_interfaces_come_from_the_environment_or_a_file(tmp_path: Path) -> None:
    """One character is nothing to NCCL; an empty variable hides the file."""
    path = site(tmp_path, "NCCL_SOCKET_IFNAME=eth0\n")
    none = {"NCCL_CONF_FILE": "/nowhere"}
    assert net.nccl_ifname(none, str(tmp_path)) == net.NcclSetting("eth0", path)
    for value, found in (("ib", net.NcclSetting("ib", "the environment")), ("", None), ("e", None)):
        assert net.nccl_ifname({**none, "NCCL_SOCKET_IFNAME": value}, str(tmp_path)) == found
    assert net.nccl_ifname(none, str(tmp_path / "other")) is None


# Ports: everything here happens on real sockets of the loopback interface.

REUSE = socket.SO_REUSEADDR


@pytest.fixture(params=["127.0.0.1", "::1"])
def address(request: pytest.FixtureRequest) -> str:
    """Return a loopback address of either family."""
    return str(request.param)


@pytest.fixture
def few() -> range:
    """Return three ports that were free a moment ago."""
    return free_ports(3)


def holding(address: str, port: int, *, reuse: bool = False) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
    try:
        listener.bind((address, port))
        listener.listen(1)
    except OSError:
        listener.close()
        raise
    return listener


@pytest.fixture
def kept(address: str, few: range) -> tuple[str, int]:
    """Return address and port of one that is kept."""
    listener = listen(address, few[:1], few)
    port = listener.getsockname()[1]
    with socket.create_connection((address, port)):  # another client is before its own
        keep(listener)
    listener.close()
    return address, port


@only_with("root")
@pytest.mark.parametrize("user", [0, 61_002])
@pytest.mark.parametrize("is_second_use", [False, True])
def test_a_held_port_is_refused_to_every_users_bind_until_let_go(few: range, user: int, *, is_second_use: bool) -> None:
    """With SO_REUSEADDR, SO_REUSEPORT, both or none, also where the port was in TIME_WAIT when it was taken."""
    if is_second_use:
        first = listen("127.0.0.1", few[:1], few)
        keep(first)
        first.close()
    with bound("0.0.0.0", few[0], reuse=is_second_use) or pytest.fail("not bound") as listener:
        with socket.create_connection(("127.0.0.1", few[0])):
            hold(listener)
        for options in ((), (REUSE,), (socket.SO_REUSEPORT,), (REUSE, socket.SO_REUSEPORT)):
            assert not gets(few[0], user, options)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", few[0]))
    assert gets(few[0], user, (REUSE,))


def gets(port: int, user: int, options: tuple[int, ...]) -> bool:
    """Tell whether a user's socket with these options is bound to a port."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.setresuid(user, user, user)
            sock = socket.socket()
            for option in options:
                sock.setsockopt(socket.SOL_SOCKET, option, 1)
            sock.bind(("0.0.0.0", port))
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_reserved_port_is_given_only_to_a_bind_that_reuses_addresses(kept: tuple[str, int], few: range) -> None:
    """A plain bind is refused, and another world passes it over; a server on all addresses may have it too."""
    address, port = kept
    with pytest.raises(OSError, match="in use") as caught:
        holding(*kept)
    assert caught.value.errno == errno.EADDRINUSE
    with listen(address, [port], few) as listener:
        assert listener.getsockname()[1] != port
    with holding(*kept, reuse=True) as listener, socket.create_connection(kept) as client:
        listener.accept()[0].close()
        assert client.recv(1) == b""
    with holding("::" if ":" in address else "0.0.0.0", port, reuse=True) as listener:
        assert listener.getsockname()[1] == port


def test_candidates_are_tried_in_order_and_then_the_rest(address: str, few: range) -> None:
    """A full range is an error that counts the ports; so is an address of another host."""
    first, second, third = few
    with ExitStack() as stack:
        taken = [stack.enter_context(listen(address, [third, second], few)) for _ in few]
        assert [listener.getsockname()[1] for listener in taken] == [third, second, first]
        with pytest.raises(NetworkError, match="all of the 3 ports tried are taken"):
            listen(address, few[:2], few)
    with pytest.raises(NetworkError, match=r"to listen on 192\.0\.2\.254"):
        listen("192.0.2.254", few, few)
    with listen("::", few[:1], few) as six, holding("0.0.0.0", six.getsockname()[1]) as four:
        assert four.getsockname()[1] == six.getsockname()[1]


def test_candidates_follow_from_the_seed_and_never_change_between_versions() -> None:
    """Fewer are the first of more; as many as there are ports are all of them, once."""
    assert candidates(b"job", 4) == candidates(b"job", 9)[:4] == (20571, 20596, 22675, 23338)
    assert candidates(b"job 1", 8) != candidates(b"job 2", 8)
    ports = range(2000, 2100)
    assert sorted(candidates(b"job", 1000, ports)) == list(ports)


@pytest.mark.parametrize(("options", "linger"), [({}, (0, 0)), ({"hold": False, "reuse": True}, (1, 0))])
def test_a_port_that_is_not_held_leaves_nothing_behind(
    address: str, few: range, options: dict[str, bool], linger: tuple[int, int]
) -> None:
    """It lingers for no time, on one family alone, and would not be shared with another socket that reuses it."""
    with bound(address, few[0], **options) or pytest.fail("not bound") as listener:
        assert struct.unpack("ii", listener.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8)) == linger
        assert listener.getsockopt(socket.SOL_SOCKET, REUSE) == 0
        assert bound(address, few[0]) is None
        hold(listener)
        with pytest.raises(NetworkError, match=f"own {address} port {few[0]}; saw Connection refused") as caught:
            keep(listener)
        assert caught.value.remedy.startswith("`ip link set lo up`, or ")  # a new network namespace has it down


def test_where_no_port_is_left_the_range_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless there is no address to connect from either, or it is another error."""
    monkeypatch.setattr(net, "ephemeral_range", lambda: range(100, 201))
    full, other = OSError(errno.EADDRNOTAVAIL, "no"), OSError(errno.ECONNREFUSED, "no")
    found = net.connect_error(full, socket.AF_INET, ("127.0.0.1", 9))
    which = "all 101 local ports for connections are in use (sysctl net.ipv4.ip_local_port_range: 100 to 200)"
    assert (type(found), found.errno, found.strerror) == (NoPortError, errno.EADDRNOTAVAIL, which)
    assert net.connect_error(other, socket.AF_INET, ("127.0.0.1", 9)) is other
    assert net.connect_error(full, socket.AF_INET6, ("127.0.0.1 9", 9)) is full


def test_closed_connections_that_hold_ports_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the wanted ports, those on which nothing listens; one of the kernel's tables may be missing."""
    states = {20_000: ("06",), 20_001: ("06", "0A"), 20_002: ("0A",), 20_003: ("06",), 20_004: ("01",)}
    rows = [f"  0: 00000000:{port:04X} 0100007F:0050 {its} 0:0 0" for port, found in states.items() for its in found]
    tables = {"/proc/net/tcp6": ["sl local_address rem_address st 4E24:4E24 06", *rows]}

    def table(path: str, **_options: str) -> io.StringIO:
        if path not in tables:
            raise FileNotFoundError(path)
        return io.StringIO("\n".join(tables[path]))

    monkeypatch.setattr(net, "open", table, raising=False)
    closed = "by closed connections, for up to a minute (TIME_WAIT)"
    assert net.time_wait_text([20_000, 20_001, 20_002, 20_004]) == f", 1 of them {closed}"
    assert net.time_wait_text([20_000, 20_003]) == f", {closed}"
    assert net.time_wait_text([20_001, 20_004]) == ""


NO_RANGES = ("32768", "32768 x", "x 32768 60999", "1 2 3", "32768 65536", "-1 60999", "٣ 60999")


@pytest.mark.parametrize("text", ["32768\t60999\n", None, *NO_RANGES])
def test_the_ephemeral_range_is_the_kernels_or_else_ianas(tmp_path: Path, text: str | None) -> None:
    """The default range is outside of the kernel's."""
    if text is not None:
        (tmp_path / "range").write_text(text)
    expected = range(32_768, 61_000) if text == "32768\t60999\n" else range(49_152, 65_536)
    assert ephemeral_range(str(tmp_path / "range")) == expected
    assert not set(DEFAULT_RANGE) & set(range(32_768, 61_000))
