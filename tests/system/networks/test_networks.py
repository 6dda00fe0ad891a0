"""Worlds on hosts with the interfaces of known machines: where they meet, and what each library is given."""

from collections.abc import Callable
from pathlib import Path

from cluster.hosts import Hosts
from cluster.layouts import BY_NAME, NCCL, ON_PREM
from cluster.machines import carrier, plug, shifted
from support.members import KEYED, REDUCE, evaluating, one_world

# Those that differ in what hosts see of each other; tests/unit/net has the choice on all machines that are known.
NAMES = (
    "Azure ND H100 v5, with its `/etc/nccl.conf`",
    "GCP a3-ultra",
    "1 Gb/s and one RoCE port, by another name on each node",
    "IPv6 only",
)


def test_machines_meet_on_the_wanted_network_and_all_libraries_are_told_the_same(
    hosts: Callable[..., Hosts], tmp_path: Path
) -> None:
    """MASTER_ADDR, Gloo and NCCL are on one network, by each node's own name for it, and in one family.

    If the site's file names NCCL's interface, no variable repeats it.
    """
    two = hosts(2)
    seen, wanted = {}, {}
    for number, layout in enumerate(map(BY_NAME.__getitem__, NAMES)):
        layout.lay(two, tmp_path / str(number))
        two[0].write(NCCL, layout.files.get(NCCL, ""))
        asks = ("--id", f"job {number}", "--nodes", "2", "--timeout", "20", "--for", "nccl,gloo")
        worlds = one_world(
            two.run_all(
                lambda host, asks=asks: evaluating(*asks, "--rank", str(host.number - 1), then=REDUCE), env=KEYED
            )
        )
        seen[layout.name] = [(world["MASTER_ADDR"], networks(world)) for world in worlds]
        master = layout.masters[0]
        family = "AF_INET6" if ":" in master else "AF_INET"
        wanted[layout.name] = [
            (master, [iface, iface, *([None, None] if NCCL in layout.files else [f"={iface}", family])])
            for iface in layout.wanted
        ]
    assert seen == wanted


def test_a_network_that_only_some_share_gives_way_to_the_one_that_all_do(
    hosts: Callable[..., Hosts], tmp_path: Path
) -> None:
    """One node has rank 0's address on the fast one, one is off it, and all have the same bridge, the fastest of all.

    No member takes its own address for rank 0's, and rank 0 reports who did not reach what.
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
    assert [world["MASTER_ADDR"] for world in worlds] == [address] * 4
    assert [networks(world) for world in worlds] == [["eno1", "eno1", "=eno1", "AF_INET"]] * 4
    assert "address 172.30.0.1 (br0, ethernet, 400 Gb/s): not reached by node[2-4]" in results[0].stderr
    assert "(ens1f0np0, ethernet, 100 Gb/s): not reached by node[3-4]" in results[0].stderr


def networks(variables: dict[str, str]) -> list[str | None]:
    """Return the interfaces and the family that Gloo, TensorPipe and NCCL are given."""
    names = ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "NCCL_SOCKET_FAMILY")
    return [variables.get(name) for name in names]
