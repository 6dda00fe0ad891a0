"""One check from the start of its probes to the report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mingle_hooks.check import assembling, networks, rounds
from mingle_hooks.check.clocks import wall_s
from mingle_hooks.check.desk import Desk
from mingle_hooks.check.report import Flow, Host, Report
from mingle_hooks.check.rules.flows import suspects
from mingle_hooks.check.verdict import judged
from mingle_hooks.check.words import COUNT, IFACE, ORDER, PORTS, PROBE, SEND, host
from mingle_hooks.errors import printable
from mingle_hooks.rendezvous.loop import Loop
from mingle_hooks.rendezvous.protocol.wire import WireError, integer
from mingle_hooks.supervise.runner.launching import Launching

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mingle_hooks.check.asked import Asked
    from mingle_hooks.check.report import Network
    from mingle_hooks.rendezvous.protocol.wire import Body

_START = "check/node/start.py"
# Of the whole time, the part for starting probes, and for probing; the rest is for what comes after.
_START_SHARE, _PROBE_SHARE = 0.5, 0.25
# What has not come back after so many seconds, in which the probe ran, is lost: a connection begins again after 1 s,
# and after 3 s. A probe that stood still may take longer, for as long as the whole check may.
_PROBE_S = 3.5
_COUNT_S, _TRANSFER_S, _LEAVE_S = 1.0, 2.0, 1.0
# Processes that have ended are looked for so often, in seconds.
_LOOK_S = 0.05
# So many slow transfers are tried again, so often: another program may have been in the way.
_MOST_AGAIN, _AGAIN = 8, 2
_LONGEST_WHY = 200


def check(asked: Asked) -> Report:
    """Return the report. Raises UsageError, NetworkError and PlaceError."""
    with Loop() as loop:
        session = Session(loop, asked)
        try:
            session.start()
            return session.report()
        finally:
            session.close()


class Session:
    """The probes of one check. A turn of probing takes `turn_s` at most, and all together `turns_s`, in seconds."""

    turn_s, turns_s = 0.04, 1.0

    def __init__(self, loop: Loop, asked: Asked) -> None:
        self._loop, self._asked, self._began = loop, asked, loop.clock()
        told = {PORTS: f"{asked.port_range.start}-{asked.port_range.stop - 1}"}
        if asked.iface:
            told[IFACE] = ",".join(wish.text for wish in asked.iface)  # type: ignore[attr-defined]
        self._launching = Launching(
            loop, asked.starter, asked.job, _START, iface=asked.iface, port_range=asked.port_range, told=told
        )
        self._launching.on_end = self._starter_ended
        self._processes = self._launching.processes
        self._names = asked.job.hosts
        self.desk = Desk(loop, self._launching.sockets, self._launching.secret, self._names)
        self._ended: dict[str, str] = {}  # host -> what its starter said last, and its status

    def start(self) -> None:
        """Start a probe on each host."""
        self._launching.start(self._names)
        self._look()

    def close(self) -> None:
        """Leave nothing behind."""
        self.desk.dismiss()
        self._until(lambda: not self._processes.running, _LEAVE_S)
        self._processes.kill(at_once=True)
        for process in self._processes.running:
            process.wait()
        self._processes.poll()
        self.desk.close()
        self._launching.close()

    def report(self) -> Report:
        """Wait for the probes, tell them what to do, and make the report of what they say."""
        self._until(self._is_complete, self._asked.timeout_s * _START_SHARE)
        hosts = self._hosts()
        here = [number for number, its in enumerate(hosts) if its.missing is None]
        shared = networks.shared([hosts[number] for number in here])
        orders, turns = assembling.orders(hosts, here, shared)
        turn_s = min(self.turn_s, self.turns_s / max(turns, 1))
        limit_s = min(self._asked.timeout_s * _PROBE_SHARE, _PROBE_S) + turns * turn_s
        most_s = max(limit_s, self._left_s() - 2 * _COUNT_S)
        for order in orders.values():
            order |= {"do": PROBE, "limit_ms": int(limit_s * 1000), "turn_us": int(turn_s * 1_000_000)}
            order |= {"most_ms": int(most_s * 1000)}
        met, _ = self.gather(orders, most_s + _COUNT_S)
        counted, clocks = self.gather({number: {"do": COUNT} for number in here}, max(self._left_s(), _COUNT_S))
        found = assembling.assembled(hosts, here, shared, met, counted, clocks)
        found = found._replace(others=rounds.others(len(here)))
        if self._asked.is_bandwidth and shared:
            found = found._replace(flows=self._flows(hosts, found.networks[0]))
        return judged(found._replace(took_s=round(self._loop.clock() - self._began, 3)))

    def gather(
        self, orders: Mapping[int, Body], limit_s: float
    ) -> tuple[dict[int, Body], dict[int, tuple[float, float]]]:
        """Send orders, and return what is answered in time, with how far ahead a host's clock is: at least, at most."""
        sent_at = wall_s()
        self.desk.answers.clear()
        came_at: dict[int, float] = {}
        for number, order in orders.items():
            self.desk.send(number, ORDER, order)

        def is_complete() -> bool:
            for number in self.desk.answers.keys() - came_at.keys():
                came_at[number] = wall_s()
            return all(number in came_at or number in self.desk.gone for number in orders)

        self._until(is_complete, limit_s)
        answers = {number: its[0] for number, its in self.desk.answers.items() if number in orders}
        clocks = {}
        for number, answer in answers.items():
            if "time_ms" in answer:
                told_s = integer(answer, "time_ms", 0, 1 << 62) / 1000
                clocks[number] = (told_s - came_at.get(number, wall_s()), told_s + 0.001 - sent_at)
        return answers, clocks

    def _left_s(self) -> float:
        """Return what is left of the time of the whole check."""
        return self._began + self._asked.timeout_s - self._loop.clock()

    # --- Who is here.

    def _until(self, holds: Callable[[], bool], limit_s: float) -> None:
        end = self._loop.clock() + limit_s
        wake = self._loop.after(limit_s, lambda: None)
        self._loop.run(lambda: holds() or self._loop.clock() >= end)
        wake.cancel()

    def _look(self) -> None:
        self._processes.poll()
        self._loop.after(_LOOK_S, self._look)

    def _starter_ended(self, hosts: tuple[str, ...], status: int, said: str) -> None:
        lines = said.strip().splitlines()
        for name in hosts:
            line = next((line for line in reversed(lines) if name in line), lines[-1] if lines else "no word")
            self._ended[name] = f"did not start: {printable(line, _LONGEST_WHY)} (status {status})"

    def _is_complete(self) -> bool:
        return all(number in self.desk.facts or name in self._ended for number, name in enumerate(self._names))

    def _hosts(self) -> tuple[Host, ...]:
        limit_s = self._asked.timeout_s * _START_SHARE
        silent = (
            f"no sign of it within {limit_s:.1f} s: it has not started yet (--timeout), or does not reach"
            f" this host's port {self._launching.sockets.port} (--iface, --port-range)"
        )
        found = []
        for number, name in enumerate(self._names):
            body, its = self.desk.facts.get(number), Host(name, missing=self._ended.get(name, silent))
            if body is not None and number not in self.desk.gone:
                try:
                    its = host(name, body)
                except WireError as wrong:
                    its = Host(name, missing=f"it sent what no probe of this version sends: {wrong}")
            found.append(its)
        return tuple(found)

    # --- Transfers.

    def _flows(self, hosts: tuple[Host, ...], network: Network) -> tuple[Flow, ...]:
        """Let each send to two others; what is slow is tried again, with nothing else on the way."""
        numbers = {its.name: number for number, its in enumerate(hosts)}
        there = [numbers[name] for name in network.hosts]
        found: dict[tuple[int, int], Flow] = {}
        for part in rounds.transfers(len(there)):
            found |= self._transfer(hosts, network, [(there[a], there[b]) for a, b in part])
        for _ in range(_AGAIN):
            for flow in suspects(tuple(found.values()))[:_MOST_AGAIN]:
                way = numbers[flow.sender], numbers[flow.receiver]
                (again,) = self._transfer(hosts, network, [way]).values()
                found[way] = max(flow, again, key=lambda its: its.mbits or 0)
        return tuple(found.values())

    def _transfer(
        self, hosts: tuple[Host, ...], network: Network, ways: list[tuple[int, int]]
    ) -> dict[tuple[int, int], Flow]:
        at = dict(zip(network.hosts, network.addresses, strict=True))
        orders = {}
        for sender, receiver in ways:
            its = next(its for its in hosts[receiver].addresses if its.address == at[hosts[receiver].name])
            limit_ms = int(_TRANSFER_S * 1000)
            where = {"theirs": its.address, "port": its.port, "number": receiver, "limit_ms": limit_ms}
            orders[sender] = {"do": SEND, **where}
        answers, _ = self.gather(orders, _TRANSFER_S + _COUNT_S)
        return {
            (sender, receiver): Flow(
                hosts[sender].name, hosts[receiver].name, network.name, assembling.mbits(answers.get(sender))
            )
            for sender, receiver in ways
        }
