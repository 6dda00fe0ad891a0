"""`mingle run --stall`: nobody writes any more."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

import pytest
from supervise.runner.places import path_without
from supervise.runner.test_attempts import Run, clean, ended, over, plan
from supervise.runner.test_attempts import formed as formed_at

from mingle_hooks.run import attempt as report
from mingle_hooks.run.attempt import Cause
from mingle_hooks.run.machine import Begin, Event, Hurry, Lost, Noticed, Received, Show, Stall, Time
from mingle_hooks.run.messages import Dump, End, Stacks
from mingle_hooks.run.status import Failure

if TYPE_CHECKING:
    from supervise.runner.places import Places

INT = 2
SAID = "no rank has written anything for 2 s"
HANGS = "import time\ndef hangs():\n    print('begun', flush=True); time.sleep(1000)\n"


def formed(attempt: int = 0) -> list[Event]:
    """Return how a world of three forms."""
    return [formed_at(place, attempt) for place in range(3)]


def stacks(place: int, attempt: int, text: str) -> Received:
    """Return the stacks of a place."""
    return Received(place, Stacks(attempt, text))


def begun(**options: object) -> Run:
    """Return a run whose world has formed, with a stall of 60 s."""
    run = Run(plan(stall_s=60.0, **options))
    run.begin()
    run.take(*formed())
    return run


def stalled(**options: object) -> Run:
    """Return a run in which nobody has written for too long."""
    run = begun(**options)
    run.until(Dump)
    return run


def test_all_stacks_are_asked_for_and_then_all_end() -> None:
    """The cause is told once; what ends as it aborts is not another."""
    run = stalled(grace_s=7.0)
    assert run.now == 160.0
    assert [(its.place, its.message.attempt) for its in run.sent(Dump)] == [(0, 0), (1, 0), (2, 0)]
    assert not run.sent(End)
    run.take(stacks(0, 0, "zero"), ended(1, 134, signal=6), stacks(1, 0, "one"))
    assert not run.sent(End)
    run.take(stacks(2, 0, "two"))
    assert [(its.place, its.message.grace_ms) for its in run.sent(End)] == [(0, 7000), (1, 7000), (2, 7000)]
    assert run.of(Show) == [Show(0, 0, "zero"), Show(1, 1, "one"), Show(2, 2, "two")]
    run.take(*over(range(3)))
    assert run.status() == 75
    (told,) = run.told("failed")
    assert (told["kind"], told["silent_s"]) == ("stalled", 60.0)
    assert report.event_text("failed", told) == "mingle run: no rank has written anything for 1 min\n"
    failure = Failure(0, 1, {name: told[name] for name in Cause._fields})
    assert Failure.parse(failure._asdict()) == failure  # as `mingle show` gets it


def test_stacks_that_do_not_come_are_not_waited_for() -> None:
    """A place may be lost meanwhile, all may be clean, and another may never answer; each answers once."""
    run = stalled()
    run.take(stacks(0, 0, "zero"), stacks(0, 0, "again"), stacks(1, 7, "of another attempt"), Lost(2, 15.0))
    assert len(run.of(Show)) == 1
    assert not run.sent(End)
    run.until(End, most_s=15.0)
    run = stalled()
    run.take(*(clean(place, 0) for place in range(3)), *(stacks(place, 0, "") for place in range(3)))
    assert run.status() == 75


@pytest.mark.parametrize("event", [Hurry(), Noticed(None, INT)], ids=["hurry", "Ctrl-C"])
def test_who_asks_for_the_end_does_not_wait_for_stacks(event: Hurry | Noticed) -> None:
    run = stalled()
    run.take(event)
    assert len(run.sent(End)) >= 3
    run.take(*over(range(3)))
    assert run.status() == 130


def test_an_attempt_that_stalled_is_begun_again_and_blames_no_host() -> None:
    """The clock begins anew once the next world has formed; two stalls do not use up a host."""
    run = begun(hosts=4, spares=1, restarts=2)
    for attempt in range(2):
        run.until(Dump)
        run.take(*(stacks(place, attempt, "") for place in range(3)), *over(range(3), attempt))
        assert run.of(Begin)[-1].attempt == attempt + 1
        assert run.of(Begin)[-1].hosts == ("a", "b", "c")
        run.take(Time(), after_s=500.0)  # the world forms for long
        assert len(run.sent(Dump)) == 3 * (attempt + 1)
        run.take(*formed(attempt + 1))
    run.until(Dump)
    run.take(*(stacks(place, 2, "") for place in range(3)), *over(range(3), 2))
    assert run.status() == 75


def test_who_was_asked_to_end_is_not_stalled() -> None:
    """Saving may take its time; nor is there anything to do at the old moment."""
    run = begun(grace_s=100.0)
    run.take(Noticed(None, INT))
    run.take(Time(), after_s=70.0)
    assert not run.sent(Dump)
    assert run.machine.due is None or run.machine.due > run.now


def test_without_the_option_nobody_is_stalled() -> None:
    run = Run(plan())
    run.begin()
    run.take(*formed())
    assert run.machine.due is None


def test_the_clock() -> None:
    """It begins anew with each word, and stands still while nothing is read; a word before the world is none."""
    stall = Stall(10.0)
    stall.wrote(5.0)
    assert stall.due is None
    stall.begin(10.0)
    assert stall.due == 20.0
    stall.wrote(12.0)
    assert stall.due == 22.0
    stall.hold(15.0, is_held=True)
    assert stall.due is None
    stall.hold(500.0, is_held=False)
    assert stall.due == 510.0
    stall.end()
    assert stall.due is None


def test_stacks_are_shown_as_a_terminal_can() -> None:
    said = report.stacks_text("node1", 3, "Thread 1\n  f\x1b]0;x\x07 (a.py:1)\n")
    assert said == "mingle run: node1 (rank 3): its stacks:\n  Thread 1\n    f\\x1b]0;x\\x07 (a.py:1)\n"


def python(text: str) -> tuple[str, ...]:
    """Return a command that hangs after these lines."""
    return sys.executable, "-c", f"{HANGS}{text}\nhangs()"


def test_the_stacks_of_all_ranks_are_shown_and_kept_and_all_end(places: Places) -> None:
    """By faulthandler; with --restarts all of it comes once more."""
    places.environ |= {"PYTHONFAULTHANDLER": "1", "PATH": f"{places.place / 'bin'}:{path_without('py-spy')}"}
    status, out, err = places.done("--stall", "2", "--restarts", "1", "--log-dir", "logs", *python(""))
    assert status == 75
    assert out.count("begun") == 6
    assert err.count(f"mingle run: {SAID}\n") == 2
    assert err.count("restarts: attempt 1") == 1
    for rank, host in enumerate(("node1", "node2", "node3")):
        log = (places.place / "logs" / f"rank{rank}-{host}.log").read_text()
        for text, label in ((err, f"{host}: "), (log, "")):
            assert text.count(f'{label}  File "<string>", line 3 in hangs') == 2
            assert len(re.findall(rf"{host} \(rank {rank}\): its stacks:\n  process \d+: what faulthandler", text)) == 2


def test_one_rank_that_writes_keeps_all(places: Places) -> None:
    """Even where its line never ends."""
    writes = "import os, sys\nfor _ in range(45 * (os.environ['RANK'] == '1')): os.write(1, b'.'); time.sleep(.1)"
    ends = "if os.environ['RANK'] == '1': sys.exit(7)"
    status, _, err = places.done("--stall", "3", *python(f"{writes}\n{ends}"), hosts="node1,node2")
    assert (status, "has written anything" in err) == (7, False)


def test_a_reader_that_does_not_read_is_no_stall(places: Places) -> None:
    """Whoever writes is held up by it, and may not be blamed.

    The time is one in which both begin also on a machine that is busy.
    """
    writes = "import os, sys\nif os.environ['RANK'] == '0':\n  for _ in range(32): os.write(1, b'x' * (1 << 20))"
    waits = "else: time.sleep(9); open('late', 'w')\nsys.exit(7)"
    run = places.start("--stall", "7", *python(f"{writes}\n{waits}"), hosts="node1,node2")
    places.until((places.place / "late").exists, "nobody waits")
    status, _, err = places.end(run)
    assert (status, "has written anything" in err) == (7, False)
