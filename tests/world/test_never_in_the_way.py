"""What is missing, broken or gone on a host is told where it matters, and stops nothing else."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest
from cluster.host import kill_group
from members import KEYED, REDUCE, evaluating, failed, members, one_world

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from subprocess import Popen

    from cluster.host import Host
    from cluster.hosts import Hosts
    from forked import Forked

TWO = ("--id", "job", "--nodes", "2")
# Interfaces that come with an address, stay for a moment, and go: pods and virtual machines do it all day.
CHURN = """while :; do
    for n in 1 2 3; do
        echo "link add tap$1$n type veth peer name pat$1$n
addr add 10.9$1.$n.1/24 dev tap$1$n
link set tap$1$n up
link set pat$1$n up
link del tap$1$n"
    done | ip -batch - || exit
done"""


def without(package: str, place: Path) -> dict[str, str]:
    """Return an environment in which a package cannot be imported."""
    place.mkdir(exist_ok=True)
    place.chmod(0o755)
    (place / f"{package}.py").write_text(f"raise ModuleNotFoundError(\"No module named '{package}'\")\n")
    return {**KEYED, "PYTHONPATH": str(place)}


@contextmanager
def coming_and_going(host: Host, number: int) -> Iterator[Popen[str]]:
    """Make and remove interfaces on a host all the while."""
    process = host.popen(["bash", "-c", CHURN, "bash", str(number)])
    try:
        yield process
    finally:
        kill_group(process)
        process.communicate()


@pytest.mark.parametrize("package", ["netifaces", "multicast_expert"])
def test_a_host_without_multicasts_packages_is_in_the_world_by_another_way(
    hosts: Callable[..., Hosts], tmp_path: Path, package: str
) -> None:
    """Nothing is said of it, for nothing is wrong."""
    env = without(package, tmp_path / "broken")
    shared = tmp_path / "shared"
    shared.mkdir()
    done = hosts(2).run_all(evaluating(*TWO, "--directory", str(shared), then=REDUCE), env=env)
    one_world(done)
    assert [one.stderr for one in done] == ["", ""]


@pytest.mark.parametrize("package", ["netifaces", "multicast_expert"])
def test_where_nobody_was_met_the_missing_package_is_named(
    hosts: Callable[..., Hosts], tmp_path: Path, package: str
) -> None:
    """On rank 0 and on a member alike; and where there is no other way, it is the error."""
    env, (one, other) = without(package, tmp_path / "broken"), hosts(2)
    ranked = (*TWO, "--timeout", "1", "--rank")
    for host, options, code in [
        (one, (*ranked, "0", "--directory", str(tmp_path)), 69),
        (other, (*ranked, "1", "--directory", str(tmp_path)), 69),
        (one, TWO, 71),
    ]:
        told = failed(host.run(evaluating(*options), env=env), code).splitlines()[-1]
        assert f"no multicast: No module named '{package}'" in told, told
        assert "bug" not in told


def test_interfaces_that_come_and_go_stop_no_member(hosts: Callable[..., Hosts], forked: Forked) -> None:
    """32 members on hosts where interfaces are made and removed all the time; those of the first world are started."""
    two = hosts(2)
    with ExitStack() as stack:
        churning = [stack.enter_context(coming_and_going(host, number)) for host in two for number in range(2)]
        for world in range(4):
            options = ("--id", f"job{world}", "--nodes", "8", "--via", "multicast")
            if world == 0:
                one_world(members([*two] * 4, lambda _, options=options: evaluating(*options)))  # type: ignore[misc]
                continue
            done = forked.run_on([(host, ["exec", *options, "env"], KEYED) for host in [*two] * 4])
            one_world(done)
        assert [process.poll() for process in churning] == [None] * 4


@pytest.mark.parametrize("role", ["rank 0", "a member", "a candidate"])
@pytest.mark.parametrize("limit", [5, 9, 12])
def test_out_of_file_descriptors_is_told_with_the_limit_that_was_met(
    hosts: Callable[..., Hosts], role: str, limit: int
) -> None:
    """Not that host, its log and its firewall."""
    options = {"rank 0": ("--rank", "0"), "a member": ("--rank", "1", "--master", "node2"), "a candidate": ()}[role]
    limited = ["bash", "-c", 'ulimit -n "$1"; shift; exec "$@"', "bash", str(limit)]
    done = hosts(2)[0].run([*limited, *evaluating(*TWO, "--timeout", "1", *options)], env=KEYED)
    assert done.returncode in (69, 71), done
    told = done.stderr.splitlines()[-1]
    assert f"all {limit} file descriptors that `ulimit -n` allows are in use" in told
    assert "firewall" not in told
    assert "a higher `ulimit -n`" in told


@pytest.mark.parametrize("role", [("--rank", "0"), ()], ids=["rank 0", "a candidate"])
def test_an_interface_that_vanishes_while_it_is_used_is_named(
    hosts: Callable[..., Hosts], role: tuple[str, ...]
) -> None:
    """Its beacons fail from then on, and the member waits as long as ever."""
    script = """ip link add tap0 type veth peer name pat0 && ip addr add 10.99.0.1/24 dev tap0 &&
ip link set tap0 up && ip link set pat0 up || exit
mingle env "$@" & for _ in $(seq 100); do ss -Huln | grep -q . && break; sleep 0.1; done
sleep 0.5; ip link del tap0; wait $!"""
    options = (*TWO, "--timeout", "4", "--via", "multicast", "--iface", "tap0")
    done = hosts(1)[0].run(["bash", "-c", script, "bash", *options, *role], env=KEYED)
    assert done.returncode == 69, done
    assert "multicast: tap0: " in done.stderr.splitlines()[-1], done.stderr


def test_a_leader_that_runs_out_of_descriptors_tells_everybody_that_it_did(
    hosts: Callable[..., Hosts], forked: Forked
) -> None:
    """Those that are in hear it from rank 0."""
    count = 24
    one, other = hosts(2)
    limited = ["bash", "-c", 'ulimit -n "$1"; shift; exec "$@"', "bash", "28"]
    options = ("env", "--id", "job", "--nodes", str(count), "--timeout", "6", "--master", "node1:23456", "--rank")
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(one.run, [*limited, "mingle", *options, "0"], env=KEYED)
        others = forked.run_on([(other, [*options, str(number)], KEYED) for number in range(1, count)])
    done = [first.result(), *others]
    assert {its.returncode for its in done} == {69}, [its.stderr for its in done]
    told = [its.stderr for its in done if "all 28 file descriptors that `ulimit -n` allows are in use" in its.stderr]
    assert len(told) > count // 2, [its.stderr for its in done]
    assert all("firewall" not in text and "a higher `ulimit -n` on rank 0's host" in text for text in told)
