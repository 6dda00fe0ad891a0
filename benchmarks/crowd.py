"""One process of many simulated members: real searches, check-ins and probes on real sockets, one loop for all.

Each comes from an address of its own, as hosts do, of those that loopback has: so that ports do not run out. What a
member does once, and many in one process would have to do again, is done once, or not at all: the world's tag, the
rows of its roster.
"""

from __future__ import annotations

import gc
import os
import resource
import socket
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

from mingle_hooks.rendezvous import connection, discovery, member
from mingle_hooks.rendezvous.connection import READ, Loop
from mingle_hooks.rendezvous.member import CALL_AGAIN_S, Membership
from mingle_hooks.rendezvous.messages import JoinRequest
from mingle_hooks.rendezvous.wire import Attempt, Material, Secret

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from mingle_hooks.rendezvous.wire import Body

KEY = Material(b"k" * 32)
ADDRESS = "127.0.0.1"
TIMEOUT_S = 180.0
# What a GPU node says of itself, 420 characters; each adds an address of its own.
FINGERPRINT = (
    "NCCL_DEBUG=WARN NCCL_IB_TIMEOUT=22 NCCL_SOCKET_IFNAME=1%20listed OMP_NUM_THREADS=12 cuda=12.4.127 driver=570.86.15"
    " git=57f6c79e gpus=8%20H100 image=ubuntu%2022.04 jax=- kernel.machine=x86_64 kernel=5.15.0-1053-nvidia"
    " limits.memlock=unlimited limits.nofile=4096+ limits.nproc=4096+ mingle=1.0.0 nccl=2.21.5 program=9b74c989"
    " python=3.11.2 rdma.firmware=28.39.1002 rdma.link=InfiniBand rdma=8x400G shm=ok tmp=ok torch=2.5.1+cu124"
)
STORM_S = 0.5
# A leader that does not answer is dialled again after this long, in seconds, as the discovery backends do.
AGAIN_S = 1.0


class World(NamedTuple):
    """What all processes of one run know."""

    name: str
    nodes: int
    port: int
    wants_roster: bool

    @property
    def attempt(self) -> Attempt:
        """Its name, by which its key is made."""
        return Attempt(self.name)


class Crowd:
    """The members of some ranks. Says over `pipe` when all are in, and when the last of them has the world."""

    def __init__(self, world: World, ranks: range, loop: Loop, pipe: Connection) -> None:
        self.world, self.ranks, self.loop, self._pipe = world, ranks, loop, pipe
        self.secret = Secret.derive(KEY, world.attempt)
        self.attempt: Any = SimpleNamespace(tag=world.attempt.tag)  # all that a member asks of it
        self.inside = self.formed = 0
        self.members = [Member(self, rank) for rank in ranks]
        self.is_over = False
        self.loop.watch(pipe, READ, self._hear)

    def _hear(self, _events: int) -> None:
        """Have some members come, from a moment on, each so much later than the one before."""
        order = self._pipe.recv()
        if order is None:
            self.is_over = True
            return
        first, last, at, step_s = order
        late_s = at - time.monotonic()
        for number, one in enumerate(self.members[first:last]):
            self.loop.after(max(0.0, late_s + number * step_s), one.arrive)

    def is_inside(self) -> None:
        """Note that one more has checked in and reached an address."""
        self.inside += 1
        if self.inside >= len(self.ranks) - 1:
            self._pipe.send(("in", self.inside, time.monotonic()))

    def has_formed(self) -> None:
        """Note that one more has COMMIT; all hang up when the last has, as nobody waits for that elsewhere."""
        self.formed += 1
        if self.formed == len(self.ranks):
            self._pipe.send(("formed", self.formed, time.monotonic()))
            for one in self.members:
                one.leave()


class Member:
    """One simulated member."""

    def __init__(self, crowd: Crowd, rank: int) -> None:
        self.crowd = crowd
        world = crowd.world
        self._me = JoinRequest(
            os.urandom(16),
            f"node{rank}",
            rank,
            world.nodes,
            1,
            "here",
            wants_roster=world.wants_roster,
            fingerprint=FINGERPRINT,
            addresses=f"10.{rank >> 16}.{rank >> 8 & 255}.{rank & 255}=400G,mtu4092",
        )
        self._dialer = discovery.Dialer(
            crowd.loop, crowd.attempt, crowd.secret, self._leader_proven, self._refused, lambda _at, _leader: None
        )
        self._membership: Light | None = None

    def arrive(self) -> None:
        """Dial the leader, again and again until it is there."""
        if self._membership is None:
            source.rank = self._me.rank or 0
            self._dialer.dial(connection.Endpoint(ADDRESS, self.crowd.world.port, "benchmark"))
            self.crowd.loop.after(AGAIN_S, self.arrive)

    def leave(self) -> None:
        """Hang up."""
        if self._membership is not None:
            Membership.close(self._membership)

    def _refused(self, *who: str) -> None:
        raise AssertionError(f"refused: {who}")

    def _leader_proven(self, proven: discovery.ProvenLeader) -> None:
        crowd = self.crowd
        parts = crowd.loop, crowd.attempt, crowd.secret, proven, self._me
        self._membership = Light(*parts, lambda _own: True, lambda: TIMEOUT_S, self._changed)
        self._membership.member = self

    def _changed(self) -> None:
        state = self._membership.state if self._membership is not None else ""
        if state == "formed":
            self.crowd.has_formed()
        elif state == "lost":  # a leader that is short of descriptors lets go of whoever came first
            self._membership = None
            self.crowd.loop.after(CALL_AGAIN_S, self.arrive)
        elif state in ("failed", "moved"):
            raise AssertionError(f"rank {self._me.rank} {state}: {self._membership and self._membership.failure}")


class Light(Membership):
    """Does not unpack its roster: N members would read N² rows on this one machine."""

    member: Member
    _is_inside = False

    def close(self) -> None:
        """Hang up later, where it has the world."""
        if self.state != "formed":
            super().close()

    def reached(self, offer: int, own_address: str) -> bool:
        """Tell the leader as every member does, and count the first time."""
        if not self._is_inside:
            self._is_inside = True
            self.member.crowd.is_inside()
        return super().reached(offer, own_address)

    def _may_serve_all(self, address: str) -> bool:
        return bool(address)  # the addresses of loopback stand for those of networks

    def _welcome(self, body: Body) -> None:
        source.rank = self.me.rank or 0
        super()._welcome(body)

    def _handle(self, kind: int, body: Body) -> None:
        body.pop("roster", None)  # it has the digest of what came before
        super()._handle(kind, body)


class Source:
    """Dials from the loopback address of a rank."""

    rank = 0

    def dial(self, address: str, port: int) -> socket.socket:
        """Begin a connection, as connection.dial does."""
        if not address.startswith("127."):
            return connection.dial(address, port)
        sock = socket.socket()
        sock.settimeout(0)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # The port is chosen with the destination known, so that each source address has all of them for each.
        sock.setsockopt(socket.IPPROTO_IP, getattr(socket, "IP_BIND_ADDRESS_NO_PORT", 24), 1)
        sock.bind((f"127.1.{self.rank >> 8}.{self.rank & 255}", 0))
        try:
            sock.connect((address, port))
        except BlockingIOError:
            pass
        return sock


source = Source()


def be_crowd(world: World, ranks: range, pipe: Connection) -> None:
    """Be the members of some ranks until told to end; an error of any of them ends all."""
    for module in (discovery, member):
        vars(module)["dial"] = source.dial
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with Loop() as loop:
        crowd = Crowd(world, ranks, loop, pipe)
        gc.collect()
        gc.freeze()
        gc.disable()
        pipe.send(("ready", len(ranks), time.monotonic()))
        loop.run(lambda: crowd.is_over)
