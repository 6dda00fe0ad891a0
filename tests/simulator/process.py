"""One process of `mingle env` on a simulated host: the real meeting, with the operating system taken from under it."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

from support.gathering import observer

import mingle_hooks.rendezvous.connection
import mingle_hooks.rendezvous.discovery
import mingle_hooks.rendezvous.multicast
import mingle_hooks.rendezvous.rendezvous
from mingle_hooks.errors import MingleError
from mingle_hooks.rendezvous.connection import Loop
from mingle_hooks.rendezvous.member import Request
from mingle_hooks.rendezvous.rendezvous import Rendezvous
from mingle_hooks.rendezvous.roster import AdvertisedAddress
from mingle_hooks.rendezvous.wire import Body
from simulator.network import Host, Network, SimLink, SimPoller, SimSocket

# What a turn of the loop waits for its processor, in seconds, on a host that is not slow.
TURN_S = 0.0005


class Running:
    """The process of the current turn, for the simulated operating system, as a kernel knows its caller."""

    process: Process


class Process:
    """A member's process: it starts, takes turns, may be stopped or killed, and ends with an answer or an error."""

    def __init__(self, network: Network, host: Host, name: str, request: Request) -> None:
        self.network, self.host, self.name, self.request = network, host, name, request
        self.timeline = network.timeline
        self.sockets: dict[int, SimSocket] = {}
        self.skew_s = 0.0  # how far its clocks have jumped
        self.of_day_s = 0.0  # how far the time of day has jumped
        self.slept_s = 0.0  # for how long its host was suspended, until wakes_at
        self.wakes_at = 0.0
        self.stops = 0  # how many faults stop it now
        self.began: float | None = None
        self.ended: float | None = None
        self.killed: float | None = None
        self.formed: float | None = None  # when it formed a world as its leader
        self.promised: tuple[float, bytes] | None = None  # when it first said that it waits for the word, and to whom
        self.answer: Body | None = None
        self.error: Exception | None = None
        self.rendezvous: Rendezvous | None = None
        self._poller = SimPoller(network.rng)
        self._clock = mingle_hooks.rendezvous.connection.CLOCK
        self._loop = Loop(self._now, self._poller)  # type: ignore[arg-type]
        self._next: float | None = None  # when the next turn is due

    @property
    def is_alive(self) -> bool:
        """Whether it runs, or is stopped."""
        return self.began is not None and self.ended is None

    @property
    def leads(self) -> bool:
        """Whether this process has formed the world."""
        leader = self.rendezvous._leader if self.rendezvous is not None else None
        return leader is not None and leader.state == "formed"

    @property
    def member(self) -> bytes:
        """Its identity in the world."""
        return self.rendezvous._me.member

    def _now(self) -> float:
        """Return the loop's time, by far the most often asked for."""
        if self.skew_s or self.of_day_s or self.slept_s:
            return self.clock_gettime(self._clock)
        return self.timeline.now

    def clock_gettime(self, clock: int) -> float:
        """As time.clock_gettime(): CLOCK_MONOTONIC stands still while the host is suspended, the others go on."""
        now = max(self.timeline.now, self.wakes_at) + self.skew_s  # what is left of a turn comes after the sleep
        if clock == time.CLOCK_MONOTONIC:
            return now - self.slept_s
        return now + self.of_day_s if clock == time.CLOCK_REALTIME else now

    def start(self) -> None:
        """Begin, as `mingle env` does."""
        self.began = self.timeline.now

        def first() -> None:
            self.rendezvous = Rendezvous(self._loop, self.request, observer())
            self.rendezvous.start()

        self._turn(first)

    def wake(self) -> None:
        """Take a turn as soon as there is a processor."""
        self._turn_in(self.network.rng.random() * (TURN_S + self.host.slowness_s))

    def stop(self) -> None:
        """SIGSTOP."""
        self.stops += 1

    def go_on(self) -> None:
        """SIGCONT, once for each stop."""
        self.stops -= 1
        self.wake()

    def sleep(self, lasts_s: float) -> None:
        """Stop with the whole host, now, be it in the midst of a turn."""
        until = max(self.timeline.now + lasts_s, self.wakes_at)
        self.slept_s += until - max(self.timeline.now, self.wakes_at)
        self.wakes_at = until
        self.stop()
        self.timeline.after(lasts_s, self.go_on)

    def kill(self) -> None:
        """SIGKILL: the kernel closes what it has open."""
        if self.is_alive:
            self.killed = self.ended = self.timeline.now
            for sock in list(self.sockets.values()):
                sock.close()
            for link in [link for link in self.network.links if link.owner is self]:
                link.close()

    def _turn_in(self, delay_s: float) -> None:
        when = self.timeline.now + delay_s
        if self.ended is not None or (self._next is not None and self._next <= when):
            return
        self._next = when
        self.timeline.after(delay_s, partial(self._due, when))

    def _due(self, when: float) -> None:
        if self._next == when:
            self._next = None
            self._turn(self._loop.turn, 0.0)

    def _turn(self, act: Callable[..., None], *args: float) -> None:
        if self.ended is not None or self.stops:
            return
        Running.process = self
        try:
            act(*args)
            self._note()
            if self.rendezvous is not None and self.rendezvous.is_over:
                self.answer = self.rendezvous.result()
        except Exception as error:  # noqa: BLE001 - the rules tell an error of ours from a bug
            self.error = error
        if self.answer is not None or self.error is not None:
            self._end()
        elif self._poller.is_due():
            self.wake()
        else:
            self._turn_in(self._loop.due_in() + 1e-6)

    def _note(self) -> None:
        if self.formed is None and self.leads:
            self.formed = self.timeline.now
        bound = self.rendezvous._follower.promise if self.rendezvous is not None else None
        if bound is not None and (self.promised is None or self.promised[1] != bound[0]):
            self.promised = self.timeline.now, bound[0]

    def _end(self) -> None:
        try:
            if self.rendezvous is not None:
                self.rendezvous.__exit__(None, None, None)
            self._loop.__exit__(None, None, None)
        except Exception as error:  # noqa: BLE001 - as above
            self.error = error
        self.ended = self.timeline.now

    def outcome(self) -> str:
        """Tell how it ended."""
        if self.killed is not None:
            return f"killed at {self.killed:.3f}"
        if self.ended is None:
            return "never ended"
        if self.answer is not None:
            return f"rank {self.answer['rank']} of {self.answer['digest']} at {self.ended:.3f}"
        kind = type(self.error).__name__ if isinstance(self.error, MingleError) else f"BUG {type(self.error).__name__}"
        return f"{kind} at {self.ended:.3f}: {self.error}"


class _Lookup:
    """As Lookup, with a name service that answers at once."""

    def __init__(self, loop: Loop, host: str, on_result: Callable[[str, list[str]], None]) -> None:
        self._timer = loop.after(0.0, lambda: on_result(host, _resolve(host)))

    def close(self) -> None:
        """Forget the answer."""
        self._timer.cancel()


def _resolve(name: str, _timeout_s: float = 0.0) -> list[str]:
    hosts = dict.fromkeys(Running.process.network.hosts.values())
    return [address for host in hosts if name == host.name or name in host.addresses for address in host.addresses]


def _socket(family: int = socket.AF_INET, *_rest: object) -> SimSocket:
    if family != socket.AF_INET:
        raise OSError("IPv4 only")
    return SimSocket(Running.process)


def _interface(address: str) -> SimpleNamespace:
    """Return what the multicast backend wants to know of an interface."""
    return SimpleNamespace(machine_name=address, ip4_addrs=[address], ip6_addrs=[])


@contextlib.contextmanager
def replacing(its: Sequence[tuple[Any, str, Any]]) -> Iterator[None]:
    """Have each owner's attribute be another while the context lasts."""
    kept = [vars(owner)[name] for owner, name, _ in its]
    for owner, name, value in its:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for (owner, name, _), before in zip(its, kept, strict=True):
            setattr(owner, name, before)


@contextlib.contextmanager
def simulated(rng: random.Random) -> Iterator[None]:
    """Take the operating system from under the rendezvous while the context lasts."""
    rendezvous = mingle_hooks.rendezvous
    addresses = lambda: Running.process.host.addresses  # noqa: E731 - short, and used thrice
    its: list[tuple[Any, str, Any]] = [
        (os, "urandom", rng.randbytes),
        (time, "time", lambda: Running.process.clock_gettime(time.CLOCK_REALTIME)),
        (socket, "socket", _socket),
        (socket, "has_ipv6", False),
        (rendezvous.rendezvous, "resolve", _resolve),
        (rendezvous.rendezvous, "is_local", lambda address: address in addresses()),
        (rendezvous.rendezvous, "_allow_open_files", lambda _nodes: 64),
        (
            rendezvous.rendezvous,
            "advertised_addresses",
            lambda _prefer, _environ: (tuple(AdvertisedAddress(address) for address in addresses()), None),
        ),
        (rendezvous.discovery, "Lookup", _Lookup),
        (rendezvous.multicast, "carriers", lambda _nets: [_interface(address) for address in addresses()]),
        (rendezvous.multicast, "Link", lambda *what: SimLink(Running.process, *what)),
    ]
    with replacing(its):
        yield
