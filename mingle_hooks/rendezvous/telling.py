"""What a person hears of a world that has formed: what is odd about it, and for --explain how it came about."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mingle_hooks.rendezvous.leader.leader import Leader
    from mingle_hooks.rendezvous.member.membership import Membership
    from mingle_hooks.rendezvous.observer import Observer
    from mingle_hooks.rendezvous.request import Request


def of_leader(leader: Leader, request: Request, observer: Observer, chosen: str) -> None:
    """Tell what rank 0 knows of all; `chosen` is the address that the world uses."""
    if request.orders_by_switch:
        from mingle_hooks.rendezvous import report

        for line in report.without_switch(leader):
            observer.note(line)
    if request.tells is not None:
        from mingle_hooks.rendezvous.leader import comparison

        for line in comparison.lines(leader, chosen, asks_rdma=request.asks_rdma):
            observer.note(line)
    if observer.tell is not None:
        from mingle_hooks.rendezvous import report

        for line in report.of_leader(leader, chosen):
            observer.tell(line)


def of_member(membership: Membership | None, observer: Observer) -> None:
    """Tell what any other member knows."""
    if observer.tell is not None:
        from mingle_hooks.rendezvous import report

        for line in report.of_member(membership):
            observer.tell(line)
