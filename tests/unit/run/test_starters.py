"""Starters, from recorded environments: which applies, its command lines, and the file of the environment."""

import os
import shlex
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from support.executables import executable
from support.recorded import FOLDER, SLURM_VERSIONS, environ as variables

from mingle_hooks.errors import FactsError, MingleError, PlaceError, UsageError
from mingle_hooks.files import toml
from mingle_hooks.run import starters
from mingle_hooks.run.starters import Allocation, Launch
from mingle_hooks.schedulers.detect import detect
from mingle_hooks.schedulers.facts import JobFacts


def recorded(name: str) -> dict[str, str]:
    cluster, _, its = name.partition("/")
    environ = variables(cluster, its)
    if "PBS_JOBID" in environ:
        environ["PBS_NODEFILE"] = str(FOLDER / cluster / f"nodefile.{environ['PBS_JOBID']}")
    return environ


def row(name: str) -> starters.Starter:
    return next(starter for starter in starters.TABLE if starter.name == name)


def found(environ: dict[str, str], hostname: str = "node1", hosts: str | None = None) -> tuple[str, Allocation]:
    facts = detect(environ, hostname)
    starter, job = starters.find(facts, environ, hosts)
    return starter.name, job


def asked_end(environ: dict[str, str]) -> int | None:
    """Return when the scheduler of a job says that it ends."""
    starter, job = starters.find(detect(environ, "node1"), environ)
    assert job.end is None
    return starter.asked_end(job)


TABLE = toml((FOLDER.parent / "starters.toml").read_bytes())
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


@pytest.mark.parametrize("row", TABLE["found"], ids=lambda row: f"{row['starter']} {row['id']}")
def test_each_scheduler_starts_by_its_own(tmp_path: Path, row: dict[str, Any]) -> None:
    name = row.get("environ", row["starter"])
    found_name, job = found(other(name, tmp_path) if name in OTHERS else recorded(name) | row.get("set", {}))
    seen = (job.job_id, [*job.hosts], [*job.slots], job.own, job.kill_wait_s, job.grace_s)
    assert seen == (row["id"], row["hosts"], row["slots"], "node1", row["kill_wait"], row["grace"])
    assert found_name == row["starter"]


@pytest.mark.parametrize("version", SLURM_VERSIONS)
def test_slurms_facts_of_a_job_hold_no_secret(version: str) -> None:
    _, job = found(recorded(f"{version}/batch.1") | {"SLURM_JWT": "a token", "SLURM_GPUS": "3"})
    assert job.end == {"slurm-22.05.8": None, "slurm-26.05.3": 1826713549}[version]
    assert (job.agents, job._replace(is_per_task=True).agents) == ((1, 1, 1), (2, 2, 2))
    assert job.environ["SLURM_GPUS"] == "3"
    assert "a token" not in repr(job)


@pytest.mark.parametrize(
    ("said", "end"),
    [
        ("2026-11-26T10:00:00", int(time.mktime((2026, 11, 26, 10, 0, 0, 0, 0, -1)))),
        ("N/A", None),
        ("", None),
        ("x" * 9, None),
    ],
)
def test_squeue_says_when_a_job_of_slurm_22_05_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, end: int | None
) -> None:
    """It is asked for a job that runs: the end of one that is being cancelled is now, which is no time limit."""
    asked = "--noheader --format=%e --states=RUNNING --jobs=1"
    executable(tmp_path / "squeue", f'#!/bin/sh\n[ "$*" = "{asked}" ] && echo {said}\n')
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert asked_end(recorded("slurm-22.05.8/batch.1")) == end


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("node3\nnode1\nnode2\nnode3\n", ("node3", "node1", "node2")),
        ("node[1-3]\n", ("node1", "node2", "node3")),
        ("node1\nnode2\n", ("node1", "node2", "node3")),
    ],
)
def test_a_list_of_the_users_own_gives_the_order(tmp_path: Path, text: str, hosts: tuple[str, ...]) -> None:
    (tmp_path / "list").write_text(text)
    own = {"SLURM_DISTRIBUTION": "arbitrary", "SLURM_HOSTFILE": str(tmp_path / "list")}
    job = found(recorded("slurm-22.05.8/batch.1") | own)[1]
    assert (job.hosts, job.slots) == (hosts, (2, 1, 1) if hosts[0] == "node3" else (2, 2, 2))


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
    # None where the tests' session began in another pid namespace, as in some containers.
    assert found(environ | {name: "3600"})[1].end == starters.end_of_job("3600")


def test_a_person_names_hosts_within_a_job_too() -> None:
    name, job = found(recorded("slurm-22.05.8/batch.1"), hosts="b[1-2],c")
    assert (name, job.hosts, job.own) == ("ssh", ("b1", "b2", "c"), None)
    assert (job.job_id, job.slots) == (None, (1, 1, 1))
    name, job = found({}, hosts="localhost")
    assert (name, job.own) == ("local", "localhost")


@pytest.mark.parametrize("hosts", ["", "a,,b;c", "a,a", "-oProxyCommand=x", "a[1-", "x/y", "$(id)", "root@a", "a:22"])
def test_what_names_no_host_is_refused(hosts: str) -> None:
    with pytest.raises(UsageError, match="--hosts"):
        found({}, hosts=hosts)


@pytest.mark.parametrize("job", TABLE["refused"], ids=lambda job: job["says"])
def test_what_starts_on_no_other_host_says_what_does(job: dict[str, Any]) -> None:
    environ = (recorded(job["environ"]) if "environ" in job else {}) | job.get("set", {})
    with pytest.raises(MingleError, match=job["says"]):
        found(environ, job["host"])


def test_a_node_is_alone_only_where_its_job_has_no_other() -> None:
    acme = JobFacts("acme", "7", nodes=1)
    assert starters.is_alone(acme)
    assert starters.is_alone(JobFacts("none"))
    assert not starters.is_alone(acme._replace(nodes=2))
    assert not starters.is_alone(acme._replace(task_rank=0))
    assert not starters.is_alone(acme._replace(scheduler="slurm"))


FLUX = '#!/bin/sh\n[ "$*" = "getattr hostlist" ] && echo "{hosts}"\n'


def test_fluxs_script_starts_on_its_instances_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executable(tmp_path / "flux", FLUX.format(hosts="node[3-5]"))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    environ = recorded("slurm-22.05.8/task.1.0.0") | {"FLUX_URI": "local:///run/flux", "FLUX_ENCLOSING_ID": "ƒ58"}
    name, job = found(environ)
    assert (name, job.own, job.job_id) == ("flux", None, "f58")
    assert job.hosts == ("node3", "node4", "node5")
    (tmp_path / "flux").write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(FactsError, match="flux getattr hostlist"):
        found(environ)


@pytest.mark.parametrize(("text", "seconds"), [("KillWait=5\n", 5), ("killwait = 60 # s\nKillWait=7", 7), ("", 30)])
def test_the_grace_is_shorter_than_killwait(tmp_path: Path, text: str, seconds: int) -> None:
    (tmp_path / "slurm.conf").write_text(f"ClusterName=a\n{text}\n#KillWait=9\n")
    job = found(recorded("slurm-22.05.8/batch.1") | {"SLURM_CONF": str(tmp_path / "slurm.conf")})[1]
    assert (job.kill_wait_s, job.grace_s) == (seconds, seconds - 2)
    assert job._replace(kill_wait_s=2).grace_s == 1  # never nothing


PROGRAM = ("/opt/my python/bin/python3", "-IS", "/opt/it's/__main__.py")
PLAIN = ("/opt/bin/python3", "-IS", "/opt/__main__.py")
SECRET = {"MINGLE_RUN_KEY": "5ec4e7"}
# How lines are written below.
SHORT = {
    " ".join(PROGRAM): "PROGRAM",
    " ".join(PLAIN): "PROGRAM",
    "srun --overlap --no-kill --kill-on-bad-exit=0 --wait=0 --input=none --export=ALL --mem=0"
    " --distribution=block,NoPack": "SRUN",
    "--mem-bind=none --mpi=none --cpu-bind=none": "NODE",
    "--environ /home/me/.mingle.1": "FILE",
}


def made(environ: dict[str, str], program: tuple[str, ...] = PROGRAM, **changes: object) -> tuple[Launch, ...]:
    facts = detect(environ, "node1")
    starter, job = starters.find(facts, environ)
    job = job._replace(**changes)
    return starter.agent_launches(job, job.hosts, program, starters.packed(SECRET), "/home/me/.mingle.1")


def lines(launches: tuple[Launch, ...]) -> list[str]:
    """Return the command lines, without the prefixes of variables that a host keeps, which come last."""
    found = []
    for launch in launches:
        line = " ".join(launch.argv).partition(" --keep")[0]
        for text, short in SHORT.items():
            line = line.replace(text, short)
        found.append(line)
    return found


BATCH = recorded("slurm-22.05.8/batch.1")


@pytest.mark.parametrize(("job", "environ"), [(job, name) for job in TABLE["job"] for name in job["environ"]])
def test_a_job_starts_agents_by_these_lines(job: dict[str, Any], environ: str) -> None:
    launches = made(recorded(environ) | job.get("set", {}), is_per_task=job.get("per_task", False))
    assert lines(launches) == job["lines"]
    assert {launch.stdin for launch in launches} == {None}


@pytest.mark.parametrize("here", ["1", "3"])
def test_gpus_that_hosts_share_unevenly_are_refused(here: str) -> None:
    with pytest.raises(UsageError, match=r"--gpus=7.*--gpus-per-node"):
        made(BATCH | {"SLURM_GPUS": "7", "SLURM_GPUS_ON_NODE": here})


def test_a_host_of_no_job_is_refused() -> None:
    with pytest.raises(UsageError, match=r"a host of the job.*node9"):
        starters.slurm(Allocation(("node1",), (1,)), ("node9",), PROGRAM)


@pytest.mark.parametrize(("plugins", "binds"), [("task/none", False), ("task/affinity,task/cgroup", True)])
def test_a_cluster_that_cannot_bind_gets_no_option_for_it(tmp_path: Path, plugins: str, *, binds: bool) -> None:
    (tmp_path / "slurm.conf").write_text(f"TaskPlugin={plugins}\n")
    (launch,) = made(BATCH | {"SLURM_CONF": str(tmp_path / "slurm.conf")})
    assert ("--cpu-bind=none" in launch.argv) == binds


def test_what_pbs_gives_each_host_is_kept_there() -> None:
    argv = made(recorded("openpbs-23.06.06/job.0.ctl"))[1].argv
    kept = next(tuple(word.split(",")) for before, word in pairwise(argv) if before == "--keep")
    assert {"PBS_NODENUM", "PBS_TASKNUM", "TMPDIR", "CUDA_VISIBLE_DEVICES"} <= set(kept)
    own = ("PBS_NODEFILE", "PBS_O_WORKDIR", "PBS_ARRAY_INDEX", "PBS_JOBID", "OMP_NUM_THREADS", "PATH", "HOME")
    assert not any(name.startswith(kept) for name in own)


def tools(environ: dict[str, str], **more: str) -> list[str]:
    """Return what starts an agent on a host of PBS, and what cancels its job."""
    environ = environ | more
    return [made(environ)[1].argv[0], *starters.cancel_argv("pbs", "0.ctl", environ)]


def test_pbs_programs_are_found_without_path(tmp_path: Path) -> None:
    """By PBS_EXEC of pbs.conf, which $PBS_CONF_FILE may name; PATH comes first, and without either PATH has them."""
    environ, conf = recorded("openpbs-23.06.06/job.0.ctl"), tmp_path / "pbs.conf"
    empty = {"PATH": str(tmp_path), "PBS_CONF_FILE": str(conf)}
    assert tools(environ, **empty) == ["pbs_tmrsh", "qdel", "0.ctl"]
    conf.write_text("PBS_SERVER=ctl\nPBS_EXEC=bin\n")  # no place that is the same in every directory
    assert tools(environ, **empty) == ["pbs_tmrsh", "qdel", "0.ctl"]
    conf.write_text("PBS_SERVER=ctl\nPBS_EXEC=/opt/pbs\n")
    assert tools(environ, **empty) == ["/opt/pbs/bin/pbs_tmrsh", "/opt/pbs/bin/qdel", "0.ctl"]
    (tmp_path / "qdel").touch(mode=0o755)
    assert tools(environ, **empty) == ["/opt/pbs/bin/pbs_tmrsh", "qdel", "0.ctl"]


@pytest.mark.parametrize(
    ("said", "seconds"),
    [("1:00:05", "3605"), ("120:00:00", "432000"), ("1:00", None), ("-1:00:00", None), ("00:00:00", None)],
)
def test_qstat_says_when_a_job_of_pbs_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, seconds: str | None
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    environ = recorded("openpbs-23.06.06/job.0.ctl") | {"PATH": os.environ["PATH"]}
    assert asked_end(environ) is None  # there is no qstat
    program = tmp_path / "qstat"
    program.write_text(
        f'#!/bin/sh\n[ "$*" = "-f 0.ctl" ] && printf "Job Id: %s\\n    Resource_List.walltime = {said}\\n" 0.ctl\n'
    )
    program.chmod(0o755)
    one = environ | {"PBS_NODEFILE": str(tmp_path / "one")}  # whose agent is started here
    (tmp_path / "one").write_text("node1\n")
    for its in (environ, one):
        assert asked_end(its) == (None if seconds is None else starters.end_of_job(seconds))


HEADS = {"lsf": "blaunch node2", "sge": "qrsh -inherit node2", "torque": "pbsdsh -o -h node2"}


@pytest.mark.parametrize("scheduler", HEADS)
def test_others_get_a_start_a_place(tmp_path: Path, scheduler: str) -> None:
    assert lines(made(other(scheduler, tmp_path), PLAIN, is_per_task=True)) == [
        *(f"PROGRAM --host node1 --local {local}" for local in range(4)),
        *(f"{HEADS[scheduler]} PROGRAM --host node2 --local {local} FILE" for local in range(2)),
    ]


@pytest.mark.parametrize("scheduler", ["lsf", "sge"])
@pytest.mark.parametrize("word", ["/a b/c", "/a'b", "/$HOME", "~/a", "/a;b", "/a\nb", ""])
def test_words_that_a_shell_may_read_otherwise_are_refused(tmp_path: Path, scheduler: str, word: str) -> None:
    with pytest.raises(UsageError, match="paths of letters"):
        made(other(scheduler, tmp_path), (word,))


@pytest.mark.parametrize(("scheduler", "count"), [("ssh", 1), ("oar", 2)])
def test_login_shells_read_one_quoted_line(scheduler: str, count: int) -> None:
    """Ssh asks nobody, and leaves no master."""
    job = Allocation(("node2",), (count,), is_per_task=scheduler == "oar")
    packed = starters.packed({"A": "b\nc", "K": "", "B": "\udcff"})
    launches = row(scheduler).agent_launches(job, job.hosts, PROGRAM, packed, None)
    assert len(launches) == count
    *head, line = launches[-1].argv
    assert head[-1] == "node2"
    assert scheduler != "ssh" or {"-T", "-x", "BatchMode=yes", "ControlMaster=no"} <= {*head}
    words = shlex.split(line)[: 6 + len(PROGRAM)]
    assert words == ["exec", *PROGRAM, "--host", "node2", "--local", str(count - 1), "--stdin"]
    assert launches[-1].stdin == b"A=b\nc\0K=\0B=\xff\0"


def test_flux_names_a_host_by_its_rank() -> None:
    job = Allocation(("a", "b", "c"), (1, 1, 1))
    assert lines(row("flux").agent_launches(job, ("a", "c"), PROGRAM, starters.packed(SECRET), None)) == [
        f"flux exec --noinput --rank={rank} PROGRAM --host {host} --local 0" for rank, host in ((0, "a"), (2, "c"))
    ]


@pytest.mark.parametrize("starter", starters.TABLE, ids=lambda starter: starter.name)
def test_a_sweep_is_started_once_a_host_and_nothing_is_secret(starter: starters.Starter) -> None:
    job = Allocation(("a", "b"), (2, 2), own="a", is_per_task=True)
    program = (*PLAIN, "1d0f")
    launches = starter.launches(job, ("b", "a"), program)
    assert sorted(host for launch in launches for host in launch.hosts) == ["a", "b"]
    for launch in (*launches, *starter.agent_launches(job, job.hosts, PLAIN, starters.packed(SECRET), "/f")):
        assert "5ec4e7" not in " ".join(launch.argv)
    assert not [word for launch in launches for word in launch.argv if word.startswith("--ntasks=") and word[9:] != "2"]
    assert all("1d0f" in launch.argv[-1] and "--host" not in launch.argv for launch in launches)
    assert starter.signals_reach_command == (starter.name == "slurm")
    assert (starter.environment == "file") == (starter.name in ("pbs", "torque", "lsf", "sge"))


ENVIRON = {"A": "b=\udcfe", "KEY": "5ec4e7"}


def test_the_next_directory_takes_what_the_first_does_not(tmp_path: Path) -> None:
    path = Path(starters.write_environ(ENVIRON, (str(tmp_path / "none"), str(tmp_path))))
    assert ([*tmp_path.glob(".mingle.*")], path.stat().st_mode & 0o777) == ([path], 0o600)
    assert path.read_bytes() == b"A=b=\xfe\0KEY=5ec4e7\0"
    with pytest.raises(PlaceError, match=r"none: No such file.*share"):
        starters.write_environ(ENVIRON, (str(tmp_path / "none"),))
    with pytest.raises(PlaceError, match="no directory"):
        starters.write_environ(ENVIRON, ())


def test_a_network_file_system_comes_first_then_a_plain_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    odd, home = tmp_path / "a b", tmp_path / "home"
    odd.mkdir()
    monkeypatch.chdir(odd)
    assert starters.directories({"HOME": str(home)}) == (str(home), str(odd))
    assert starters.directories({"HOME": "relative"}) == (str(odd),)
    monkeypatch.setattr(starters, "network_type", lambda path: path == str(odd))
    assert starters.directories({"HOME": str(home)}) == (str(odd), str(home))
    odd.rmdir()
    assert starters.directories({"HOME": str(home)}) == (str(home),)
