"""Which starter applies, what a run may use, and what is refused, from recorded environments."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from mingle_hooks.errors import FactsError, MingleError, UsageError
from mingle_hooks.run import starters
from mingle_hooks.run.starters import Allocation, Place
from mingle_hooks.schedulers.detect import detect
from mingle_hooks.schedulers.facts import JobFacts

RECORDED = Path(__file__).resolve().parents[2] / "data" / "recorded"
VERSIONS = ("slurm-22.05.8", "slurm-26.05.3")


def recorded(name: str) -> dict[str, str]:
    environ = dict(line.split("=", 1) for line in (RECORDED / name).read_text().splitlines() if line)
    if "PBS_NODEFILE" in environ:
        environ["PBS_NODEFILE"] = str(RECORDED / Path(name).parent / f"nodefile.{environ['PBS_JOBID']}")
    return environ


def found(environ: dict[str, str], hostname: str = "node1", hosts: str | None = None) -> tuple[str, Allocation]:
    facts = detect(environ, hostname)
    return starters.find(facts, environ, hosts).name, starters.allocation(facts, environ, hosts)


@pytest.mark.parametrize("version", VERSIONS)
def test_slurms_batch_script_starts_by_srun(version: str) -> None:
    name, job = found(recorded(f"{version}/batch.1") | {"SLURM_JWT": "a token", "SLURM_GPUS": "3"})
    assert (name, job.scheduler, job.job_id, job.restarts) == ("slurm", "slurm", "1", 0)
    assert (job.hosts, job.slots, job.own) == (("node1", "node2", "node3"), (2, 2, 2), "node1")
    assert job.end == {"slurm-22.05.8": None, "slurm-26.05.3": 1826713549}[version]
    assert (job.kill_wait_s, job.grace_s) == (30, 28)
    assert job.places == (Place("node1", 0), Place("node2", 0), Place("node3", 0))
    assert job._replace(is_per_task=True).places[:3] == (Place("node1", 0), Place("node1", 1), Place("node2", 0))
    assert job.environ["SLURM_GPUS"] == "3"
    assert "a token" not in repr(job)


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("node3\nnode1\nnode2\nnode3\n", ("node3", "node1", "node2")),
        ("node[1-3]\n", ("node1", "node2", "node3")),
        ("node1\nnode2\n", ("node1", "node2", "node3")),
    ],
)
def test_a_list_of_the_users_own_gives_the_order(tmp_path: Path, text: str, hosts: tuple[str, ...]) -> None:
    """Where it names the job's hosts, each by itself."""
    (tmp_path / "list").write_text(text)
    own = {"SLURM_DISTRIBUTION": "arbitrary", "SLURM_HOSTFILE": str(tmp_path / "list")}
    job = found(recorded("slurm-22.05.8/batch.1") | own)[1]
    assert job.hosts == hosts
    assert job.slots == ((2, 1, 1) if hosts[0] == "node3" else (2, 2, 2))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_requeued_job_knows_it(version: str) -> None:
    assert found(recorded(f"{version}/requeue.4.1"))[1].restarts == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_all_components_of_a_heterogeneous_job_are_its_hosts(version: str) -> None:
    name, job = found(recorded(f"{version}/batch.5"))
    assert (name, job.hosts, job.slots) == ("slurm", ("node1", "node2", "node3"), (1, 1, 1))


def test_pbs_starts_by_its_own_and_alone_here() -> None:
    name, job = found(recorded("openpbs-23.06.06/job.0.ctl"))
    assert (name, job.scheduler, job.job_id) == ("pbs", "pbs", "0.ctl")
    assert (job.hosts, job.slots, job.own) == (("node1", "node2", "node3"), (2, 2, 2), "node1")
    assert (job.end, job.kill_wait_s, job.grace_s, job.environ) == (None, 10, 8, {})
    name, job = found(recorded("openpbs-23.06.06/job.1.ctl"))
    assert (name, job.scheduler, job.hosts, job.own, job.grace_s) == ("local", "pbs", ("node1",), "node1", 8)


def test_an_interactive_shell_of_pbs_is_as_good_as_the_script() -> None:
    environ = recorded("openpbs-23.06.06/job.0.ctl") | {"PBS_ENVIRONMENT": "PBS_INTERACTIVE"}
    assert found(environ)[0] == "pbs"


OTHERS = {
    "lsf": {"LSB_JOBID": "7", "LSB_MCPU_HOSTS": "node1 4 node2 2"},
    "oar": {"OAR_JOB_ID": "7", "OAR_NODEFILE": "{file}"},
    "sge": {"JOB_ID": "7", "SGE_TASK_ID": "undefined", "PE_HOSTFILE": "{file}"},
    "torque": {"PBS_JOBID": "7.ctl", "PBS_NP": "6", "PBS_NODEFILE": "{file}", "PBS_TASKNUM": "1", "PBS_NODENUM": "0"},
}


def other(scheduler: str, place: Path) -> dict[str, str]:
    text = "node1 4 q UNDEFINED\nnode2 2 q UNDEFINED\n" if scheduler == "sge" else "node1\n" * 4 + "node2\n" * 2
    (place / "file").write_text(text)
    return {name: value.format(file=place / "file") for name, value in OTHERS[scheduler].items()}


@pytest.mark.parametrize("scheduler", OTHERS)
def test_other_schedulers_start_by_their_own(tmp_path: Path, scheduler: str) -> None:
    name, job = found(other(scheduler, tmp_path))
    assert (name, job.scheduler, job.hosts, job.slots) == (scheduler, scheduler, ("node1", "node2"), (4, 2))
    assert job.own == "node1"
    assert 0 < job.grace_s < job.kill_wait_s


OWN_SESSION = """\
import time
from mingle_hooks.run import starters
print(starters.end_of_job("3600") - time.time())
"""


def test_a_job_ends_so_many_seconds_after_its_session_began() -> None:
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", OWN_SESSION], capture_output=True, text=True, check=True, start_new_session=True
    )
    assert 3598 - (time.monotonic() - began) <= float(done.stdout) <= 3601  # the kernel's times are whole seconds


@pytest.mark.parametrize(("scheduler", "name"), [("torque", "PBS_WALLTIME"), ("oar", "OAR_JOB_WALLTIME_SECONDS")])
def test_a_scheduler_without_an_end_tells_how_long_a_job_may_run(tmp_path: Path, scheduler: str, name: str) -> None:
    environ = other(scheduler, tmp_path)
    assert found(environ)[1].end is None
    assert found(environ | {name: "an hour"})[1].end is None
    own = starters.end_of_job(
        "3600"
    )  # None where the tests' session began in another pid namespace, as in some containers
    assert found(environ | {name: "3600"})[1].end == own


def test_a_person_names_hosts_within_a_job_too() -> None:
    name, job = found(recorded("slurm-22.05.8/batch.1"), hosts="b[1-2],c")
    assert (name, job.scheduler, job.hosts, job.own) == ("ssh", "ssh", ("b1", "b2", "c"), None)
    assert (job.job_id, job.slots) == (None, (1, 1, 1))
    name, job = found({}, hosts="localhost")
    assert (name, job.own) == ("local", "localhost")


@pytest.mark.parametrize("hosts", ["", "a,,b;c", "a,a", "-oProxyCommand=x", "a[1-", "x/y", "$(id)", "root@a", "a:22"])
def test_what_names_no_host_is_refused(hosts: str) -> None:
    with pytest.raises(UsageError, match="--hosts"):
        found({}, hosts=hosts)


REFUSED = {
    "slurm-22.05.8/task.1.0.0": "a task of step 0.*mingle exec COMMAND",
    "slurm-26.05.3/task.1.1.1": "a task of step 1",
    "openpbs-23.06.06/tmrsh.0.ctl.node2": "a task on host 2 of 3",
    "openpbs-23.06.06/tm.0.ctl.node3.40000001": "a task on host 3 of 3",
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_task_is_told_to_exec(name: str) -> None:
    """What a scheduler has started on a host must not start the others once more."""
    with pytest.raises(FactsError, match=REFUSED[name]):
        found(recorded(name), "node2")


def test_a_task_of_pbs_on_the_first_host_is_no_script() -> None:
    """It has no PBS_NODEFILE; the other tasks' is readable, as PBS keeps it."""
    environ = recorded("openpbs-23.06.06/tmrsh.0.ctl.node1")
    environ["PBS_NODEFILE"] = str(RECORDED / "openpbs-23.06.06" / "nodefile.0.ctl")
    with pytest.raises(FactsError, match="a task on host 1 of 3"):
        found(environ)


def test_a_task_of_mpirun_is_told_to_exec() -> None:
    environ = recorded("slurm-22.05.8/batch.1") | {
        f"OMPI_COMM_WORLD_{name}": value
        for name, value in {"RANK": "0", "SIZE": "2", "LOCAL_RANK": "0", "LOCAL_SIZE": "1"}.items()
    }
    with pytest.raises(FactsError, match=r"that slurm.mpi started.*mingle exec"):
        found(environ)


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({}, "no job here.*--hosts node1,node2"),
        ({"SLURM_JOB_ID": "7"}, "SLURM_JOB_ID=7 alone"),
        ({"JOB_COMPLETION_INDEX": "1"}, "a process that kubernetes started"),
        ({"MASTER_ADDR": "a", "NODE_RANK": "0"}, "a process that given started"),
        ({"FLUX_JOB_ID": "f1", "FLUX_JOB_SIZE": "2", "FLUX_TASK_RANK": "0", "FLUX_URI": "local:///x"}, "its task 0"),
    ],
)
def test_where_nothing_starts_programs_it_says_what_does(environ: dict[str, str], message: str) -> None:
    with pytest.raises(MingleError, match=message):
        found(environ)


def test_a_node_is_alone_only_where_its_job_has_no_other() -> None:
    """Nor is a task, as each would begin a run; where there is a starter, that knows."""
    acme = JobFacts("acme", "7", nodes=1)
    assert starters.is_alone(acme)
    assert starters.is_alone(JobFacts("none"))
    assert not starters.is_alone(acme._replace(nodes=2))
    assert not starters.is_alone(acme._replace(task_rank=0))
    assert not starters.is_alone(acme._replace(scheduler="slurm"))


def test_lsfs_tasks_on_other_hosts_are_told_to_exec(tmp_path: Path) -> None:
    with pytest.raises(FactsError, match="a task on host 2 of 2"):
        found(other("lsf", tmp_path), "node2.example.org")


FLUX = '#!/bin/sh\n[ "$*" = "getattr hostlist" ] && echo "{hosts}"\n'


def test_fluxs_script_starts_on_its_instances_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where that runs in a step of Slurm."""
    (tmp_path / "flux").write_text(FLUX.format(hosts="node[3-5]"))
    (tmp_path / "flux").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    environ = recorded("slurm-22.05.8/task.1.0.0") | {"FLUX_URI": "local:///run/flux", "FLUX_ENCLOSING_ID": "ƒ58"}
    name, job = found(environ)
    assert (name, job.scheduler, job.hosts, job.own, job.job_id) == (
        "flux",
        "flux",
        ("node3", "node4", "node5"),
        None,
        "f58",
    )
    (tmp_path / "flux").write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(FactsError, match="flux getattr hostlist"):
        found(environ)


@pytest.mark.parametrize(("text", "seconds"), [("KillWait=5\n", 5), ("killwait = 60 # s\nKillWait=7", 7), ("", 30)])
def test_the_grace_is_shorter_than_killwait(tmp_path: Path, text: str, seconds: int) -> None:
    (tmp_path / "slurm.conf").write_text(f"ClusterName=a\n{text}\n#KillWait=9\n")
    job = found(recorded("slurm-22.05.8/batch.1") | {"SLURM_CONF": str(tmp_path / "slurm.conf")})[1]
    assert (job.kill_wait_s, job.grace_s) == (seconds, seconds - 2)


def test_the_grace_is_never_nothing() -> None:
    assert Allocation("slurm", ("a",), (1,), kill_wait_s=2).grace_s == 1


def test_each_starter_carries_the_environment_in_its_own_way() -> None:
    for starter in starters.TABLE:
        assert starter.signals_reach_command == (starter.name == "slurm")
        assert starter.kill_wait_s > 0
        assert starter.needs_file == (starter.name in ("pbs", "torque", "lsf", "sge"))
        assert starter.takes_stdin == (starter.name in ("ssh", "oar"))
