"""Which interface the world is on, on known machines and on made-up ones, from trees of /sys and /proc."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from cluster.machines import carrier, grow, recorded, route, route6, seen, tables

from mingle_hooks.net.addresses import default_interface, preference, usable

if TYPE_CHECKING:
    from pathlib import Path

MACHINES = recorded()
LO = carrier("lo", "127.0.0.1/8", kind="loopback")
# Its InfiniBand has addresses too, and nothing on the machine says that its owner wants Ethernet: NCCL alone takes ib0.
AZURE = "Azure ND H100 v5"


def rail(number: int, network: str = "192.168.{}.5/24", speed: int = 400_000) -> dict[str, Any]:
    return carrier(f"gpu{number}rdma0", network.format(number), speed=speed)


RAILS = [rail(number) for number in range(8)]
MADE_UP = {
    "OCI: a NIC of the machine, and sixteen rails": (
        [
            LO,
            # Oracle's images put all of them into one network (/etc/oci-hpc/rdma-network.conf, 255.255.0.0).
            *(carrier(f"rdma{n}", f"192.168.{n}.7/16", speed=100_000) for n in range(16)),
            carrier("eth0", "10.0.0.7/24", speed=50_000),
        ],
        "eth0",
    ),
    "MI300X: 1 Gb/s for the host, and eight rails": (
        [LO, carrier("eno0", "10.4.0.7/22", speed=1_000), *RAILS],
        "eno0",
    ),
    "a host whose other network has no known speed": ([LO, carrier("ens3", "10.0.0.7/24"), *RAILS], "ens3"),
    "a host whose other network has IPv6 only": ([LO, carrier("eno0", "fd00::7/64", speed=1_000), *RAILS], "eno0"),
    "rails, and docker's bridge": ([LO, *RAILS, carrier("docker0", "172.17.0.1/16", kind="virtual")], "gpu0rdma0"),
    "three with RDMA are no rails": ([LO, carrier("eno0", "10.4.0.7/22", speed=1_000), *RAILS[:3]], "gpu0rdma0"),
    "four of one network are no rails": (
        [LO, carrier("eno0", "10.4.0.7/22", speed=1_000), *(rail(n, "192.168.0.{}/24") for n in range(4))],
        "gpu0rdma0",
    ),
    "four of two speeds are no rails": (
        [LO, carrier("eno0", "10.4.0.7/22", speed=1_000), *RAILS[:2], rail(2, speed=100_000), rail(3, speed=100_000)],
        "gpu0rdma0",
    ),
}


def first(root: Path, interfaces: list[dict[str, Any]], **options: Any) -> str:
    return usable(seen(root, interfaces), root=str(root), **options)[0].interface.name


@pytest.mark.parametrize("name", [name for name in MACHINES if name != AZURE])
def test_on_a_known_machine_the_world_is_on_the_network_that_its_site_wants(name: str, tmp_path: Path) -> None:
    """As networks.json has it of the maker's and the users' documentation."""
    its = MACHINES[name]
    grow(tmp_path, its["interfaces"], its["rdma"], its["default_route"])
    assert first(tmp_path, its["interfaces"]) in its["wanted"]


def test_azures_infiniband_comes_first_unless_its_own_file_says_otherwise(tmp_path: Path) -> None:
    """Azure's images for these machines have NCCL_SOCKET_IFNAME=eth0 in /etc/nccl.conf."""
    its = MACHINES[AZURE]
    grow(tmp_path, its["interfaces"], its["rdma"], its["default_route"])
    assert first(tmp_path, its["interfaces"]) == "ib0"
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/nccl.conf").write_text("NCCL_IB_PCI_RELAXED_ORDERING=1\nNCCL_SOCKET_IFNAME=eth0\n")
    assert first(tmp_path, its["interfaces"], environ={}) == "eth0"
    assert first(tmp_path, its["interfaces"], environ={"NCCL_SOCKET_IFNAME": "=ib3"}) == "ib3"


@pytest.mark.parametrize("name", MADE_UP)
def test_rails_come_last_where_anything_else_is_usable(name: str, tmp_path: Path) -> None:
    """At least four Ethernet interfaces of one speed, each with an RDMA device and a network of its own; or eight."""
    interfaces, wanted = MADE_UP[name]
    grow(tmp_path, interfaces, [its["name"] for its in interfaces if "rdma" in its["name"]])
    assert first(tmp_path, interfaces) == wanted


def test_four_fast_interfaces_without_rdma_are_no_rails(tmp_path: Path) -> None:
    """Each on a network of its own, and one of them with an RDMA device."""
    interfaces = [LO, carrier("eno0", "10.4.0.7/22", speed=1_000), *RAILS]
    grow(tmp_path, interfaces, ["gpu0rdma0"])
    assert first(tmp_path, interfaces) == "gpu0rdma0"


def test_a_rail_that_is_asked_for_is_taken(tmp_path: Path) -> None:
    """--iface is the user's word."""
    interfaces = [LO, carrier("eno0", "10.4.0.7/22", speed=1_000), *RAILS]
    grow(tmp_path, interfaces, [its["name"] for its in RAILS])
    assert first(tmp_path, interfaces, prefer=[preference("gpu3rdma0")]) == "gpu3rdma0"


def test_it_is_told_what_a_rail_is_and_what_was_named(tmp_path: Path) -> None:
    """For --explain."""
    interfaces = [LO, carrier("eno0", "10.4.0.7/22", speed=1_000), *RAILS[:4]]
    grow(tmp_path, interfaces, [its["name"] for its in RAILS])
    found = usable(seen(tmp_path, interfaces), environ={"NCCL_SOCKET_IFNAME": "eno"})
    assert [its.why for its in found] == ["set for NCCL by the environment", *["an RDMA rail"] * 4]


def test_with_one_usable_interface_nothing_more_is_looked_up(tmp_path: Path) -> None:
    """Most machines have one, and the whole job waits for rank 0."""
    interfaces = [LO, carrier("eth0", "10.0.0.7/24", "fd00::7/64"), carrier("docker0", "172.17.0.1/16", kind="virtual")]
    grow(tmp_path, interfaces, ["eth0"], "eth0")
    assert [(its.has_rdma, its.is_default) for its in seen(tmp_path, interfaces)] == [(False, False)] * 3


TWO = [
    LO,
    carrier("eth0", "10.0.0.7/24", "fd00::7/64", speed=1_000),
    carrier("eth1", "10.1.0.7/24", "fd01::7/64", speed=1_000),
]


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
def test_of_one_speed_the_default_routes_interface_comes_first(
    ipv4: str, ipv6: str, wanted: str, tmp_path: Path
) -> None:
    """By the kernel's tables, IPv4's before IPv6's."""
    grow(tmp_path, TWO)
    tables(tmp_path, ipv4, ipv6)
    found = usable(seen(tmp_path, TWO))
    assert found[0].interface.name == wanted
    assert [its.address.version for its in found] == [4, 4, 6, 6]


def test_a_faster_interface_comes_before_the_default_routes(tmp_path: Path) -> None:
    """The default route is often that of a slow network for the machines' keepers."""
    interfaces = [LO, carrier("eno1", "10.0.0.7/24", speed=1_000), carrier("eth9", "10.1.0.7/24", speed=25_000)]
    grow(tmp_path, interfaces, default="eno1")
    assert first(tmp_path, interfaces) == "eth9"


def test_without_tables_there_is_no_default_route(tmp_path: Path) -> None:
    assert default_interface(str(tmp_path)) is None
