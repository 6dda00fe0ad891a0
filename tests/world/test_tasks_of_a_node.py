"""Several tasks of a node stay together to the last word: all of them have the world, or none has."""

from __future__ import annotations

import os
import signal
from subprocess import TimeoutExpired
from typing import TYPE_CHECKING

import pytest
from members import KEYED
from test_failures import ended, lines, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path
    from subprocess import CompletedProcess, Popen

    from cluster.host import Host
    from cluster.hosts import Hosts
    from cluster.slurm import SlurmCluster

TASKS = 3  # on each node
# Well above a deadline of 3 s and what is added to it, and far below what it was once exceeded by, 44 s.
SOON_S = 25.0


def task(host: Host, nodes: int, local_rank: int, timeout: str, user: str = "alice") -> Popen[str]:
    """Start `mingle env --scope task` as mpirun would start it on this host."""
    env = {
        "OMPI_COMM_WORLD_RANK": str((host.number - 1) * TASKS + local_rank),
        "OMPI_COMM_WORLD_SIZE": str(nodes * TASKS),
        "OMPI_COMM_WORLD_LOCAL_RANK": str(local_rank),
        "OMPI_COMM_WORLD_LOCAL_SIZE": str(TASKS),
    }
    words = ["--scope", "task", "--shell", "json", "--id", "job", "--master", "node1", "--timeout", timeout]
    return host.popen(["mingle", "env", *words], env={**KEYED, **env}, user=user)


def tasks(host: Host, nodes: int, timeout: str, ranks: Iterable[int] = range(TASKS)) -> list[Popen[str]]:
    """Start these tasks of a node."""
    return [task(host, nodes, rank, timeout) for rank in ranks]


def until_said(process: Popen[str], words: str) -> None:
    """Wait until a task says this on stderr."""
    assert any(words in line for line in lines(process)), f"it never said {words!r}"


def all_failed(processes: Iterable[Popen[str]], code: int) -> list[str]:
    """Check that each task failed with `code` and without a world; return what each said last."""
    return [said(ended(process), code) for process in processes]


def said(done: CompletedProcess[str], code: int) -> str:
    """Return the last line of a task that failed."""
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    assert "WORLD_SIZE" not in done.stdout
    return done.stderr.splitlines()[-1]


def test_a_task_that_is_killed_while_others_wait_fails_the_world_for_all(hosts: Callable[..., Hosts]) -> None:
    """On its own node, on the others and on one that comes late; and they say which task it was."""
    three = hosts(3)
    first, second = tasks(three[0], 3, "60"), tasks(three[1], 3, "60")
    until_said(first[0], "2 of 3 nodes checked in")
    os.kill(second[1].pid, signal.SIGKILL)
    reasons = all_failed([*first, second[0], second[2], *tasks(three[2], 3, "60")], 69)
    assert len(set(reasons)) == 1, reasons
    assert "all 3 tasks of node2" in reasons[0]
    assert "local rank 1 gone" in reasons[0]
    second[1].communicate()
    assert [host.files() for host in three] == [set()] * 3


def test_no_task_has_a_world_that_counts_one_that_was_killed(hosts: Callable[..., Hosts]) -> None:
    """Its local peers end at once, and the node that comes later forms no world with them."""
    two = hosts(2)
    later = tasks(two[1], 2, "60")
    until_said(later[0], "still looking for rank 0")
    os.kill(later[2].pid, signal.SIGKILL)
    assert all("local rank 2 gone" in reason for reason in all_failed(later[:2], 69))
    assert all("missing node2" in reason or "rank 1" in reason for reason in all_failed(tasks(two[0], 2, "2"), 69))
    later[2].communicate()
    assert [host.files() for host in two] == [set()] * 2


def test_rank_0s_own_tasks_are_watched_as_well(hosts: Callable[..., Hosts]) -> None:
    """The leader tells the reason to those that have checked in."""
    three = hosts(3)
    first, second = tasks(three[0], 3, "60"), tasks(three[1], 3, "60")
    until_said(first[0], "2 of 3 nodes checked in")
    os.kill(first[2].pid, signal.SIGKILL)
    reasons = all_failed([*first[:2], *second, *tasks(three[2], 3, "60")], 69)
    assert len(set(reasons)) == 1, reasons
    assert "all 3 tasks of node1" in reasons[0]
    assert "local rank 2 gone" in reasons[0]
    first[2].communicate()


def test_a_local_rank_that_comes_again_while_others_wait_fails_the_world_for_all(hosts: Callable[..., Hosts]) -> None:
    """It is a contradiction on every node."""
    three = hosts(3)
    first, second = tasks(three[0], 3, "60"), tasks(three[1], 3, "60")
    until_said(first[0], "2 of 3 nodes checked in")
    again = task(three[1], 3, 1, "60")
    again.wait(SOON_S)
    reasons = all_failed([*first, *second, again, *tasks(three[2], 3, "60")], 76)
    assert len(set(reasons)) == 1, reasons
    assert "node2" in reasons[0]
    assert "local rank 1 twice" in reasons[0]


@pytest.mark.parametrize("when", ["gathering", "meeting"])
def test_a_first_task_that_is_stopped_keeps_the_others_no_longer_than_their_deadline(
    hosts: Callable[..., Hosts], when: str
) -> None:
    """And once it goes on it fails too."""
    two = hosts(2)
    ranks = (0, 1) if when == "gathering" else range(TASKS)
    waiting = tasks(two[1], 2, "3", ranks)
    if when == "meeting":
        until_said(waiting[0], "still looking for rank 0")
    else:
        wait_for(lambda: any(path.endswith("/siblings") for path in two[1].files("/tmp")))
    os.kill(waiting[0].pid, signal.SIGSTOP)
    try:
        for process in waiting[1:]:
            process.wait(SOON_S)
    except TimeoutExpired:
        pytest.fail("a task waits long after its deadline")
    finally:
        os.kill(waiting[0].pid, signal.SIGCONT)
    assert all("first task (local rank 0)" in reason for reason in all_failed(waiting[1:], 69))
    all_failed(waiting[:1], 69)


@pytest.mark.parametrize("harm", ["directory", "file", "link"])
def test_what_another_user_makes_of_the_name_hinders_no_next_run(hosts: Callable[..., Hosts], harm: str) -> None:
    """Its name is seen in /tmp, and taken before the job runs again; that costs nobody anything."""
    (one,) = hosts(1)
    waiting = tasks(one, 1, "60", (0, 1))
    names: set[str] = set()

    def seen() -> bool:
        names.update(path for path in one.files("/tmp") if path.count("/") == 2 and "mingle" in path)
        return bool(names)

    wait_for(seen)
    waiting.append(task(one, 1, 2, "60"))
    assert [ended(process).returncode for process in waiting] == [0] * TASKS
    commands = {"directory": ["mkdir"], "file": ["touch"], "link": ["ln", "-s", "/home/alice"]}
    for name in names:
        one.run([*commands[harm], name], user="bob", check=True)
    done = [ended(process) for process in tasks(one, 1, "20")]
    assert [its.returncode for its in done] == [0] * TASKS, done
    assert len({its.stdout.count("WORLD_SIZE") for its in done}) == 1
    assert one.files("/tmp") - one.first_files == names


# A task whose /tmp is one file system for all, with what comes after it.
ONE_TMP = 'shared=$0; exec unshare --mount sh -c "mount --bind $shared /tmp; $SETUP" sh "$@"'
# Seen to end with 76 everywhere: "saw local rank 1 twice".
SHARED = {
    "/tmp": 'exec "$@"',
    "the runtime directory": 'XDG_RUNTIME_DIR=/tmp/run exec "$@"',
    # As far as containers have a say in which node a task is on: a host name and a network of the task's own, the
    # latter for those that ask the first one.
    "containers of their own": '[ $SLURM_LOCALID = 0 ] || set -- unshare --net "$@"\n'
    'exec unshare --uts sh -c \'hostname task$SLURM_PROCID; exec "$@"\' sh "$@"',
}


def one_tmp(place: Path) -> Path:
    """Return a directory to be every node's /tmp, with a runtime directory in it."""
    shared = place / "shared"
    (shared / "run").mkdir(mode=0o700, parents=True)
    shared.chmod(0o1777)
    return shared


@pytest.mark.parametrize("how", SHARED)
@pytest.mark.parametrize("alone", [False, True], ids=["one world", "each node by itself"])
def test_nodes_that_share_a_directory_do_not_take_each_others_tasks_for_their_own(
    slurm: SlurmCluster, tmp_path: Path, how: str, *, alone: bool
) -> None:
    """Diskless nodes have one /tmp, and pods a common volume; the tasks of one node still find each other."""
    shared = one_tmp(tmp_path)
    mingle = ["mingle", "exec", "--scope", "task", "--timeout", "30", *(["--alone"] if alone else [])]
    show = 'echo "$SLURM_PROCID is $RANK of $WORLD_SIZE, $NODE_RANK of $NNODES"'
    line = ["-N2", "--ntasks-per-node=2", "sh", "-c", ONE_TMP, shared, *mingle, "sh", "-c", show]
    done = slurm.srun(*line, env={**KEYED, "SETUP": SHARED[how]}, timeout=60)
    assert done.returncode == 0, done
    whole = [f"{rank} is {rank} of 4, {rank // 2} of 2" for rank in range(4)]
    parts = [f"{rank} is {rank % 2} of 2, 0 of 1" for rank in range(4)]
    assert sorted(done.stdout.splitlines()) == (parts if alone else whole)
    assert [path for path in shared.rglob("*") if path.name != "run"] == []


def test_hosts_that_share_a_directory_do_not_take_each_others_tasks_for_their_own(
    hosts: Callable[..., Hosts], tmp_path: Path
) -> None:
    """No scheduler names these hosts: mpirun tells a task its numbers only."""
    two, shared = hosts(2), one_tmp(tmp_path)
    for host in two:
        host.run(["mount", "--bind", shared, "/tmp"], check=True)
    done = [ended(process) for process in [its for host in two for its in tasks(host, 2, "30")]]
    assert [its.returncode for its in done] == [0] * 2 * TASKS, done
    assert all('"WORLD_SIZE": "6"' in its.stdout for its in done)
