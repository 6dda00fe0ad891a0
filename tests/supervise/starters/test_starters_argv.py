"""The command lines that starters make: from recorded environments, hostile words and many hosts."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest
from test_starters_found import OTHERS, VERSIONS, other, recorded

from mingle_hooks.errors import UsageError
from mingle_hooks.run import starters
from mingle_hooks.run.starters import Allocation, Launch
from mingle_hooks.schedulers import hostlist
from mingle_hooks.schedulers.detect import detect

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = ("/opt/my python/bin/python3", "-IS", "/opt/it's/start.py")
PLAIN = ("/opt/bin/python3", "-IS", "/opt/start.py")
SECRET = {"MINGLE_RUN_KEY": "5ec4e7"}
ALWAYS = (
    *("srun", "--overlap", "--no-kill", "--kill-on-bad-exit=0", "--wait=0", "--input=none", "--export=ALL", "--mem=0"),
    "--distribution=block,NoPack",
)


def made(environ: dict[str, str], program: tuple[str, ...] = PROGRAM, **changes: object) -> tuple[Launch, ...]:
    facts = detect(environ, "node1")
    starter = starters.find(facts, environ)
    job = starters.allocation(facts, environ)._replace(**changes)
    return starters.supervisors(starter, job, job.hosts, program, SECRET, "/home/me/.mingle.1")


@pytest.mark.parametrize("version", VERSIONS)
def test_one_srun_starts_one_on_each_host(version: str) -> None:
    """Whatever the batch script's own variables say."""
    (launch,) = made(recorded(f"{version}/batch.1"))
    assert launch.argv == (
        *(*ALWAYS, "--nodes=3", "--nodelist=node[1-3]", "--ntasks=3", "--ntasks-per-node=1"),
        *("--mem-bind=none", "--mpi=none", "--cpu-bind=none", *PROGRAM),
    )
    assert (launch.hosts, launch.stdin) == (("node1", "node2", "node3"), None)


@pytest.mark.parametrize("version", VERSIONS)
def test_srun_is_kept_from_what_is_one_tasks(version: str) -> None:
    """And the program gets it back."""
    of_task = {"SLURM_CPUS_PER_TASK": "4", "SLURM_TRES_PER_TASK": "cpu=4,gres/gpu:a100=1", "SLURM_LABELIO": "1"}
    (launch,) = made(recorded(f"{version}/batch.1") | of_task)
    srun = launch.argv.index("srun")
    assert launch.argv[:srun] == (
        "env",
        "-u",
        "SLURM_LABELIO",
        "-u",
        "SLURM_CPUS_PER_TASK",
        "-u",
        "SLURM_TRES_PER_TASK",
    )
    given_back = ("env", *(f"{name}={of_task[name]}" for name in launch.argv[2:srun:2]))
    assert launch.argv[-len(given_back) - 3 :] == (*given_back, *PROGRAM)
    assert "--gpus-per-node=2" in launch.argv


GPUS = [
    ({}, None),
    ({"SLURM_GPUS_PER_NODE": "4"}, None),
    ({"SLURM_GPUS_PER_TASK": "2"}, 4),
    ({"SLURM_GPUS_PER_TASK": "a100:2"}, 4),
    ({"SLURM_TRES_PER_TASK": "cpu:4,gres:gpu:a100:1,gres:gpu:v100:1,gres/shard=3"}, 4),
    ({"SLURM_TRES_PER_TASK": "cpu=4"}, None),
    ({"SLURM_GPUS": "12", "SLURM_GPUS_ON_NODE": "4"}, 4),
    ({"SLURM_GPUS": "a100:6,v100:6"}, 4),  # in a shell of salloc
]


@pytest.mark.parametrize(("environ", "count"), GPUS)
def test_each_host_asks_for_all_of_its_gpus(environ: dict[str, str], count: int | None) -> None:
    (launch,) = made(recorded("slurm-22.05.8/batch.1") | environ)
    asked = [word for word in launch.argv if word.startswith("--gpus")]
    assert asked == ([] if count is None else [f"--gpus-per-node={count}"])


@pytest.mark.parametrize("here", ["1", "3"])
def test_gpus_that_hosts_share_unevenly_are_refused(here: str) -> None:
    """A step would get one on the first host, and the rest on the others."""
    with pytest.raises(UsageError, match=r"--gpus=7.*--gpus-per-node"):
        made(recorded("slurm-22.05.8/batch.1") | {"SLURM_GPUS": "7", "SLURM_GPUS_ON_NODE": here})


def test_hosts_that_differ_get_an_srun_each() -> None:
    environ = recorded("slurm-22.05.8/batch.1") | {"SLURM_TASKS_PER_NODE": "2(x2),1", "SLURM_NTASKS": "5"}
    assert [launch.hosts for launch in made(environ)] == [("node1", "node2", "node3")]
    assert [launch.hosts for launch in made(environ, is_per_task=True)] == [("node1", "node2"), ("node3",)]
    by_gpus = made(environ | {"SLURM_GPUS_PER_TASK": "1"})
    assert ["--gpus-per-node=2" in launch.argv for launch in by_gpus] == [True, False]


def test_a_task_keeps_what_is_its_own() -> None:
    environ = recorded("slurm-22.05.8/batch.1") | {"SLURM_CPUS_PER_TASK": "4", "SLURM_GPUS_PER_TASK": "1"}
    (launch,) = made(environ, is_per_task=True)
    assert launch.argv == (
        *(*ALWAYS, "--nodes=3", "--nodelist=node[1-3]", "--ntasks=6", "--ntasks-per-node=2", "--cpus-per-task=4"),
        *PROGRAM,
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_each_component_gets_an_srun(version: str) -> None:
    made_here = made(recorded(f"{version}/batch.5"))
    assert [launch.hosts for launch in made_here] == [("node1",), ("node2", "node3")]
    assert [word for launch in made_here for word in launch.argv if "het" in word] == ["--het-group=0", "--het-group=1"]


def test_components_of_another_job_are_none() -> None:
    """They are left over where a batch script of such a job has submitted this one."""
    old = {name: value for name, value in recorded("slurm-22.05.8/batch.5").items() if "HET" in name}
    (launch,) = made(old | recorded("slurm-22.05.8/batch.1"))
    assert launch.hosts == ("node1", "node2", "node3")


def test_a_host_of_no_job_is_refused() -> None:
    with pytest.raises(UsageError, match=r"a host of the job.*node9"):
        starters.slurm(Allocation("slurm", ("node1",), (1,)), ("node9",), PROGRAM)


def test_a_thousand_hosts_are_a_short_word() -> None:
    hosts = tuple(f"rack{n // 32}n{n % 32:02}" for n in range(1024))
    (launch,) = starters.slurm(Allocation("slurm", hosts, (1,) * 1024), hosts, PROGRAM)
    word = next(word for word in launch.argv if word.startswith("--nodelist="))
    assert len(word) < 1024
    assert hostlist.expand(word.removeprefix("--nodelist=")) == hosts


def test_a_cluster_that_cannot_bind_is_not_asked_to(tmp_path: Path) -> None:
    """The srun of one would say so on each start."""
    (tmp_path / "slurm.conf").write_text("TaskPlugin=task/none\n")
    environ = recorded("slurm-22.05.8/batch.1") | {"SLURM_CONF": str(tmp_path / "slurm.conf")}
    assert "--cpu-bind=none" not in made(environ)[0].argv
    (tmp_path / "slurm.conf").write_text("TaskPlugin=task/affinity,task/cgroup\n")
    assert "--cpu-bind=none" in made(environ)[0].argv


PLACE = ("--host", "node2", "--local", "0")
FILE = ("--environ", "/home/me/.mingle.1")


def test_pbs_takes_words_as_they_are() -> None:
    here, there, _ = made(recorded("openpbs-23.06.06/job.0.ctl"))
    assert here == Launch((*PROGRAM, "--host", "node1", "--local", "0"), ("node1",))
    assert there.argv[:11] == ("pbs_tmrsh", "node2", *PROGRAM, *PLACE, *FILE)
    kept = there.argv[11:]
    assert set(kept[::2]) == {"--keep"}
    assert {"PBS_NODENUM", "PBS_TASKNUM", "TMPDIR", "CUDA_VISIBLE_DEVICES"} <= set(kept[1::2])
    own = ("PBS_NODEFILE", "PBS_O_WORKDIR", "PBS_ARRAY_INDEX", "PBS_JOBID", "OMP_NUM_THREADS", "PATH", "HOME")
    assert not any(name.startswith(kept[1::2]) for name in own)


HEADS = {"lsf": ("blaunch", "node2"), "sge": ("qrsh", "-inherit", "node2"), "torque": ("pbsdsh", "-o", "-h", "node2")}


@pytest.mark.parametrize("scheduler", HEADS)
def test_others_get_a_start_a_place(tmp_path: Path, scheduler: str) -> None:
    launches = made(other(scheduler, tmp_path), PLAIN, is_per_task=True)
    assert [launch.hosts for launch in launches] == [("node1",)] * 4 + [("node2",)] * 2
    words = (*HEADS[scheduler], *PLAIN, *PLACE, *FILE)
    assert launches[4].argv[: len(words)] == words
    assert launches[5].argv[: len(words)] == (*words[:-3], "1", *FILE)


@pytest.mark.parametrize("scheduler", ["lsf", "sge"])
@pytest.mark.parametrize("word", ["/a b/c", "/a'b", "/$HOME", "~/a", "/a;b", "/a\nb", ""])
def test_words_that_a_shell_may_read_otherwise_are_refused(tmp_path: Path, scheduler: str, word: str) -> None:
    with pytest.raises(UsageError, match="paths of letters"):
        made(other(scheduler, tmp_path), (word,))


@pytest.mark.parametrize(("scheduler", "count"), [("ssh", 1), ("oar", 2)])
def test_login_shells_read_one_quoted_line(scheduler: str, count: int) -> None:
    """The environment comes by stdin."""
    starter = next(its for its in starters.TABLE if its.name == scheduler)
    job = Allocation(scheduler, ("node2",), (count,), is_per_task=scheduler == "oar")
    launches = starters.supervisors(starter, job, job.hosts, PROGRAM, {"A": "b\nc", "K": "", "B": "\udcff"})
    assert len(launches) == count
    *head, line = launches[-1].argv
    assert head[-1] == "node2"
    words = shlex.split(line)
    assert words[: 5 + len(PROGRAM)] == ["exec", *PROGRAM, "--host", "node2", "--local", str(count - 1)]
    assert words[5 + len(PROGRAM)] == "--stdin"
    assert launches[-1].stdin == b"A=b\nc\0K=\0B=\xff\0"


def test_ssh_asks_nobody_and_leaves_no_master() -> None:
    """A master process of a shared connection would stay, and hold what it writes to."""
    starter = next(its for its in starters.TABLE if its.name == "ssh")
    (launch,) = starter.launches(Allocation("ssh", ("a",), (1,)), ("a",), PLAIN)
    options = launch.argv[: launch.argv.index("a")]
    assert options[:3] == ("ssh", "-T", "-x")
    assert {"BatchMode=yes", "ControlMaster=no"} <= set(options)
    assert launch.stdin is None


def test_flux_names_a_host_by_its_rank() -> None:
    starter = next(its for its in starters.TABLE if its.name == "flux")
    job = Allocation("flux", ("a", "b", "c"), (1, 1, 1))
    launches = starters.supervisors(starter, job, ("a", "c"), PROGRAM, SECRET)
    places = [("--host", "a", "--local", "0"), ("--host", "c", "--local", "0")]
    heads = [("flux", "exec", "--noinput", f"--rank={rank}") for rank in (0, 2)]
    assert [launch.argv for launch in launches] == [(*h, *PROGRAM, *p) for h, p in zip(heads, places, strict=True)]


@pytest.mark.parametrize("starter", starters.TABLE, ids=lambda starter: starter.name)
def test_a_sweep_is_started_once_a_host_and_nothing_is_secret(starter: starters.Starter) -> None:
    job = Allocation(starter.name, ("a", "b"), (2, 2), own="a", is_per_task=True)
    program = (*PLAIN, "1d0f")
    launches = starter.launches(job, ("b", "a"), program)
    assert sorted(host for launch in launches for host in launch.hosts) == ["a", "b"]
    for launch in (*launches, *starters.supervisors(starter, job, job.hosts, PLAIN, SECRET, "/f")):
        assert "5ec4e7" not in " ".join(launch.argv)
    assert not [word for launch in launches for word in launch.argv if word.startswith("--ntasks=") and word[9:] != "2"]
    assert all("1d0f" in launch.argv[-1] and "--host" not in launch.argv for launch in launches)


def test_hosts_that_are_left_out_are_not_started() -> None:
    environ = recorded("openpbs-23.06.06/job.0.ctl")
    facts = detect(environ, "node1")
    job = starters.allocation(facts, environ)
    launches = starters.supervisors(starters.find(facts, environ), job, ("node3",), PROGRAM, SECRET, "/f")
    assert [launch.hosts for launch in launches] == [("node3",)]


def test_octets_are_handed_on_as_they_are() -> None:
    assert starters.packed({"A": "x=y", "B": "\udcfe"}) == b"A=x=y\0B=\xfe\0"


def test_the_others_are_all_in_the_table() -> None:
    assert {starter.name for starter in starters.TABLE} >= OTHERS.keys()
