"""The discovery backends. All that apply are used at once; none needs another.

A new backend is one file and one line in BACKENDS.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, Protocol

from mingle_hooks.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mingle_hooks.rendezvous.discovery.one_way import OneWay
    from mingle_hooks.rendezvous.loop import Loop
    from mingle_hooks.rendezvous.member.dialer import Endpoint
    from mingle_hooks.rendezvous.protocol.attempt import Attempt, Secret


class Row(NamedTuple):
    """One backend: its module in this folder, and what the others have to know before it is loaded.

    The module has `backend(context) -> Backend | None`; None where it does not apply. One that `is_costly` to load
    opens last, after a head start for the others. By one that `hears_rivals` a leader by right hears of another such
    leader without asking. Where one `asks_named_hosts`, candidates stand on the hosts that the scheduler names, and
    nowhere else.
    """

    module: str
    is_costly: bool = False
    hears_rivals: bool = False
    asks_named_hosts: bool = False


# Cheapest first.
BACKENDS = {
    "master": Row("master"),
    "hosts": Row("hosts", asks_named_hosts=True),
    "directory": Row("directory"),
    "multicast": Row("multicast.backend", is_costly=True, hears_rivals=True),
}


class Advertisement(NamedTuple):
    """What a leader lets be known of itself."""

    leader: bytes
    ticket: int
    addresses: tuple[str, ...]  # the best first
    ports: tuple[int, ...]  # where it takes check-ins

    @property
    def precedence(self) -> tuple[int, bytes]:
        """What the lowest of wins an election."""
        return (self.ticket, self.leader)


class Context(NamedTuple):
    """What a backend works with."""

    loop: Loop
    attempt: Attempt
    secret: Secret
    dial: Callable[[Endpoint], None]
    reject: Callable[[str], None]  # an address that showed another key
    note: Callable[[str], None]  # something that a person should know
    leader_hosts: tuple[str, ...] = ()
    host_suffix: str = ""
    master: tuple[str, int | None] | None = None
    ports: tuple[int, ...] = ()  # check-in ports to try on the leader's host
    directory: str | None = None
    multicast_port: int = 0
    nets: tuple[str, ...] = ()  # interface names or CIDRs that may be used; empty: all
    ttl: int = 1
    nodes: int | None = None
    joined: Callable[[], tuple[int, bytes] | None] = lambda: None  # the precedence of the leader that has been joined
    member: bytes = bytes(16)  # this member's name
    one_way: OneWay | None = None  # where to note who is heard and does not answer


class Backend(Protocol):
    """One backend. Its owner calls close(), on every path. `faults` tell, for a message, what part of it failed."""

    faults: list[str]

    def search(self, *, wanted: bool) -> None:
        """Look for a leader actively from now on, or stop that."""

    def announce(self, advertisement: Advertisement | None) -> None:
        """Make this leader known from now on, or stop that."""

    def tried(self) -> str:
        """Tell, for a message, where this backend has looked."""

    def close(self) -> None:
        """Stop, and leave nothing behind."""


def chosen(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the backends of these names, all where none is named. Raises UsageError for a name that is none."""
    for name in names:
        if name not in BACKENDS:
            from mingle_hooks.nearest import nearest

            raise UsageError(f"one or more of {', '.join(BACKENDS)}", name, f"--via {nearest(name, BACKENDS)}")
    return names or tuple(BACKENDS)


def open_backend(name: str, context: Context) -> Backend | None:
    """Return the backend of that name, None where it does not apply here."""
    backend: Backend | None = import_module(f"{__name__}.{BACKENDS[name].module}").backend(context)
    return backend
