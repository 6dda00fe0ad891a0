"""The state machine of a run: given orders of events, and many random ones."""

import random
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

import pytest

from mingle_hooks.rendezvous.wire import parse
from mingle_hooks.run import attempt, machine, messages
from mingle_hooks.run.attempt import NEVER, Cause, Plan, rank_hosts
from mingle_hooks.run.machine import Action, Begin, Event, Exit, Isolated, Joined, Lost, Noticed, Report, Send, Swept
from mingle_hooks.run.messages import Dump, End, Signal, Stacks
from mingle_hooks.run.status import Failure

HUP, INT, USR1, TERM = 1, 2, 10, 15


def plan(hosts: int = 3, spares: int = 0, **options: Any) -> Plan:
    """Return a plan of hosts a, b, c…, the last of which are spares."""
    names = tuple("abcdefgh"[:hosts])
    count = hosts - spares
    return Plan(**{"hosts": names, "slots": (1,) * hosts, "least": count, "most": count, **options})


class Run:
    """A machine, and the actions that it has returned."""

    def __init__(self, plan: Plan) -> None:
        self.machine, self.now = machine.Machine(plan, 100.0), 100.0
        self.actions: list[Action] = self.machine.begin()

    def take(self, *events: Event, after_s: float = 0.0) -> list[Action]:
        """Hand events over, and return the actions that follow."""
        self.now += after_s
        new = [action for event in events for action in self.machine.take(event, self.now)]
        self.actions += new
        return new

    def until(self, *kinds: type, most_s: float = 1000.0) -> list[Action]:
        """Let time go by until an action or a message of one of these kinds comes."""
        end = self.now + most_s
        while self.machine.due <= end:
            self.now = max(self.machine.due, self.now)
            new = self.take(machine.Time())
            if any(isinstance(action.message if isinstance(action, Send) else action, kinds) for action in new):
                return new
        raise AssertionError(f"no {kinds} within {most_s} s")

    def join(self, *places: int) -> list[Action]:
        """Have agents connect, by default all; the attempt begins if they are enough."""
        return self.take(*(Joined(place) for place in places or range(len(self.machine.roster.places))))

    def of(self, kind: type) -> list[Any]:
        """Return all actions of a kind."""
        return [action for action in self.actions if isinstance(action, kind)]

    def sent(self, kind: type) -> list[Send]:
        """Return all messages of a kind, with their places."""
        return sent(self.actions, kind)

    def reports(self, name: str) -> list[dict[str, Any]]:
        """Return the fields of all reports of one name."""
        return [dict(report.fields) for report in self.of(Report) if report.name == name]

    def status(self) -> int:
        """Return the status of the run, which is over."""
        (last,) = self.of(Exit)
        return int(last.status)


def sent(actions: list[Action], kind: type) -> list[Send]:
    """Return the messages of a kind, with their places."""
    return [action for action in actions if isinstance(action, Send) and isinstance(action.message, kind)]


def ranks(actions: Iterable[Action]) -> list[tuple[int, int]]:
    """Return place and rank of each start of COMMAND."""
    return [(action.place, action.rank) for action in actions if isinstance(action, Begin)]


def started(hosts: int = 3, spares: int = 0, **options: Any) -> Run:
    """Return a run whose first attempt has begun."""
    run = Run(plan(hosts, spares, **options))
    run.join()
    return run


def ended(place: int, status: int = 0, attempt: int = 0, **fields: Any) -> machine.Received:
    """Return the end of a place's COMMAND."""
    return machine.Received(
        place,
        messages.Ended(attempt, status, **{"signal": None, "formed": True, "is_oom": False, "tail": "", **fields}),
    )


def clean(place: int, attempt: int = 0) -> machine.Received:
    """Return that nothing of an attempt is left at a place."""
    return machine.Received(place, messages.Clean(attempt, 0))


def noticed(place: int, number: int = USR1) -> machine.Received:
    """Return that a signal has reached a place."""
    return machine.Received(place, messages.Noticed(number))


def formed(place: int, attempt: int = 0, nodes: int = 3, spent: tuple[int, ...] = ()) -> machine.Received:
    """Return that a place's world has formed."""
    return machine.Received(place, messages.Formed(attempt, nodes, "10.0.0.1", 4711, spent))


def all_formed(attempt: int = 0) -> list[Event]:
    """Return how a world of three forms."""
    return [formed(place, attempt) for place in range(3)]


def over(places: Iterable[int], attempt: int = 0, status: int = 0) -> list[Event]:
    """Return the ends of places."""
    return [event for place in places for event in (ended(place, status, attempt), clean(place, attempt))]


def test_clean_on_all_is_clean() -> None:
    run = Run(plan())
    assert [action for action in run.join() if isinstance(action, Begin)] == [
        Begin(place, 0, place, ("a", "b", "c"), (1, 1, 1)) for place in range(3)
    ]
    run.take(*all_formed())
    world = {"nodes": 3, "addr": "10.0.0.1", "port": 4711, "hosts": ["a", "b", "c"], "attempt": 0}
    assert run.reports("formed") == [world]
    run.take(*over([2, 0, 1]))
    assert (run.status(), run.machine.had_world, run.sent(End)) == (0, True, [])


def test_with_thousands_of_places_no_event_of_one_looks_at_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Counter[str]()

    def counted(name: str, method: Callable[..., object]) -> Callable[..., object]:
        return lambda *given: (looks.update([name]), method(*given))[1]

    for name in ("wanted", "busy", "lost_hosts"):
        monkeypatch.setattr(attempt.Roster, name, counted(name, getattr(attempt.Roster, name)))
    run = started(8, slots=(100,) * 8, grace_s=5)
    assert looks["wanted"] <= 2 * 8
    run.take(ended(0, 1), *(clean(place) for place in range(800)))
    assert run.status() == 1
    assert max(looks["busy"], looks["lost_hosts"]) <= 3


ECHO = "RuntimeError: [pair.cc:553] Connection closed by peer"


@pytest.mark.parametrize(
    ("later", "host", "exception"),
    [
        (ended(1, 1, exception="ValueError: nan"), "b", "ValueError: nan"),
        (ended(1, 1, exception=ECHO), "a", ECHO),
        (ended(1, 1), "a", ECHO),
        (ended(1, 128 + TERM, signal=TERM, exception="ValueError: of an hour ago"), "a", ECHO),
    ],
)
def test_a_connection_that_is_lost_to_one_that_failed_is_not_the_cause(
    later: machine.Received, host: str, exception: str
) -> None:
    """Its host may end first; what another says next to that is reported."""
    run = started()
    run.take(*all_formed(), ended(0, 1, exception=ECHO))
    assert not run.reports("failed")
    run.take(later, *over([2], status=128 + TERM), clean(0), clean(1))
    (failed,) = run.reports("failed")
    assert (failed["host"], failed["exception"]) == (host, exception)


def test_the_last_member_to_be_ready_is_reported() -> None:
    run = started()
    for place, began_s, in_ms in ((0, 0.3, 120), (1, 0.1, 120), (2, 2.4, 170)):
        run.take(formed(place, spent=(100, 0, in_ms, round(2600 - began_s * 1000))))
    (report,) = run.reports("formed")
    times = {"late_s": 2.37, "began_s": 2.3, "start_s": 0.1, "names_s": 0.0, "network_s": 0.07}
    assert report["last"] == {"host": "c", "after": "b", **times}
    assert run.reports("started")[0]["spent_ms"] == [100, 0, 120, 2300]


DONE = over([1], status=143)
LATE = [Lost(2, 15.0), Swept("c", is_clean=False)]


@pytest.mark.parametrize(
    ("events", "status", "causes"),
    [
        ([ended(0, 137, signal=9), clean(0), *over([1, 2])], 137, ["ended a"]),
        ([ended(0, 64, formed=False), clean(0), *over([1, 2])], 64, ["unformed a"]),
        ([Lost(2, 15.0), *over([0, 1]), Swept("c", is_clean=True)], 75, ["silent c"]),
        ([Lost(2, None), *over([0, 1]), Swept("c", is_clean=True)], 75, ["gone c"]),
        ([machine.ReaderGone(), *over([0, 1, 2])], 141, []),
        # A host that was quiet already is the cause once it is lost, and is not if it is alive.
        ([machine.Quiet(2), ended(0, 1), clean(0), *DONE, *LATE], 75, ["silent c"]),
        ([machine.Quiet(2), ended(0, 1), machine.Alive(2), clean(0), *over([1, 2])], 1, ["ended a"]),
        # So is one that is lost, in whatever way, after another has said that it lost a connection; not one that ended.
        ([ended(0, 1, exception=ECHO), clean(0), *DONE, machine.Quiet(2), *LATE], 75, ["silent c"]),
        ([ended(0, 1, exception=ECHO), clean(0), *DONE, Lost(2, None), LATE[1]], 75, ["gone c"]),
        ([ended(0, 1, exception=ECHO), ended(2, 143), clean(0), *DONE, *LATE], 1, ["ended a"]),
        # The runner's own host was cut off, and not the first host that it misses.
        ([Isolated("a", 15.0), Lost(1, 15.0), *over([0]), *LATE, Swept("b", is_clean=True)], 75, ["isolated a"]),
        # A request to stop changes the status of a host's failure, which may be tried again, and not of a program's.
        ([Lost(2, None), Noticed(TERM), *over([0, 1]), Swept("c", is_clean=True)], 143, ["gone c"]),
        ([Lost(2, None), ended(0, 143), clean(0), *DONE, Noticed(INT), *LATE], 130, ["gone c"]),
    ],
)
def test_each_cause_has_its_status_and_is_reported_once(events: list[Event], status: int, causes: list[str]) -> None:
    run = started()
    for event in events:
        assert not run.of(Exit)
        run.take(event, after_s=0.1)
    assert run.status() == status
    assert [f"{cause['kind']} {cause['host']}" for cause in run.reports("failed")] == causes


@pytest.mark.parametrize(
    ("quiet", "causes"),
    [([machine.Quiet(2)], ["silent c"]), ([], ["ended a"]), ([ended(2), machine.Quiet(2)], ["ended a"])],
)
def test_a_host_that_is_given_up_at_the_end_of_the_grace_is_the_cause_if_it_is_silent(
    quiet: list[Event], causes: list[str]
) -> None:
    """What another says of a lost connection is its echo."""
    run = started(grace_s=5)
    run.take(ended(0, 1, exception=ECHO), clean(0), *DONE, *quiet)
    run.until(machine.Sweep, most_s=10)
    assert (run.of(machine.Drop), run.of(machine.Sweep)) == ([machine.Drop(2)], [machine.Sweep(("c",))])
    run.take(Swept("c", is_clean=True))
    assert [f"{cause['kind']} {cause['host']}" for cause in run.reports("failed")] == causes


def test_a_host_that_is_back_is_no_more_the_quiet_one_that_it_was() -> None:
    run = started(restarts=2)
    run.take(machine.Quiet(2), ended(0, 1), clean(0), *DONE)
    run.until(machine.Sweep)
    run.take(Swept("c", is_clean=True), Joined(2), ended(0, 7, 1))
    assert [cause["host"] for cause in run.reports("failed")] == ["c", "a"]


@pytest.mark.parametrize("is_swept", [True, False])
def test_a_host_that_is_lost_is_swept_before_the_end(*, is_swept: bool) -> None:
    """A sweep that fails is reported, and delays nothing."""
    run = started()
    run.take(Lost(2, None), *over([0, 1], status=143))
    assert (run.of(machine.Drop), run.of(machine.Sweep)) == ([machine.Drop(2)], [machine.Sweep(("c",))])
    assert not run.of(Exit)
    if is_swept:
        run.take(Swept("c", is_clean=True))
    else:
        run.until(Exit, most_s=10)
    assert (run.status(), run.reports("unreached")) == (75, [] if is_swept else [{"host": "c", "attempt": 0}])


def test_an_agent_that_is_stopped_is_only_reported() -> None:
    (paused,) = started().take(machine.Paused(2, 15.5))
    assert paused == Report("paused", {"host": "c", "local": 0, "rank": 2, "silent_s": 15.5, "attempt": 0})


def lost_and_away(**options: Any) -> Run:
    """Return a run whose host c was lost, and cannot be reached for the next attempt."""
    run = started(restarts=1, **options)
    run.take(Lost(2, 15.0), clean(0, 0), clean(1, 0), Swept("c", is_clean=False), after_s=20)
    assert run.of(machine.Launch)[1:] == [machine.Launch(("c",))]
    assert [event["hosts"] for event in run.reports("forming")] == [["a", "b", "c"]] * 2
    run.take(machine.StarterEnded(("c",), "ssh: No route to host"))
    return run


def test_a_lost_host_is_called_again_until_it_is_back() -> None:
    run = lost_and_away(join_s=300)
    calls = []
    for _ in range(6):
        began = run.now
        run.until(machine.Launch)
        calls.append(run.now - began)
        run.take(machine.StarterEnded(("c",), "ssh: No route to host"))
    assert calls == [1, 2, 4, 8, 16, 30]
    assert [event["hosts"] for event in run.reports("missing")] == [["c"]]
    assert ranks(run.take(Joined(2))) == [(0, 0), (1, 1), (2, 2)]  # though its starter has ended


def test_a_host_that_lost_one_of_its_agents_is_called_whole() -> None:
    """A starter starts all agents of a host, and none alone."""
    run = started(hosts=2, slots=(2, 2), restarts=1)
    run.take(Lost(3, 15.0), *(clean(place) for place in range(3)), Swept("b", is_clean=True))
    assert (run.of(machine.Drop)[-1], run.of(machine.Launch)[1:]) == (machine.Drop(2), [machine.Launch(("b",))])
    assert len(ranks(run.take(Joined(2), Joined(3)))) == 4


def test_a_host_that_loses_an_agent_while_another_is_called_is_called_too() -> None:
    run = lost_and_away()
    run.take(Lost(1, 15.0))
    run.until(machine.Launch)
    assert run.of(machine.Launch)[-1] == machine.Launch(("b", "c"))


def test_a_lost_host_that_stays_away_ends_the_run_at_the_timeout() -> None:
    """The first cause stays."""
    run = lost_and_away(join_s=60)
    began = run.now
    while not run.of(Exit):
        run.until(machine.Launch, Exit)
        run.take(machine.StarterEnded(("c",), "ssh: No route to host"))
    assert (run.status(), run.now - began) == (75, 60)
    assert [event["host"] for event in run.reports("absent")] == ["c"]
    assert [cause["kind"] for cause in run.reports("failed")] == ["silent"]
    stopped = lost_and_away()
    stopped.take(Noticed(INT), after_s=0.5)
    assert stopped.status() == 130


def test_an_agent_that_never_comes_is_named() -> None:
    run, late = Run(plan(join_s=60)), Run(plan(join_s=60))
    run.join(0, 1)
    run.take(machine.StarterEnded(("c",), "srun: error: c is down"))
    (cause,) = run.reports("failed")
    assert (run.status(), cause["kind"], cause["host"], cause["tail"]) == (75, "absent", "c", "srun: error: c is down")
    late.join(0, 2)
    late.until(Exit, most_s=60)
    assert (late.status(), late.reports("failed")[0]["host"], late.machine.had_world) == (75, "b", False)


def test_ctrl_c_reaches_each_place_once_a_second_ends_and_a_third_leaves_at_once() -> None:
    run = started(grace_s=10)
    new = run.take(Noticed(INT))
    assert sent(new, Signal) == [Send(place, Signal(1, INT)) for place in range(3)]
    assert not run.sent(End)
    new = run.take(Noticed(INT), after_s=1)
    assert sent(new, End) == [Send(place, End(0, 0)) for place in range(3)]
    assert run.take(Noticed(INT)) == [Exit(130, at_once=True)]


@pytest.mark.parametrize(("number", "status"), [(INT, 130), (TERM, 143), (HUP, 129)])
def test_a_request_to_stop_gives_the_status_after_the_grace(number: int, status: int) -> None:
    run = started(grace_s=10, restarts=5)
    run.take(Noticed(number))
    # Programs that catch no HUP, as most do, get TERM: else they would be killed after the grace without a word.
    assert {action.message.signal for action in run.sent(Signal)} == {TERM if number == HUP else number}
    run.take(*over([0], status=1), after_s=3)
    assert not run.sent(End)
    run.until(End, most_s=7)
    assert {action.place for action in run.sent(End)} == {1, 2}
    run.take(*over([1, 2], status=137))
    assert run.status() == status


def test_a_signal_that_the_scheduler_gave_to_some_reaches_the_others_once() -> None:
    run = started(4, signals_reach_command=True)
    run.take(noticed(0))
    run.take(noticed(2), after_s=0.1)
    run.until(Signal, most_s=1)
    assert run.sent(Signal) == [Send(1, Signal(1, USR1)), Send(3, Signal(1, USR1))]
    run.take(noticed(3), after_s=0.1)
    assert len(run.sent(Signal)) == 2
    run.take(Noticed(USR1), after_s=30)
    run.until(Signal, most_s=1)
    assert len(run.sent(Signal)) == 6
    assert not run.sent(End)


LIMITED = {"grace_s": 10, "warn_at_s": 480, "limit_at_s": 600}


def test_the_schedulers_own_warning_and_ours_are_one() -> None:
    for number, at in product((USR1, HUP, TERM), (450, 480, 490)):
        run = started(**LIMITED, warn_signal=number)
        if at > 480:
            run.until(Signal)
        run.now = 100.0 + at
        run.take(Noticed(number))
        run.until(Signal, End)
        assert (run.now, run.machine.stopping.was_warned) == (685, True)  # TERM at the limit
        assert [action.message for action in run.sent(Signal)] == [(1, number)] * 3 + [(2, TERM)] * 3
        run.take(*over(range(3), status=143))
        assert run.status() == 75  # what ends at the limit may be tried again


@pytest.mark.parametrize("stop", [Noticed(TERM), Noticed(INT), machine.Time(), machine.ReaderGone(), machine.Killed()])
def test_a_stop_in_the_grace_after_a_failure_only_forbids_restarts(stop: Event) -> None:
    """It is no reason to queue a program again that is broken."""
    run = started(grace_s=10, limit_at_s=600, restarts=3)
    run.take(ended(0, 7), clean(0), after_s=584)
    run.take(stop, after_s=2)  # the limit is due a second before
    run.take(*over([1, 2], status=143))
    assert (run.status(), len(run.reports("stopped"))) == (7, 1)


@pytest.mark.parametrize(("status", "formed"), [(126, True), (64, False)])
def test_a_mistake_is_not_tried_again(status: int, *, formed: bool) -> None:
    """There is none of that name, or it is none; its host is as good as the others."""
    run = started(4, spares=1, restarts=3)
    run.take(ended(1, status, formed=formed), clean(1), *over([0, 2], status=143))
    assert run.status() == status
    assert {begun.attempt for begun in run.of(Begin)} == {0}


def test_a_host_that_failed_twice_is_not_taken_again_where_there_is_another() -> None:
    run = started(4, spares=1, restarts=5)
    for number in range(2):
        run.take(ended(1, 1, number, tail=str(number)), clean(1, number), *over([0, 2], number, 143))
    assert ranks(run.of(Begin)[-3:]) == [(0, 0), (3, 1), (2, 2)]


def test_hosts_that_failed_twice_are_named_where_too_few_others_are_left() -> None:
    run = started(3, spares=1, restarts=9)
    for number, place in enumerate((1, 1, 2, 2)):
        run.take(ended(place, 1, number, tail="abcd"[number]), clean(place, number), *over([0, 1, 2], number, 143))
    assert [report["hosts"] for report in run.reports("used_up")] == [["b", "c"]]
    assert (run.reports("absent"), run.status()) == ([], 1)


def test_fewer_go_on_where_fewer_are_enough_and_keep_their_ranks() -> None:
    run = started(4, restarts=1, least=2, most=4, window_s=30)
    run.take(Lost(1, 15.0), *over([0, 2, 3], status=143), Swept("b", is_clean=False))
    run.take(machine.StarterEnded(("b",), "no such node"))
    assert ranks(run.of(Begin)[4:]) == [(0, 0), (3, 1), (2, 2)]


@pytest.mark.parametrize("times", [{"window_s": 30}, {"window_s": 90, "join_s": 30}])
def test_the_window_is_kept_and_is_no_longer_than_the_timeout(times: dict[str, float]) -> None:
    run = Run(plan(4, least=2, most=4, **times))
    run.join(0, 3)
    assert not run.of(Begin)
    run.until(Begin, most_s=30)
    assert [begun.hosts for begun in run.of(Begin)] == [("a", "d")] * 2


@pytest.mark.parametrize(("gets_further", "attempts"), [(False, 4), (True, 10)])
def test_the_same_failure_is_restarted_three_times(*, gets_further: bool, attempts: int) -> None:
    """Numbers in an error differ; a program that gets further is begun again as often as was asked."""
    run = started(2, restarts=9)
    for number in range(attempts):
        assert not run.of(Exit)
        run.machine.root_cause.progress = number if gets_further else None
        tail = f"step {number}\nTraceback of {number}\nValueError: 0x{number}"
        run.take(ended(0, 1, number, tail=tail), clean(0, number), *over([1], number, 143))
    assert run.status() == 1
    assert bool(run.reports("same")) is not gets_further


def test_ranks_are_kept() -> None:
    assert rank_hosts((), ["a", "b", "c"], 2) == ("a", "b")
    assert rank_hosts(("a", "b", "c"), ["b", "c", "d"], 3) == ("d", "b", "c")
    assert rank_hosts(("a", "b", "c", "d"), ["b", "d"], 4) == ("d", "b")
    assert rank_hosts(("a", "b", "c", "d"), ["e", "d", "c"], 2) == ("c", "d")


class Chaos:
    """Hosts that do what a seed says; whatever happens, the run ends, and its promises hold."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)  # noqa: S311 - to be the same again
        dice, hosts = self.dice, self.dice.randint(1, 6)
        least = dice.randint(1, hosts)
        self.plan = plan(
            hosts,
            slots=tuple(dice.randint(1, 2) for _ in range(hosts)),
            least=least,
            most=dice.randint(least, hosts),
            restarts=dice.randint(0, 4),
            signals_reach_command=dice.random() < 0.5,
            warn_at_s=dice.choice([NEVER, 50.0]),
            limit_at_s=dice.choice([NEVER, 200.0]),
            stall_s=dice.choice([NEVER, 10.0, 30.0]),
        )
        self.run = Run(self.plan)
        self.pending: list[tuple[float, Event]] = []
        self.first: dict[int, int] = {}  # attempt -> status of its first failure

    def later(self, event: Event, most_s: float = 20.0) -> None:
        self.pending.append((self.run.now + self.dice.random() * most_s, event))

    def react(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case machine.Launch(hosts):
                    self.launch(hosts)
                case Begin(place, attempt):
                    self.live(place, attempt)
                case Send(place, End(attempt)) if self.dice.random() < 0.9:
                    self.later(ended(place, 143, attempt), 1)
                    self.later(clean(place, attempt), 12)
                case Send(place, Dump(attempt)) if self.dice.random() < 0.9:
                    self.later(machine.Received(place, messages.Stacks(attempt, "")), 12)
                case machine.Sweep(hosts):
                    for host in hosts:
                        if self.dice.random() < 0.7:
                            self.later(Swept(host, is_clean=self.dice.random() < 0.8), 12)

    def launch(self, hosts: tuple[str, ...]) -> None:
        for place in self.run.machine.roster.at(hosts):
            if self.dice.random() < 0.9:
                self.later(Joined(place))
        if self.dice.random() < 0.3:
            self.later(machine.StarterEnded(hosts, "ended"), 60)

    def live(self, place: int, attempt: int) -> None:
        chance = self.dice.random()
        if chance < 0.1:
            self.later(Lost(place, self.dice.choice([None, 15.0])), 100)
        if chance < 0.2:
            self.later(machine.Quiet(place))
        self.later(formed(place, attempt, 1), 5)
        end = ended(place, self.dice.choice([0, 0, 0, 0, 0, 1, 7]), attempt, formed=self.dice.random() < 0.95)
        self.pending.append((self.run.now + 20, end))
        if self.dice.random() < 0.97:
            self.pending.append((self.run.now + 20 + self.dice.random(), clean(place, attempt)))
        if self.dice.random() < 0.05:
            number = self.dice.choice([INT, USR1, TERM])
            self.later(self.dice.choice([Noticed(number), noticed(place, number)]), 30)

    def play(self) -> None:
        self.react(self.run.actions)
        for _ in range(3000):
            if self.run.of(Exit):
                return
            due = self.run.machine.due
            self.pending.sort(key=lambda row: row[0])
            if self.pending and self.pending[0][0] < due:
                at, event = self.pending.pop(0)
            else:
                assert due < NEVER or self.run.machine.phase == "running", "nothing will ever happen"
                if due == NEVER:  # COMMAND runs for ever, as nobody said how it ended
                    event, at = Noticed(TERM), self.run.now
                else:
                    at, event = due, machine.Time()
            self.run.now = max(self.run.now, at)
            self.react(self.run.take(event))
        raise AssertionError("it never ends")


def test_whatever_the_order_the_run_ends_and_keeps_its_promises() -> None:
    """Print the seed of a run that does not."""
    for seed in range(300):
        chaos = Chaos(seed)
        try:
            chaos.play()
            promises(chaos)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def promises(chaos: Chaos) -> None:
    """Check what holds of every run that is over."""
    run, roster = chaos.run, chaos.run.machine.roster
    assert roster.count == Counter(roster.state)
    assert not roster.busy(), "a host is left that may have something of it"
    assert not roster.lost_hosts(), "a host was not swept"
    failed = run.reports("failed")
    attempts = [cause["attempt"] for cause in failed if cause["kind"] != "absent"]
    assert len(attempts) == len(set(attempts)), "a cause was reported twice"
    assert run.machine.attempt <= chaos.plan.restarts, "begun again too often"
    if not run.reports("stopped"):
        assert run.status() == (failed[-1]["status"] if failed and run.machine.root_cause.cause else 0)
    starts = [(begun.place, begun.attempt) for begun in run.of(Begin)]
    assert len(starts) == len(set(starts)), "a place was begun twice"
    for number in {begun.attempt for begun in run.of(Begin)}:
        starts_of_one = [begun for begun in run.of(Begin) if begun.attempt == number]
        (hosts,) = {begun.hosts for begun in starts_of_one}
        assert chaos.plan.least <= len(hosts) <= chaos.plan.most
        members = [begun.place for begun in sorted(starts_of_one, key=lambda begun: begun.rank)]
        assert members == roster.at(hosts)
        assert [begun.rank for begun in starts_of_one] == [*range(len(members))]
    ids = [(sent.place, sent.message.id) for sent in run.sent(Signal)]
    assert len(ids) == len(set(ids)), "a signal came twice"


def stacks(place: int, text: str = "", attempt: int = 0) -> machine.Received:
    """Return the stacks of a place."""
    return machine.Received(place, Stacks(attempt, text))


def running(**options: Any) -> Run:
    """Return a run whose world has formed, with a stall of 60 s."""
    run = started(stall_s=60.0, **options)
    run.take(*all_formed())
    return run


def stalled(**options: Any) -> Run:
    """Return a run in which nobody has written for too long."""
    run = running(**options)
    run.until(Dump)
    return run


def test_all_stacks_are_requested_and_then_all_end() -> None:
    run = stalled(grace_s=7.0)
    assert run.now == 160.0
    asked = [(action.place, action.message.attempt, action.message.within_ms) for action in run.sent(Dump)]
    assert asked == [(place, 0, round(machine.DUMP_S * 1000)) for place in range(3)]
    run.take(stacks(0, "zero"), ended(1, 134, signal=6), stacks(1, "one"))
    assert not run.sent(End)
    run.take(stacks(2, "two"))
    assert [(action.place, action.message.grace_ms) for action in run.sent(End)] == [(0, 7000), (1, 7000), (2, 7000)]
    assert run.of(machine.Show) == [(0, 0, "zero"), (1, 1, "one"), (2, 2, "two")]
    run.take(*over(range(3)))
    assert run.status() == 75
    (cause,) = run.reports("failed")
    assert (cause["kind"], cause["after_s"], cause["silent_s"]) == ("stalled", 60.0, 60.0)
    assert attempt.event_text("failed", cause) == "mingle run: no rank has written anything for 1 min\n"
    assert [attempt._duration(time_s) for time_s in (0.0, 5.5, 90.0, 120.0)] == ["0 s", "5.5 s", "90 s", "2 min"]
    failure = Failure(0, 1, {name: cause[name] for name in Cause._fields})
    assert parse(Failure, failure._asdict()) == failure  # as `mingle show` gets it


def test_stacks_that_do_not_come_are_not_waited_for() -> None:
    run = stalled()
    run.take(stacks(0, "zero"), stacks(0, "again"), stacks(1, "of another attempt", 7), Lost(2, 15.0))
    assert len(run.of(machine.Show)) == 1
    assert not run.sent(End)
    run.until(End, most_s=15.0)
    run = stalled()
    run.take(*map(clean, range(3)), *map(stacks, range(3)))
    assert run.status() == 75


@pytest.mark.parametrize("event", [machine.Hurry(), Noticed(INT)], ids=["hurry", "Ctrl-C"])
def test_a_request_to_stop_does_not_wait_for_stacks(event: Event) -> None:
    run = stalled()
    run.take(event)
    assert len(run.sent(End)) >= 3
    run.take(*over(range(3)))
    assert run.status() == 130


def test_a_stall_is_restarted_and_counts_against_no_host() -> None:
    run = running(hosts=4, spares=1, restarts=2)
    for number in range(3):
        run.until(Dump)
        run.take(*(stacks(place, "", number) for place in range(3)), *over(range(3), number))
        if number == 2:
            break
        assert (run.of(Begin)[-1].attempt, run.of(Begin)[-1].hosts) == (number + 1, ("a", "b", "c"))
        run.take(machine.Time(), after_s=500.0)  # the world forms for long
        assert len(run.sent(Dump)) == 3 * (number + 1)
        run.take(*all_formed(number + 1))
    assert run.status() == 75


def test_a_run_that_stops_is_not_stalled() -> None:
    """Saving may take its time; nor is there anything to do at the old moment."""
    run = running(grace_s=100.0)
    run.take(Noticed(INT))
    run.take(machine.Time(), after_s=70.0)
    assert not run.sent(Dump)
    assert run.machine.due > run.now


def test_the_time_for_which_the_runner_was_stopped_counts_for_no_wait() -> None:
    """Nor is it a stall: all may have been stopped with the runner."""
    run, stopping = running(grace_s=10), running(grace_s=10)
    stopping.take(Noticed(TERM))
    for its, kind, after_s in ((run, Dump, 60), (run, End, machine.STACKS_S), (stopping, End, 10)):
        began = its.now
        assert sent(its.take(machine.Resumed(500.0), after_s=500.0), kind) == []
        its.until(kind)
        assert its.now - began == 500 + after_s


@pytest.mark.parametrize("head", ['Thread {} (idle): "T{}"', "Thread 0x{} (most recent call first):  # {}"])
def test_equal_stacks_of_a_process_are_shown_once_and_as_a_terminal_can(head: str) -> None:
    """As py-spy writes them, and faulthandler."""
    threads = "\n".join(f"{head.format(number, number)}\n    wait (a.py:1)\n" for number in range(3))
    last = "Current thread 0x9 (most recent call first):\n    f"
    text = f"Process 1: python\nPython v3\x1b]0;x\x07\n\n{threads}{last}\nProcess 2: python\n{threads}"
    once = [f"  {head.format(0, 0)} and 2 more with the same stack", "      wait (a.py:1)"]
    assert attempt.stacks_text("n", 3, text).splitlines() == [
        "mingle run: n (rank 3): its stacks:",
        *(
            "  Process 1: python",
            "  Python v3\\x1b]0;x\\x07",
            *once,
            "  Current thread 0x9 (most recent call first):",
            "      f",
        ),
        *("  Process 2: python", *once),
    ]
