"""Asking many runs at once, each for a short time."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mingle_hooks.rendezvous.loop import Loop
from mingle_hooks.rendezvous.protocol.connection import dial
from mingle_hooks.rendezvous.protocol.wire import WireError
from mingle_hooks.supervise.protocol.link import Link
from mingle_hooks.supervise.worlds import process, words
from mingle_hooks.supervise.worlds.words import ASK, ENDING, GONE, KILL, STATE, Ask, Gone, Kill, State

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mingle_hooks.rendezvous.protocol.attempt import Secret
    from mingle_hooks.rendezvous.protocol.wire import Body
    from mingle_hooks.supervise.worlds.registry import Entry

# Each run has so long for its answer.
ANSWER_S = 2.0
# So many runs are asked at once: each has several addresses, and each connection takes a descriptor.
_AT_ONCE = 128


class Way(NamedTuple):
    """How a run is asked: where it is written down, and the port and the secret that belong to one of our keys."""

    entry: Entry
    port: int
    secret: Secret


def way(entry: Entry, keys: Sequence[bytes]) -> Way | None:
    """Return how to ask a run; None where it answers to none of these keys."""
    ports = dict(entry.doors)
    for key in keys:
        secret = words.secret(key, entry.run)
        if (port := ports.get(words.tag(secret))) is not None:
            return Way(entry, port, secret)
    return None


class Question:
    """What one run is asked, over all of its addresses; the first that answers counts."""

    def __init__(self, loop: Loop, its: Way, *, is_whole: bool) -> None:
        self._its, self._is_whole = its, is_whole
        self._links: list[Link] = []
        self.state: State | None = None
        self.link: Link | None = None  # over which it answered
        entry = its.entry
        is_here = entry.process.machine == process.here()
        for address in ("127.0.0.1",) if is_here else entry.addresses:
            try:
                sock = dial(address, its.port)
            except OSError:  # no way there
                continue
            self._open(loop, sock)

    @property
    def is_over(self) -> bool:
        """Whether no more answer can come."""
        return self.state is not None or all(link.closed for link in self._links)

    def close(self) -> None:
        """Let go of all connections."""
        for link in self._links:
            link.close()

    def _open(self, loop: Loop, sock: object) -> None:
        link = Link(loop, sock, self._its.secret, is_runner=False, on_end=lambda _reason: None)  # type: ignore[arg-type]
        link.on_proved = lambda: link.send(ASK, Ask(self._is_whole).body())
        link.on_message = lambda kind, body: self._answered(link, kind, body)
        self._links.append(link)

    def _answered(self, link: Link, kind: int, body: Body) -> None:
        if kind != STATE or self.state is not None:
            raise WireError("no answer")
        state = State.parse(body)
        if state.run != self._its.entry.run:
            raise WireError("another run's answer")
        self.state, self.link = state, link
        for other in self._links:
            if other is not link:
                other.close()


def ask(ways: Sequence[Way], *, is_whole: bool = False, limit_s: float = ANSWER_S) -> list[State | None]:
    """Return what each run answers, in order; None where none does in time."""
    found: list[State | None] = []
    with Loop() as loop:
        for first in range(0, len(ways), _AT_ONCE):
            found += _ask(loop, ways[first : first + _AT_ONCE], limit_s, is_whole=is_whole)
    return found


def _ask(loop: Loop, ways: Sequence[Way], limit_s: float, *, is_whole: bool) -> list[State | None]:
    questions = [Question(loop, its, is_whole=is_whole) for its in ways]
    try:
        _wait(loop, lambda: all(question.is_over for question in questions), limit_s)
    finally:
        for question in questions:
            question.close()
    return [question.state for question in questions]


def _wait(loop: Loop, is_over: Callable[[], bool], limit_s: float) -> None:
    until = loop.clock() + limit_s
    timer = loop.after(limit_s, lambda: None)  # so that it turns then
    loop.run(lambda: is_over() or loop.clock() >= until)
    timer.cancel()


class Ending(NamedTuple):
    """What became of an attempt to end a run."""

    has_answered: bool
    is_heard: bool  # it has said that it will end
    status: int | None  # with which it ended, where it said so
    has_hung_up: bool  # its process has ended, or the network


def kill(its: Way, *, is_now: bool, limit_s: float, answer_s: float = ANSWER_S) -> Ending:
    """Ask a run to end, and wait until it has, for at most limit_s."""
    said: list[int] = []
    status: list[int] = []

    def take(kind: int, body: Body) -> None:
        if kind not in (ENDING, GONE):
            raise WireError("no answer")
        said.append(kind)
        if kind == GONE:
            status.append(Gone.parse(body).status)

    with Loop() as loop:
        question = Question(loop, its, is_whole=False)
        try:
            _wait(loop, lambda: question.is_over, answer_s)
            link = question.link
            if link is None:
                return Ending(has_answered=False, is_heard=False, status=None, has_hung_up=False)
            link.on_message = take
            link.send(KILL, Kill(is_now).body())
            _wait(loop, lambda: link.closed, limit_s)
            return Ending(True, bool(said), status[0] if status else None, link.closed)  # noqa: FBT003 - named above
        finally:
            question.close()
