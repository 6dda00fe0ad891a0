"""Beacons over multicast, IPv4 and IPv6: for clusters without names, and machines without a scheduler.

Multicast only finds the leader. Few datagrams, whatever N: the leader repeats its beacon, a newcomer asks a
few times, and nobody else says anything.
"""

from __future__ import annotations

from mingle_hooks import sockets as socket
from mingle_hooks.errors import NetworkError, reason
from mingle_hooks.rendezvous import beacon
from mingle_hooks.rendezvous.budget import Budget
from mingle_hooks.rendezvous.carriers import carriers
from mingle_hooks.rendezvous.poller import READ
from mingle_hooks.rendezvous.search import Lead
from mingle_hooks.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from multicast_expert import IfaceInfo, McastRxSocket, McastTxSocket

    from mingle_hooks.rendezvous.loop import Timer
    from mingle_hooks.rendezvous.ways import Context, Notice

# A beacon's interval in seconds grows from the first to the last; a newcomer does not wait for it, it asks.
FIRST_BEACON_S, LAST_BEACON_S = 0.1, 1.0
GROWTH = 1.6
# In a minute the leader sends at most 10 + 60 beacons, 10 + 12 answers and 4 questions,
# a waiting member 2 + 2 questions.
BEACONS = (10, 1.0)
ANSWERS = (10, 0.2)
QUESTIONS = (2, 1 / 30)
# A question is repeated after these seconds, for it or its answer may be lost.
ASK_AGAIN_S = (0.3, 1.0, 5.0, 20.0, 30.0)
# A candidate that hears a better one holds its beacon back, while it asks that one whether it is real.
HOLD_BACK_S = 0.5
# It does so only this often: a beacon that somebody recorded and repeats must not silence it for good.
MOST_HOLDS = 4
# In an election candidates begin within this time, the better the sooner, so that few ever send.
SPREAD_S = 0.25
# Unproved beacons that are looked into at most: a member with another key learns so from the leader itself.
MOST_DOUBTS = 4


def way(context: Context) -> MulticastWay:
    """Return this way; NetworkError where no interface carries multicast, ImportError for want of a package."""
    ways = MulticastWay(context, carriers(context.nets))
    if not ways.links:
        raise NetworkError("an interface that carries multicast", "; ".join(ways.faults) or "none", "--iface")
    return ways


class _Link:
    """One interface in one family."""

    def __init__(self, way: MulticastWay, info: IfaceInfo, family: int, group: str, port: int, ttl: int) -> None:
        import multicast_expert  # noqa: PLC0415

        self.info, self.family, self._where, self._loop = info, family, (group, port), way.context.loop
        # Members may share a host, so what is sent has to come back to it.
        self._tx: McastTxSocket = multicast_expert.McastTxSocket(
            family, [group], iface=info, ttl=ttl, enable_external_loopback=True
        )
        self._rx: McastRxSocket = multicast_expert.McastRxSocket(
            family, [group], port, iface=info, timeout=0, enable_external_loopback=True
        )
        try:
            self._tx.__enter__()
            self._rx.__enter__()
            for sock in self._rx.sockets:
                sock.settimeout(0)
                self._loop.watch(sock, READ, lambda _events, sock=sock: way.received(self, sock))  # type: ignore[misc]
        except BaseException:
            # Their own way out refuses to close what is only half open.
            for sock in (getattr(self._tx, "socket", None), *getattr(self._rx, "sockets", ())):
                if sock is not None:
                    sock.close()
            raise

    @property
    def label(self) -> str:
        return f"{self._where[0]} on {self.info.machine_name}"

    def send(self, data: bytes) -> None:
        """Send; OSError when the interface has gone."""
        self._tx.sendto(data, self._where)

    def close(self) -> None:
        for sock in self._rx.sockets:
            self._loop.unwatch(sock)
        self._rx.__exit__(None, None, None)
        self._tx.__exit__(None, None, None)


class MulticastWay:
    """Beacons and questions over every usable interface and family."""

    def __init__(self, context: Context, infos: list[IfaceInfo]) -> None:
        self.context = context
        self.links: list[_Link] = []
        self._notice: Notice | None = None
        self._timer: Timer | None = None
        self._ask_timer: Timer | None = None
        self._interval = FIRST_BEACON_S
        self._turn = 0
        self._asked = 0
        self._holds = MOST_HOLDS
        clock = context.loop.clock
        self._beacons, self._answers = Budget(*BEACONS, clock), Budget(*ANSWERS, clock)
        self._questions = Budget(*QUESTIONS, clock)
        self._doubts = MOST_DOUBTS
        self.faults: list[str] = []
        try:
            for info in infos:
                self._open(info)
        except BaseException:
            self.close()
            raise

    def search(self, wanted: bool) -> None:  # noqa: FBT001
        """Ask now and a few times more, or only listen."""
        if self._ask_timer is not None:
            self._ask_timer.cancel()
            self._ask_timer = None
        if wanted:
            self._asked = 0
            self._ask()

    def announce(self, notice: Notice | None) -> None:
        """Repeat this leader's beacon from now on, or fall silent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._notice = notice
        if notice is not None:
            self._interval = FIRST_BEACON_S
            self._holds = MOST_HOLDS
            self._timer = self.context.loop.after(SPREAD_S * notice.ticket / 2**63, self._repeat)

    def tried(self) -> str:
        """Name groups and interfaces."""
        return ", ".join(link.label for link in self.links) + f" port {self._port}"

    def close(self) -> None:
        """Leave the groups."""
        self.announce(None)
        self.search(wanted=False)
        for link in self.links:
            link.close()
        self.links = []

    @property
    def _port(self) -> int:
        return self.context.multicast_port

    def _open(self, info: IfaceInfo) -> None:
        attempt = self.context.attempt
        families = [(socket.AF_INET, attempt.group4, info.ip4_addrs), (socket.AF_INET6, attempt.group6, info.ip6_addrs)]
        for family, group, addresses in families:
            if not addresses:
                continue
            try:
                self.links.append(_Link(self, info, family, group, self._port, self.context.ttl))
            except (OSError, RuntimeError) as error:  # it has gone, or multicast_expert refuses: others may do
                self._fault(info, error)

    def _send(self, data: bytes, links: list[_Link], budget: Budget) -> None:
        """Send over links in turn, as far as the budget goes."""
        for count in range(len(links)):
            if not budget.spend():
                return
            link = links[(self._turn + count) % len(links)]
            try:
                link.send(data)
            except OSError as error:
                self._fault(link.info, error)
        self._turn += 1

    def _fault(self, info: IfaceInfo, error: Exception) -> None:
        self.context.loop.missed(error)
        fault = f"{info.machine_name}: {reason(error)}"
        if fault not in self.faults:
            self.faults.append(fault)

    def _packet(self, kind: int, notice: Notice | None) -> bytes:
        tag = self.context.attempt.tag
        if notice is None:
            return beacon.pack(beacon.Packet(kind, tag, bytes(16)), self.context.secret)
        packet = beacon.Packet(kind, tag, notice.leader, notice.ticket, notice.ports[0], notice.addresses)
        return beacon.pack(packet, self.context.secret)

    def _repeat(self) -> None:
        if self._notice is None:
            return
        self._send(self._packet(beacon.BEACON, self._notice), self.links, self._beacons)
        loop = self.context.loop
        self._timer = loop.after(loop.about(self._interval), self._repeat)
        self._interval = min(self._interval * GROWTH, LAST_BEACON_S)

    def _ask(self) -> None:
        self._send(self._packet(beacon.QUESTION, self._notice), self.links, self._questions)
        loop = self.context.loop
        delay = ASK_AGAIN_S[min(self._asked, len(ASK_AGAIN_S) - 1)]
        self._asked += 1
        self._ask_timer = loop.after(loop.about(delay), self._ask)

    def received(self, link: _Link, sock: socket.socket) -> None:
        """Read one datagram, from whomever."""
        try:
            data, where = sock.recvfrom(beacon.MOST_BYTES + 1)
        except OSError:  # an error of an earlier send, or another reader was faster
            return
        packet = beacon.unpack(data, self.context.attempt.tag, self.context.secret)
        if packet is None or (self._notice is not None and packet.leader == self._notice.leader):
            return
        source = str(where[0]).partition("%")[0]
        if not packet.genuine:
            self._doubt(packet, source)
        elif packet.kind == beacon.BEACON or self._is_better(packet):
            self._hold_back(packet)
            # Only what the leader signed: anybody can send its beacon again, from any address.
            for address in sorted(packet.addresses, key=lambda address: address != source):
                self.context.found(Lead(address, packet.port, "multicast"))
        elif self._notice is not None:
            self._send(self._packet(beacon.BEACON, self._notice), [link], self._answers)

    def _is_better(self, packet: beacon.Packet) -> bool:
        """Whether a question comes from a better candidate: it tells all that a beacon would."""
        notice = self._notice
        return (
            notice is not None and packet.port > 0 and (packet.ticket, packet.leader) < (notice.ticket, notice.leader)
        )

    def _hold_back(self, packet: beacon.Packet) -> None:
        notice = self._notice
        if notice is None or self._holds == 0 or (packet.ticket, packet.leader) > (notice.ticket, notice.leader):
            return
        self._holds -= 1
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.context.loop.after(HOLD_BACK_S, self._repeat)

    def _doubt(self, packet: beacon.Packet, source: str) -> None:
        """Report a packet of this world under another key, and let a beacon's sender tell us so itself."""
        self.context.knocked(source)
        if packet.kind == beacon.BEACON and packet.port and self._doubts > 0 and not source.startswith("fe80"):
            self._doubts -= 1
            self.context.found(Lead(source, packet.port, "multicast"))
