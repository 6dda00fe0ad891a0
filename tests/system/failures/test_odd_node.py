"""Each fault that makes one node differ is made on one of four hosts, and rank 0 names that host."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cluster.host import Host
from cluster.hosts import Hosts
from forked import Forked

from mingle_hooks.files import toml

KEY = os.urandom(32).hex()
MEETING = "/home/meeting"
DATA = Path(__file__).parents[2] / "data"
# This installation may lie below /tmp, too.
BELOW_TMP = Path(sys.prefix).relative_to("/tmp") if sys.prefix.startswith("/tmp/") else None
KEEPS = f"mkdir -p /run/full/{BELOW_TMP} && mount --bind {sys.prefix} /run/full/{BELOW_TMP}" if BELOW_TMP else "true"
FAULTS = toml((DATA / "faults.toml").read_text().replace("{keeps}", KEEPS).encode())


@pytest.fixture
def nodes(hosts: Callable[..., Hosts]) -> Iterator[Hosts]:
    """Make four hosts that look like GPU nodes."""
    made = hosts(4, ipv6=False)
    made[0].run(["mkdir", "-m", "1777", MEETING], check=True)
    made.run_all(["sh", "-c", (DATA / "gpu_node.sh").read_text()], check=True)
    yield made
    made.run_all(["sh", "-c", "rm -rf /tmp/work"], check=True)


def world(
    nodes: Hosts,
    *options: str,
    wrapped: Callable[[Host], list[str]] = lambda _: ["mingle"],
    env: dict[int, dict[str, str]] | None = None,
    user: str = "root",  # who may lock all memory
    forked: Forked | None = None,
) -> list[tuple[int, list[str]]]:
    """Return each member's exit code and what it said, the exported variables left out.

    They meet in the directory that all share: of a hundred members none has to load multicast. Those that are `forked`
    need no start of their own either.
    """
    own = ["--id", "a", "--via", "directory", "--directory", MEETING, *options, "--nodes", "4"]

    def words(host: Host) -> list[str]:
        return ["exec", *own, "--rank", str(host.number - 1), "cat", "train.py"]

    def env_of(host: Host) -> dict[str, str]:
        return {"MINGLE_KEY": KEY, **(env or {}).get(host.number, {})}

    if forked is not None:
        done = forked.run_on([(host, words(host), env_of(host)) for host in nodes], cwd="/tmp/work")
    else:
        done = nodes.run_all(lambda host: [*wrapped(host), *words(host)], env=env_of, user=user, cwd="/tmp/work")
    assert all(one.stdout in ("", "print()\n", "exit()\n") for one in done)
    # On a slow machine it also says which members it waits for.
    return [(one.returncode, [line for line in one.stderr.splitlines() if " after " not in line]) for one in done]


def differences(nodes: Hosts, *options: str, **how: object) -> list[str]:
    """Return rank 0's lines about a world that forms; no other member prints any."""
    first, *others = members = world(nodes, *options, **how)  # type: ignore[arg-type]
    assert [code for code, _ in members] == [0] * 4, members
    assert [line for _, lines in others for line in lines] == []
    return first[1]


def test_the_odd_node_is_named_by_each_fault_and_healthy_ones_by_none(nodes: Hosts, forked: Forked) -> None:
    """One line for the difference, and one with the host to exclude; only rank 0 prints them, and the world forms."""
    odd = nodes[2]
    assert differences(nodes) == []
    for name, fault in FAULTS.items():
        odd.run(["sh", "-c", fault["make"]], check=True)
        said = differences(nodes, forked=forked)
        odd.run(["sh", "-c", fault["mend"]], check=True)
        assert said[0].startswith(f"mingle: node3: {fault['said']}"), (name, said)
        assert said[1:] == ["mingle: to leave out: --exclude=node3"], (name, said)
    assert differences(nodes, forked=forked) == []
    odd.run(["ip", "link", "set", "eth0", "down"], check=True)
    assert differences(nodes) == [
        "mingle: node3: does not reach rank 0 at 10.77.0.1, 3 others do",
        "mingle: to leave out: --exclude=node3",
    ]


def low(host: Host) -> list[str]:
    return ["prlimit", "--memlock=65536", "mingle"] if host.number == 3 else ["mingle"]


def ahead(host: Host) -> list[str]:
    """Run mingle with a clock that is 5 s ahead: no namespace has one of its own."""
    code = (
        "import sys, time; now = time.time; time.time = lambda: now() + 5; sys.argv[0] = 'mingle'\n"
        "from mingle_hooks.cli.main import main; main()"
    )
    return [sys.executable, "-c", code] if host.number == 3 else ["mingle"]


def test_limits_clocks_variables_and_addresses_of_one_node_are_named(nodes: Hosts, forked: Forked) -> None:
    """A clock with by how much it is off, an address with both who have it."""
    assert differences(nodes, wrapped=low, user="alice")[0].startswith("mingle: node3: memlock 64K, ")
    assert differences(nodes, wrapped=ahead)[0].startswith(
        ("mingle: node3: clock 5.0 s ahead", "mingle: node3: clock 4.9 s")
    )
    assert differences(nodes, env={3: {"NCCL_DEBUG": "INFO"}}, forked=forked) == [
        "mingle: node3: NCCL_DEBUG INFO, 3 others not set"
    ]
    for host in (nodes[1], nodes[2]):
        host.run(["ip", "address", "add", "10.99.0.9/24", "dev", "ib0"], check=True)
    assert differences(nodes, forked=forked)[0] == "mingle: node[2-3]: 10.99.0.9 on each of them"
    assert differences(nodes, "--quiet", forked=forked) == []


DRIVER, RDMA = {"MINGLE_STRICT": "driver"}, {"MINGLE_STRICT": "rdma"}


def everywhere(**variables: str) -> dict[int, dict[str, str]]:
    return dict.fromkeys(range(1, 5), variables)


def test_strict_forms_no_world_of_nodes_that_differ(nodes: Hosts, forked: Forked) -> None:
    """All members print the same error; the settings choose which differences count, and with --no-strict none does."""
    assert differences(nodes, "--strict", forked=forked) == []
    nodes[2].run(["sh", "-c", FAULTS["driver"]["make"]], check=True)
    results = world(nodes, "--strict")
    assert {code for code, _ in results} == {76}
    seen = "node3: driver 550.54.15, 3 others 570.86.15"
    said = f"expected 4 nodes that are alike, as --strict or the settings require; saw {seen}"
    assert {line for _, lines in results for line in lines if line} == {
        f"mingle: {said}; try --exclude=node3, or --no-strict"
    }
    driver, rdma, wants = (everywhere(**names) for names in (DRIVER, RDMA, RDMA | {"MINGLE_RDMA": "on"}))
    assert len(differences(nodes, env=rdma, forked=forked)) == 2
    assert len(differences(nodes, "--no-strict", env=driver, forked=forked)) == 2
    nodes[2].run(["sh", "-c", f"{FAULTS['driver']['mend']}; {FAULTS['no RDMA']['make']}"], check=True)
    assert {code for code, _ in world(nodes, env=rdma, forked=forked)} == {76}
    for host in nodes:
        host.run(["sh", "-c", "rm -rf /sys/class/infiniband /sys/class/gone"], check=True)
    assert differences(nodes, env=rdma, forked=forked) == []
    assert {code for code, _ in world(nodes, env=wants, forked=forked)} == {76}
