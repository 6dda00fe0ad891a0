"""The real code's steps, told to who follows them: wrappers around the methods at which the protocol acts."""

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from simulator.process import Process, replacing
from simulator.schedules import Schedule

from mingle_hooks.rendezvous import wire
from mingle_hooks.rendezvous.leader import Leader, Session
from mingle_hooks.rendezvous.member import Membership
from mingle_hooks.rendezvous.rendezvous import Rendezvous
from model.following import Following

# A float's last digits.
EPSILON_S = 1e-6


def _began(follow: Following, rendezvous: Any) -> None:
    leader = rendezvous._leader
    precedence = (leader.terms.ticket, leader.me.member) if leader is not None else ()
    follow.began(rendezvous._me.member, rendezvous._me.rank, precedence)


def _killed(follow: Following, process: Any) -> None:
    if process.is_alive and process.rendezvous is not None:
        follow.killed(process.member)


def _ended(follow: Following, process: Any) -> None:
    if process.rendezvous is not None:
        leader = process.rendezvous._leader
        nobody_waits = leader is not None and leader.awaited_s <= EPSILON_S
        follow.ended(process.member, has_world=process.answer is not None, nobody_waits=nobody_waits)


def _found(follow: Following, rendezvous: Any, by: Any) -> None:
    follow.found(rendezvous._me.member, by.leader, by.precedence, by.sealer._hmac.digest())


def _promised(follow: Following, membership: Any, _epoch: int) -> None:
    ends = membership.lease_ends  # by the simulated time: the clock of a suspended host already shows when it wakes
    follow.promised(membership.me.member, lambda: follow.now() >= ends - EPSILON_S)


def _failed(follow: Following, leader: Any, _failure: Any) -> None:
    if leader.state not in ("failed", "formed"):
        follow.led(leader.me.member, "fails")


def _resumed(follow: Following, leader: Any) -> None:
    if leader.state == "withdrawn":
        follow.led(leader.me.member, "resumes")


def _lost(follow: Following, _leader: Any, session: Any) -> None:
    if session._sealer is not None:
        follow.lost(session._sealer._hmac.digest(), "up")


# The methods at which the protocol acts, what to tell of each, and whether before it acts; else after.
WRAPPERS: list[tuple[type, str, Callable[..., None], bool]] = [
    (Rendezvous, "start", _began, False),
    (Process, "kill", _killed, True),
    (Process, "_end", _ended, True),
    (Rendezvous, "_join", _found, True),
    (Membership, "_promise", _promised, False),
    (Membership, "give_up", lambda f, m, _after_s: f.gave_up(m.proven.sealer._hmac.digest()), True),
    (Membership, "fail", lambda f, m, _failure: f.told_failure(m.proven.sealer._hmac.digest()), True),
    (Membership, "_handle", lambda f, m, kind, body: f.member_hears(m.proven.sealer._hmac.digest(), kind, body), True),
    (Membership, "_ended", lambda f, m, _reason: f.lost(m.proven.sealer._hmac.digest(), "down"), True),
    (Leader, "checked_in", lambda f, _l, v, _c: f.leader_hears(v._sealer._hmac.digest(), wire.CHECKIN, {}), True),
    (Session, "_member_frame", lambda f, v, kind, body: f.leader_hears(v._sealer._hmac.digest(), kind, body), True),
    (Session, "send_payload", lambda f, v, kind, _payload: f.told(v._sealer._hmac.digest(), kind), True),
    (Leader, "lost", _lost, True),
    (Leader, "_close", lambda f, leader, _offer: f.led(leader.me.member, "closes"), True),
    (Leader, "_commit", lambda f, leader, _closing: f.led(leader.me.member, "commits"), True),
    (Leader, "fail", _failed, True),
    (Leader, "resume", _resumed, True),
]


def followed(seed: int) -> tuple[Schedule, Following | None]:
    """Run a schedule; return it, and who followed it: nobody where a clock jumps, as the model has one time for all."""
    schedule = Schedule(seed)
    plan = schedule.plan
    if any(fault.kind == "jump" for fault in plan.faults):
        schedule.run()
        return schedule, None
    ranked = plan.mode.startswith(("slurm", "ranks"))
    following = Following(plan.nodes, lambda: schedule.timeline.now, ranked=ranked, calm=not plan.faults)
    with recorded(following):
        schedule.run()
    return schedule, following


@contextlib.contextmanager
def recorded(following: Following) -> Iterator[None]:
    """Have it told of every step while the context lasts."""
    with replacing(
        [
            (owner, name, _told(vars(owner)[name], partial(tells, following), is_before=is_before))
            for owner, name, tells, is_before in WRAPPERS
        ]
    ):
        yield


def _told(acts: Callable[..., Any], tells: Callable[..., None], *, is_before: bool) -> Callable[..., Any]:
    def both(*args: Any) -> Any:
        if is_before:
            tells(*args)
            return acts(*args)
        result = acts(*args)
        tells(*args)
        return result

    return both
