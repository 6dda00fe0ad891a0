"""Supervisors started by a real srun, in each kind of job."""

from __future__ import annotations

import json
import secrets
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mingle_hooks.schedulers import hostlist as counts

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.slurm import SlurmCluster

HERE = Path(__file__).parent
# What srun says of its own step, or of itself.
OF_SRUN = ("SLURM_", "SRUN_", "SLURMD_", "CUDA_VISIBLE_", "GPU_DEVICE_", "ROCR_VISIBLE_", "ZE_AFFINITY_")
# The script's, which COMMAND may read.
KEPT = ("SLURM_CPUS_PER_TASK", "SLURM_GPUS", "SLURM_GPUS_PER_TASK", "SLURM_NTASKS_PER_GPU", "SLURM_LABELIO")
OF_SHELL = ("_", "SHLVL", "PWD", "OLDPWD")
SCRIPT = """\
umask 0027
cd {place}/'a dir'
export MINGLE_RUN_KEY={key} LINES='two
lines' QUOTED="a 'b' \\"c\\" \\$d %e, \\\\f" EMPTY=
env -0 > {place}/batch
{python} {driver} {place}/out {words}
"""


def script(place: Path, *words: str) -> str:
    for name in ("a dir", "out"):
        (place / name).mkdir(exist_ok=True)
        (place / name).chmod(0o777)
    driver = HERE / "starter_driver.py"
    return SCRIPT.format(
        place=place, key=secrets.token_hex(24), python=sys.executable, driver=driver, words=shlex.join(words)
    )


def told(place: Path) -> dict[str, Any]:
    return {path.name: json.loads(path.read_text()) for path in sorted((place / "out").iterdir())}


def batch(place: Path) -> dict[str, str]:
    pairs = (place / "batch").read_bytes().decode().split("\0")
    return dict(pair.split("=", 1) for pair in pairs if pair)


def run(
    cluster: SlurmCluster, place: Path, *options: str, words: tuple[str, ...] = (), before: str = ""
) -> dict[str, Any]:
    """Return what the probes of a job with these options tell, after the checks that hold for all jobs."""
    place.mkdir(exist_ok=True)
    place.chmod(0o777)
    job = cluster.submit(before + script(place, *words), f"--output={place}/log", *options, user="alice")
    state = cluster.wait(job)
    log = (place / "log").read_text()
    assert state == "COMPLETED", log
    assert "srun" not in log, log
    found, own = told(place), batch(place)
    for name, its in found.items():
        assert its["hostname"] == name.partition(".")[0]
        assert (its["cwd"], its["umask"]) == (f"{place}/a dir", 0o027)
        assert (its["shown"], its["stdin"]) == ([], "")
        assert variables(its["environ"]) == variables(own)
        assert {name: its["environ"].get(name) for name in KEPT} == {name: own.get(name) for name in KEPT}
    return found


def variables(environ: dict[str, str]) -> dict[str, str]:
    return {n: v for n, v in environ.items() if not n.startswith(OF_SRUN) and n not in OF_SHELL}


JOBS = {
    "processors": ("-N3", "--ntasks-per-node=2", "--cpus-per-task=2", "--threads-per-core=1", "--hint=nomultithread"),
    "uneven": ("-N3", "-n4", "--mem-per-cpu=10", "--distribution=cyclic"),
    "said": ("-N2", "-n8", "--export=ALL,SLURM_LABELIO=1,SLURM_EXACT=1,SRUN_CPUS_PER_TASK=1,SLURM_TIMELIMIT=1"),
    "alone": ("-N1", "-n2", "--exclusive"),
}


def test_each_host_gets_one_with_the_scripts_environment(slurm: SlurmCluster, tmp_path: Path) -> None:
    """And its directory and umask, a stdin at its end, all processors of the job there, and nothing secret shown."""
    for number, (name, options) in enumerate(JOBS.items()):
        found = run(slurm, tmp_path / str(number), *options)
        hosts = [f"node{n + 1}" for n in range(int(options[0][2:]))]
        assert [*found] == [f"{host}.0" for host in hosts], name
        granted = counts.expand_counts(batch(tmp_path / str(number))["SLURM_JOB_CPUS_PER_NODE"])
        assert [int(its["environ"]["SLURM_CPUS_ON_NODE"]) for its in found.values()] == [*granted], name


def test_each_task_gets_one_with_scope_task(slurm: SlurmCluster, tmp_path: Path) -> None:
    """As many on each host as the job has tasks there, also where hosts differ, with a task's processors each."""
    found = run(slurm, tmp_path / "uneven", "-N3", "-n4", words=("--per-task",))
    per_node = counts.expand_counts(batch(tmp_path / "uneven")["SLURM_TASKS_PER_NODE"])
    assert [*found] == [f"node{n + 1}.{local}" for n, count in enumerate(per_node) for local in range(count)]
    found = run(slurm, tmp_path / "even", "-N2", "--ntasks-per-node=2", "-c2", words=("--per-task",))
    assert [*found] == ["node1.0", "node1.1", "node2.0", "node2.1"]


def test_the_users_own_order_is_that_of_the_ranks(slurm: SlurmCluster, tmp_path: Path) -> None:
    """With -m arbitrary the hosts' order is the list's, and one is started on each however often it stands there."""
    (tmp_path / "list").write_text("node3\nnode3\nnode1\nnode2\n")
    own = ("-m", "arbitrary", "-w", "node3,node3,node1,node2", "-n4", "-N3")
    found = run(slurm, tmp_path / "job", *own, f"--export=ALL,SLURM_HOSTFILE={tmp_path}/list")
    assert [*found] == ["node1.0", "node2.0", "node3.0"]
    assert (tmp_path / "job" / "log").read_text() == "slurm node3 node1 node2\n"


def test_every_component_of_a_heterogeneous_job_takes_part(slurm: SlurmCluster, tmp_path: Path) -> None:
    """Each gets an srun of its own."""
    found = run(slurm, tmp_path / "job", "-N1", ":", "-N2", "-n4")
    assert [*found] == ["node1.0", "node2.0", "node3.0"]


def test_a_shell_of_salloc_starts_on_all_hosts(slurm: SlurmCluster, tmp_path: Path) -> None:
    """Though it runs on none of them."""
    text = script(tmp_path)
    done = slurm.controller.run(["salloc", "-Q", "-w", "node[2-4]", "bash", "-c", text], user="alice")
    assert done.stdout == "slurm node2 node3 node4\n", done.stderr
    assert [*told(tmp_path)] == ["node2.0", "node3.0", "node4.0"]
    for its in told(tmp_path).values():
        assert variables(its["environ"]) == variables(batch(tmp_path)) | {
            "TMPDIR": its["environ"]["TMPDIR"]
        }  # of slurmd


def test_the_rest_is_started_without_a_lost_host(slurm: SlurmCluster, tmp_path: Path) -> None:
    """A new srun on the hosts that are left waits neither for the lost one nor for the step that had it."""
    text = script(tmp_path, "--only", "node1,node2") + "touch done\n"
    lost = f"srun --overlap -N3 -n3 sh -c 'touch {tmp_path}/begun.$SLURM_PROCID; sleep 300' &\n"
    wait = f"until [ -e {tmp_path}/lost ]; do sleep 0.1; done\n"
    job = slurm.submit(lost + wait + text + "kill %1\n", f"--output={tmp_path}/log", "-N3", "--no-kill", user="alice")
    slurm.until(lambda: len([*tmp_path.glob("begun.*")]) == 3, "step on all hosts")
    for host in slurm.hosts[0], slurm.hosts[1]:
        slurm.hosts.cut(host, slurm.hosts[2])
    (tmp_path / "lost").touch()
    slurm.until((tmp_path / "a dir" / "done").exists, "hosts that are left")
    assert [*told(tmp_path)] == ["node1.0", "node2.0"]
    slurm.hosts.clear_firewall()
    slurm.wait(job)


GPU_JOBS = {
    "by task": ("-N2", "--ntasks-per-node=4", "--gpus-per-task=1", "--mem-per-cpu=100"),
    "in all": ("-N2", "--gpus=8"),
    "by GPU": ("-N2", "--gpus=8", "--ntasks-per-gpu=1"),
    "by host": ("-N2", "--gpus-per-node=3", "--cpus-per-gpu=1", "--mem-per-gpu=100"),
}


def test_each_host_gets_its_gpus(fresh_slurm: Callable[..., SlurmCluster], tmp_path: Path) -> None:
    """However the job asked for them: a step of one task on each host would get one task's, or one of all."""
    cluster = fresh_slurm(2, cpus=8, gpus=4, conf_lines=["GresTypes=gpu", "SelectTypeParameters=CR_CPU_Memory"])
    for number, (name, options) in enumerate(GPU_JOBS.items()):
        found = run(cluster, tmp_path / f"job{number}", *options)
        own = batch(tmp_path / f"job{number}")["SLURM_JOB_GPUS"]
        assert {host: its["environ"]["SLURM_STEP_GPUS"] for host, its in found.items()} == {
            "node1.0": own,
            "node2.0": own,
        }, name
    part = run(cluster, tmp_path / "part", "-N2", "--gpus=8", words=("--only", "node2"))
    assert [its["environ"]["SLURM_STEP_GPUS"] for its in part.values()] == ["0,1,2,3"]
    # What an attempt before has left: it still holds all of them.
    all_of_it = "srun --overlap --mem=0 --gpus-per-node=4 -n2"
    holder = f"{all_of_it} sh -c 'touch {tmp_path}/$SLURM_PROCID; sleep 300' >/dev/null 2>&1 &\n"
    wait = f"until [ -e {tmp_path}/0 ] && [ -e {tmp_path}/1 ]; do sleep 0.05; done\n"
    beside = run(cluster, tmp_path / "beside", "-N2", "--gpus=8", before=holder + wait)
    assert [its["environ"]["SLURM_STEP_GPUS"] for its in beside.values()] == ["0,1,2,3"] * 2
    tasks = run(cluster, tmp_path / "tasks", *GPU_JOBS["by task"], words=("--per-task",))
    assert [its["environ"]["CUDA_VISIBLE_DEVICES"] for its in tasks.values()] == [*"01230123"]
