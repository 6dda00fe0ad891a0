"""Is anybody taken for lost where signs of life get lost both ways? Supervisors at rest, and a runner.

All supervisors are one process on loopback, which loses what it sends and what comes by chance; the runner is another.
Each has its two connections, as in a run, and gives a sign of life a second. `python -m benchmarks.silence 600` takes
ten minutes.
"""

from __future__ import annotations

import json
import os
import random
import socket
import sys
import time

from mingle_hooks.rendezvous.connection import READ, Loop
from mingle_hooks.rendezvous.wire import Secret, parse
from mingle_hooks.run import messages, messages as life
from mingle_hooks.run.launching import Sockets
from mingle_hooks.run.machine import Joined, Lost
from mingle_hooks.run.messages import AGENT, RUNNER, Link
from mingle_hooks.run.runner import Hub
from mingle_hooks.run.starters import Place

COUNT, LOSS, SILENCE_S = 1024, 0.3, 15.0
SECONDS = 60.0


class Silence:
    """The longest time between two of what came through."""

    def __init__(self) -> None:
        self.longest_s, self._last = 0.0, time.monotonic()

    def ends(self) -> None:
        """Take note of what came through."""
        now = time.monotonic()
        self.longest_s, self._last = max(self.longest_s, now - self._last), now


class Supervisor:
    """One at rest."""

    def __init__(self, loop: Loop, secret: Secret, place: Place, port: int, chance: random.Random) -> None:
        self._loop, self._secret, self._chance = loop, secret, chance
        self._number: int | None = None
        self._sent = 0
        self.up, self.down = Silence(), Silence()
        self._sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._sock.settimeout(0)
        self._sock.connect(("127.0.0.1", port))
        loop.watch(self._sock, READ, lambda _events: self._take())
        self._links = [self._link(place, port, is_output=its) for its in (False, True)]

    def _link(self, place: Place, port: int, *, is_output: bool) -> Link:
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.connect(("127.0.0.1", port))
        sock.settimeout(0)
        link = Link(self._loop, sock, self._secret, is_runner=False, on_end=lambda _reason: None)
        join = messages.Join(place.host, place.local, os.getpid(), is_output=is_output)
        link.on_proved = lambda: link.send_record(join)
        link.on_message = self._said
        return link

    def _said(self, kind: int, body: dict[str, object]) -> None:
        if kind == messages.WELCOME and self._number is None:
            self._number = parse(messages.Welcome, body).number
            self.up, self.down = Silence(), Silence()
            self._loop.after(self._chance.random(), self._beat)

    def _beat(self) -> None:
        self._loop.after(life.INTERVAL_S, self._beat)
        self._sent += 1
        if self._number is not None and self._chance.random() >= LOSS:
            self._sock.send(life.pack_heartbeat(self._secret, AGENT, life.Heartbeat(self._number, self._sent)))
            self.up.ends()

    def _take(self) -> None:
        for _ in life.heartbeats(self._sock, self._secret, RUNNER):
            if self._chance.random() >= LOSS:
                self.down.ends()


def figures(seconds: float = SECONDS) -> dict[str, dict[str, float]]:
    """Return how many were taken for lost, the longest silences, and the runner's share of a processor."""
    secret, places = Secret(bytes(32)), [Place(f"node{number}", 0) for number in range(COUNT)]
    lost: list[int] = []
    joined: list[int] = []

    def take(event: object) -> None:
        if isinstance(event, Joined):
            joined.append(event.place)
        elif isinstance(event, Lost):
            lost.append(event.place)

    reading, writing = os.pipe()
    with Loop() as loop:
        sockets = Sockets(is_local=True)
        hub = Hub(loop, sockets, secret, places, messages.Silence(SILENCE_S), "")
        hub.on_event = take
        child = os.fork()
        if not child:
            _supervise(secret, places, sockets.port, seconds, writing)
        os.close(writing)
        deadline = loop.clock() + 60.0
        loop.run(lambda: len(joined) == COUNT or loop.clock() > deadline)
        before, end = time.process_time(), loop.clock() + seconds
        loop.run(lambda: loop.clock() >= end)
        share = (time.process_time() - before) / seconds
        count = len(hub.here)
        with open(reading) as told:
            longest = json.loads(told.read())
        os.waitpid(child, 0)
        sockets.close()
    found = {"here": count, "taken for lost": len(lost), **longest, "share of a processor": share}
    shown = ", ".join(f"{name} {value:.4g}" for name, value in found.items())
    print(f"  {COUNT} supervisors, {LOSS:.0%} lost both ways, {seconds:.0f} s: {shown}")
    return {f"{seconds:.0f} s": found}


def _supervise(secret: Secret, places: list[Place], port: int, seconds: float, writing: int) -> None:
    with Loop() as loop:
        chance = random.Random(1)  # the same losses each time
        kept = [Supervisor(loop, secret, place, port, chance) for place in places]
        end = loop.clock() + seconds + 5.0  # no shorter than the runner looks
        loop.run(lambda: loop.clock() >= end)
        ways = {"longest silence to the runner, s": "up", "longest silence from the runner, s": "down"}
        longest = {name: max(getattr(its, way).longest_s for its in kept) for name, way in ways.items()}
    os.write(writing, json.dumps(longest).encode())
    os._exit(0)


if __name__ == "__main__":
    figures(float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS)
