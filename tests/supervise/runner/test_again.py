"""`mingle run --again`: the line that queues a job again, where trying again makes sense."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
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
