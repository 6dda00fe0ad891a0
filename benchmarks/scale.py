"""From the last member's arrival to the last answer, with many simulated members on this machine.

The leader is a process with the real `meet`; the members are real check-ins, all in one other process. The
last one arrives when the others are in; the clock stops when the last of all has the word. With "at once" all
arrive within half a second, and the clock runs from the first. Two processors.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import statistics
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING

from mingle_hooks.rendezvous.attempt import Attempt, Material, Secret
from mingle_hooks.rendezvous.checkin import Checkin
from mingle_hooks.rendezvous.loop import Loop
from mingle_hooks.rendezvous.meeting import meet
from mingle_hooks.rendezvous.member import Membership
from mingle_hooks.rendezvous.request import Request
from mingle_hooks.rendezvous.rows import digest
from mingle_hooks.rendezvous.search import Found, Lead, Search

if TYPE_CHECKING:
    from mingle_hooks.rendezvous.wire import Body

KEY = Material(b"k" * 32)
ADDRESS, PORT = "127.0.0.1", 23_999
TIMEOUT_S = 120.0
STORM_S = 0.5
ROSTER, AT_ONCE = "with the roster", "at once"


def lead(attempt: Attempt, nodes: int) -> None:
    """Be rank 0 of N."""
    request = Request(
        attempt, KEY, "node0", "here", 1, 0, nodes=nodes, timeout_s=TIMEOUT_S, via=("master",), master=(ADDRESS, PORT)
    )
    meet(request, SimpleNamespace(progress=lambda _progress: None, note=lambda _note: None, tell=None))


class Light(Membership):
    """Looks at a roster's digest, and not into it: N members would read N² rows on this one machine."""

    def _with_roster(self, body: Body) -> Body:
        if "roster" in body and digest(self._packed) != body.pop("roster"):
            raise AssertionError("another roster than the answer's")
        return body


class Member:
    """One simulated member."""

    def __init__(self, loop: Loop, attempt: Attempt, secret: Secret, rank: int, nodes: int, *, roster: bool) -> None:
        self._loop, self._attempt, self._secret = loop, attempt, secret
        self._me = Checkin(os.urandom(16), f"node{rank}", rank, nodes, 1, "here", wants_roster=roster)
        self._search = Search(loop, attempt, secret, self._found, lambda *_who: None, lambda _at, _leader: None)
        self.membership: Membership | None = None

    @property
    def is_in(self) -> bool:
        """Whether it waits for the answer only."""
        return self.membership is not None and self.membership.progress is not None

    @property
    def has_world(self) -> bool:
        """Whether it has the word."""
        return self.membership is not None and self.membership.state == "formed"

    def arrive(self) -> None:
        """Dial the leader, again and again until it is there."""
        if self.membership is None:
            self._search.found(Lead(ADDRESS, PORT, "benchmark"))
            self._loop.after(0.05, self.arrive)

    def _found(self, found: Found) -> None:
        self.membership = Light(
            self._loop,
            self._attempt,
            self._secret,
            found,
            self._me,
            lambda _own: True,
            lambda: TIMEOUT_S,
            lambda: None,
        )


def once(nodes: int, number: int, how: str) -> float:
    """Return the seconds from the last arrival, or the first of those at once, to the last answer in a world of N."""
    attempt = Attempt(f"benchmark-{os.getpid()}-{nodes}-{how}-{number}")
    secret = Secret.derive(KEY, attempt)
    leader = multiprocessing.get_context("fork").Process(target=lead, args=(attempt, nodes))
    leader.start()
    with Loop() as loop:
        members = [Member(loop, attempt, secret, rank, nodes, roster=how == ROSTER) for rank in range(1, nodes)]
        if how == AT_ONCE:
            time.sleep(1.0)  # rank 0 is there
            began = time.perf_counter()
            for index, member in enumerate(members):
                loop.after(index * STORM_S / nodes, member.arrive)
        else:
            for index, member in enumerate(members[:-1]):
                loop.after(index * 0.0002, member.arrive)
            loop.run(lambda: sum(member.is_in for member in members[::-1]) == len(members) - 1)
            began = time.perf_counter()
            members[-1].arrive()
        loop.run(lambda: members[0].has_world and all(member.has_world for member in members))
        taken = time.perf_counter() - began
    leader.join()
    return taken


def figures(sizes: tuple[int, ...] = (4, 64, 1024, 4096), runs: int = 5) -> dict[str, dict[str, float]]:
    """Return, for each N, the seconds of several runs as minimum, median and maximum."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, 4 * max(sizes)), hard), hard))
    found = {}
    for nodes in sizes:
        for how in ("", ROSTER, AT_ONCE):
            taken = [once(nodes, number, how) for number in range(runs)]
            name, median = f"{nodes} {how}".strip(), statistics.median(taken)
            found[name] = {"min": min(taken), "median": median, "max": max(taken)}
            print(f"  {name:20} members: median {median * 1e3:8.1f} ms, max {max(taken) * 1e3:8.1f} ms", flush=True)
    return found


if __name__ == "__main__":
    figures()
