"""The networks that an unchanged script is to train on: those of documented machines, and those with a fault."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from cluster.hosts import Hosts
from cluster.machines import carrier, plug, recorded, shifted

Machine = dict[str, Any]

HOSTS, RESOLV, NCCL = "/etc/hosts", "/etc/resolv.conf", "/etc/nccl.conf"
LOCALHOST = "127.0.0.1 localhost\n"
NOTHING: Mapping[str, str] = MappingProxyType({})
RECORDED = recorded()
JUMBO = 9000
# The kernel has no tc; a limit on what comes in makes senders as slow.
SLOW = """nft 'table inet slow { chain in { type filter hook input priority 0;
iifname != "lo" meta l4proto tcp limit rate over 2 mbytes/second drop; }; }'"""


class Layout(NamedTuple):
    """Hosts with the interfaces of these machines, and on each the interface that a world is to be on.

    Interfaces that are `apart` reach nobody. `files` are written on every host, with its name for {host}; `last` is
    a shell's line for the last host.
    """

    name: str
    machines: tuple[Machine, ...]
    wanted: tuple[str, ...]
    apart: tuple[str, ...] = ()
    files: Mapping[str, str] = NOTHING
    last: str = ""

    @property
    def masters(self) -> tuple[str, ...]:
        """The address of each host there, any of which may be MASTER_ADDR."""
        return tuple(
            shifted(its["addresses"][0], number).partition("/")[0]
            for number, (machine, name) in enumerate(zip(self.machines, self.wanted, strict=True), 1)
            for its in machine["interfaces"]
            if its["name"] == name
        )

    def lay(self, hosts: Hosts, place: Path) -> None:
        """Give the hosts these networks; `place` is a directory that they see."""
        plug(hosts, self.machines, place, self.apart)
        for host in hosts:
            for path, text in self.files.items():
                host.write(path, text.format(host=host.name))
        if self.last:
            hosts[-1].run(["sh", "-c", self.last], check=True)


def alike(name: str, machine: Machine, wanted: str, **options: Any) -> Layout:
    """Return two hosts of one machine."""
    return Layout(name, (machine, machine), (wanted, wanted), **options)


def machine(*interfaces: Machine, rdma: tuple[str, ...] = (), default_route: str = "") -> Machine:
    """Return a machine as networks.json has them."""
    return {"interfaces": list(interfaces), "rdma": list(rdma), "default_route": default_route}


def renamed(its: Machine, old: str, new: str) -> Machine:
    """Return the machine with another name for one interface."""
    found = copy.deepcopy(its)
    found["rdma"] = [new if name == old else name for name in found["rdma"]]
    for interface in found["interfaces"]:
        interface["name"] = new if interface["name"] == old else interface["name"]
    return found


def rails(machine: Machine) -> tuple[str, ...]:
    """Return the names of a machine's Ethernet interfaces with RDMA."""
    return tuple(its["name"] for its in machine["interfaces"] if its["name"] in machine["rdma"])


AZURE, ULTRA = RECORDED["Azure ND H100 v5"], RECORDED["GCP a3-ultra"]
ON_PREM = RECORDED["on-prem: 1G eno1, one RoCE 100G"]
LO, SLOWER, FASTER = ON_PREM["interfaces"]
_RAILS = [carrier(f"rdma{number}", f"10.9.{number}.9/24", speed=400_000) for number in range(8)]
# The host's own network has the last index.
MI300X = machine(
    *_RAILS, carrier("eno0", "10.4.0.9/22", speed=1_000), rdma=tuple(its["name"] for its in _RAILS), default_route=""
)
_OCIS = [carrier(f"rdma{number}", f"10.224.{number}.7/20", speed=100_000) for number in range(0, 256, 16)]
OCI = machine(
    *_OCIS, carrier("eth0", "10.0.0.7/24", speed=50_000), rdma=tuple(its["name"] for its in _OCIS), default_route="eth0"
)
PLAIN = machine(carrier("eth0", "10.3.0.9/24", speed=10_000), default_route="eth0")
NO_ROUTE = machine(*PLAIN["interfaces"])
IPV6 = machine(carrier("eth0", "fd00:5::9/64", speed=10_000))
DOCKERS = machine(
    *PLAIN["interfaces"],
    {**carrier("docker0", "172.17.0.1/16", speed=400_000), "kind": "virtual"},
    {**carrier("br-0123456789ab", "172.18.0.1/16", speed=400_000), "kind": "virtual"},
    default_route="eth0",
)
BRIDGED = machine(
    *PLAIN["interfaces"], {**carrier("br0", "172.30.0.1/16", speed=400_000), "kind": "virtual"}, default_route="eth0"
)
LARGE = machine({**carrier("eth0", "10.3.0.9/24", speed=10_000), "mtu": JUMBO})
OFF = {**ON_PREM, "interfaces": [LO, SLOWER], "rdma": [], "default_route": ""}
# It is to be shifted to the first host's.
CLONED = {**ON_PREM, "interfaces": [LO, SLOWER, {**FASTER, "addresses": [shifted(FASTER["addresses"][0], 0)]}]}

LAYOUTS = (
    alike("DGX H100, InfiniBand with addresses", RECORDED["DGX H100, IPoIB addressed, one /16"], "ibp24s0"),
    alike("DGX H100, InfiniBand without addresses", RECORDED["DGX H100, no IPoIB addresses"], "bond0"),
    alike("Azure ND H100 v5", AZURE, "ib0"),
    alike("Azure ND H100 v5, with its `/etc/nccl.conf`", AZURE, "eth0", files={NCCL: "NCCL_SOCKET_IFNAME=eth0\n"}),
    alike("AWS p5, twelve addresses", RECORDED["AWS p5 (32 ENIs with an address, one subnet)"], "enp105s0"),
    alike("AWS p5, one address", RECORDED["AWS p5 efa-only"], "enp71s0"),
    alike("GCP a3-high", RECORDED["GCP a3-high"], "eth0"),
    alike("GCP a3-ultra", ULTRA, "enp0s19", apart=rails(ULTRA)),
    alike("OCI H100", OCI, "eth0", apart=rails(OCI)),
    alike("MI300X with RoCE", MI300X, "eno0", apart=rails(MI300X)),
    alike("CoreWeave pods", RECORDED["CoreWeave pod"], "eth0"),
    alike("Slingshot", RECORDED["Slingshot, 4 hsn"], "hsn0"),
    alike("1 Gb/s and one RoCE port", ON_PREM, "ens1f0np0"),
    alike("1 Gb/s and two RoCE ports", RECORDED["on-prem: 1G eno1, two RoCE, two networks"], "ens1f0np0"),
    Layout(
        "1 Gb/s and one RoCE port, by another name on each node",
        (ON_PREM, renamed(ON_PREM, "ens1f0np0", "enp9s0")),
        ("ens1f0np0", "enp9s0"),
    ),
    alike("a laptop with docker", RECORDED["laptop, docker"], "wlp2s0"),
    alike("docker's bridges, fast and with one address on all", DOCKERS, "eth0"),
    alike("a bridge of any name, fast and with one address on all", BRIDGED, "eth0"),
    Layout("one node off the fast network", (ON_PREM, ON_PREM, OFF), ("eno1",) * 3),
    Layout("one address on two nodes of the fast network", (ON_PREM, CLONED), ("eno1",) * 2),
    alike(
        "127.0.1.1 for each node's own name, others unknown",
        PLAIN,
        "eth0",
        files={HOSTS: LOCALHOST + "127.0.1.1 {host}\n"},
    ),
    alike("no names at all, nor a name server", NO_ROUTE, "eth0", files={HOSTS: LOCALHOST, RESOLV: ""}),
    alike(
        "a name server that never answers", PLAIN, "eth0", files={HOSTS: LOCALHOST, RESOLV: "nameserver 192.0.2.1\n"}
    ),
    alike("MTU 1500 on one node, 9000 on the other", LARGE, "eth0", last="ip link set eth0 mtu 1500"),
    alike("one slow link", PLAIN, "eth0", last=SLOW),
    alike("IPv6 only", IPV6, "eth0"),
)
BY_NAME = {its.name: its for its in LAYOUTS}
