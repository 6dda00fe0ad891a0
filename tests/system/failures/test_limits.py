"""What a host has run out of, lacks or loses is told with its limit, and stops no more than it must."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from subprocess import Popen

import pytest
from cluster.host import Host, kill_group
from cluster.hosts import Hosts
from forked import Forked
from support.members import KEYED, evaluating, failed, members, one_world, program, stop

TWO = ("--id", "job", "--nodes", "2")
BY_MASTER = (*TWO, "--timeout", "2", "--via", "master", "--master", "node1")
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


def test_a_member_without_a_local_port_reports_it(hosts: Callable[..., Hosts]) -> None:
    """With the range that is used up, as connect(2) finds nothing in it."""
    two = hosts(2)
    two[1].run(["sysctl", "-w", "net.ipv4.ip_local_port_range=50000 50001"], check=True)
    holder = program(two[1], "holds.py", "50000", "50001")
    results = members(list(two), lambda number: evaluating(*BY_MASTER, "--rank", str(number)))
    stop(holder)
    said = failed(results[1], 69)
    assert "all 2 local ports for connections are in use (sysctl net.ipv4.ip_local_port_range: 50000 to 50001)" in said
    assert "try a wider net.ipv4.ip_local_port_range" in said
    assert "firewall" not in said


def test_an_address_without_a_route_is_no_want_of_ports(hosts: Callable[..., Hosts]) -> None:
    """A host without IPv4 finds no address of its own to call from, and has all its ports."""
    done = hosts(1, ipv4=False)[0].run(evaluating(*BY_MASTER[:-1], "10.77.0.9", "--rank", "1"), env=KEYED)
    assert "local ports" not in failed(done, 69)


def test_a_member_without_a_thread_reports_it(four: Hosts) -> None:
    """The look-up of a name needs one, and the name server is not the cause."""
    line = ["bash", "-c", 'ulimit -u 1; exec mingle env "$@"', "bash", *BY_MASTER, "--rank", "1"]
    done = four[0].run(line, env=KEYED, user="alice")
    assert done.returncode == 69, done.stderr
    assert "no thread could be started (`ulimit -u` allows 1 in all)" in done.stderr
    assert "try a higher `ulimit -u`" in done.stderr
    assert "firewall" not in done.stderr


def test_exhausted_memory_is_reported_with_its_limit() -> None:
    """It is no bug of mingle, and no network's fault."""
    code = """
import errno, sys
from mingle_hooks.cli import main
from mingle_hooks.errors import shortage
main._run = lambda _words: bytes(1 << 40)
print(main.run(["key"]), shortage(OSError(errno.ENOBUFS, "x")).seen)
"""
    line = ["bash", "-c", 'ulimit -v 4000000; exec "$@"', "bash", sys.executable, "-c", code]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    seen = "no memory is left (`ulimit -v` allows 4096000000 bytes)"
    assert done.stdout == f"71 {seen}\n"
    assert done.stderr == f"mingle: expected free memory; saw {seen}; try a higher `ulimit -v`, or more memory\n"


@pytest.mark.parametrize(("role", "limit"), [("rank 0", 12), ("a member", 9), ("a candidate", 5)])
def test_exhausted_file_descriptors_are_reported_with_their_limit(four: Hosts, role: str, limit: int) -> None:
    """Not that host, its log and its firewall."""
    options = {"rank 0": ("--rank", "0"), "a member": ("--rank", "1", "--master", "node2"), "a candidate": ()}[role]
    limited = ["bash", "-c", 'ulimit -n "$1"; shift; exec "$@"', "bash", str(limit)]
    done = four[0].run([*limited, *evaluating(*TWO, "--timeout", "1", *options)], env=KEYED)
    assert done.returncode in (69, 71), done
    last = done.stderr.splitlines()[-1]
    assert f"all {limit} file descriptors that `ulimit -n` allows are in use" in last
    assert "firewall" not in last
    assert "a higher `ulimit -n`" in last


@contextmanager
def coming_and_going(host: Host, number: int) -> Iterator[Popen[str]]:
    """Make and remove interfaces on a host all the while."""
    process = host.popen(["bash", "-c", CHURN, "bash", str(number)])
    try:
        yield process
    finally:
        kill_group(process)
        process.communicate()


def test_interfaces_that_come_and_go_stop_no_member(hosts: Callable[..., Hosts], forked: Forked) -> None:
    """16 members on hosts where interfaces are made and removed all the time; those of the first world are started."""
    two = hosts(2)
    with ExitStack() as stack:
        churning = [stack.enter_context(coming_and_going(host, number)) for host in two for number in range(2)]
        for world in range(2):
            options = ("--id", f"job{world}", "--nodes", "8", "--via", "multicast")
            if world == 0:
                one_world(members([*two] * 4, evaluating(*options)))
            else:
                one_world(forked.run_on([(host, ["exec", *options, "env"], KEYED) for host in [*two] * 4]))
        assert [process.poll() for process in churning] == [None] * 4


def test_an_interface_that_vanishes_while_it_is_used_is_named(four: Hosts) -> None:
    """Its beacons fail from then on, and the member waits as long as ever."""
    script = """ip link add tap0 type veth peer name pat0 && ip addr add 10.99.0.1/24 dev tap0 &&
ip link set tap0 up && ip link set pat0 up || exit
mingle env "$@" & for _ in $(seq 100); do ss -Huln | grep -q . && break; sleep 0.1; done
sleep 0.5; ip link del tap0; wait $!"""
    options = (*TWO, "--timeout", "4", "--via", "multicast", "--iface", "tap0")
    done = four[0].run(["bash", "-c", script, "bash", *options], env=KEYED)
    assert done.returncode == 69, done
    assert "multicast: tap0: " in done.stderr.splitlines()[-1], done.stderr


MANY = ("exec", "--id", "many", "--nodes", "1500", "--timeout", "60", "--via", "master", "--master", "node1")


def test_a_leader_that_cannot_hold_its_members_reports_it_at_once_to_those_that_wait(four: Hosts) -> None:
    """They exit as rank 0 does, long before their deadline, and with its message."""
    limited = ["bash", "-c", 'ulimit -n 1400; exec "$@"', "bash", "mingle", *MANY, "--rank", "0", "true"]
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(four[1].run, ["mingle", *MANY, "--rank", "1", "true"], env=KEYED, timeout=30)
        done = [four[0].run(limited, env=KEYED, timeout=30), waiting.result()]
    seen = "mingle: expected limits for 1500 nodes on node1, rank 0's host; saw ulimit -Hn 1400; try LimitNOFILE=2012"
    assert [one.returncode for one in done] == [71, 71]
    assert [one.stderr.splitlines()[-1].partition(" for the scheduler")[0] for one in done] == [seen] * 2


def test_a_limit_that_only_delays_members_is_a_warning(four: Hosts) -> None:
    """The namespace of the host has its own."""
    four[0].run(["sysctl", "-w", "net.core.somaxconn=128"], check=True)
    try:
        done = four[0].run(["mingle", *MANY[:6], "1", *MANY[7:], "--rank", "0", "true"], env=KEYED)
    finally:
        four[0].run(["sysctl", "-w", "net.core.somaxconn=4096"], check=True)
    assert done.returncode == 69  # as all are missing
    assert done.stderr.splitlines()[0] == (
        "mingle: node1, rank 0's host, delays some of 1500 nodes that connect at once (net.core.somaxconn 128); "
        "try `sysctl -w net.core.somaxconn=1500` there"
    )
