"""Who kept the others waiting at the start, by how much, and with what."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from gathering import join_request

from mingle_hooks.rendezvous.connection import Lookup, Loop
from mingle_hooks.rendezvous.messages import JoinRequest, Spent, Stopwatch, process_age_s
from mingle_hooks.rendezvous.timeline import phases
from mingle_hooks.rendezvous.timeline import timeline_lines as lines
from mingle_hooks.rendezvous.wire import WireError, decode, encode, parse

RANK_0 = ("node1", 100.0, Spent(100, 0, 100))
CAUSES = (
    "for a late start by the scheduler",
    "for mingle's start (Python, imports, settings)",
    "for name look-ups",
    "for the network",
)


def because(*seconds: str) -> str:
    """Return how it is told what kept a member."""
    return ", ".join(f"{its} s {cause}" for its, cause in zip(seconds, CAUSES, strict=True))


@pytest.mark.parametrize(
    ("spent", "why"),
    [
        (Spent(100, 0, 120), because("1.98", "0.10", "0.00", "0.02")),
        (Spent(2000, 0, 2020), because("0.08", "2.00", "0.00", "0.02")),
        (Spent(100, 1900, 2020), because("0.08", "0.10", "1.90", "0.02")),
        (Spent(100, 0, 2020), because("0.08", "0.10", "0.00", "1.92")),
    ],
    ids=CAUSES,
)
def test_who_is_last_is_named_with_what_kept_it(spent: Spent, why: str) -> None:
    """By rank 0's clock: members only tell how long something took."""
    told = lines(phases([RANK_0, ("node2", 100.03, Spent(110, 0, 130)), ("node3", 102.0, spent)]), 102.5)
    assert told[-1] == f"last to be ready: node3, 2.00 s after node1: {why}"
    assert told[-2] == "the world formed at 2.60 s"
    assert told[0] == "node1 started at 0.00 s, searched from 0.10 s, checked in at 0.10 s"
    assert len(told) == 5


def test_who_waits_for_rank_0_is_not_late() -> None:
    """It came first, and could not be in before rank 0 was."""
    late = ("node1", 109.0, Spent(100, 0, 110))
    told = lines(phases([late, ("node2", 109.2, Spent(200, 10, 9100))]), 110.0)
    assert told[-1].startswith("last to be ready: node1, 8.49 s after node2: 8.79 s for a late start")


def test_of_many_only_the_last_is_told() -> None:
    """A log has room for one line of a thousand nodes."""
    told = lines(phases([RANK_0, *((f"n{n}", 100.0 + n / 1000, Spent(90, 0, 100)) for n in range(1000))]), 101.5)
    assert len(told) == 2
    assert told[1].startswith("last to be ready: n999, 1.01 s after n0: 1.00 s for")


def test_nobody_is_blamed_where_all_come_together_or_tell_nothing() -> None:
    """A tick of the kernel is no delay; a member of yesterday tells no times."""
    assert lines(phases([RANK_0, ("node2", 100.03, Spent(100, 0, 120))]), 100.1)[-1] == "all were ready within 0.05 s"
    assert lines(phases([RANK_0, ("node2", 105.0, None)]), 106.0) == []
    assert lines(phases([]), 0.0) == []


def test_what_a_member_spent_travels_and_is_bounded() -> None:
    """Three numbers of milliseconds, and nothing else."""
    said = join_request(spent=Spent(1, 2, 3, 4))
    assert parse(JoinRequest, decode(encode(said.body()))) == said
    assert "spent" not in join_request().body()
    for wrong in ([1, 2, 3], [1, 2, 3, -1], [1, 2, 3, 1 << 40], [1, 2, 3, True], [1, 2, 3, 4.5], "1234", None):
        with pytest.raises(WireError, match="spent"):
            parse(JoinRequest, {**join_request().body(), "spent": wrong})


def test_a_stopwatch_runs_since_the_process_began() -> None:
    """Python's own start is in it, and nothing of another process's."""
    mine = process_age_s()
    code = "from mingle_hooks.rendezvous.messages import process_age_s as age; print(age())"
    before = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 0 < float(done.stdout) <= time.monotonic() - before + 0.02 < mine + 60
    clock = iter([10.0, 10.5])
    assert Stopwatch(lambda: next(clock), 0.1).spent(0.25) == Spent(100, 250, 600)


def test_the_name_services_time_is_until_its_last_answer() -> None:
    """A look-up that is still under way counts for nothing yet."""
    with Loop() as loop:
        answers: list[list[str]] = []
        Lookup(loop, "localhost", lambda _host, found: answers.append(found))
        assert loop.names_s == 0.0
        loop.after(30.0, lambda: answers.append([]))
        loop.run(lambda: bool(answers))
        assert loop.names_s > 0.0
