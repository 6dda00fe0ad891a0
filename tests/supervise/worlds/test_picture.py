"""What a run says of itself is what its state machine knows."""

from __future__ import annotations

from supervise.runner.test_attempts import clean

from mingle_hooks.run import messages
from mingle_hooks.run.attempt import Plan
from mingle_hooks.run.machine import Exit, Hurry, Joined, Lost, Machine, Noticed, Received, Report, Send, Swept
from mingle_hooks.run.status import Entry, RunnerProcess, RunState, State

TERM, INT = 15, 2
ENTRY = Entry("4711", "0011", "login", (), (), RunnerProcess("", 1, 1), 100, 2, "train")
PLAN = Plan(hosts=("a", "b"), slots=(1, 1), least=2, most=2, restarts=1)


class Run:
    """A state machine with its status, at a time that a test sets."""

    def __init__(self, plan: Plan = PLAN) -> None:
        self.now = 100.0
        self.machine = Machine(plan)
        self.state = RunState(self.machine, lambda: self.now)
        self.actions: list[object] = []
        self._told(self.machine.begin(self.now))

    def take(self, *events: object) -> State:
        """Return what it looks like after these events, a second each."""
        for event in events:
            self.now += 1
            actions = self.machine.take(event, self.now)  # type: ignore[arg-type]
            self.state.take(event)  # type: ignore[arg-type]
            self._told(actions)
        return self.look()

    def look(self) -> State:
        """Return what it looks like now, as it travels."""
        return State.parse(self.state.state(ENTRY, is_whole=True).body())

    def _told(self, actions: list[object]) -> None:
        self.actions += actions
        for action in actions:
            if isinstance(action, Report):
                self.state.report(action.name, action.fields)


def nodes(state: State) -> list[tuple[object, ...]]:
    """Return each node's state, rank and time."""
    return [(node.host, node.state, node.rank, node.since) for node in state.nodes]


def formed(place: int, attempt: int = 0) -> Received:
    """Return that a place's world has formed."""
    return Received(place, messages.Formed(attempt, 2, "a", 20000))


def ended(place: int, status: int, attempt: int = 0) -> Received:
    """Return the end of a place's COMMAND."""
    return Received(place, messages.Ended(attempt, status, None, formed=True, is_oom=False, tail="why\n"))


def test_each_phase_has_its_name_and_each_node_its_state() -> None:
    """From the first that comes to the second attempt."""
    run = Run()
    state = run.look()
    assert (state.state, state.here, state.wanted, state.attempt, state.since) == ("gathering", 0, 2, None, 100)
    state = run.take(Joined(0))
    assert (state.state, state.here) == ("gathering", 1)
    assert nodes(state) == [("a", "waiting", None, 101), ("b", "missing", None, None)]
    state = run.take(Joined(1))
    assert (state.state, state.here, state.attempt, state.since) == ("forming", 2, 0, 102)
    state = run.take(formed(1))
    assert (state.state, nodes(state)[1]) == ("forming", ("b", "running", 1, 102))
    state = run.take(formed(0))
    assert (state.state, state.since, state.failure) == ("running", 104, None)
    state = run.take(ended(1, 7))
    assert (state.state, nodes(state)[1]) == ("ending", ("b", "ended", 1, 102))
    assert state.failure is not None
    assert (state.failure.attempt, state.failure.at) == (0, 105)
    assert (state.failure.cause["host"], state.failure.cause["status"], state.failure.cause["tail"]) == (
        "b",
        7,
        "why\n",
    )
    state = run.take(clean(0, 0), clean(1, 0))
    assert (state.state, state.attempt) == ("forming", 1)
    assert state.failure is not None  # it stays the last one


def test_a_lost_node_is_missing_until_it_comes_again() -> None:
    """And the run waits to begin again."""
    run = Run()
    state = run.take(Joined(0), Joined(1), formed(0), formed(1), Lost(1, 15.0))
    assert (state.state, state.here) == ("ending", 1)
    assert nodes(state)[1][:2] == ("b", "lost")
    run.take(clean(0, 0))
    assert run.machine.phase == "sweeping"
    state = run.take(Swept("b", is_clean=True))
    assert (state.state, state.attempt) == ("waiting to restart", 0)
    assert nodes(state)[1] == ("b", "missing", None, None)
    assert state.failure is not None
    assert state.failure.cause["silent_s"] == 15.0


def test_many_places_are_told_within_what_an_answer_may_be() -> None:
    """Each of a large run."""
    hosts = tuple(f"node{number}" for number in range(1024))
    state = Run(Plan(hosts=hosts, slots=(8,) * 1024, least=1024, most=1024)).look()
    assert (len(state.nodes), state.wanted) == (8192, 1024)


def stops(run: Run) -> list[tuple[int, float]]:
    """Return the ends that were asked for, and their graces."""
    return [
        (action.place, action.message.grace_ms / 1000)
        for action in run.actions
        if isinstance(action, Send) and isinstance(action.message, messages.End)
    ]


def test_the_end_at_once_comes_whoever_has_asked_for_the_end_before() -> None:
    """And once: no asker makes the runner go before its hosts are clean."""
    for before, status in (((), 130), ((Noticed(None, TERM),), 143), ((Noticed(None, INT),), 130)):
        run = Run()
        run.take(Joined(0), Joined(1), formed(0), formed(1), *before)
        assert stops(run) == []
        run.take(Hurry(), Hurry(), Hurry())
        assert stops(run) == [(0, 0.0), (1, 0.0)]
        run.take(clean(0, 0), clean(1, 0))
        assert [action for action in run.actions if isinstance(action, Exit)] == [Exit(status)]


def test_the_end_at_once_of_a_run_that_gathers_or_waits_for_a_reader() -> None:
    """Nothing has begun, or nothing is left but output."""
    run = Run()
    assert run.take(Hurry()).state == "ending"
    assert [action for action in run.actions if isinstance(action, Exit)] == [Exit(130)]
    run.take(Hurry())
    assert [action for action in run.actions if isinstance(action, Exit)] == [Exit(130), Exit(130, at_once=True)]
