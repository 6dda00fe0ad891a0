"""What every rule makes of a report: nothing of a healthy one, and one line of one fault."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from support.check_reports import FAST, SHM, SLOW, TMP, bad, fingerprint, notes, only, report

from mingle_hooks.check.report import Address, Flow, Heard, Name, Pair, Space, table_lines, verdict_text
from mingle_hooks.check.rules import different_nodes, find_causes, judge

if TYPE_CHECKING:
    from collections.abc import Callable

    from mingle_hooks.check.report import Host, Report

CUT = {"there": 0, "back": 0, "rtt_us": None, "mtu": None, "open_there": "timed out", "open_back": "timed out"}


@pytest.mark.parametrize("count", [1, 2, 4, 16])
def test_nothing_is_found_on_healthy_hosts(count: int) -> None:
    """The bridge that docker makes on each is a note."""
    made = report(count)
    assert (bad(made), made.status, made.exclude) == ([], 0, ())
    assert all("172.17.0.1" in note.text for note in notes(made))


def lossy(host: str, *, comes: bool = True, goes: bool = False) -> object:
    """Return what loses a third of what comes to a host, or of what it sends."""

    def change(pair: Pair) -> Pair:
        if (pair.other == host and comes) or (pair.one == host and goes):
            pair = pair._replace(there=7)
        if (pair.one == host and comes) or (pair.other == host and goes):
            pair = pair._replace(back=7)
        return pair

    return change


def between(*hosts: str, network: str | None = None, **fields: object) -> object:
    """Return what changes the pairs of all of these hosts."""

    def change(pair: Pair) -> Pair:
        is_meant = {*hosts} <= {pair.one, pair.other} and network in (None, pair.network)
        return pair._replace(**fields) if is_meant else pair  # type: ignore[arg-type]

    return change


def address(number: int, **fields: object) -> tuple[Address, ...]:
    """Return a host's addresses, with changes of the slow network's."""
    fast = Address("ib0", "infiniband", f"10.78.0.{number}", 24, 4092, 400_000, 20_001)
    slow = Address("eth0", "ethernet", f"10.77.0.{number}", 24, 1500, 10_000, 20_001)
    return (fast, slow._replace(**fields))  # type: ignore[arg-type]


def names(host: Host, **changed: tuple[str, ...] | None) -> tuple[Name, ...]:
    return tuple(its._replace(addresses=changed.get(its.name, its.addresses)) for its in host.names)


LOOPED = "its own name is 127.0.1.1: other nodes cannot reach servers that listen on it (/etc/hosts)"
HOSTS = {
    "missing": (only("node3", missing="ssh: connect to host node3 port 22: No route to host"), 69, ("node3",),
                ["node3: ssh: connect to host node3 port 22: No route to host"]),
    "twice": (only("node4", identity=f"{1:016x}"), 76, ("node4",), ["node[1,4]: one machine under 2 names"]),
    "clock": (only("node2", clock=(4.9, 5.1)), 76, ("node2",), ["node2: its clock is 5.0 s ahead"]),
    "a clock not known that well": (only("node2", clock=(-2.0, 2.5)), 0, (), []),
    "shm": (only("node2", spaces=(Space(SHM, 3, 64),)), 76, ("node2",),
            ["node2: /dev/shm is full: 3 of 64 MiB are free"]),
    "a small one, and empty": (only("node2", spaces=(Space(SHM, 60, 64),)), 0, (), []),
    "hung": (only("node2", spaces=(Space(TMP, None, None),)), 76, ("node2",), ["node2: /tmp does not answer"]),
    "shared and full": (lambda its: its._replace(spaces=(Space("/home", 0, 99),)), 71, (),
                        ["node[1-4]: /home is full: 0 of 99 MiB are free"]),
    "gpu": (only("node2", faults=("GPU 0000:17:00.0: Xid 79",)), 76, ("node2",), ["node2: GPU 0000:17:00.0: Xid 79"]),
    "gpus": (only("node2", fingerprint=fingerprint(gpus="7 H100")), 76, ("node2",),
             ["node2: GPUs 7 H100, 3 others 8 H100"]),
    "memlock": (only("node2", fingerprint=fingerprint(**{"limits.memlock": "64K"})), 76, ("node2",),
                ["node2: memlock 64K, 3 others unlimited"]),
    "mtu": (only("node4", addresses=address(4, mtu=9000)), 71, ("node4",),
            [f"node4: MTU on {SLOW} 9000, 3 others 1500"]),
    "speed": (only("node4", addresses=address(4, speed_mbps=1000)), 71, ("node4",),
              [f"node4: Mbit/s on {SLOW} 1000, 3 others 10000"]),
    "clash": (only("node4", addresses=address(4, address="10.77.0.3")), 71, ("node4",),
              ["node[3-4]: the same address, 10.77.0.3",
             "node[1-3]: node4 is 10.77.0.4 there, an address that it does not have"]),
    "off": (only("node4", addresses=address(4)[1:]), 71, ("node4",),
            [f"node4: no address on {FAST}, where 3 others are"]),
    "loopback": (only("node4", own_name=("127.0.1.1",)), 76, ("node4",),
                 [f"node4: {LOOPED}"]),
    "loopback on all": (lambda its: its._replace(own_name=("127.0.1.1",)), 71, (),
                        [f"node[1-4]: {LOOPED}"]),
    "no name": (lambda its: its._replace(names=names(its, node2=())), 71, (),
                ["node2: its name is not known to others"]),
    "no names": (lambda its: its._replace(names=names(its, **dict.fromkeys(("node1", "node2", "node3", "node4"), ()))),
                 71, (), ["the hosts' names are not known to each other"]),
    "a name server that hangs": (lambda its: its._replace(names=tuple(n._replace(addresses=None) for n in its.names))
                                 if its.name == "node1" else its, 71, (),
                                 ["node1: others' names get no answer in time from the name service of it"]),
    "elsewhere": (lambda its: its._replace(names=names(its, node2=("10.99.0.2",))), 71, (),
                  ["node[1,3-4]: node2 is 10.99.0.2 there, an address that it does not have"]),
    "deaf": (only("node3", multicast=(Heard("eth0", ()),)), 71, (), [f"node3: receives no multicast on {SLOW}"]),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTS)
def test_one_fault_of_a_host_is_one_line(name: str) -> None:
    """With whom to leave out, and the exit status."""
    change, status, exclude, lines = HOSTS[name]
    made = report(4, change)
    assert (bad(made), made.status, made.exclude) == (lines, status, exclude)
    assert all(finding.remedy.startswith(("user: ", "admin: ")) for finding in made.findings)


ROOM = "a kernel's neighbour table was full at times (net.ipv4.neigh.default.gc_thresh3)"
FULL = "the kernel's neighbour table is full; up to 2 hosts are out of reach"
HOSTS |= {
    "no room for neighbours": (only("node2", had_no_room=True, refused=2), 76, ("node2",),
                               [f"node2: {FULL} (net.ipv4.neigh.default.gc_thresh3)"]),
    "no room anywhere": (lambda its: its._replace(had_no_room=True, refused=2), 71, (),
                         [f"node[1-4]: {FULL} (net.ipv4.neigh.default.gc_thresh3)"]),
    "busy, and its name service": (only("node2", late_s=3.0, own_name=None, names=(Name("node1", None),)), 0, (), []),
    "busy, and its name": (only("node2", late_s=3.0, own_name=()), 76, ("node2",),
                           ["node2: its own name is not known there"]),
    "busy, and multicast": (only("node2", late_s=3.0, multicast=(Heard("eth0", ()),)), 0, (), []),
    "no room for multicast": (only("node2", had_no_room=True, multicast=(Heard("eth0", ()),)), 0, (), []),
    "busy hosts' clocks": (lambda its: its if its.name == "node1" else its._replace(clock=(-4.0, 0.0)), 0, (), []),
}  # fmt: skip


BOTH = (FAST, SLOW)
SMALL = "no packet larger than 1500 octets passes"
PAIRS = {
    "unplugged": (between("node3", **CUT), ("node3",), [f"node3: does not reach 3 of the others on {FAST}",
                                                        f"node3: does not reach 3 of the others on {SLOW}"]),
    "a cut wire": (between("node2", "node3", network=SLOW, **CUT), ("node3",),
                   [f"node2 and node3: do not reach each other on {SLOW}"]),
    "loss one way": (lossy("node3"), ("node3",), [f"node3: 30 % of the packets to it on {FAST} are lost",
                                                  f"node3: 30 % of the packets to it on {SLOW} are lost"]),
    "loss the other way": (lossy("node1", comes=False, goes=True), ("node1",),
                           [f"node1: 30 % of the packets from it on {FAST} are lost",
                            f"node1: 30 % of the packets from it on {SLOW} are lost"]),
    "loss both ways": (lossy("node2", goes=True), ("node2",),
                       [f"node2: 30 % of the packets from and to it on {its} are lost" for its in BOTH]),
    "one lost": (lambda pair: pair._replace(there=9), (), []),
    "a lossy network": (lambda pair: pair._replace(there=6, back=6) if pair.network == SLOW else pair, (),
                        [f"{SLOW}: 40 % of all datagrams are lost"]),
    "a firewall": (lambda pair: pair._replace(open_there="timed out") if pair.other == "node4" and pair.network == SLOW
                   else pair, ("node4",),
                   [f"node4: others do not reach its port on {SLOW} (timed out); a firewall, or another --port-range"]),
    "datagrams are not let through": (lambda pair: pair._replace(there=0, back=0, rtt_us=None, mtu=None), (), []),
    "a small way": (between("node1", "node2", network=FAST, mtu=1500), ("node2",),
                    [f"node1 and node2: {SMALL} between them on {FAST}, though their MTU is larger"]),
    "a small port of the switch": (between("node2", network=FAST, mtu=1500), ("node2",),
                                   [f"node2: {SMALL} on {FAST}, though the interfaces' MTU is larger"]),
}  # fmt: skip


@pytest.mark.parametrize("name", PAIRS)
def test_one_fault_between_hosts_is_one_line_for_each_network(name: str) -> None:
    """A host is named for what is its own, a pair else, and nobody where it is everywhere."""
    change, exclude, lines = PAIRS[name]
    made = report(4, pair=change)  # type: ignore[arg-type]
    assert (bad(made), made.exclude, made.status) == (lines, exclude, 71 if lines else 0)
    assert all(finding.remedy.startswith(("user: ", "admin: ")) for finding in made.findings)


@pytest.mark.parametrize("count", [2, 4])
def test_a_network_on_which_nothing_passes_is_told_as_such(count: int) -> None:
    """No datagram counts there, of which a part could be lost."""
    made = report(count, pair=between(network=SLOW, **CUT))
    assert made.status == 71
    assert len(bad(made)) == 1
    assert SLOW in bad(made)[0]


def test_what_is_not_known_is_nobodys_fault() -> None:
    """It is a note with the reason, and part of the verdict."""
    pair = Pair("node1", "node2", FAST, 10, 10, 0, 0, None, None, "no answer", "no answer")
    for change, note in (
        (
            only("node2", late_s=4.2),
            "node2: too busy to measure, nothing ran for 4.2 s (--timeout); 1 pair is not known",
        ),
        (
            only("node2", dropped=9),
            "node2: too busy to measure, not all packets were read in time; 1 pair is not known",
        ),
        (only("node2", had_no_room=True), f"{ROOM}; 1 pair is not known"),
    ):
        its = report(4, change)
        its = judge(its._replace(findings=(), unknown=(pair,)))
        assert (bad(its), its.status) == ([], 0)
        assert note in [found.text for found in notes(its)]
        assert verdict_text(its).endswith(": all is well, except for what is not known")


def test_what_was_not_sent_back_is_not_lost() -> None:
    """What came back is compared with what was sent that way."""
    its = report(4, pair=lambda pair: pair._replace(sent_back=5, back=5))
    assert (bad(its), its.status) == ([], 0)


def test_a_network_without_multicast_is_no_fault() -> None:
    """Clouds have none."""
    made = report(4, lambda its: its._replace(multicast=tuple(heard._replace(hosts=()) for heard in its.multicast)))
    assert bad(made) == []
    assert next(note.text for note in notes(made) if "multicast" in note.text).startswith(f"{FAST}: no multicast")


def test_a_host_that_is_not_heard_is_named() -> None:
    """Though nobody heard it, so that only what the others hear tells."""
    mute = {"node2"}

    def change(its: Host) -> Host:
        left = tuple(one._replace(hosts=tuple(name for name in one.hosts if name not in mute)) for one in its.multicast)
        return its._replace(multicast=left)

    assert bad(report(4, change)) == [f"node2: others do not receive its multicast on {its}" for its in BOTH]


def test_a_host_far_off_is_a_note() -> None:
    """Its share of a switch may be another; that alone is no reason to leave it out."""
    made = report(4, pair=between("node2", rtt_us=9000))  # type: ignore[arg-type]
    assert (bad(made), made.exclude) == ([], ())
    assert f"node2: round trips of 9.0 ms on {FAST}, 0.1 ms is usual" in [note.text for note in notes(made)]


def test_without_a_majority_nobody_is_blamed() -> None:
    """Two kinds of node are told, and nobody is left out."""
    other = fingerprint(kernel="6.1.1")
    made = report(4, lambda its: its._replace(fingerprint=other) if its.name in ("node1", "node2") else its)
    assert (bad(made), made.exclude) == (["no majority for kernel: node[3-4] 6.1.0; node[1-2] 6.1.1"], ())


def test_half_of_the_hosts_are_no_majority() -> None:
    """Three of four are one; what all have is no difference."""
    values = {"node1": "1500", "node2": "1500", "node3": "9000", "node4": "9000"}
    (found,) = different_nodes("MTU", values)
    assert (found.text, found.exclude) == ("no majority for MTU: node[1-2] 1500; node[3-4] 9000", ())
    (found,) = different_nodes("MTU", values | {"node3": "1500"})
    assert (found.text, found.exclude) == ("node4: MTU 9000, 3 others 1500", ("node4",))
    assert [*different_nodes("MTU", dict.fromkeys(values, "1500"))] == []


def test_slow_hosts_are_told_from_their_neighbours() -> None:
    """Whoever sends to a slow host is as slow, and not to blame."""
    ring = [("node1", "node2"), ("node2", "node3"), ("node3", "node4"), ("node4", "node1")]
    both = [*ring, *((b, a) for a, b in ring)]
    flows = tuple(Flow(a, b, FAST, 1000 if "node2" in (a, b) else 9000) for a, b in both)
    made = report(4)
    made = judge(made._replace(findings=(), flows=flows))
    line = "node2: sends 1.0 Gbit/s and receives 1.0 Gbit/s, 5.0 Gbit/s is usual"
    assert (bad(made), made.exclude) == ([line], ("node2",))
    assert "9.0 Gbit/s" in table_lines(made)[1]


def with_fast(its: Host, **fields: object) -> Host:
    """Return a host that has the fast network alone, with changes."""
    fast = its.addresses[0]._replace(**fields)  # type: ignore[arg-type]
    return its._replace(addresses=(fast,), own_name=(fast.address,), names=())


def test_hosts_of_a_network_each_are_on_none_together() -> None:
    """Behind routers they may still reach each other, and that is what counts."""
    made = report(2, lambda its: with_fast(its, prefix=32))
    assert ([network.name for network in made.networks], bad(made)) == (["routed"], [])


def test_ipv6_alone_will_do() -> None:
    """And beside IPv4 on the same wires it is not probed once more."""
    made = report(2, lambda its: with_fast(its, address=f"fd78::{its.name[-1]}", prefix=64))
    assert ([network.name for network in made.networks], bad(made)) == (["fd78::/64"], [])

    def also(its: Host) -> Host:
        six = its.addresses[0]._replace(address=f"fd78::{its.name[-1]}", prefix=64)
        return its._replace(addresses=(*its.addresses, six))

    assert [network.name for network in report(2, also).networks] == [FAST, SLOW]


def test_a_name_may_lead_to_a_network_that_is_not_asked_for() -> None:
    """With --iface a host tells of the others only which addresses it has there."""
    made = report(
        4, lambda its: its._replace(addresses=its.addresses[:1], every=tuple(a.address for a in its.addresses))
    )
    assert bad(made) == []


def test_a_bridge_with_one_address_on_all_is_for_guests() -> None:
    """By whatever name; two hosts with one address on a network of others are a mistake."""
    bridge = Address("br0", "ethernet", "172.30.0.1", 16, 1500, None, 20_001)
    made = report(4, lambda its: its._replace(addresses=(*its.addresses, bridge)))
    assert bad(made) == []
    assert any("172.30.0.1" in note.text for note in notes(made))
    assert all(network.name in (FAST, SLOW) for network in made.networks)


def ways(*pairs: str) -> set[tuple[str, str]]:
    return {(pair[0], pair[1]) for pair in pairs}


def test_blame_takes_the_fewest_causes() -> None:
    """A host and a pair beside it; a pair alone; what two hosts have with everybody."""
    tested = [(a, b) for a in "abcdef" for b in "abcdef" if a != b]
    into_a = {(b, "a") for b in "bcdef"}
    found = find_causes(into_a | ways("cd", "dc"), tested)
    assert [(its.direction, its.hosts) for its in found] == [("in", ("a",)), ("pair", ("c", "d"))]
    assert [(its.direction, its.hosts) for its in find_causes(ways("ef"), tested)] == [("way", ("e", "f"))]
    two = {way for way in tested if "a" in way or "f" in way}
    assert [(its.direction, its.hosts) for its in find_causes(two, tested)] == [("both", ("a",)), ("both", ("f",))]
    assert [its.direction for its in find_causes(tested, tested)] == ["all"]
    assert find_causes((), tested) == ()
    three = [(a, b) for a in "abc" for b in "abc" if a != b]
    assert [(its.direction, its.hosts) for its in find_causes(ways("bc", "cb"), three)] == [("pair", ("b", "c"))]


LATE = "no sign of it within 60.0 s"


def test_who_is_late_alone_is_left_out_and_where_many_are_starting_is_slow() -> None:
    """A busy directory service makes every login slow."""
    made = report(8, lambda its: its._replace(missing=LATE, is_late=True) if its.name in ("node2", "node3") else its)
    assert (bad(made), made.exclude) == ([f"node2: {LATE}", f"node3: {LATE}"], ("node2", "node3"))
    made = report(8, lambda its: its._replace(missing=LATE, is_late=True) if its.name > "node5" else its)
    assert (bad(made), made.exclude) == ([f"starting is slow: 3 of 8 hosts are late, node[6-8]: {LATE}"], ())
    assert made.status == 69


@pytest.mark.parametrize(("count", "most"), [(1, 1), (4, 1), (8, 2), (16, 4)])
def test_no_more_than_a_quarter_is_left_out(count: int, most: int) -> None:
    """Where more are blamed it is the network, or the check: nobody is left out, unless the user insists."""

    def faulty(number: int) -> Report:
        names = {f"node{its}" for its in range(1, number + 1)}
        return report(count, lambda its: its._replace(faults=("GPU 0: Xid 79",)) if its.name in names else its)

    made = faulty(most)
    assert (len(made.exclude), made.status) == (most, 76)
    if count > 1:
        made = faulty(most + 1)
        assert (len(bad(made)), made.exclude, made.status) == (most + 1, (), 71)
        assert f"{most + 1} of {count} hosts seem to be at fault" in table_lines(made)[-2]
        made = made._replace(is_forced=True)
        assert (len(made.exclude), made.status) == (most + 1, 76)


def losing(share: float, seed: int) -> Callable[[Pair], Pair]:
    """Return what loses this share of all datagrams at random, as a congested network does."""
    chance = random.Random(seed)  # noqa: S311 - the same for each run

    def change(pair: Pair) -> Pair:
        there, back = (sum(chance.random() >= share for _ in range(10)) for _ in range(2))
        return pair._replace(there=there, back=back)

    return change


@pytest.mark.parametrize("share", [0.01, 0.05, 0.1, 0.2])
@pytest.mark.parametrize("count", [3, 4, 16])
def test_a_loss_that_all_share_blames_nobody(share: float, count: int) -> None:
    """However it falls."""
    for seed in range(60 // count):
        made = report(count, pair=losing(share, seed))
        assert (made.suspects, {its.hosts for its in made.findings if not its.is_note} - {()}) == ((), set())
    if share >= 0.05 and count == 16:
        assert [its.text for its in made.findings if "of all datagrams are lost" in its.text and not its.is_note]


def test_who_loses_more_than_a_lossy_network_is_named() -> None:
    """A third, where all lose one of a hundred."""
    noise = losing(0.01, 1)

    def change(pair: Pair) -> Pair:
        pair = noise(pair)
        if pair.other == "node2":
            pair = pair._replace(there=pair.there - 3)
        return pair._replace(back=pair.back - 3) if pair.one == "node2" else pair

    assert report(16, pair=change).exclude == ("node2",)


def test_bandwidth_that_many_lack_is_the_networks() -> None:
    """A switch's, most likely."""
    names = [f"node{number}" for number in range(1, 17)]
    ways = [(one, other) for one in names for other in names if one != other]

    def slow(*senders: str) -> Report:
        flows = tuple(Flow(one, other, FAST, 900 if one in senders else 9000) for one, other in ways)
        return judge(report(16)._replace(findings=(), flows=flows))

    made = slow(*names[:4])
    assert (len(bad(made)), made.exclude) == (4, tuple(names[:4]))
    made = slow(*names[:5])
    assert bad(made) == ["node[1-5]: slow together, less than a third of 9.0 Gbit/s, which is usual"]
    assert made.exclude == ()
