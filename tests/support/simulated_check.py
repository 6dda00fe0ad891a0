"""A check of many hosts in one process, on loopback: `python -m support.simulated_check 256` tells how long it takes.

All of it is real but the hosts: each probe has sockets and a port of its own, and reports over TCP.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Mapping

from mingle_hooks.check.probes import Probe
from mingle_hooks.check.report import PROBE, Address, Report
from mingle_hooks.check.session import CheckRequest as Asked
from mingle_hooks.check.session import Session
from mingle_hooks.rendezvous.connection import Loop
from mingle_hooks.rendezvous.wire import Body
from mingle_hooks.run import starters
from mingle_hooks.run.agent import Task
from mingle_hooks.run.messages import KEY

_FILES_OF_A_HOST = 24


class Simulated(Session):
    """A session whose probes are in the same loop: its turns are as long as one processor takes for all of them."""

    turn_s, turns_s = 1.0, 4.0
    clock: Clock

    def start(self) -> None:
        """Begin a probe for each host."""
        where = (("127.0.0.1", self._launching.sockets.port),)
        self.probes = []
        for name in self._names:
            task = Task(bytes.fromhex(self._launching.environ[KEY]), where, name, 0)
            its = Address("lo", "ethernet", name, 16, 9000, None, 0)
            self.probes.append(
                Probe(self._loop, task, {"MINGLE_IFACE": "lo"}, lambda _prefer, its=its: ((its,), (), ""))
            )


class Clock:
    """This machine's, and some seconds that it has not seen."""

    ahead_s = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead_s


class Stopping(Simulated):
    """One whose hosts all stand still for some seconds in the midst of their turns, as where nothing runs."""

    turn_s, turns_s = 0.04, 1.0
    stop_s = 30.0

    def gather(
        self, orders: Mapping[int, Body], limit_s: float
    ) -> tuple[dict[int, Body], dict[int, tuple[float, float]]]:
        """Stand still a moment after the hosts have been told whom to probe."""
        if any(order["do"] == PROBE for order in orders.values()):
            self._loop.after(self.turn_s * 1.5, self._stop)
        return super().gather(orders, limit_s)

    def _stop(self) -> None:
        self.clock.ahead_s += self.stop_s


def check(count: int, timeout_s: float, kind: type[Simulated] = Simulated) -> Report:
    """Return the report of so many hosts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, count * _FILES_OF_A_HOST), hard), hard))
    hosts = tuple(f"127.1.{number // 250}.{number % 250 + 1}" for number in range(count))
    job = starters.Allocation("local", hosts, (1,) * count)
    clock = Clock()
    with Loop(clock) as loop:
        session = kind(loop, Asked(starters.TABLE[0], job, timeout_s))
        session.clock = clock
        try:
            session.start()
            return session.report()
        finally:
            session.close()
            for probe in session.probes:
                probe.leave()
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


if __name__ == "__main__":
    cpu = time.process_time()
    found = check(int(sys.argv[1]), 60.0)
    sys.stdout.write(
        f"{len(found.hosts)} hosts, {len(found.pairs)} pairs: {found.took_s} s,"
        f" {time.process_time() - cpu:.1f} s of one processor; {[its.text for its in found.findings][:5]}\n"
    )
