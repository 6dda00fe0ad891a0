"""Many hosts in one process, on loopback: each probes some others, and all of it is over in time.

All of it is real but the hosts: each probe has sockets and a port of its own, and reports over TCP.
"""

import re
import resource
import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any
from unittest import mock

from mingle_hooks.check import facts, report
from mingle_hooks.check.probes import Probe
from mingle_hooks.check.report import PROBE, Address, Report, parse_report_host
from mingle_hooks.check.session import CheckRequest, Session
from mingle_hooks.rendezvous.connection import Loop
from mingle_hooks.rendezvous.wire import Body, decode, encode
from mingle_hooks.run import starters
from mingle_hooks.run.agent import Task
from mingle_hooks.run.messages import KEY
from mingle_hooks.settings import load

FILES_OF_A_HOST, LONGEST_US = 48, 120_000_000


class Clock:
    """This machine's clock, ahead by some seconds."""

    ahead_s = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead_s


def made_here(calls: Mapping[str, facts.Call], _limit_s: float) -> dict[str, Any]:
    """Make the calls: children would take longest of all."""
    return {name: function() for name, (function, _) in calls.items()}


class Simulated(Session):
    """A session whose probes share its loop: a turn takes as long as one processor needs for all of them."""

    turn_s, turns_s = 1.0, 4.0
    clock: Clock

    def start(self) -> None:
        """Start a probe for each host, the second one with a clock of its own."""
        where = (("127.0.0.1", self._launching.sockets.port),)
        self.probes = []
        env = {"MINGLE_IFACE": "lo", "MINGLE_PORT_RANGE": "20000-24999", "TMPDIR": facts.SHM}  # no disk
        for name in self._numbers:
            own = facts.OwnNetwork((Address("lo", "ethernet", name, 16, 9000, None, 0),))
            task = Task(bytes.fromhex(self._launching.environ[KEY]), where, name, 0)
            with (
                mock.patch.object(facts, "own_network", return_value=own),
                mock.patch.object(facts, "call_in_children", made_here),
            ):
                self.probes.append(Probe(self._loop, task, env))
        send = self.probes[1]._answer
        self.probes[1]._answer = lambda body: send(  # type: ignore[method-assign]
            {name: value + 500_000 if name == "time_ms" else value for name, value in body.items()}
        )


class Stopping(Simulated):
    """A session whose hosts all stand still for some seconds during their turns."""

    turn_s, turns_s = 0.04, 1.0
    stop_s = 30.0

    def gather(self, orders: Mapping[int, Body], limit_s: float) -> dict[int, Body]:
        """Stand still a moment after the hosts have been told whom to probe."""
        if any(order["do"] == PROBE for order in orders.values()):
            self._loop.after(self.turn_s * 1.5, self._stop)
        return super().gather(orders, limit_s)

    def _is_complete(self) -> bool:
        """Note that all have started, the last one an hour after the first."""
        is_complete = super()._is_complete()
        self.clock.ahead_s += 3600.0 * is_complete
        return is_complete

    def _stop(self) -> None:
        self.clock.ahead_s += self.stop_s


def check(count: int, kind: type[Simulated]) -> Report:
    """Return the report of so many hosts."""
    hosts = tuple(f"127.1.{number // 250}.{number % 250 + 1}" for number in range(count))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, count * FILES_OF_A_HOST), hard), hard))
        # The one process that plays all hosts answers late, and every long round trip would be measured again.
        stack.enter_context(mock.patch.object(report, "FAR_US", LONGEST_US))
        clock = Clock()
        loop = stack.enter_context(Loop(clock))
        job = starters.Allocation(hosts, (1,) * count)
        session = kind(loop, CheckRequest(starters.TABLE[0], job, load({}, {}), 120.0))
        session.clock = clock
        session.start()
        for probe in session.probes:
            stack.callback(probe.leave)
        stack.callback(session.close)
        found = session.report()
    between = [finding.text for finding in found.findings if finding.kind in ("missing", "network")]
    assert [text for text in between if "multicast" not in text] == []
    return found


def test_seventy_hosts_probe_eight_others_each() -> None:
    """The check finds nothing between them, and the one clock that is ahead; each host reports its limits."""
    found = check(70, Simulated)
    assert (len(found.here), len(found.pairs), found.others) == (70, 280, 8)
    assert {
        (pair.sent, pair.there, pair.sent_back, pair.back, pair.mtu, pair.free_there, pair.free_back)
        for pair in found.pairs
    } == {(10, 10, 10, 10, 9000, its, its) for its in ("", None)}
    # All share one processor: how long their answers take is the error.
    clocks = [finding.text for finding in found.findings if "its clock" in finding.text]
    assert [re.sub(r"[45]\d\d\.\d", "500.0", text) for text in clocks] == ["127.1.0.2: its clock is 500.0 s ahead"]
    assert all("limits.memlock=" in host.fingerprint for host in found.hosts)


def test_nothing_is_lost_where_hosts_stand_still() -> None:
    """They stand still for longer than an answer is waited for, and go on with their turns then."""
    found = check(4, Stopping)
    assert (len(found.here), found.unknown) == (4, ())
    assert {
        (pair.sent, pair.there, pair.sent_back, pair.back, pair.open_there, pair.open_back) for pair in found.pairs
    } == {(20, 20, 20, 20, "", "")}


def test_a_host_with_many_faults_of_its_networks_reports_some() -> None:
    """Its facts have room for 32; one is that its job's environment has a MINGLE_IFACE that is mistyped."""
    env = {"MINGLE_IFACE": "10.0.0.0/99", "MINGLE_PORT_RANGE": "20000-24999", "TMPDIR": facts.SHM}
    ends = tuple(Address("eth0", "ethernet", f"198.51.100.{number}", 24, 1500, None, 0) for number in range(1, 33))
    mistyped = facts.own_network("10.0.0.0/99")
    with mock.patch.object(facts, "own_network", return_value=mistyped._replace(addresses=ends)), Loop() as loop:
        probe = Probe(loop, Task(bytes(32), (("127.0.0.1", 1),), "a", 0), env)
        probe.leave()
    host = parse_report_host("a", decode(encode(probe._facts)))
    assert (len(host.faults), host.every, {end.port for end in host.addresses}) == (32, mistyped.every, {0})
    assert {"expected " in fault and "10.0.0.0/99" in fault for fault in host.faults} == {True, False}
