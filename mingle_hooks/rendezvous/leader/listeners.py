"""The leader's listening sockets: where members check in, and the port that the world will use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mingle_hooks.errors import NetworkError
from mingle_hooks.fabric import ports
from mingle_hooks.rendezvous.protocol.attempt import MASTER_PORTS

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterable

    from mingle_hooks.rendezvous.protocol.attempt import Secret


class Listeners:
    """Open listeners, IPv4 and IPv6 on the same port; close() them, unless a leader has taken them over.

    With `hold` the connections that the leader closes keep the world's port, for a minute, from whoever binds without
    SO_REUSEADDR.
    """

    def __init__(self, *, hold: bool = True) -> None:
        self._hold = hold
        self.sockets: list[socket.socket] = []
        self.check_in: list[int] = []
        self.master = 0

    def open_check_in(self, choices: Iterable[Iterable[int]]) -> None:
        """Open the first free port of each group; none is needed, for beacons tell the port too.

        One that is merely in TIME_WAIT is second best. It may be kept for another world's program, but an earlier run,
        or a stranger that eight octets sufficed to turn away, leaves all of them so for a minute.
        """
        for group in choices:
            for port, reuse in [*((port, False) for port in group), *((port, True) for port in group)]:
                if port in self.check_in or self._open(port, reuse=reuse):
                    self.check_in = [*dict.fromkeys([*self.check_in, port])]
                    break

    def open_named(self, port: int) -> None:
        """Open a port that a person named, for members and for the world; NetworkError when it is taken."""
        # A person who names a port runs twice within a minute: take it while the last run's is in TIME_WAIT.
        if port not in self.check_in and not self._open(port, reuse=True, hold=self._hold):
            seen = f"it in use{ports.over([port])}"
            raise NetworkError(f"port {port} free on this host, rank 0", seen, "another port, or leaving it out")
        self.master = port

    def open_master(self, secret: Secret, port_range: range) -> None:
        """Open a free port for the world to use; NetworkError when the range is full."""
        first = ports.candidates(secret.master_seed, MASTER_PORTS, port_range)
        for port in dict.fromkeys((*first, *port_range)):
            if port not in self.check_in and self._open(port, reuse=False, hold=self._hold):
                self.master = port
                return
        raise NetworkError(
            f"a free port in {port_range.start}-{port_range.stop - 1} on this host, rank 0",
            f"all {len(port_range)} are taken{ports.over(port_range)}",
            "a wider --port-range, or ending what listens there (see `ss -tan`)",
        )

    def close(self) -> None:
        """Close what is open."""
        for listener in self.sockets:
            listener.close()

    def _open(self, port: int, *, reuse: bool, hold: bool = True) -> bool:
        """Listen on a port in both families, or in neither."""
        four = ports.bound("0.0.0.0", port, reuse=reuse, hold=hold)  # noqa: S104 - members come over any network
        if four is None:
            return False
        if not ports.has_ipv6():
            self.sockets.append(four)
            return True
        self.sockets.append(four)  # owned before anything else can fail
        six = ports.bound("::", port, reuse=reuse, hold=hold)
        if six is None:
            self.sockets.remove(four)
            four.close()
            return False
        self.sockets.append(six)
        return True
