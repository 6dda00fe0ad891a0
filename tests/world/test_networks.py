"""Worlds on hosts with the interfaces of known machines: where they meet, and what each library is told."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from cluster.machines import carrier, plug, recorded, shifted
from members import KEYED, REDUCE, evaluating, one_world, variables
from needs import only_with

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.hosts import Hosts

TRAIN = Path(__file__).with_name("train.py")
MACHINES = recorded()
ON_PREM = MACHINES["on-prem: 1G eno1, one RoCE 100G"]
IPV6 = {"interfaces": [carrier("eth0", "fd00:5::9/64", speed=10_000)], "rdma": [], "default_route": ""}
# Each rail reaches nobody here, and the host's own network has the last index.
RAILS = [carrier(f"rdma{number}", f"10.9.{number}.9/24", speed=400_000) for number in range(8)]
MI300X = {
    "interfaces": [*RAILS, carrier("eno0", "10.4.0.9/22", speed=1_000)],
    "rdma": [its["name"] for its in RAILS],
    "default_route": "",
}
CONF = "/etc/nccl.conf"


class Row(NamedTuple):
    """A machine, the interface that the world is to be on, on rank 0 and on rank 1, and what the site's file says."""

    machine: dict[str, Any]
    wanted: str
    other: dict[str, Any] | None = None
    others: str = ""
    conf: str = ""

    @property
    def master(self) -> str:
        """Rank 0's address there."""
        found = next(its for its in self.machine["interfaces"] if its["name"] == self.wanted)
        return shifted(found["addresses"][0], 1).partition("/")[0]


def renamed(machine: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    """Return the machine with another name for one interface."""
    found = copy.deepcopy(machine)
    found["rdma"] = [new if name == old else name for name in found["rdma"]]
    for its in found["interfaces"]:
        its["name"] = new if its["name"] == old else its["name"]
    return found


ROWS = {
    "Azure": Row(MACHINES["Azure ND H100 v5"], "ib0"),
    "Azure, with its own file": Row(MACHINES["Azure ND H100 v5"], "eth0", conf="NCCL_SOCKET_IFNAME=eth0\n"),
    "AWS p5": Row(MACHINES["AWS p5 (32 ENIs with an address, one subnet)"], "enp105s0"),
    "a3-ultra": Row(MACHINES["GCP a3-ultra"], "enp0s19"),
    "Slingshot": Row(MACHINES["Slingshot, 4 hsn"], "hsn0"),
    "on-prem": Row(ON_PREM, "ens1f0np0"),
    "on-prem, another name on the other node": Row(
        ON_PREM, "ens1f0np0", renamed(ON_PREM, "ens1f0np0", "enp9s0"), "enp9s0"
    ),
    "MI300X": Row(MI300X, "eno0"),
    "laptop with docker": Row(MACHINES["laptop, docker"], "wlp2s0"),
    "IPv6 only": Row(IPV6, "eth0"),
}


def test_machines_meet_on_the_wanted_network_and_all_libraries_are_told_the_same(
    hosts: Callable[..., Hosts], tmp_path: Path
) -> None:
    """MASTER_ADDR, Gloo and NCCL are on one network, by each node's own name for it, and in one family.

    Where the site's file names NCCL's interface that is the one, and no variable says it again.
    """
    two = hosts(2)
    seen, wanted = {}, {}
    for number, (name, row) in enumerate(ROWS.items()):
        plug(two, [row.machine, row.other or row.machine], tmp_path / str(number), [its["name"] for its in RAILS])
        two[0].write(CONF, row.conf)
        asks = ("--id", f"job {number}", "--nodes", "2", "--timeout", "20", "--for", "nccl,gloo")
        worlds = one_world(
            two.run_all(
                lambda host, asks=asks: evaluating(*asks, "--rank", str(host.number - 1), then=REDUCE), env=KEYED
            )
        )
        seen[name] = [(its["MASTER_ADDR"], its["SUM"], networks(its)) for its in worlds]
        family = "AF_INET6" if ":" in row.master else "AF_INET"
        wanted[name] = [
            (row.master, "1", [iface, iface, *([None, None] if row.conf else [f"={iface}", family])])
            for iface in (row.wanted, row.others or row.wanted)
        ]
    assert seen == wanted


def test_a_network_that_only_some_share_gives_way_to_the_one_that_all_do(
    hosts: Callable[..., Hosts], tmp_path: Path
) -> None:
    """One node has rank 0's address on the fast one, one is off it, and all have the same bridge, the fastest of all.

    Nobody is taken in by an address of its own, and rank 0 can tell who did not reach what.
    """
    bridge = {**carrier("br0", "172.30.0.1/16", speed=400_000), "kind": "virtual"}
    normal = {**ON_PREM, "interfaces": [*ON_PREM["interfaces"], bridge], "default_route": ""}
    lo, slow, fast = ON_PREM["interfaces"]
    cloned = {**fast, "addresses": [shifted(fast["addresses"][0], -1)]}  # to be shifted to the first host's
    four = hosts(4)
    machines = [normal, normal, *({**normal, "interfaces": [lo, slow, *rest, bridge]} for rest in ([cloned], []))]
    plug(four, machines, tmp_path)
    asks = ("--id", "job", "--nodes", "4", "--for", "nccl,gloo", "--explain")
    results = four.run_all(lambda host: evaluating(*asks, "--rank", str(host.number - 1), then=REDUCE), env=KEYED)
    worlds = one_world(results)
    address = shifted(slow["addresses"][0], 1).partition("/")[0]
    assert [(its["MASTER_ADDR"], its["SUM"]) for its in worlds] == [(address, "6")] * 4
    assert [networks(its) for its in worlds] == [["eno1", "eno1", "=eno1", "AF_INET"]] * 4
    assert "address 172.30.0.1 (br0, ethernet, 400 Gb/s): not reached by node[2-4]" in results[0].stderr
    assert "(ens1f0np0, ethernet, 100 Gb/s): not reached by node[3-4]" in results[0].stderr


def networks(its: dict[str, str]) -> list[str | None]:
    """Return what Gloo, TensorPipe and NCCL are told."""
    names = ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "NCCL_SOCKET_FAMILY")
    return [its.get(name) for name in names]


@only_with("torch")
def test_an_unchanged_script_trains_on_rails_and_over_ipv6_without_a_variable(
    hosts: Callable[..., Hosts], tmp_path: Path
) -> None:
    """Nor an option: by `mingle exec torchrun train.py`, though no host's name leads to an address that it has."""
    two = hosts(2)
    for number, row in enumerate((ROWS["a3-ultra"], ROWS["IPv6 only"])):
        plug(two, [row.machine] * 2, tmp_path / str(number))
        line = ["mingle", "exec", "--id", f"job {number}", "--nodes", "2", "torchrun", TRAIN]
        results = two.run_all(line, env=KEYED, timeout=200)
        found = [variables(done) for done in results]
        assert [(its["SIZE"], its["TOTAL"], its["AT"] == found[0]["AT"]) for its in found] == [("2", "3", True)] * 2
        assert found[0]["AT"] in {shifted(row.master + "/0", host.number).partition("/")[0] for host in two}
