"""What a run decides about its attempts, each decision by itself, and what it prints about events."""

from itertools import product
from typing import Any

import pytest

from mingle_hooks.run import attempt
from mingle_hooks.run.attempt import NEVER, Cause, Deliveries, Plan, RootCause, Roster, Stopping, StopRequest
from mingle_hooks.run.messages import Ended

HUP, INT, USR1, TERM = 1, 2, 10, 15
CAUSE = Cause("ended", "b", 1, 12.0, 1)


def roster(states: str = "", slots: tuple[int, ...] = (1, 1, 1), least: int = 2) -> Roster:
    """Return the roster of hosts a, b and c, of which two are to train, in these states (f: failed)."""
    made = Roster(Plan(("a", "b", "c"), slots, least, 2))
    for place, state in enumerate(states):
        made.put(place, {"a": "away", "c": "called"}.get(state, "idle"))  # type: ignore[arg-type]
    made.failures |= {host: 2 for host, state in zip("abc", states, strict=False) if state == "f"}
    return made


def test_a_host_is_called_and_here_as_a_whole() -> None:
    its = roster(slots=(2, 1, 1))
    its.absences |= {"a": "ssh: no route", "c": "ssh: refused"}
    its.call(("a", "b"))
    assert (its.state, its.absences) == (["called"] * 3 + ["away"], {"c": "ssh: refused"})
    assert (its.count["called"], its.here(), its.at("ba"), its.host(1), its.busy()) == (3, [], [2, 0, 1], "a", [])
    its.put(0, "idle")
    assert (its.count["called"], its.here(), its.wanted("away")) == (2, [], ["c"])
    its.put(1, "idle")
    assert (its.count["called"], its.here(), its.is_whole("b", "called")) == (1, ["a"], True)
    assert (its.give_up("abc", "called"), its.state) == ([2], ["idle", "idle", "away", "away"])
    for place in (0, 1, 3):
        its.put(place, "lost")
    its.put(2, "busy")
    assert (its.busy(), its.lost_hosts(), its.count["busy"], its.count["lost"]) == ([2], ("a", "c"), 1, 3)


def test_hosts_are_complete_once_nobody_to_come_would_have_a_rank() -> None:
    """A host that failed twice is not taken where there is another."""
    complete = ["".join(states) for states in product("aci", repeat=3) if roster("".join(states)).is_complete()]
    assert complete == ["aai", "aia", "aii", "iaa", "iai", "iia", "iic", "iii"]
    assert (roster("ifi").here(), roster("ifi", least=3).here()) == (["a", "c"], ["a", "b", "c"])


LIMITED = Plan(("a",), (1,), 1, 1, grace_s=10, warn_at_s=86_000, limit_at_s=86_400)  # from 100: 86,100 and 86,500
FOREVER = Plan(("a",), (1,), 1, 1)


def stopping(plan: Plan = LIMITED) -> Stopping:
    return Stopping(plan, 100.0)


def test_the_warning_and_the_limit_are_due_once() -> None:
    its = stopping()
    assert (its.due, its.end_at, its.is_warning_due(86_099.9), its.was_warned) == (86_100, 86_500, False, False)
    assert not its.is_repeated(USR1, 86_100)
    assert (its.is_warning_due(86_100), its.is_warning_due(86_100), its.was_warned) == (True, False, True)
    repeated = [its.is_repeated(number, at) for number, at in ((USR1, 86_160), (USR1, 86_161), (INT, 86_100))]
    assert repeated == [True, False, False]
    assert (its.due, its.limit_at) == (86_485, 86_485)
    assert stopping(LIMITED._replace(limit_at_s=12)).limit_at == 106  # COMMAND gets half of a short time
    its.stop(TERM, 86_485)
    assert its.due == NEVER
    its.by = 7.0
    assert (its.due, stopping(FOREVER).due, stopping(FOREVER).end_at) == (7.0, NEVER, NEVER)


def test_a_signal_is_the_warning_near_its_time_or_if_it_ends_nothing() -> None:
    times = (101, 82_900, 82_901, 86_039, 86_040, 86_160, 86_161)
    for plan, number, warnings in (
        (LIMITED, USR1, times[2:]),
        (LIMITED, TERM, ()),
        (LIMITED._replace(warn_signal=TERM), TERM, (86_040, 86_160)),
        (LIMITED._replace(warn_signal=HUP, warn_at_s=NEVER), HUP, ()),
        (FOREVER, USR1, times),
    ):
        for at in times:
            its = stopping(plan)
            assert its.is_warning(number, at) is its.was_warned is (at in warnings)
            assert its.is_warning_due(99_999) is (plan.warn_at_s < NEVER and at not in warnings)


@pytest.mark.parametrize("was_warned", [False, True])
def test_the_first_request_to_stop_counts(*, was_warned: bool) -> None:
    for number, now, status, got, is_cut_short in (
        (TERM, 86_498, None, 75 if was_warned else 143, True),
        (TERM, 86_499, None, 75, True),
        (INT, 86_499, None, 130, False),
        (HUP, 86_499, None, 129, True),
        (INT, 86_499, 141, 141, True),
        (TERM, 86_499, 143, 143, False),
    ):
        its = stopping()
        assert (its.is_warning_due(86_100 if was_warned else 0), its.is_cut_short) == (was_warned, was_warned)
        assert [its.stop(number, now, status), its.stop(USR1, now)] == [True, False]
        assert (its.request, its.is_cut_short) == (StopRequest(number, got), was_warned and is_cut_short)


def test_a_signal_that_hosts_notice_at_different_times_is_one() -> None:
    its = Deliveries(reaches=True)
    noticed = [its.notice(USR1, 0, 10.0), its.notice(USR1, 2, 10.125), its.notice(TERM, None, 10.125)]
    assert (noticed, its.due, its.ready(10.125)) == ([True, False, True], 10.25, [])
    assert (its.ready(10.25), its.due) == ([(1, USR1, 10.0, {0, 2})], 10.375)
    assert (its.ready(11), its.due, its.ready(11)) == ([(2, TERM, 10.125, set())], NEVER, [])
    assert [its.notice(USR1, 1, 11.9), its.due, its.notice(USR1, 1, 12.0), its.due] == [False, NEVER, True, 12.25]
    assert its.ready(20) == [(3, USR1, 12.0, {1})]
    alone = Deliveries(reaches=False)
    assert (alone.notice(TERM, 0, 10.0), alone.due, alone.ready(10.0)) == (True, 10.0, [(1, TERM, 10.0, set())])


def test_a_cause_is_reported_once_and_once_it_is_certain() -> None:
    its = roster()
    root = RootCause(its)
    assert root.to_report() is None
    root.quiet(2, 5.0)
    root.suspect([0, 2])
    root.set(CAUSE)
    assert (root.suspects, root.to_report(), its.failures) == ({2}, None, {"a": 0, "b": 1, "c": 0})
    root.alive(2)
    assert [root.to_report(), root.to_report()] == [CAUSE, None]
    root.set(echo := CAUSE._replace(host="c", exception="OSError: Broken pipe"))
    assert (root.is_echo, root.to_report(), its.failures) == (True, None, {"a": 0, "b": 0, "c": 1})
    root.is_echo = False
    assert root.to_report() == echo
    for kind in ("stalled", "ended", "unformed"):
        root.set(CAUSE._replace(kind=kind))
        assert its.failures == {"a": 0, "b": int(kind == "ended"), "c": 0}
    root.suspect([2])
    assert not root.suspects  # it is not quiet any more
    root.quiet(0, 6.0)
    root.suspect([0])
    root.reset()
    assert (root.cause, root.to_report(), root.suspects) == (None, None, set())


def test_the_fourth_failure_of_one_kind_is_the_same_again() -> None:
    """What trained for long, got further or failed otherwise in between counts anew."""
    other, lost, long = CAUSE._replace(status=2), CAUSE._replace(kind="gone"), CAUSE._replace(after_s=attempt.LONG_S)
    root = RootCause(roster())
    found = []
    for cause in (*[CAUSE] * 4, other, *[CAUSE] * 3, long, *[CAUSE] * 3, *[lost] * 5, None, *[CAUSE] * 4):
        root.cause = cause
        found.append(root.is_same_again())
    assert [at for at, is_same in enumerate(found) if is_same] == [3, 11, 21]
    root.progress = "epoch 2"
    assert not root.is_same_again()


def test_what_may_be_tried_again_and_what_is_the_hosts_fault() -> None:
    kinds: tuple[Any, ...] = ("ended", "unformed", "silent", "gone", "absent", "isolated", "stalled")
    causes = [Cause(kind, "b", 1, 12.0, status) for kind in kinds for status in (1, 125, 126, 127, 128)]
    final = {(cause.kind, cause.status) for cause in causes if not cause.may_be_retried}
    assert final == {("ended", 126), ("ended", 127), *(("unformed", status) for status in (1, 125, 126, 127, 128))}
    of_host = {cause.kind for cause in causes if cause.is_of_host and (cause.kind, cause.status) not in final}
    assert of_host == {"ended", "silent", "gone", "absent"}
    assert {cause.kind for cause in causes if cause.likeness is not None} == {"ended"}
    assert not any(cause.is_of_host for cause in causes if (cause.kind, cause.status) in final)


ENDED = Ended(0, 1, None, formed=True, is_oom=False, tail="t", exception="E: 1")


def test_the_end_of_a_command_is_a_cause() -> None:
    killed = ENDED._replace(status=0, signal=9, is_oom=True)
    for ended, expected in (
        (ENDED, ("ended", "b", 1, 2.0, 1, None, False, None, "t", "E: 1")),
        (killed, ("ended", "b", 1, 2.0, 137, 9, True, None, "t", "E: 1")),
        (killed._replace(formed=False), ("unformed", "b", 1, 2.0, 75, None, False, None, "t", "")),
    ):
        assert attempt.cause_of_end(ended, "b", 1, 2.0) == expected
    ends = [ENDED._replace(status=status, formed=False) for status in range(256)]
    kept = {end.status for end in ends if attempt.cause_of_end(end, "b", 1, 2.0).status == end.status}
    assert kept == {64, 65, 70, 73, 75, 76, 77, 78, 126, 127}
    assert {attempt.cause_of_end(end, "b", 1, 2.0).status for end in ends} == kept


def test_two_failures_are_alike_by_exception_or_error_or_last_lines() -> None:
    for exception, tail, what in (
        ("ValueError: 0xAf1 at 17", "ignored", ["ValueError: 0 at 0"]),
        ("", "1\n2\n\n 3 \n4\n5\n6x\n", ["0", "0", "0", "0", "0x"]),
        ("", "a\nTraceback of 7\nb\nc\nd\ne\nf\nError\n", ["Traceback of 0", "b", "c", "d", "e"]),
        ("", "a\nan Error\nb\n", ["an Error", "b"]),
    ):
        cause = CAUSE._replace(exception=exception, tail=tail, signal=6, is_oom=True)
        assert cause.likeness == (1, 6, True, tuple(what))


def failed(kind: Any = "ended", rank: int | None = 1, **its: Any) -> tuple[str, dict[str, Any]]:
    """Return the event of a failure after 12 s."""
    return "failed", Cause(kind, "b", rank, 12.4, **its)._asdict()


WORLD, HERE = {"hosts": ["n1", "n2"], "addr": "::1", "port": 5}, {"host": "b", "rank": 0, "silent_s": 15.4}
STOP = {"why": "", "number": INT, "grace_s": 9.6}


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (failed(status=3), "b (rank 1): exited with status 3 after 12 s"),
        (failed(status=3, is_oom=True), "b (rank 1): exited with status 3 after 12 s: out of memory"),
        (failed(signal=9), "b (rank 1): killed by SIGKILL after 12 s"),
        (failed(signal=33, exception="E\n1"), "b (rank 1): E\\n1; killed by signal 33 after 12 s"),
        (failed(tail="a\n \n\x1b\n"), "b (rank 1): exited with status 75 after 12 s; its last lines:\n  a\n  \\x1b"),
        (failed("silent", silent_s=15.2), "b (rank 1): no sign of life for 15 s"),
        (failed("isolated", None), "b: cut off from all other nodes for 0 s"),
        (failed("gone"), "b (rank 1): its agent was killed or lost its connection after 12 s"),
        (failed("absent", None, tail="ssh: no"), "b: its agent could not be started"),
        (failed("absent", None), "b: its agent did not start within 12 s"),
        (failed("unformed", status=64), "b (rank 1): no world formed after 12 s (status 64)"),
        (failed("stalled", None), "no rank has written anything for 0 s"),
        (("missing", {**WORLD, "within_s": 90.0}), "n[1-2] cannot be reached: called again for up to 90 s"),
        (("absent", HERE), "b did not return"),
        (("used_up", WORLD), "no restart: n[1-2] failed twice each, and too few other hosts are left"),
        (("formed", WORLD), "n[1-2] are one world, rank 0 at ::1 port 5"),
        (("formed", {**WORLD, "hosts": ["n1"]}), None),
        (("paused", HERE), "b (rank 0): no heartbeat for 15 s, but the host answers: waiting for it"),
        (("lost", HERE), None),
        (("lost", {"host": "b", "rank": None}), "b, which waited, is lost"),
        (("unreached", HERE), "b cannot be reached: processes there end by themselves"),
        (("again", {"attempt": 2}), "restarts: attempt 2"),
        (("same", {}), "the same failure repeats: no further restart"),
        (("warned", {"number": USR1}), "the time limit is near: SIGUSR1 to all"),
        (("signal", {"number": HUP}), "SIGHUP received, and sent to all nodes"),
        (("stopped", STOP), "ending: SIGINT received; the grace period of COMMAND is 10 s"),
        (("stopped", {**STOP, "why": "its time"}), "ending: its time; the grace period of COMMAND is 10 s"),
        (("over", {"status": 0}), None),
    ],
)
def test_each_event_is_one_line_or_none(event: tuple[str, dict[str, Any]], line: str | None) -> None:
    assert attempt.event_text(*event) == (None if line is None else f"mingle run: {line}\n")
