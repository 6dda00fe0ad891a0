"""The findings that each rule makes of a report: none of healthy hosts, and one line for one fault."""

import random
from collections.abc import Callable, Iterable
from itertools import permutations
from typing import Any, NamedTuple

import pytest
from support.check_reports import FAST, SHM, SLOW, TMP, bad, between, fingerprint, notes, only, report

from mingle_hooks.check import report as reports
from mingle_hooks.check.causes import _chance, find_causes, find_lossy
from mingle_hooks.check.facts import CORES, MEMORY, SYMBOL_ERRORS, WRITE_MS
from mingle_hooks.check.report import Address, Amount, Flow, Heard, Host, Name, Pair, Report, Space, table_lines
from mingle_hooks.check.rules import judge, slow_flows, slow_hosts
from mingle_hooks.check.session import probe_rounds, transfer_rounds

BOTH = (FAST, SLOW)
CUT = {"there": 0, "back": 0, "rtt_us": None, "mtu": None, "open_there": "timed out", "open_back": "timed out"}


@pytest.mark.parametrize("count", [1, 2, 4, 16])
def test_nothing_is_found_on_healthy_hosts(count: int) -> None:
    """The bridge that docker makes on each is a note."""
    made = report(count)
    assert (bad(made), made.status, made.exclude) == ([], 0, ())
    assert all("172.17.0.1" in note.text for note in notes(made))


def lossy(host: str, *, goes: bool = False) -> Callable[[Pair], Pair]:
    """Return what loses a third of what is sent to a host, and from it if that `goes`."""
    return lambda pair: pair._replace(
        there=7 if host == pair.other or (goes and host == pair.one) else pair.there,
        back=7 if host == pair.one or (goes and host == pair.other) else pair.back,
    )


def address(number: int, **fields: Any) -> tuple[Address, ...]:
    """Return a host's addresses, with changes of the slow network's."""
    fast = Address("ib0", "infiniband", f"10.78.0.{number}", 24, 4092, 400_000, 20_001)
    slow = Address("eth0", "ethernet", f"10.77.0.{number}", 24, 1500, 10_000, 20_001)
    return (fast, slow._replace(**fields))


def names(host: Host, **changed: tuple[str, ...] | None) -> tuple[Name, ...]:
    return tuple(name._replace(addresses=changed.get(name.name, name.addresses)) for name in host.names)


def to(host: str, **fields: Any) -> Callable[[Pair], Pair]:
    """Return what changes the pairs with this second host on the slow network."""
    return lambda pair: pair._replace(**fields) if (pair.other, pair.network) == (host, SLOW) else pair


def every(**fields: Any) -> Callable[[Host], Host]:
    """Return what changes all hosts."""
    return lambda host: host._replace(**fields)


def last_two(**fields: Any) -> Callable[[Host], Host]:
    """Return what changes the third and the fourth host; `end` is a field of their slow address."""
    end = fields.pop("end", None)

    def change(host: Host) -> Host:
        if host.name <= "node2":
            return host
        return host._replace(**fields, **({"addresses": address(int(host.name[-1]), **end)} if end else {}))

    return change


def heard(host: Host, *mute: str) -> tuple[Heard, ...]:
    """Return what a host receives by multicast if some hosts are not heard."""
    return tuple(one._replace(hosts=tuple(name for name in one.hosts if name not in mute)) for one in host.multicast)


def having(what: str, usual: int, odd: int) -> Callable[[Host], Host]:
    """Return what gives all hosts an amount, and the last one another."""
    return lambda host: host._replace(amounts=(Amount(what, odd if host.name == "node4" else usual),))


class Case(NamedTuple):
    """A fault of hosts, or of pairs, among four hosts; what is found, and the beginning of a note."""

    bad: list[str]
    exclude: tuple[str, ...] = ()
    host: Callable[[Host], Host] = lambda host: host
    status: int | None = None  # 0 without findings, else 71
    pair: Callable[[Pair], Pair] = lambda pair: pair
    note: str = ""


LOOPED = "its own name is 127.0.1.1: other nodes cannot reach servers that listen on it (/etc/hosts)"
FULL = "the kernel's neighbour table is full; up to 2 hosts are out of reach (net.ipv4.neigh.default.gc_thresh3)"
SMALL = "no packet larger than 1500 bytes passes"
BRIDGE = Address("br0", "ethernet", "172.30.0.1", 16, 1500, None, 20_001)
RANGE = "a firewall, or another --port-range"
ONLY_64 = f"{SHM} has only 64 MiB, which NCCL and data loaders fill"
ONE_NAME = "2 machines with one host name"
THEIRS = "of those that NCCL and Gloo use"
CASES = {
    "busy hosts' clocks": Case([], host=lambda host: host._replace(clock=(-4.0, 0.0)) if host.name > "node1" else host),
    "shm": Case(["node2: /dev/shm is full: 3 of 99999 MiB are free"], ("node2",),
                only("node2", spaces=(Space(SHM, 3, 99_999),)), 76),
    "a small one, and empty": Case([f"node2: {ONLY_64}"], ("node2",), only("node2", spaces=(Space(SHM, 60, 64),)), 76),
    "a smaller one": Case(["node2: 600 MiB in /dev/shm, 100000 is usual"], ("node2",),
                          only("node2", spaces=(Space(SHM, 600, 600),)), 76),
    "small ones": Case([f"node[1-4]: {ONLY_64}"], host=every(spaces=(Space(SHM, 60, 64),))),
    "shared and full": Case(["node[1-4]: /home is full: 0 of 99 MiB are free"],
                            host=every(spaces=(Space("/home", 0, 99),))),
    "gpus": Case(["node2: GPUs 7 H100, 3 others 8 H100"], ("node2",),
                 only("node2", fingerprint=fingerprint(gpus="7 H100")), 76),
    "two kernels": Case(["no majority for kernel: node[1-2] 6.1.0; node[3-4] 6.1.1"],
                        host=last_two(fingerprint=fingerprint(kernel="6.1.1"))),
    "mtu": Case([f"node4: MTU on {SLOW} 9000, 3 others 1500"], ("node4",),
                only("node4", addresses=address(4, mtu=9000))),
    # Two kinds of node, with their own cards, have one MTU all the same.
    "kinds": Case([f"no majority for MTU on {SLOW}: node[1-2] 1500; node[3-4] 9000"],
                  host=last_two(end={"speed_mbps": 25_000, "mtu": 9000}, fingerprint=fingerprint(gpus="8 A100"))),
    "clash": Case(["node[3-4]: the same address, 10.77.0.3",
                   "node[1-3]: node4 is 10.77.0.4 there, an address that it does not have"], ("node4",),
                  only("node4", addresses=address(4, address="10.77.0.3"))),
    "a clash, and what follows": Case(["node[3-4]: the same MAC, 02:00"], ("node4",), last_two(end={"mac": "02:00"}),
                                      pair=between("node3", there=0)),
    "a bridge on all": Case([], host=lambda host: host._replace(addresses=(*host.addresses, BRIDGE)),
                            note="node[1-4]: 172.30.0.1 is on each node"),
    "loopback": Case([f"node4: {LOOPED}"], ("node4",), only("node4", own_name=("127.0.1.1",)), 76),
    "no names": Case(["the hosts' names are not known to each other"], host=lambda host: host._replace(
        names=names(host, **dict.fromkeys(("node1", "node2", "node3", "node4"), ())))),
    "a name server that hangs": Case(["node1: others' names get no answer in time from the name service of it"],
                                     ("node1",), status=76, host=lambda host: host._replace(names=tuple(
                                         name._replace(addresses=None) for name in host.names))
                                     if host.name == "node1" else host),
    "elsewhere": Case(["node[1,3-4]: node2 is 10.99.0.2 there, an address that it does not have"],
                      host=lambda host: host._replace(names=names(host, node2=("10.99.0.2",)))),
    "of a host whose addresses are not known": Case(
        [*(f"node4: no address on {network}, where 3 others are" for network in BOTH),
         "no network that all hosts share"], ("node4",), only("node4", addresses=())),
    # With --iface a host lists, of the others' addresses, only those there.
    "names on another network": Case([], host=lambda host: host._replace(
        addresses=host.addresses[:1], every=tuple(end.address for end in host.addresses))),
    "mute": Case([f"node2: others do not receive its multicast on {network}" for network in BOTH],
                 host=lambda host: host._replace(multicast=heard(host, "node2"))),
    "no multicast": Case([], host=lambda host: host._replace(multicast=heard(host, *(n.name for n in host.names))),
                         note=f"{FAST}: no multicast"),
    "no room for neighbours": Case([f"node2: {FULL}"], ("node2",), only("node2", had_no_room=True, refused=2), 76),
    "busy, and its name service": Case([], host=only("node2", late_s=3.0, own_name=None, names=(Name("node1", None),))),
    "busy, and its name": Case(["node2: its own name is not known there"], ("node2",),
                               only("node2", late_s=3.0, own_name=()), 76),
    "busy, and multicast": Case([], host=only("node2", late_s=3.0, multicast=(Heard("eth0", ()),))),
    "no room for multicast": Case([], host=only("node2", had_no_room=True, multicast=(Heard("eth0", ()),))),
    "a cut wire": Case([f"node2 and node3: do not reach each other on {SLOW}"], ("node3",),
                       pair=between("node2", "node3", network=SLOW, **CUT)),
    "a network that is cut": Case([f"{SLOW}: hosts do not reach each other"], pair=between(network=SLOW, **CUT)),
    "loss one way": Case([f"node3: 30 % of the packets to it on {network} are lost" for network in BOTH], ("node3",),
                         pair=lossy("node3")),
    "loss both ways": Case([f"node2: 30 % of the packets from and to it on {network} are lost" for network in BOTH],
                           ("node2",), pair=lossy("node2", goes=True)),
    "one lost": Case([], pair=between(there=9)),
    "not sent back": Case([], pair=between(sent_back=5, back=5)),
    "a lossy network": Case([f"{SLOW}: 40 % of all datagrams are lost"], pair=between(network=SLOW, there=6, back=6)),
    "a firewall": Case([f"node4: others do not reach its port on {SLOW} (timed out); {RANGE}"], ("node4",),
                       pair=to("node4", open_there="timed out")),
    "datagrams are not let through": Case([], pair=between(there=0, back=0, rtt_us=None, mtu=None)),
    "a small way": Case([f"node1 and node2: {SMALL} between them on {FAST}, though their MTU is larger"], ("node2",),
                        pair=between("node1", "node2", network=FAST, mtu=1500)),
    "far off": Case([f"node2: round trips of 9.0 ms on {network}, 0.1 ms is usual" for network in BOTH], ("node2",),
                    pair=between("node2", rtt_us=9000)),
    "far off where all are slow": Case([], pair=lambda pair: between("node2", rtt_us=900_000)(
        pair._replace(rtt_us=40_000))),
    "in another rack": Case([], pair=between("node2", rtt_us=1900)),
    "still for two turns of three": Case([], pair=lambda pair: pair._replace(
        rtt_us=9000 if "node2" in (pair.one, pair.other) and "node4" not in (pair.one, pair.other) else 100)),
    "a lost connection": Case([], note=f"node1: does not reach the port of node2 on {SLOW} (no answer)",
                              pair=to("node2", there=9, open_there="no answer")),
    "of which UDP": Case([], note=f"{SLOW}: ports cannot be reached ({reports.NO_ECHO}, {THEIRS})",
                         pair=between(network=SLOW, free_there=reports.NO_ECHO, free_back=reports.NO_ECHO)),
    "a closed port, and those": Case([], pair=between(there=0, back=0, rtt_us=None, mtu=None, free_there="no answer")),
    "one name": Case([f"node[2,4]: {ONE_NAME}, node2"], ("node4",), only("node4", hostname="node2"), 76),
    "another's name": Case([f"node[2,4]: {ONE_NAME}, gpu7"], ("node4",), host=lambda host: host._replace(
        hostname="gpu7") if host.name in ("node2", "node4") else host, status=76),
    "a MAC on all": Case([], host=lambda host: host._replace(addresses=address(int(host.name[-1]), mac="02:00"))),
    "its name is another's": Case(["node4: its own name is 10.77.0.3, an address that it does not have (/etc/hosts)"],
                                  ("node4",), only("node4", own_name=("10.77.0.3",), every=("10.77.0.4",)), 76),
    "memory": Case(["node4: 900 MiB of memory, 1000 is usual"], ("node4",), having(MEMORY, 1000, 900), 76),
    "memory that its kernel keeps": Case([], host=having(MEMORY, 1000, 960)),
    "cores": Case(["node4: 127 cores, 128 is usual"], ("node4",), having(CORES, 128, 127), 76),
    "more of them": Case([], host=having(CORES, 128, 256)),
    "others with other cores": Case([], host=lambda host: host._replace(
        amounts=(Amount(CORES, 64 if host.name > "node2" else 128),))),
    "few errors": Case([], host=having(SYMBOL_ERRORS, 0, 999)),
    "a slow disk": Case([], host=having(WRITE_MS, 3, 1000),
                        note="node4: 1000 ms to write 1 MiB of scratch, 3 is usual"),
    "nearly full": Case([], host=only("node2", spaces=(Space(TMP, 64, 50_000),))),
    "half of a small one": Case(["node2: /tmp is full: 30 of 60 MiB are free"], ("node2",), status=76, host=lambda host:
                                host._replace(spaces=(Space(TMP, 30 + (host.name != "node2"), 60),))),
    "of a size not known": Case(["node2: /tmp does not answer"], ("node2",),
                                only("node2", spaces=(Space(TMP, 9, None),)), 76),
    "a small one for a GPU": Case([], host=every(spaces=(Space(SHM, 60, 64),), gpus=1)),
    "a clock that is slow": Case(["node2: its clock is 3.0 s behind"], ("node2",),
                                 only("node2", clock=(-5.0, -1.1)), 76),
    "errors from a thousand on": Case(["node4: 1000 symbol errors, 0 is usual"], ("node4",),
                                      having(SYMBOL_ERRORS, 0, 1000), 76),
    "a disk that is slow, too": Case([], host=having(WRITE_MS, 100, 999)),
    "half of them without room": Case([f"node[3-4]: {FULL}"], host=last_two(had_no_room=True, refused=2)),
    "half of them on loopback": Case([f"node[3-4]: {LOOPED}"], host=last_two(own_name=("127.0.1.1",))),
    "elsewhere for half of the others": Case(
        ["node1: node2 is 10.99.0.2 there, an address that it does not have"], ("node1",), status=76, host=lambda host:
        host._replace(names=names(host, node2=("10.99.0.2",))) if host.name == "node1" else host),
    "lost, and small": Case([], pair=between("node1", "node2", network=FAST, mtu=1500, there=8)),
    "lost one way, and closed": Case([f"node1: 100 % of the packets from it to node2 on {FAST} are lost"], ("node2",),
                                     pair=between("node1", "node2", network=FAST, there=0, open_there="timed out")),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_one_fault_is_one_line(name: str) -> None:
    """Each network has its own line; a host is named for its own faults, else a pair, or none."""
    case = CASES[name]
    made = report(4, case.host, pair=case.pair)
    status = case.status if case.status is not None else 71 if case.bad else 0
    assert (bad(made), made.exclude, made.status) == (case.bad, case.exclude, status)
    assert any(note.text.startswith(case.note) for note in notes(made))
    assert all(finding.remedy.startswith(("user: ", "admin: ")) for finding in made.findings)


def test_no_majority_names_only_hosts_whose_value_is_known() -> None:
    """The speed of a virtual interface, say, is not."""
    speeds = {"node1": 1000, "node2": 10_000}
    made = report(4, lambda its: its._replace(addresses=address(int(its.name[-1]), speed_mbps=speeds.get(its.name))))
    assert [found.hosts for found in made.findings if "Mbit/s" in found.text] == [("node1", "node2")]


@pytest.mark.parametrize(("count", "confidence"), [(3, "likely"), (4, "certain")])
def test_how_sure_a_finding_is_follows_from_how_many_saw_it(count: int, confidence: str) -> None:
    """A host's own faults are certain; of two hosts that do not reach each other, either may be at fault."""
    assert [its.confidence for its in report(count, pair=between("node3", network=FAST, **CUT)).findings[:1]] == [
        confidence
    ]
    assert report(count, pair=between("node1", "node3", network=FAST, **CUT)).findings[0].confidence == "possible"
    assert report(count, only("node3", faults=("GPU 0 is lost",))).findings[0].confidence == "certain"
    late, ended = (report(count, only("node3", missing="off", is_late=is_late)) for is_late in (True, False))
    assert [its.findings[0].confidence for its in (late, ended)] == ["likely", "certain"]


def test_of_two_hosts_neither_is_named_for_a_network_that_is_cut() -> None:
    """Its lost datagrams make no finding of their own."""
    made = report(2, pair=between(network=SLOW, **CUT))
    assert (len(bad(made)), made.status, SLOW in bad(made)[0]) == (1, 71, True)


def test_what_is_not_known_is_a_note() -> None:
    """The note has the reason, and the verdict mentions it."""
    busy, full = "node2: too busy to measure", "table was full at times (net.ipv4.neigh.default.gc_thresh3)"
    for fields, reason in (
        ({"late_s": 4.2}, f"{busy}, nothing ran for 4.2 s (--timeout)"),
        ({"dropped": 9}, f"{busy}, not all packets were read in time"),
        ({"had_no_room": True}, f"a kernel's neighbour {full}"),
    ):
        pair = Pair("node1", "node2", FAST, 10, 10, 0, 0, None, None, "no answer", "no answer")
        made = judge(report(4, only("node2", **fields))._replace(findings=(), unknown=(pair,)))
        assert (bad(made), made.status) == ([], 0)
        assert f"{reason}; 1 pair is not known" in [found.text for found in notes(made)]
        assert reports.verdict_text(made).endswith(": all is well, except for what is not known")


def with_flows(count: int, *ways: tuple[str, str], slow: Callable[[str, str], bool]) -> Report:
    """Return a report with a transfer on each of these ways, a ninth as fast where it is slow."""
    flows = tuple(Flow(one, other, FAST, 1000 if slow(one, other) else 9000) for one, other in ways)
    return judge(report(count)._replace(findings=(), flows=flows))


def test_slow_hosts_are_distinguished_from_their_neighbours() -> None:
    """Hosts that send to a slow host are not to blame; if many are slow, the network or a switch is."""
    ring = [("node1", "node2"), ("node2", "node3"), ("node3", "node4"), ("node4", "node1")]
    made = with_flows(4, *ring, *((b, a) for a, b in ring), slow=lambda *ends: "node2" in ends)
    line = "node2: sends 1.0 Gbit/s and receives 1.0 Gbit/s, 5.0 Gbit/s is usual"
    assert (bad(made), made.exclude) == ([line], ("node2",))
    assert "9.0 Gbit/s" in table_lines(made)[1]
    names = [f"node{number}" for number in range(1, 17)]
    made = with_flows(16, *permutations(names, 2), slow=lambda one, _: one in names[:4])
    assert (len(bad(made)), made.exclude) == (4, tuple(names[:4]))
    made = with_flows(16, *permutations(names, 2), slow=lambda one, _: one in names[:5])
    assert bad(made) == ["node[1-5]: slow together, less than a third of 9.0 Gbit/s, which is usual"]
    assert made.exclude == ()


def with_fast(its: Host, **fields: object) -> Host:
    """Return a host that has the fast network alone, with changes."""
    fast = its.addresses[0]._replace(**fields)  # type: ignore[arg-type]
    return its._replace(addresses=(fast,), own_name=(fast.address,), names=())


def test_hosts_of_a_network_each_are_on_none_together() -> None:
    """They may reach each other through routers, and are probed by their best addresses."""
    made = report(2, lambda its: with_fast(its, prefix=32))
    assert ([network.name for network in made.networks], bad(made)) == (["routed"], [])


@pytest.mark.parametrize(("end", "prefix", "bad_hosts"), [(0, 24, ()), (1, 24, ()), (0, 30, ("node7", "node8"))])
def test_hosts_of_another_rack_are_not_absent(end: int, prefix: int, bad_hosts: tuple[str, ...]) -> None:
    """Each rack has a subnet, alone or beside a network of all; one with a wrong prefix is absent."""

    def racked(its: Host) -> Host:
        fast, slow = its.addresses
        if its.name > "node6":
            rack = fast._replace(address=fast.address.replace(".0.", f".{int(prefix == 24)}."), prefix=prefix)
            return its._replace(addresses=(rack, slow)[: end + 1], own_name=(rack.address,), names=())
        return its._replace(addresses=(fast, slow)[: end + 1], own_name=(fast.address,), names=())

    made = report(8, racked)
    what = f"node[7-8]: no address on {FAST}, where 6 others are"
    assert made.exclude == bad_hosts
    assert [its.text for its in made.findings if "no address" in its.text] == [
        what if bad_hosts else f"{what}, but on another network"
    ]


def test_ipv6_alone_will_do() -> None:
    """Beside IPv4 on the same wires it is not probed again."""
    made = report(2, lambda its: with_fast(its, address=f"fd78::{its.name[-1]}", prefix=64))
    assert ([network.name for network in made.networks], bad(made)) == (["fd78::/64"], [])

    def also(its: Host) -> Host:
        six = its.addresses[0]._replace(address=f"fd78::{its.name[-1]}", prefix=64)
        return its._replace(addresses=(*its.addresses, six))

    assert [network.name for network in report(2, also).networks] == [FAST, SLOW]


def ways(*pairs: str) -> set[tuple[str, str]]:
    return {(pair[0], pair[1]) for pair in pairs}


def causes(bad: Iterable[tuple[str, str]], hosts: str = "abcdef") -> list[tuple[str, str]]:
    """Return the direction and the hosts of each cause, where these ways between hosts are bad."""
    found = find_causes(bad, [*permutations(hosts, 2)])
    return [(cause.direction, "".join(cause.hosts)) for cause in found]


def test_the_fewest_causes_explain_all_bad_ways() -> None:
    """The causes are a host and a pair, one way of a pair, two hosts, or the network."""
    tested = [*permutations("abcdef", 2)]
    assert causes({*ways("ba", "ca", "da", "ea", "fa"), *ways("cd", "dc")}) == [("in", "a"), ("pair", "cd")]
    assert causes(ways("ef")) == [("way", "ef")]
    # What one host explains counts for no other.
    assert causes(ways("ba", "ca", "da", "ea", "fa", "bc", "bd")) == [("in", "a"), ("way", "bc"), ("way", "bd")]
    assert causes(ways("ab", "ac", "ad", "ae", "af", "cb", "db")) == [("out", "a"), ("way", "cb"), ("way", "db")]
    assert causes({way for way in tested if "a" in way or "f" in way}) == [("both", "a"), ("both", "f")]
    assert [direction for direction, _ in causes(tested)] == ["all"]
    assert causes(()) == []
    assert causes(ways("bc", "cb"), "abc") == [("pair", "bc")]


LATE = "no sign of it within 60.0 s"


def test_a_late_host_is_left_out_unless_many_are_late() -> None:
    """A busy directory service makes every login slow."""
    made = report(8, lambda its: its._replace(missing=LATE, is_late=True) if its.name in ("node2", "node3") else its)
    assert (bad(made), made.exclude) == ([f"node2: {LATE}", f"node3: {LATE}"], ("node2", "node3"))
    made = report(8, lambda its: its._replace(missing=LATE, is_late=True) if its.name > "node5" else its)
    assert (bad(made), made.exclude) == ([f"starting is slow: 3 of 8 hosts are late, node[6-8]: {LATE}"], ())
    assert made.status == 69


@pytest.mark.parametrize(("count", "most"), [(1, 1), (4, 1), (8, 2), (16, 4)])
def test_no_more_than_a_quarter_is_left_out(count: int, most: int) -> None:
    """If more seem to be at fault, it is the network or the check, and nobody is left out without --force."""

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


@pytest.mark.parametrize(
    ("count", "usual", "odd", "is_named"),
    [
        *((count, share, share, False) for count in (3, 4, 16) for share in (0.01, 0.05, 0.1, 0.2)),
        # Hardly anything; or half as much again, as on a busy network some lose more than others.
        *((64, 0.0, 0.01, False), (64, 0.1, 0.15, False)),
        # By chance one of its ways looks bad, and no single one proves anything.
        *((8, 0.0, 0.2, True), (16, 0.0, 0.05, True), (16, 0.0, 0.15, True), (64, 0.0, 0.1, True)),
        (16, 0.01, 0.3, True),
    ],
)
def test_a_host_is_named_if_it_loses_clearly_more_than_the_others(
    count: int, usual: float, odd: float, *, is_named: bool
) -> None:
    """No random distribution of what all lose names one; that is the network's loss."""
    for seed in range(32 // count + 1):
        seldom = losing(usual, seed + 1)
        often = seldom if odd == usual else losing(odd, seed + 1)
        made = report(count, pair=lambda its: (often if "node3" in (its.one, its.other) else seldom)(its))  # noqa: B023
        named = {its.hosts for its in made.findings if not its.is_note} - {()}
        assert (named, made.suspects) == (({("node3",)}, ("node3",)) if is_named else (set(), ()))
        if count == 16 and usual == odd >= 0.05:
            assert [text for text in bad(made) if "of all datagrams are lost" in text]


def test_a_lossy_pair_among_many_hosts_is_named_alone() -> None:
    made = report(32, pair=between("node3", "node4", network=FAST, there=5, back=5))
    assert [found.hosts for found in made.findings if not found.is_note] == [("node3", "node4")]


CHANCE = random.Random(1)  # noqa: S311 - the same for each run
BAD = {*CHANCE.sample(range(4096), 1024)}


def all_ways(count: int) -> list[tuple[str, str]]:
    pairs = [pair for turn in probe_rounds(count) for pair in turn]
    return [(f"{a}", f"{b}") for one, other in pairs for a, b in ((one, other), (other, one))]


def is_bad(*ends: str | int) -> bool:
    return not BAD.isdisjoint(map(int, ends))


@pytest.mark.parametrize(
    ("find", "count"),
    [
        (lambda: find_lossy({way: (10, CHANCE.randint(5, 9) if is_bad(*way) else 10) for way in all_ways(1024)}), 100),
        (lambda: find_causes([way for way in all_ways(4096) if is_bad(*way)], all_ways(4096)), 1024),
        (lambda: slow_hosts(Report(
            tuple(Host(f"{number}") for number in range(8192)),
            flows=tuple(Flow(f"{a}", f"{b}", FAST, 1 if is_bad(a, b) else 9)
                        for turn in transfer_rounds(8192) for a, b in turn),
        )), 1),
    ],
    ids=["lossy", "cut", "slow"],
)  # fmt: skip
def test_many_bad_hosts_of_many_are_found(find: Callable[[], Iterable[object]], count: int) -> None:
    """Where each is compared to each other, these take minutes."""
    assert len([*find()]) >= count


def test_how_likely_chance_loses_as_many() -> None:
    found = [_chance(*its) for its in ((10, 3, 100, 5), (3, 3, 6, 3), (3, 1, 6, 3), (2, 1, 4, 3))]
    assert found == [pytest.approx(chance) for chance in (0.0066379129, 0.05, 0.95, 1.0)]


def test_a_flow_of_less_than_a_third_is_slow() -> None:
    """A flow that brought nothing is slow too; both hosts are named, as either may be at fault."""
    flows = tuple(Flow(f"node{n}", f"node{n % 4 + 1}", FAST, mbits) for n, mbits in enumerate((900, 900, 300, None), 1))
    assert (slow_flows(flows), slow_flows(())) == (flows[3:], ())
    edges = [tuple(flow._replace(mbits=last if flow is flows[3] else 600) for flow in flows) for last in (200, 199)]
    assert [len(slow_flows(some)) for some in edges] == [0, 1]
    made = judge(report(4)._replace(findings=(), flows=flows))
    assert bad(made) == ["node4: sends 0 Mbit/s to node1, 600 Mbit/s is usual"]
    assert made.findings[0][:2] + made.findings[0][3:5] == ("network", ("node4", "node1"), (), False)
