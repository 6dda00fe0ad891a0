"""One host's part of a check: it says what it is, does what it is told, and ends with the check."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mingle_hooks.check import facts
from mingle_hooks.check.facts import Aside, Names
from mingle_hooks.check.messages import ANSWER, COUNT, FACTS, IFACE, ORDER, PORTS, PROBE, SEND, Peer, parse_listed
from mingle_hooks.check.probes import LATE, LOOK_S, Datagrams, Doors, Meeting, Multicast, Packet, Patience, Transfer
from mingle_hooks.check.report import Address
from mingle_hooks.check.session import wall_s
from mingle_hooks.errors import MingleError, printable
from mingle_hooks.keys import on_network
from mingle_hooks.net import ports as ports_ports
from mingle_hooks.rendezvous.connection import Loop
from mingle_hooks.rendezvous.wire import Body, Secret, WireError, address, integer, text
from mingle_hooks.run import agent
from mingle_hooks.run.agent import Approach, Options, Task, Where
from mingle_hooks.run.messages import LEAVE, Join, Link, Welcome
from mingle_hooks.values import networks, ports

Reachable = Callable[[Any], tuple[tuple[Address, ...], tuple[tuple[str, str], ...], str]]

# What asks a device or a file system has so long, in seconds.
_ASIDE_S = 1.0
# Multicast is said so long after the order, in seconds, so that one that is lost is no harm.
_SAID_S = (0.0, 0.1, 0.25)
# Datagrams are counted so long after all have been sent, in seconds.
_STILL_S = 0.05
_PORTS = 64
_LONGEST = 300


class Probe:
    """Runs until `is_over`; `was_dismissed` tells whether the check let it go."""

    def __init__(
        self, loop: Loop, task: Task, environ: Mapping[str, str], reachable: Reachable = facts.reachable_addresses
    ) -> None:
        self._loop, self._task, self._reachable = loop, task, reachable
        self.is_over = self.was_dismissed = False
        self._secret = Secret(task.key)
        self._link: Link | None = None
        self._body: Body = {}
        self._aside: dict[str, list[int] | None] = {}
        self._faults: list[str] = []
        self._waits = 0
        self._meeting: Meeting | None = None
        self._names: Names | None = None
        self._datagrams = Datagrams(loop, self._secret, time.monotonic_ns, self._back)
        self._doors = Doors(loop, self._secret)
        self._ask_aside(environ)
        self._multicast = self._look(environ)
        join = Join(task.host, task.local, os.getpid(), is_output=False)
        self._approach = Approach(loop, self._secret, task.places, join, self._welcome, self._lost)

    @property
    def is_found(self) -> bool:
        """Whether the check knows of this host."""
        return self._link is not None

    def leave(self) -> None:
        """End."""
        self.is_over = True
        self._approach.close()
        for part in (self._link, self._datagrams, self._doors, self._multicast, self._names):
            if part is not None:
                part.close()

    # --- What this host is.

    def _ask_aside(self, environ: Mapping[str, str]) -> None:
        """Ask what may hang, each in a child of its own; before there is any thread."""
        for path in facts.space_places(environ):
            if on_network(path):
                self._ask_space(path)
            else:
                self._aside[path] = facts.space_of(path)
        if facts.has_gpu():
            self._wait(facts.gpu_faults, self._gpus)

    def _ask_space(self, path: str) -> None:
        def take(free: list[int] | None) -> None:
            self._aside[path] = free

        self._aside[path] = None
        self._wait(lambda: facts.space_of(path), take)

    def _wait(self, question: Callable[[], object], on_answer: Callable[[Any], None]) -> None:
        self._waits += 1

        def answered(value: object) -> None:
            self._waits -= 1
            on_answer(value)
            self._tell()

        Aside(self._loop, question, _ASIDE_S, answered)

    def _gpus(self, faults: list[str] | None) -> None:
        if faults is None:
            faults = [f"its GPUs did not report their state within {_ASIDE_S:g} s"]
        self._faults += [printable(fault, _LONGEST) for fault in faults]

    def _look(self, environ: Mapping[str, str]) -> Multicast:
        wished, names = environ.get(IFACE, ""), []
        try:
            prefer = networks(wished) if wished else ()
            names = [wish.text for wish in prefer]  # type: ignore[attr-defined]
            chosen, guests, trouble = self._reachable(prefer)
        except MingleError as wrong:
            chosen, guests, trouble = (), (), f"expected {wrong.expected}, saw {wrong.seen}"
        opened = tuple(self._open(its, environ.get(PORTS, "")) for its in chosen)
        if trouble:
            self._faults.append(printable(trouble, _LONGEST))
        self._body = {
            **facts.own_facts(environ),
            "addresses": [its._asdict() for its in opened],
            "guests": [list(its) for its in guests],
            "every": facts.all_addresses(),
        }
        return Multicast(self._loop, self._secret, names)

    def _open(self, its: Address, wanted: str) -> Address:
        """Open a port of the range at an address, the same for TCP and UDP; port 0 where none is free."""
        for port in ports_ports.candidates(
            os.urandom(16), _PORTS, ports(wanted) if wanted else ports_ports.DEFAULT_RANGE
        ):
            try:
                if not self._doors.open(its.address, port):
                    continue
            except MingleError:  # the address has gone
                break
            if self._datagrams.open(its.address, port):
                return its._replace(port=port)
            self._doors.shut()
        self._faults.append(f"no port of the range is free on {its.address}")
        return its

    def _welcome(self, _where: Where, link: Link, welcome: Welcome) -> None:
        self._link = link
        link.on_message = self._said
        for part in (self._datagrams, self._doors, self._multicast):
            part.number = welcome.number
        self._tell()

    def _tell(self) -> None:
        """Say what this host is, once all is known."""
        if self._link is not None and not self._waits:
            self._link.send(FACTS, {**self._body, "spaces": facts.all_spaces(self._aside), "faults": self._faults})

    def _lost(self, _reason: str) -> None:
        self.leave()

    # --- What it is told.

    def _said(self, kind: int, body: Body) -> None:
        if kind == LEAVE:
            self.was_dismissed = True
            self.leave()
        elif kind == ORDER and body.get("do") == PROBE:
            self._probe(body)
        elif kind == ORDER and body.get("do") == COUNT:
            self._loop.after(_STILL_S, self._count)  # what has been sent is still to be read
        elif kind == ORDER and body.get("do") == SEND:
            self._transfer(body)
        else:
            raise WireError("no order")

    def _count(self) -> None:
        now_ms = int(wall_s() * 1000)
        heard = self._datagrams.heard()  # first: what waits to be read may be an answer
        met = self._meeting.met() if self._meeting is not None else []
        dropped, multicast = self._datagrams.dropped(), self._multicast.told()
        self._answer({"time_ms": now_ms, "met": met, "heard": heard, "dropped": dropped, "multicast": multicast})

    def _answer(self, body: Body) -> None:
        if self._link is not None:
            self._link.send(ANSWER, body)

    def _back(self, its: Packet) -> None:
        if self._meeting is not None:
            self._meeting.back(its)

    def _probe(self, body: Body) -> None:
        peers = [Peer.parse(row) for row in parse_listed(body, "peers", 1 << 16)]
        asked = {
            integer(row, "number", 0, 1 << 16): text(row, "name", 253) for row in parse_listed(body, "names", 1 << 16)
        }
        limit_s, most_s = (integer(body, name, 0, 10**8) / 1000 for name in ("limit_ms", "most_ms"))
        count, turn_s = integer(body, "count", 1, 1000), integer(body, "turn_us", 1, 10**8) / 10**6
        meeting = self._meeting = Meeting(
            self._loop, self._secret, self._datagrams, time.monotonic_ns, peers, count, turn_s
        )
        own = socket.gethostname()
        looked_up = self._names = Names(self._loop, (own, *asked.values()))
        said_s = _SAID_S if body.get("multicast") is True else ()
        for after_s in said_s:
            self._loop.after(after_s, self._multicast.send)
        patience = Patience(self._loop.clock, limit_s, most_s)
        earliest = self._loop.clock() + min(max(said_s, default=0.0) + LOOK_S, limit_s)

        def look() -> None:
            patience.look()
            is_known = self._loop.clock() >= earliest and meeting.is_done and looked_up.is_done
            if not is_known and not patience.is_over:
                self._loop.after(LOOK_S, look)
                return
            meeting.stop()
            looked_up.close()
            names = [{"number": number, "addresses": looked_up.found.get(name)} for number, name in asked.items()]
            late_ms = 0 if is_known or patience.has_lasted else int(patience.late_s * 1000)
            self._answer({"names": names, "own": looked_up.found.get(own), "late_ms": late_ms})

        look()

    def _transfer(self, body: Body) -> None:
        where = address(body, "theirs"), integer(body, "port", 1, 65535)
        limit_s = integer(body, "limit_ms", 0, 10**6) / 1000

        def ended(_reason: str) -> None:
            octets, took_ns = transfer.count or (0, 0)
            self._answer({"octets": octets, "ns": took_ns})

        transfer = Transfer(self._loop, self._secret, integer(body, "number", 0, 1 << 16), where, ended)
        self._loop.after(limit_s, lambda: None if transfer.is_over else transfer.end(LATE))


# One probe from its start to its end, which comes with that of `mingle check`.

NO_CHECK = 75  # EX_TEMPFAIL: trying again makes sense
_STDERR = 2
# Who has not found the check by then finds none, and nobody waits longer for one, in seconds: its own host may be gone.
_APPROACH_S, _LONGEST_S = 30.0, 600.0


def run_probe(arguments: Sequence[str]) -> int:
    """Return the exit status."""
    try:
        options = Options.parse(arguments)
        if options.environ or options.is_stdin:
            agent.take_environ("probe", options)
        task = Task.find(options, os.environ)
        with Loop() as loop:
            return _probe(loop, task)
    except MingleError as wrong:
        os.write(_STDERR, f"mingle check: {wrong}\n".encode())
        return wrong.exit_code


def _probe(loop: Loop, task: Task) -> int:
    probe = Probe(loop, task, os.environ)
    loop.after(_APPROACH_S, lambda: None if probe.is_found else probe.leave())
    loop.after(_LONGEST_S, probe.leave)
    loop.run(lambda: probe.is_over)
    return 0 if probe.was_dismissed else NO_CHECK
