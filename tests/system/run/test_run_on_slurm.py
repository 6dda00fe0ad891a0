"""`mingle run`, `ls` and `kill` in real jobs of Slurm, and the agents that a real srun starts."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cluster.host import USERS, Host
from cluster.paths import BIN
from cluster.slurm import SlurmCluster
from places import without_world
from told import Told, batch, script, told

from mingle_hooks.schedulers import facts

# Fewer open files than the runner wants, which srun hands on as they are.
FILES = 512


def submit(slurm: SlurmCluster, place: Path, words: str, *options: str) -> str:
    """Submit a batch job whose body is one line of `mingle run`."""
    place.mkdir()
    place.chmod(0o777)
    script = f"ulimit -Sn {FILES}; cd {place}; PATH={BIN}:$PATH; mingle run {words}; echo $? >status"
    return slurm.submit(script, f"--output={place}/log", *options, user="alice")


def done(slurm: SlurmCluster, place: Path, words: str, *options: str) -> tuple[str, list[str]]:
    """Wait for the end of such a job; return the status of `mingle run` and the lines that the job wrote."""
    slurm.wait(submit(slurm, place, words, *options))
    return (place / "status").read_text(), sorted(without_world((place / "log").read_text()).splitlines())


def test_a_batch_script_of_one_line(slurm: SlurmCluster, tmp_path: Path) -> None:
    """What fails and what is lost is in test_all_end_together.py."""
    tells = "sh -c 'echo $RANK $WORLD_SIZE $(hostname) $(ulimit -Sn)'"
    rows = [f"node{rank + 1}: {rank} 4 node{rank + 1} {FILES}" for rank in range(4)]
    assert done(slurm, tmp_path / "clean", tells, "-N4") == ("0\n", rows)
    tells = "--scope task sh -c 'echo $RANK $LOCAL_RANK'"
    rows = [f"{rank} node{node}: {rank} {local}" for rank, node, local in ((0, 1, 0), (1, 1, 1), (2, 2, 0), (3, 3, 0))]
    assert done(slurm, tmp_path / "tasks", tells, "-N3", "-n4") == ("0\n", rows)

    saves = 'trap "echo saved >>saved$RANK; exit 0" TERM; touch begun$RANK.0; while :; do sleep 0.05; done'
    place = tmp_path / "stopped"
    stopped = submit(slurm, place, f"bash -c '{saves}'", "-N4")
    slurm.until(lambda: all((place / f"begun{rank}.0").exists() for rank in range(4)), "COMMAND begins")
    slurm.controller.run(["scancel", stopped])
    slurm.wait(stopped)
    assert [(place / f"saved{rank}").read_text() for rank in range(4)] == ["saved\n"] * 4
    assert not slurm.strays()
    assert set(slurm.sinfo().values()) == {"idle"}


FAILS = "[ $MINGLE_ATTEMPT = 1 ] || [ $RANK = 0 ] || exit 7"


def test_a_job_is_seen_and_ended_from_any_host_by_its_user_alone(slurm: SlurmCluster, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    os.chown(home, USERS["alice"], USERS["alice"])

    def mingle(host: Host, *words: str, user: str = "alice", **environ: str) -> subprocess.CompletedProcess[str]:
        return host.run([BIN / "mingle", *words], user=user, env={"HOME": str(home), **environ})

    def listed(host: Host) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(mingle(host, "ls", "--json").stdout or "[]")
        return found

    stay = f"sh -c '{FAILS}; touch {tmp_path}/begun.$RANK.$MINGLE_ATTEMPT; exec sleep 1000'"
    script = f"export HOME={home}; {BIN}/mingle run --restarts 1 {stay}; echo $? >{tmp_path}/status"
    job = slurm.submit(script, f"--output={tmp_path}/log", "-N2", "--nodelist=node2,node3", user="alice")
    slurm.until(lambda: all((tmp_path / f"begun.{rank}.1").exists() for rank in (0, 1)), "COMMAND begins")
    _, node2, _, login = slurm.hosts
    slurm.until(lambda: [row["state"] for row in listed(login)] == ["running"], "the run's file says so")
    (row,) = listed(login)
    names = ("id", "state", "here", "wanted", "attempt", "host")
    assert [row[name] for name in names] == [job, "running", 2, 2, 1, "node2"]
    assert listed(node2) == [row]
    assert "node3 (rank 1): exited with status 7 after" in mingle(login, "show", job).stdout

    state = str(home / ".local" / "state")
    stolen = mingle(login, "kill", job, user="bob", HOME="/home/bob", XDG_STATE_HOME=state)
    assert (stolen.returncode, stolen.stdout) == (78, "")
    done = mingle(login, "kill", job)
    assert (done.returncode, done.stdout) == (0, f"run {job} has ended with status 143\n")
    slurm.wait(job)
    assert (tmp_path / "status").read_text() == "143\n"
    assert listed(login) == []


def test_the_job_s_time_limit_gives_75(slurm: SlurmCluster, tmp_path: Path) -> None:
    """Without --warn, and with Slurm 22.05, whose jobs have no variable with their end."""
    waits = f"until [ -e {tmp_path}/go ]; do sleep 0.1; done"
    saves = f"sh -c 'trap \"echo saved >{tmp_path}/saved; exit 0\" TERM; while :; do sleep 0.1; done'"
    run = f"unset SLURM_JOB_END_TIME; {BIN}/mingle run {saves}"
    script = f"trap : TERM; {waits}; {run}; echo $? >{tmp_path}/status"
    job = slurm.submit(script, f"--output={tmp_path}/log", "--nodelist=node2,node3")
    slurm.until(lambda: slurm.job(job)["JobState"] == "RUNNING", "the job begins")
    # Until then `mingle run` has to start and ask Slurm for the end, which takes seconds on a busy machine.
    slurm.controller.run(["scontrol", "update", f"JobId={job}", "EndTime=now+12"], check=True)
    (tmp_path / "go").touch()
    assert slurm.wait(job, timeout=120) == "TIMEOUT"
    assert [(tmp_path / name).read_text() for name in ("status", "saved")] == ["75\n", "saved\n"]
    assert (
        "mingle run: ending: its time limit has come; the grace period of COMMAND is" in (tmp_path / "log").read_text()
    )


# What srun says of its own step, or of itself.
OF_SRUN = ("SLURM_", "SRUN_", "SLURMD_", "CUDA_VISIBLE_", "GPU_DEVICE_", "ROCR_VISIBLE_", "ZE_AFFINITY_")
# The script's, which COMMAND may read.
KEPT = ("SLURM_CPUS_PER_TASK", "SLURM_GPUS", "SLURM_GPUS_PER_TASK", "SLURM_NTASKS_PER_GPU", "SLURM_LABELIO")


def run(
    cluster: SlurmCluster, place: Path, *options: str, words: tuple[str, ...] = (), command: str = ":"
) -> dict[str, Told]:
    """Return what the COMMANDs of a job with these options are told."""
    place.mkdir(exist_ok=True)
    place.chmod(0o777)
    job = cluster.submit(script(place, *words, command=command), f"--output={place}/log", *options, user="alice")
    state, log = cluster.wait(job), (place / "log").read_text()
    assert (state, "srun" in log) == ("COMPLETED", False), log
    found, own = told(place, OF_SRUN), batch(place)
    for its in found.values():
        assert {name: its.environ.get(name) for name in KEPT} == {name: own.get(name) for name in KEPT}
    return found


JOBS = {
    "processors": ("-N3", "--ntasks-per-node=2", "--cpus-per-task=2", "--threads-per-core=1", "--hint=nomultithread"),
    "said": ("-N2", "-n8", "--export=ALL,SLURM_LABELIO=1,SLURM_EXACT=1,SRUN_CPUS_PER_TASK=1,SLURM_TIMELIMIT=1"),
}


def test_each_host_gets_one_with_the_scripts_environment(slurm: SlurmCluster, tmp_path: Path) -> None:
    for number, (name, options) in enumerate(JOBS.items()):
        found = run(slurm, tmp_path / str(number), *options)
        hosts = [f"node{n + 1}" for n in range(int(options[0][2:]))]
        assert [*found] == [f"{host}.0" for host in hosts], name
        granted = facts.expand_counts(batch(tmp_path / str(number))["SLURM_JOB_CPUS_PER_NODE"])
        assert [int(its.environ["SLURM_CPUS_ON_NODE"]) for its in found.values()] == [*granted], name


def test_the_users_own_order_is_that_of_the_ranks(slurm: SlurmCluster, tmp_path: Path) -> None:
    (tmp_path / "list").write_text("node3\nnode3\nnode1\nnode2\n")
    own = ("-m", "arbitrary", "-w", "node3,node3,node1,node2", "-n4")
    found = run(slurm, tmp_path / "job", *own, f"--export=ALL,SLURM_HOSTFILE={tmp_path}/list")
    assert {name: its.rank for name, its in found.items()} == {"node1.0": "1", "node2.0": "2", "node3.0": "0"}


def test_every_component_of_a_heterogeneous_job_takes_part(slurm: SlurmCluster, tmp_path: Path) -> None:
    found = run(slurm, tmp_path / "job", "-N1", ":", "-N2", "-n4")
    assert [*found] == ["node1.0", "node2.0", "node3.0"]


def test_a_shell_of_salloc_starts_on_all_hosts(slurm: SlurmCluster, tmp_path: Path) -> None:
    text = script(tmp_path)
    done = slurm.controller.run(["salloc", "-Q", "-w", "node[2-4]", "bash", "-c", text], user="alice")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert [*told(tmp_path, OF_SRUN)] == ["node2.0", "node3.0", "node4.0"]


GPU_JOBS = {
    "by task": ("-N2", "--ntasks-per-node=4", "--gpus-per-task=1", "--mem-per-cpu=100"),
    "in all": ("-N2", "--gpus=8"),
}
# Rank 1's agent is killed once; the others' still hold their GPUs when another is started.
KILLS_AGENT = "[ $MINGLE_ATTEMPT.$NODE_RANK != 0.1 ] || kill -9 $PPID; [ $MINGLE_ATTEMPT = 1 ] || exec sleep 1000"


def test_each_host_gets_its_gpus(fresh_slurm: Callable[..., SlurmCluster], tmp_path: Path) -> None:
    cluster = fresh_slurm(2, cpus=8, gpus=4, conf_lines=["GresTypes=gpu", "SelectTypeParameters=CR_CPU_Memory"])
    for number, (name, options) in enumerate(GPU_JOBS.items()):
        found = run(cluster, tmp_path / f"job{number}", *options)
        own = batch(tmp_path / f"job{number}")["SLURM_JOB_GPUS"]
        seen = {host: its.environ["SLURM_STEP_GPUS"] for host, its in found.items()}
        assert seen == {"node1.0": own, "node2.0": own}, name
    again = run(cluster, tmp_path / "again", "-N2", "--gpus=8", words=("--restarts", "1"), command=KILLS_AGENT)
    assert [its.environ["SLURM_STEP_GPUS"] for its in again.values()] == ["0,1,2,3"] * 2
    tasks = run(cluster, tmp_path / "tasks", *GPU_JOBS["by task"], words=("--scope", "task"))
    assert [its.environ["CUDA_VISIBLE_DEVICES"] for its in tasks.values()] == [*"01230123"]
