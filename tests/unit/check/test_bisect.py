"""Who makes a command fail, found out by made-up failures."""

import os
import re
import signal
from collections.abc import Callable
from itertools import combinations

import pytest

from mingle_hooks.check import session
from mingle_hooks.check.session import MOST_RUNS, Trials, Verdict, bisect
from mingle_hooks.errors import UsageError
from mingle_hooks.run.start import Options, Request

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


@pytest.mark.parametrize(
    ("some", "passes", "runs", "outcome", "culprits"),
    [
        ("abcdefgh", failing("c"), "abcdefgh abcd ab cd h c c abdefgh", "found", "c"),
        ("abcdefgh", needs_two(failing("c")), "abcdefgh abcd ab cd h fh cd ac ad abdefgh", "found", "c"),
        ("abcde", failing("d", in_company=True), "abcde ab cde e c de d de ad ae abce", "found", "d"),
        ("abcdef", failing(pairs=(("b", "e"),)), "abcdef abc def adef bcdef bdef bd bef be be ab ae abcdf",
         "found", "be"),
        ("abcdef", failing("a", "f"), "abcdef abc f df bf ef d a a bcdef bc def e f bcde", "found", "a f"),
        ("abcd", failing("a", "c", in_company=True), "abcd ab d a b ab ad bd bcd cd c cd bc", "found", "a c"),
        ("abcd", needs_two(failing(pairs=(("a", "c"),))), "abcd ab cd acd ac ac bc abd", "found", "ac"),
        ("abcdef", lambda some: not {*"abf"} <= {*some},
         "abcdef abc def adef bcdef abdef abd abef abe abf", "unsteady", "f"),
        ("abc", lambda _some: False, "abc c bc ac b ab a a", "everywhere", ""),
        ("ab", failing("a", "b", in_company=True), "ab b a ab", "found", "ab"),
    ],
)  # fmt: skip
def test_which_runs_a_search_makes(some: str, passes: Passes, runs: str, outcome: str, culprits: str) -> None:
    """In halves, then beside others; a failure is confirmed, and what is left out is run."""
    made: list[str] = []

    def run(on: tuple[str, ...]) -> bool:
        made.append("".join(on))
        return passes(on)

    found = bisect(tuple(some), run)
    named = ["".join(culprit) for culprit in found.culprits] or ["".join(found.suspects)]
    assert (" ".join(made), found.outcome, " ".join(named)) == (runs, outcome, culprits)
    assert (found.runs, found.failed) == (len(made), sum(not passes(tuple(on)) for on in made))


@pytest.mark.parametrize(("bad", "outcome"), [("abcdefgh", "found"), ("abcdefghi", "unsteady")])
def test_up_to_eight_are_found_one_after_another(bad: str, outcome: str) -> None:
    assert bisect(tuple("abcdefghijklmnopqrst"), failing(*bad)).outcome == outcome


def test_a_run_has_its_hosts_alone_and_its_output_on_stderr(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A run that mingle itself cannot make has failed."""

    def run(request: Request) -> int:
        plan = request.plan
        os.write(1, f"{plan.hosts} {plan.slots} {plan.least} {plan.most} {request.settings.quiet}\n".encode())
        raise ValueError("a\nbug")

    monkeypatch.setattr(session, "run_command", run)
    notes: list[str] = []
    trials = Trials(("false", "x"), Options(hosts="node1,node2", limit="10m"), {}, notes.append)
    (finding,) = trials.findings(("node2",))
    assert capfd.readouterr() == ("", "('node2',) (1,) 1 1 True\nmingle check: a\\nbug\n" * len(notes))
    assert re.fullmatch(r"run 2 on node2: failed with status 70 after \d\.\d s", notes[1])
    assert (finding.text[:43], finding.remedy) == (
        "`false x` fails on whatever hosts it runs (",
        "user: run it on one host, and read what it says",
    )


def test_an_interrupted_run_ends_first(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[int, int]] = []

    def wait(pid: int, options: int) -> tuple[int, int]:
        made.append((pid, options))
        if len(made) == 1:
            raise KeyboardInterrupt
        return pid, 0

    monkeypatch.setattr(os, "waitpid", wait)
    monkeypatch.setattr(os, "kill", lambda *call: made.append(call))
    with pytest.raises(KeyboardInterrupt):
        session._wait(7)
    assert made == [(7, 0), (7, signal.SIGTERM), (7, 0)]


def test_a_command_that_reaches_the_hosts_by_itself_is_not_tried() -> None:
    with pytest.raises(UsageError, match="mpirun, which reaches the hosts by itself"):
        Trials(("mpirun", "true"), Options(hosts="node1,node2"), {}, print)
