"""To stand as leader: open the doors, work out what to offer, and begin to serve."""

from __future__ import annotations

import os
import resource
from typing import TYPE_CHECKING, NamedTuple

from mingle_hooks.errors import NetworkError
from mingle_hooks.rendezvous.doors import Doors, check_in_ports
from mingle_hooks.rendezvous.leader import Leader, Offer, Terms
from mingle_hooks.rendezvous.lookup import is_local, resolve
from mingle_hooks.rendezvous.offers import RESOLVE_S, named, offers
from mingle_hooks.rendezvous.checkin import Checkin
from mingle_hooks.rendezvous.roster import Roster
from mingle_hooks.rendezvous.ways import Notice
from mingle_hooks.schedulers.facts import MOST_NODES

if TYPE_CHECKING:
    from collections.abc import Callable

    from mingle_hooks.rendezvous.attempt import Secret
    from mingle_hooks.rendezvous.loop import Loop
    from mingle_hooks.rendezvous.request import Request

# Descriptors that a leader needs besides two per member: one that checks in, one that tries an address.
SPARE_DESCRIPTORS = 512


class Standing(NamedTuple):
    """A member that leads, or would."""

    leader: Leader
    notice: Notice
    no_network: NetworkError | None  # why this host can offer nothing to other hosts, where it cannot
    limits: tuple[int, int]  # of open files, as its user had them

    def close(self) -> None:
        """Let go of every socket, and of the higher limit: what `mingle exec` becomes must find its user's."""
        self.leader.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, self.limits)


def stand(
    loop: Loop, request: Request, secret: Secret, me: Checkin, on_change: Callable[[], None]
) -> Standing | None:
    """Return the leader that this member is or may become, None where it can be neither."""
    if request.rank not in (0, None):
        return None
    if request.rank is None and request.master is not None and not _here(request.master[0]):
        return None  # a person said where the leader is, and that is not here
    opened = Doors()
    try:
        what, no_network = _offers(request)
        if not _open(opened, request, secret):
            return None
        terms = Terms(what, opened.master, 0 if request.rank == 0 else _ticket())
        roster = Roster(me, request.hosts)
        leader = Leader(loop, request.attempt, secret, roster, me, terms, opened.sockets, on_change)
    except BaseException:
        opened.close()
        raise
    addresses = tuple(offer.address for offer in what if not offer.loopback) or tuple(o.address for o in what)
    ports = tuple(opened.check_in) or (opened.master,)
    notice = Notice(me.member, terms.ticket, addresses, ports)
    return Standing(leader, notice, no_network, _allow_open_files(request.nodes))


def _allow_open_files(nodes: int | None) -> tuple[int, int]:
    """Allow as many open files as a leader of N members needs; return the limits as they were."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * (nodes or MOST_NODES) + SPARE_DESCRIPTORS
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    return soft, hard


def _here(host: str) -> bool:
    return any(is_local(address) for address in resolve(host, RESOLVE_S))


def _offers(request: Request) -> tuple[tuple[Offer, ...], NetworkError | None]:
    addr = request.given.get("MASTER_ADDR")
    if addr is not None:
        return named(addr), None
    what, no_network = offers(request.prefer)
    if no_network is not None and (len(set(request.hosts)) > 1 or not what):
        raise no_network
    return what, no_network


def _open(opened: Doors, request: Request, secret: Secret) -> bool:
    """Open the doors; False where another member on this host already leads at the port that was named."""
    named_port = request.master[1] if request.master is not None else None
    if named_port is not None:
        try:
            opened.open_named(named_port)
        except NetworkError:
            if request.rank == 0:
                raise
            return False
        opened.check_in = [named_port]
    else:
        opened.open_check_in(check_in_ports(request.attempt, secret, request.port_range))
    if "MASTER_PORT" in request.given:
        opened.open_named(int(request.given["MASTER_PORT"]))
    elif named_port is None:
        opened.open_master(request.attempt, request.port_range)
    return True


def _ticket() -> int:
    """Return a candidate's ticket; 0 is kept for who leads by right."""
    return max(1, int.from_bytes(os.urandom(8), "big") >> 1)
