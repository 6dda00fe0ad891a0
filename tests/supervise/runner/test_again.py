"""`mingle run --again`: the line that queues a job again, where trying again makes sense."""

from __future__ import annotations

import signal
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from mingle_hooks.run.runner import Requeues

if TYPE_CHECKING:
    from pathlib import Path

    from supervise.runner.places import Places

WARNED = ("--limit", "30", "--warn", "28.5", "--grace", "1")
SAVES = "trap 'exit 0' USR1; while :; do sleep 0.02; done"


@pytest.mark.parametrize(
    ("options", "command", "status", "said"),
    [
        ((), "exit 0", 0, ""),
        ((), "exit 7", 7, ""),
        ((), "exit 75", 75, "again\n"),
        (("--limit", "4"), "exec sleep 1000", 75, "again\n"),
        (WARNED, SAVES, 75, "again\n"),
    ],
    ids=["done", "failed", "75", "limit", "warned"],
)
def test_it_is_run_where_trying_again_makes_sense(
    places: Places, options: tuple[str, ...], command: str, status: int, said: str
) -> None:
    """At the end, here, and the status tells that the training is not at its own."""
    words = (*options, "--again", "echo again", "bash", "-c", command)
    assert places.done(*words, hosts="")[:2] == (status, said)


def test_a_job_that_never_has_a_world_is_not_queued_for_ever(places: Places) -> None:
    """Four times in a row; a world in between, or another job of the same command, counts anew."""

    def runs(*hosts: str) -> list[tuple[int, bool]]:
        done = [places.done("--again", "echo again", "sh", "-c", "exit 75", hosts=its) for its in hosts]
        assert all(("4 times in a row" in err) == (status == 69) for status, _, err in done), done
        return [(status, "again\n" in out) for status, out, _ in done]

    places.environ["MINGLE_ID"] = "1"
    none, some = "down", "node1"
    assert runs(none, none, some, none, none, none) == [(75, True)] * 6
    places.environ["MINGLE_ID"] = "2"
    assert runs(none) == [(75, True)]
    places.environ["MINGLE_ID"] = "1"
    assert runs(none, none) == [(69, False), (75, True)]


@pytest.mark.parametrize(("scheduler", "may"), [("pbs", False), ("torque", False), ("slurm", True)])
def test_a_new_job_in_place_of_the_same_one_counts_as_that(tmp_path: Path, scheduler: str, *, may: bool) -> None:
    """PBS lets no user queue a job again: the script submits itself."""
    starter, environ = SimpleNamespace(name=scheduler), {"XDG_STATE_HOME": str(tmp_path)}
    for number in range(4):
        request: Any = SimpleNamespace(starter=starter, id=str(number), command=("train",))
        last = Requeues(request, environ).may_go_on()
    assert last == may


def test_its_own_failure_is_the_status(places: Places) -> None:
    """Grid Engine queues again what exits with 99."""
    assert places.done("--again", "exit 99", "sh", "-c", "exit 75", hosts="")[0] == 99


def test_it_is_not_run_for_a_person_who_stops_it(places: Places) -> None:
    """After the warning, too."""
    warned = places.place / "warned"
    goes_on = f"trap 'touch {warned}' USR1; while :; do sleep 0.02; done"
    run = places.start(*WARNED, "--again", "echo again", "bash", "-c", goes_on, hosts="")
    places.until(warned.exists, "not warned")
    run.send_signal(signal.SIGINT)
    assert places.end(run)[:2] == (130, "")
