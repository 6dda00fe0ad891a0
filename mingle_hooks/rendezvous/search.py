"""Where one member looks for a leader: its discovery backends, its calls, and who was met that is none of us."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mingle_hooks.errors import LIMITS, MissingError, NetworkError
from mingle_hooks.rendezvous import discovery
from mingle_hooks.rendezvous.discovery.discovery import Discovery
from mingle_hooks.rendezvous.discovery.one_way import OneWay
from mingle_hooks.rendezvous.member.dialer import REST_S, Dialer
from mingle_hooks.rendezvous.protocol import wire
from mingle_hooks.rendezvous.protocol.attempt import check_in_ports, multicast_port
from mingle_hooks.rendezvous.protocol.failure import LONGEST_PART
from mingle_hooks.rendezvous.rejected import label
from mingle_hooks.rendezvous.rejections import Rejections

if TYPE_CHECKING:
    from collections.abc import Callable

    from mingle_hooks.errors import MingleError
    from mingle_hooks.rendezvous.leader.candidate import Candidate
    from mingle_hooks.rendezvous.leader.leader import Leader
    from mingle_hooks.rendezvous.loop import Loop
    from mingle_hooks.rendezvous.member.dialer import Endpoint, ProvenLeader
    from mingle_hooks.rendezvous.protocol.attempt import Secret
    from mingle_hooks.rendezvous.request import Request

LOOK = "checking that host's log and firewall, or a longer --timeout"


class Search:
    """Hands each leader that proves itself to `on_proven`; the owner calls close().

    `candidate` is this member's own leader, which is announced and told who was met, and `joined` the precedence of
    the leader that this member has joined; None where there is none.
    """

    def __init__(
        self,
        loop: Loop,
        request: Request,
        secret: Secret,
        note: Callable[[str], None],
        on_proven: Callable[[ProvenLeader], None],
        candidate: Callable[[], Candidate | None],
        joined: Callable[[], tuple[int, bytes] | None],
        member: bytes = bytes(16),
    ) -> None:
        self._loop, self._request, self._candidate = loop, request, candidate
        self.rejections = Rejections(note, request.key_from)
        self._dialer = Dialer(loop, request.attempt, secret, on_proven, self._mismatch, self._relayed, request.host)
        self.dial = self._dialer.dial
        self.rest = self._dialer.rest
        self._one_way = OneWay()
        ports = check_in_ports(request.attempt, secret, request.port_range)
        context = discovery.Context(
            loop=loop,
            attempt=request.attempt,
            secret=secret,
            dial=self._dialer.dial,
            reject=self._reject,
            note=note,
            leader_hosts=request.leader_hosts,
            host_suffix=request.host_suffix,
            master=request.master,
            ports=tuple(dict.fromkeys([port for group in ports for port in group])),
            directory=request.directory,
            multicast_port=multicast_port(request.attempt),
            nets=tuple(p.text if p.network is None else str(p.network) for p in request.prefer),
            ttl=request.ttl,
            nodes=request.nodes,
            joined=joined,
            member=member,
            one_way=self._one_way,
        )
        self._discovery = Discovery(context, lambda: joined() is None, self._advertisement, self._leads)

    def close(self) -> None:
        """Close every backend and call."""
        self._discovery.close()
        self._dialer.close()

    def open(self) -> None:
        """Open the backends that were asked for. Raises NetworkError where none can be used."""
        self._discovery.open(self._request.via)

    def seek(self) -> None:
        """Look for a leader by every backend. Raises NetworkError where none is left."""
        self._discovery.seek()

    def pause(self) -> None:
        """Fall silent: a leader has been found."""
        self._discovery.rest()

    def is_alone(self) -> bool:
        """Tell whether the shared directory announces nobody else who is there: a last look before a world forms.

        Of two leaders that are announced at the same time, one at least looks when the other one's file is there.
        """
        self._discovery.look("directory")
        return not self._dialer.is_calling("directory")

    def drop(self, proven: ProvenLeader, rest_s: float = REST_S) -> None:
        """Hang up on a leader that has proved itself, and leave it alone for a while."""
        proven.connection.close()
        self._dialer.rest(proven.endpoint, rest_s)

    def tell(self, proven: ProvenLeader, kind: int, body: wire.Body) -> None:
        """Tell a leader that has proved itself one thing, and hang up."""
        proven.connection.send(proven.sealer.seal(kind, wire.encode(body)))
        self.drop(proven)

    def accuse(self, proven: ProvenLeader, host: str, member: bytes) -> None:
        """Tell a leader that has proved itself of another one that leads by the same right, and hang up."""
        self.tell(proven, wire.RIVAL, {"host": host[:LONGEST_PART], "member": member.hex()})

    def here(self, error: MingleError) -> MingleError:
        """Add what this host itself lacked to an error that somebody was missing or not reached."""
        if not isinstance(error, (MissingError, NetworkError)):
            return error
        short = self._loop.shortage
        lacks = [*self._discovery.faults(), *([short.seen] if short else [])]
        lacks = [lack for lack in lacks if lack not in error.seen]
        seen = "; ".join([*self.one_way(), *([f"here {'; '.join(lacks)}"] if lacks else []), error.seen])
        return type(error)(error.expected, seen, LIMITS[short.kind][1] if short else error.remedy)

    def one_way(self) -> list[str]:
        """Tell who is heard by multicast and does not seem to hear this host."""
        return self._one_way.told(self._leader.roster.entries() if self._leader is not None else ())

    def nobody(self, after_s: int) -> MingleError:
        """Return the error of a member that has not found rank 0 within so many seconds."""
        request = self._request
        expected = f"rank 0{request.expected_leader} within {after_s} s"
        seen = f"no answer (tried {self._discovery.tried()})"
        # What is left over from another job is likelier than a firewall.
        mend = f"unset {request.exported} if another job left it, or {LOOK}" if request.exported else LOOK
        return self.rejections.refusal() or self.here(MissingError(expected, seen, mend))

    @property
    def _leader(self) -> Leader | None:
        candidate = self._candidate()
        return candidate.leader if candidate is not None else None

    def _advertisement(self) -> discovery.Advertisement | None:
        candidate = self._candidate()
        return candidate.advertisement if candidate is not None else None

    def _leads(self) -> bool:
        return self._leader is not None and self._leader.state == "gathering"

    def _relayed(self, endpoint: Endpoint, leader: Endpoint) -> None:
        """Go round somebody who hands on what the leader says: a thief, or a service's address before a pod's own."""
        self.rejections.relayed(endpoint.address, leader.address)
        self._dialer.dial(leader)

    def _mismatch(self, address: str, host: str, why: wire.Why) -> None:
        self.rejections.refusals[why].add(address, host)
        if why == wire.KEY:
            self._reject(address, host)
        elif self._leader is not None:
            self._leader.refused[why].add(address, host)

    def _reject(self, address: str, host: str = "") -> None:
        if self._leader is not None:
            self._leader.rejected.add(address, host)
        self.rejections.reject([label(address, host)])
