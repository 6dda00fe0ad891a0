"""`mingle env` in the jobs of a real Slurm, as users write them."""

import shutil
import stat
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cluster.slurm import SlurmCluster
from support.members import (
    KEYED,
    REDUCE,
    REDUCER,
    SHARED,
    agreed,
    besides_waits,
    evaluating,
    failed,
    parsed,
    parsed_files,
)

from mingle_hooks.hooks.files import LOCK_PATH as LOCK


def step(
    slurm: SlurmCluster,
    directory: Path,
    *srun: str,
    mingle: tuple[str, ...] = (),
    then: str = REDUCE,
    user: str = "root",
    env: Mapping[str, str] = KEYED,
) -> list[dict[str, str]]:
    """Run `eval "$(mingle env …)"` in every task of a step; return each task's variables, in task order."""
    done = slurm.srun(*srun, f"--output={directory}/task.%t", *evaluating(*mingle, then=then), env=env, user=user)
    texts = [path.read_text() for path in sorted(directory.glob("task.*"))]
    assert done.returncode == 0, (done.stderr, texts)
    assert not [line for line in besides_waits(*texts) if line.startswith("mingle:")]
    return [parsed(text) for text in texts]


@pytest.fixture
def home(slurm: SlurmCluster) -> Iterator[Path]:
    """Give alice's home, and take what the test's key leaves there away again."""
    home = slurm.hosts[0].outside("/home/alice")
    yield home
    shutil.rmtree(home / ".config", ignore_errors=True)


@pytest.mark.parametrize("multicast", [False, True], ids=["multicast dropped", "only multicast"])
def test_a_step_on_four_hosts_gets_one_world_with_the_schedulers_ranks(
    slurm: SlurmCluster, tmp_path: Path, *, multicast: bool
) -> None:
    """The main use: each backend alone is enough, and node ranks are Slurm's."""
    if not multicast:
        slurm.hosts.drop_multicast()
    tasks = step(slurm, tmp_path, "-N4", mingle=("--via", "multicast") if multicast else ())
    worlds = agreed(tasks)
    assert worlds[0]["MASTER_ADDR"] == "10.77.0.1"
    assert [task["NODE_RANK"] for task in tasks] == [task["SLURM_NODEID"] for task in tasks]
    assert worlds[0]["MINGLE_ID"] == worlds[0]["SLURM_JOB_ID"]


def test_a_step_on_part_of_the_job_is_a_world_of_its_own(slurm: SlurmCluster, tmp_path: Path) -> None:
    """`srun -N2 -r1` in a job of four hosts: two members, the first on node2."""
    inside = ["srun", "-N2", "-n2", "-r1", f"--output={tmp_path}/task.%t", *evaluating(then=REDUCE)]
    slurm.controller.run(["salloc", "-N4", *inside], env=KEYED, check=True)
    worlds = agreed(parsed_files(tmp_path))
    assert [world["SLURMD_NODENAME"] for world in worlds] == ["node2", "node3"]
    assert worlds[0]["MASTER_ADDR"] == "10.77.0.2"


def test_two_jobs_on_the_same_hosts_at_once_do_not_meet(slurm: SlurmCluster, tmp_path: Path) -> None:
    """Each has its own world and its own port on the rank-0 host that they share."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    with ThreadPoolExecutor(2) as pool:
        jobs = list(pool.map(lambda name: step(slurm, tmp_path / name, "-N4"), ("a", "b")))
    first, second = (agreed(job)[0] for job in jobs)
    assert first["MINGLE_ID"] != second["MINGLE_ID"]
    assert first["MASTER_ADDR"] == second["MASTER_ADDR"]
    assert (first["MASTER_PORT"], first["MINGLE_WORLD"]) != (second["MASTER_PORT"], second["MINGLE_WORLD"])


def test_a_requeued_job_gets_a_fresh_world_and_never_meets_its_own_past(slurm: SlurmCluster, tmp_path: Path) -> None:
    """The id stays; a member of the first life that is still about does not get into the second."""
    lines = [
        f"srun --output={tmp_path}/${{SLURM_RESTART_COUNT:-0}}.%t bash -ec 'eval \"$(mingle env)\"; env'",
        f"touch {tmp_path}/formed.${{SLURM_RESTART_COUNT:-0}}",
        '[ -n "$SLURM_RESTART_COUNT" ] || sleep 60',
    ]
    job = slurm.submit("\n".join(lines), "-N4", "-n4", "--requeue", f"--output={tmp_path}/output", env=KEYED)
    slurm.until((tmp_path / "formed.0").exists, "first world")
    first = agreed(parsed_files(tmp_path, "0.*"))
    past = {name: value for name, value in first[3].items() if name.startswith(("SLURM", "MINGLE_KEY"))}
    ghost = slurm.hosts[3].popen(["mingle", "env"], env=past)
    slurm.requeue(job)
    state = slurm.wait(job)
    ghost_ended = ghost.poll()
    ghost.terminate()
    ghost.communicate(timeout=10)
    assert state == "COMPLETED", slurm.logs()
    second = agreed(parsed_files(tmp_path, "1.*"))
    assert (ghost_ended, ghost.returncode) == (None, 143)
    assert [world[0]["MINGLE_ID"] for world in (first, second)] == [job, job]
    assert first[0]["MINGLE_WORLD"] != second[0]["MINGLE_WORLD"]


@pytest.mark.parametrize("order", ["block", "cyclic"])
def test_uneven_tasks_per_node_get_task_ranks(slurm: SlurmCluster, tmp_path: Path, order: str) -> None:
    """`-N3 -n5 --scope task`: each RANK once, LOCAL_RANK as Slurm counts, one answer for all tasks."""
    tasks = step(slurm, tmp_path, "-N3", "-n5", "-m", order, mingle=("--scope", "task"), then="env")
    assert len({tuple(task[name] for name in SHARED) for task in tasks}) == 1
    assert {(task["WORLD_SIZE"], task["NNODES"]) for task in tasks} == {("5", "3")}
    assert [task["RANK"] for task in tasks] == ["0", "1", "2", "3", "4"]
    for task in tasks:
        assert task["LOCAL_RANK"] == task["SLURM_LOCALID"]
        assert task["GROUP_RANK"] == task["NODE_RANK"] == task["SLURM_NODEID"]
    nodes = Counter(task["NODE_RANK"] for task in tasks)
    assert sorted(nodes.values()) == [1, 1, 3]  # Slurm fills the first host
    assert [int(task["LOCAL_WORLD_SIZE"]) for task in tasks] == [nodes[task["NODE_RANK"]] for task in tasks]
    assert not {path for host in slurm.hosts for path in host.files("/run") if "mingle" in path} - {LOCK}


def test_a_heterogeneous_job_is_one_world_over_its_components(slurm: SlurmCluster, tmp_path: Path) -> None:
    """`srun -N1 … : -N2 …`, or one step over components: three members, numbered as Slurm numbers the nodes."""
    command = evaluating(
        then=f"env > {tmp_path}/task.$SLURM_PROCID; python3 -IS {REDUCER} >> {tmp_path}/task.$SLURM_PROCID"
    )
    done = slurm.srun("-N1", *command, ":", "-N2", *command, env=KEYED)
    assert done.returncode == 0, done.stderr
    worlds = agreed(parsed_files(tmp_path))
    assert len({world["SLURMD_NODENAME"] for world in worlds}) == 3
    components = "#SBATCH -N1 -w node3\n#SBATCH hetjob\n#SBATCH -N2 -w node1,node2\n"
    step = f"srun --het-group=0,1 bash -ec 'eval \"$(mingle env)\"; env > {tmp_path}/het.$SLURM_PROCID'"
    assert slurm.wait(slurm.submit(components + step, env=KEYED)) == "COMPLETED"
    tasks = parsed_files(tmp_path, "het.*")
    assert len({task["MINGLE_WORLD"] for task in tasks}) == 1
    assert [f"{task['SLURMD_NODENAME']} {task['NODE_RANK']}" for task in tasks] == ["node3 0", "node1 1", "node2 2"]


def test_a_user_who_is_not_root_gets_a_private_key_on_first_use(
    slurm: SlurmCluster, tmp_path: Path, home: Path
) -> None:
    """Four tasks make one key in the shared home at the same moment, and all use it."""
    worlds = agreed(step(slurm, tmp_path, "-N4", user="alice", env={}))
    assert worlds[0]["USER"] == "alice"
    directory = home / ".config/mingle"
    assert [path.name for path in directory.iterdir()] == ["key"]
    status = (directory / "key").stat()
    assert (stat.S_IMODE(status.st_mode), status.st_uid) == (0o600, home.stat().st_uid)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_two_tasks_of_a_node_that_both_join_as_nodes_fail_everybody_with_the_reason(
    slurm: SlurmCluster, tmp_path: Path
) -> None:
    """Every one fails, also one that comes much later; one message names the rank, the host and a remedy."""
    script = """[ $SLURM_LOCALID = 1 ] && [ $SLURM_NODEID != 1 ] && exit 0
[ $SLURM_NODEID != 1 ] || : >$1.$SLURM_LOCALID
[ $SLURM_NODEID != 2 ] || { until [ -e $1.0 ] && [ -e $1.1 ]; do sleep 0.1; done; sleep 3; }
shift
exec "$@" """
    tasks = ("-N3", "-n6", "--ntasks-per-node=2", "bash", "-c", script, "bash", str(tmp_path / "started"))
    errors = failed(slurm.srun(*tasks, *evaluating("--scope", "node", "--timeout", "20"), env=KEYED), 76)
    claims = [line for line in errors.splitlines() if "rank 1 claimed by node2 (" in line]
    assert ["--scope task" in line for line in claims] == [True], errors
