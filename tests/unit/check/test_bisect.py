"""Who makes a command fail, found out by made-up failures."""

import os
import signal
from collections.abc import Callable
from itertools import combinations

import pytest

from mingle_hooks.check import session
from mingle_hooks.check.session import MOST_RUNS, Trials, Verdict, bisect
from mingle_hooks.run.request import Options

Passes = Callable[[tuple[str, ...]], bool]


def hosts(count: int) -> tuple[str, ...]:
    return tuple(f"node{number}" for number in range(1, count + 1))


def failing(*nodes: str, pairs: tuple[tuple[str, str], ...] = (), in_company: bool = False) -> Passes:
    """Return what fails with any of these hosts, alone too or in company only, and with both of any of these pairs."""

    def passes(some: tuple[str, ...]) -> bool:
        is_bad = any(node in some for node in nodes) and (len(some) > 1 or not in_company)
        return not is_bad and not any({*pair} <= {*some} for pair in pairs)

    return passes


def needs_two(passes: Passes) -> Passes:
    """Return what cannot run on one host at all."""
    return lambda some: len(some) > 1 and passes(some)


@pytest.mark.parametrize("count", [3, 4, 16])
def test_one_bad_host_is_found_wherever_it_is(count: int) -> None:
    """In whatever way it fails: alone, too, in company only, or where the command always wants two."""
    for node in hosts(count):
        ways = (failing(node), failing(node, in_company=True), needs_two(failing(node)))
        assert [bisect(hosts(count), passes).culprits for passes in ways] == [((node,),)] * 3


def test_one_of_256_takes_some_ten_runs() -> None:
    """Twice as many hosts are one or two runs more."""
    found = bisect(hosts(256), failing("node200"))
    assert (found.outcome, found.culprits) == ("found", (("node200",),))
    assert found.runs <= 20


@pytest.mark.parametrize("pair", [*combinations(hosts(6), 2)], ids="-".join)
def test_two_bad_hosts_are_found(pair: tuple[str, str]) -> None:
    """Which fail only together, or one after the other, also where they are neighbours and nothing has passed yet."""
    for passes in (failing(pairs=(pair,)), needs_two(failing(pairs=(pair,)))):
        assert bisect(hosts(6), passes).culprits == (pair,)
    for passes in (failing(*pair), needs_two(failing(*pair)), failing(*pair, in_company=True)):
        found = bisect(hosts(6), passes)
        assert (found.outcome, sorted(found.culprits)) == ("found", [(host,) for host in pair])
    # What is found is left out, and the rest is searched on.
    found = bisect(hosts(16), failing("node9", pairs=(pair,)))
    assert sorted(found.culprits) == sorted([("node9",), pair])


@pytest.mark.parametrize("count", [1, 2, 3, 16])
def test_a_command_that_fails_everywhere_has_no_culprit(count: int) -> None:
    """After a few runs: the cause is the command, or something on all hosts."""
    found = bisect(hosts(count), lambda _some: False)
    assert (found.outcome, found.culprits) == ("everywhere", ())
    assert found.runs <= 16
    assert bisect(hosts(count), lambda _some: True) == Verdict("passes", runs=1)


def test_a_command_that_fails_at_times_is_unsteady() -> None:
    """With those that were in every run that failed."""
    turns = iter([False, True, True, True, True, True, True, True] + [True] * MOST_RUNS)
    found = bisect(hosts(4), lambda _some: next(turns))
    assert (found.outcome, found.culprits) == ("unsteady", ())
    once = iter([False] + [True] * MOST_RUNS)
    assert bisect(hosts(2), lambda _some: next(once)) == Verdict("unsteady", (), hosts(2), 4, 1)
    seen = []

    def every_second(some: tuple[str, ...]) -> bool:
        if "node2" not in some:
            return True
        seen.append(some)
        return len(seen) % 2 == 0

    found = bisect(hosts(8), every_second)
    assert "node2" in (*found.suspects, *(host for culprit in found.culprits for host in culprit))


def test_a_search_ends() -> None:
    """Whatever it is told."""
    turns = iter(range(10**6))
    assert bisect(hosts(256), lambda some: next(turns) % 3 > 0 and len(some) < 200).runs <= MOST_RUNS


@pytest.mark.parametrize(("end", "status"), [(lambda: os.kill(os.getpid(), signal.SIGKILL), 137), (lambda: 3, 3)])
def test_a_run_that_a_signal_ends_has_failed_with_the_status_of_a_shell(
    end: Callable[[], int], status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """128 and the signal's number."""
    monkeypatch.setattr(session, "run_command", lambda _request: end())
    notes: list[str] = []
    options = Options(hosts="node1,node2", limit="10m")
    found = Trials(("true",), options, {}, notes.append).findings(("node1", "node2"))
    assert notes[0].startswith(f"run 1 on node[1-2]: failed with status {status} after ")
    assert [(finding.exclude, finding.remedy[:6]) for finding in found] == [((), "user: ")]
