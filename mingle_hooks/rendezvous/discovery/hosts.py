"""The scheduler names the first host: try the job's own check-in ports there."""

from __future__ import annotations

from collections.abc import Sequence

from mingle_hooks.errors import NetworkError, reason
from mingle_hooks.rendezvous.connection import Timer
from mingle_hooks.rendezvous.dialer import Endpoint
from mingle_hooks.rendezvous.discovery import Advertisement, Context, Lookup

# The first tries come quickly, for a job starts everywhere at about the same time; then they slow down.
FIRST_DELAY_S = 0.005
GROWTH = 1.15  # so a pause is about a seventh of the time waited so far, and adds no more than that to it
LONGEST_DELAY_S = 0.25
# With many members each asks less often, so that rank 0's host sees at most some 4,000 rounds a second.
ROUNDS_PER_SECOND = 4000
# A name is looked up again after this long: it may have been registered only now.
LOOK_UP_AGAIN_S = 5.0


def backend(context: Context) -> HostsBackend | None:
    """Return this backend where the scheduler names hosts."""
    if not context.leader_hosts:
        return None
    suffix = context.host_suffix
    names = [host + suffix for host in context.leader_hosts] if suffix else []
    return HostsBackend(context, "hosts", [*names, *context.leader_hosts], context.ports)


class HostsBackend:
    """Tries each of `ports` on each address of each of `hosts`, again and again."""

    def __init__(self, context: Context, name: str, hosts: Sequence[str], ports: Sequence[int]) -> None:
        self._context, self._name, self._hosts, self._ports = context, name, hosts, ports
        self._delay = FIRST_DELAY_S
        self._timer: Timer | None = None
        self._addresses: dict[str, list[str]] = {}
        self._lookups: dict[str, Lookup] = {}  # one each: a name whose server does not answer holds up no other
        self._next_lookup = 0.0
        self._wanted = False
        self.faults: list[str] = []

    def search(self, *, wanted: bool) -> None:
        """Begin, or stop, trying."""
        if wanted and not self._wanted:
            self._delay = FIRST_DELAY_S
            self._wanted = True
            self._round()
        elif not wanted:
            self._wanted = False
            if self._timer is not None:
                self._timer.cancel()

    def announce(self, advertisement: Advertisement | None) -> None:
        """Nothing to do: a leader that listens on the job's ports is found."""

    def tried(self) -> str:
        """Name the hosts and ports."""
        unknown = [host for host in self._hosts if self._addresses.get(host) == []]
        what = f"{', '.join(self._hosts[:3])} ports {', '.join(map(str, self._ports))}"
        return what + (f" (name not known: {', '.join(unknown[:3])})" if unknown else "")

    def close(self) -> None:
        """Stop; a look-up that hangs is left to end by itself, with the process."""
        self.search(wanted=False)
        for lookup in self._lookups.values():
            lookup.close()

    def _round(self) -> None:
        loop = self._context.loop
        if loop.clock() >= self._next_lookup:
            self._next_lookup = loop.clock() + LOOK_UP_AGAIN_S
            for host in self._hosts:
                if not self._addresses.get(host) and host not in self._lookups:
                    self._look_up(host)
        for host in self._hosts:
            for address in self._addresses.get(host, ()):
                for port in self._ports:
                    self._context.dial(Endpoint(address, port, self._name))
        longest = max(LONGEST_DELAY_S, (self._context.nodes or 1) / ROUNDS_PER_SECOND)
        self._timer = loop.after(loop.about(self._delay), self._round)
        self._delay = min(self._delay * GROWTH, longest)

    def _look_up(self, host: str) -> None:
        try:
            self._lookups[host] = Lookup(self._context.loop, host, self._looked_up)
        except (OSError, NetworkError) as error:  # no descriptor or no thread for it: the next round may have one
            self._context.loop.missed(error)
            self.faults = [f"names not looked up: {reason(error)}"]

    def _looked_up(self, host: str, addresses: list[str]) -> None:
        """Take the addresses that a look-up gave, and try them at once."""
        del self._lookups[host]
        self._addresses[host] = addresses
        if self._wanted and addresses:
            if self._timer is not None:
                self._timer.cancel()
            self._round()
