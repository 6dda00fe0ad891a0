"""The tasks of a node stay together to the commit: all of them have the world, or none has."""

from collections.abc import Callable, Iterable
from pathlib import Path
from subprocess import Popen

import pytest
from cluster.host import Host
from cluster.hosts import Hosts
from cluster.slurm import SlurmCluster
from support.members import KEYED, ended, until_line

TASKS = 3  # on each node
# In seconds; far below the tasks' deadline.
SOON_S = 25.0


def task(host: Host, nodes: int, local_rank: int, timeout: str = "60") -> Popen[str]:
    """Start `mingle env --scope task` as mpirun would start it on this host."""
    env = {
        "OMPI_COMM_WORLD_RANK": str((host.number - 1) * TASKS + local_rank),
        "OMPI_COMM_WORLD_SIZE": str(nodes * TASKS),
        "OMPI_COMM_WORLD_LOCAL_RANK": str(local_rank),
        "OMPI_COMM_WORLD_LOCAL_SIZE": str(TASKS),
    }
    words = ["--scope", "task", "--shell", "json", "--id", "job", "--master", "node1", "--timeout", timeout]
    return host.popen(["mingle", "env", *words], env={**KEYED, **env}, user="alice")


def tasks(host: Host, nodes: int, timeout: str = "60") -> list[Popen[str]]:
    """Start the tasks of a node."""
    return [task(host, nodes, rank, timeout) for rank in range(TASKS)]


def all_failed(processes: Iterable[Popen[str]], code: int) -> list[str]:
    """Check that each task failed with `code` and without a world; return the last line of each."""
    done = [ended(process) for process in processes]
    assert [(one.returncode, "WORLD_SIZE" in one.stdout) for one in done] == [(code, False)] * len(done), done
    return [one.stderr.splitlines()[-1] for one in done]


@pytest.mark.parametrize(
    ("node", "harm", "code", "says"),
    [
        (0, "killed", 69, ("all 3 tasks of node1", "local rank 1 gone")),
        (1, "again", 76, ("node2", "local rank 1 twice")),
    ],
    ids=["a task of rank 0 is killed", "a local rank comes again"],
)
def test_a_task_that_fails_while_others_wait_fails_the_world_for_all(
    four: Hosts, node: int, harm: str, code: int, says: tuple[str, ...]
) -> None:
    """On its own node, on the others and on one that comes late; and all give the same reason."""
    first = [tasks(four[number], 3) for number in range(2)]
    until_line(first[0][0], "2 of 3 nodes checked in")
    harmed = first[node]
    if harm == "killed":
        victim = harmed.pop(1)
        victim.kill()
        victim.communicate()
    else:
        harmed.append(task(four[node], 3, 1))
        harmed[-1].wait(SOON_S)
    reasons = all_failed([*first[0], *first[1], *tasks(four[2], 3)], code)
    assert len(set(reasons)) == 1, reasons
    assert [part for part in says if part not in reasons[0]] == [], reasons


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
    done = [ended(process) for process in [task for host in two for task in tasks(host, 2, "30")]]
    assert [one.returncode for one in done] == [0] * 2 * TASKS, done
    assert all('"WORLD_SIZE": "6"' in one.stdout for one in done)
