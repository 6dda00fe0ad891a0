"""Four hosts, under Slurm and bare, and three of a real OpenPBS: what is lost on one of them ends all.

With one cause, and nothing is left.
"""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import runs_on_hosts as losses
from cluster import hosts as cluster_hosts, slurm as cluster_slurm
from cluster.waiting import until
from needs import skip_for_want_of
from runs_on_hosts import RUNNER, STUBBORN, Bare, Runs, UnderPbs, UnderSlurm, begin, until_nothing_is_left

HOSTS = 4
SILENCE_S = 4
OPTIONS = ("--grace", "1", "--silence", f"{SILENCE_S},{SILENCE_S}")  # a process that is stopped is lost as soon
FAILED, INFRASTRUCTURE, KILLED, TERMINATED = 7, 75, 128 + signal.SIGKILL, 128 + signal.SIGTERM
LOSSES: list[tuple[Callable[[Runs, Path], str], int]] = [
    (losses.fail, FAILED),
    (losses.kill_agent, INFRASTRUCTURE),
    (losses.kill_warden, INFRASTRUCTURE),
    (losses.unplug, INFRASTRUCTURE),
    (losses.freeze, INFRASTRUCTURE),
    (losses.stop, TERMINATED),
    (losses.kill_runner, KILLED),
]


@pytest.fixture(scope="module", params=["slurm", "bare", pytest.param("pbs", id="real-pbs")])
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    """Start the hosts once, and a scheduler on them, for all losses one after the other."""
    if request.param == "pbs":
        yield UnderPbs(request.getfixturevalue("real_pbs_session"))
        return
    skip_for_want_of(cluster_hosts.missing() + (cluster_slurm.missing() if request.param == "slurm" else []))
    place = tmp_path_factory.getbasetemp()
    place.chmod(0o755)
    with cluster_hosts.Hosts(HOSTS, share=[place]) as made:
        if request.param == "bare":
            yield Bare(made, tmp_path_factory.mktemp("ssh"))
            return
        with cluster_slurm.SlurmCluster(made) as slurm:
            yield UnderSlurm(slurm)


def lost(runs: Runs, place: Path, lose: Callable[[Runs, Path], str]) -> tuple[int, str]:
    """Lose something; return the status, and all that was said. Nothing is left."""
    host = runs.lost()
    said = lose(runs, place).replace("RANK", str(runs.ranked.index(host)))
    try:
        until(lambda: not losses.of_run(runs.home, RUNNER), "the runner goes on")
    finally:
        host.clear_firewall()
    status, text = runs.end(place)
    assert text.count(f"mingle run: {said}") == 1 or not said, text
    until_nothing_is_left(runs)
    return status, text


@pytest.mark.parametrize(("lose", "status"), LOSSES, ids=[lose.__name__ for lose, _ in LOSSES])
def test_all_end_with_one_cause_and_nothing_is_left(
    runs: Runs, tmp_path: Path, lose: Callable[[Runs, Path], str], status: int
) -> None:
    begin(runs, tmp_path, STUBBORN, *OPTIONS)
    seen, text = lost(runs, tmp_path, lose)
    assert seen == status, text


def test_a_runners_host_that_is_cut_off_names_itself_and_all_end(runs: Runs, tmp_path: Path) -> None:
    begin(runs, tmp_path, STUBBORN, *OPTIONS)
    runs.home.unplug()
    try:
        until_nothing_is_left(runs)
    finally:
        runs.home.clear_firewall()
    status, text = runs.end(tmp_path)
    assert status == INFRASTRUCTURE
    assert text.count(f"mingle run: {runs.home.name}: cut off from all other nodes for {SILENCE_S} s") == 1
