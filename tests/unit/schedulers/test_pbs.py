"""PBS: recorded jobs, and variables that contradict each other."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from support.recorded import FOLDER, OPENPBS, environ, names

from mingle_hooks.errors import FactsError
from mingle_hooks.schedulers import pbs
from mingle_hooks.schedulers.facts import JobFacts

# What the members of each recorded job are told: hosts, and slots on each.
JOBS = {
    "0.ctl": (("node1", "node2", "node3"), (2, 2, 2)),
    "1.ctl": (("node1",), (3,)),
    "2[4].ctl": (("node1", "node2"), (1, 1)),
    "2[5].ctl": (("node1", "node2"), (1, 1)),
    "3.ctl": (("node1", "node2"), (1, 1)),
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Make a PBS_HOME with the recorded node files, and a pbs.conf that names it."""
    (tmp_path / "aux").mkdir()
    for name in names(OPENPBS, "nodefile"):
        (tmp_path / "aux" / name.removeprefix("nodefile.")).write_text((FOLDER / OPENPBS / name).read_text())
    (tmp_path / "pbs.conf").write_text(f"PBS_SERVER=ctl\nPBS_HOME={tmp_path}\n")
    return tmp_path


def facts_of(variables: Mapping[str, str], home: Path) -> JobFacts:
    """Return the facts of a recorded process on a host whose PBS_HOME is elsewhere."""
    moved = {name: value.replace("/var/spool/pbs", str(home)) for name, value in variables.items()}
    return pbs.facts(moved, str(home / "pbs.conf"))


@pytest.mark.parametrize("job", JOBS)
def test_the_tasks_of_a_job_agree_and_its_script_takes_part_only_where_it_is_alone(job: str, home: Path) -> None:
    """Tasks of pbsdsh and pbs_tmrsh rank by their hosts' places in the node file, and have the script's cookie.

    The other hosts run only what the script starts, so it must not wait for them. Facts do not show the cookie.
    """
    hosts, slots = JOBS[job]
    script = facts_of(environ(OPENPBS, f"job.{job}"), home)
    assert (script.is_batch, script.node_rank) == ((True, None) if len(hosts) > 1 else (False, 0))
    assert (script.local_count, script.slot) == (slots[0], None)
    recorded = [name for name in names(OPENPBS, "tm", "tmrsh") if name.split(".", 1)[1].startswith(f"{job}.")]
    tasks = {name: facts_of(environ(OPENPBS, name), home) for name in recorded}
    for found in (script, *tasks.values()):
        assert (found.job_id, found.step, found.restarts) == (job, "", 0)
        assert (found.nodes, found.hosts, found.leader_hosts) == (len(hosts), hosts, hosts[:1])
        assert (found.tasks_per_node, found.task_count) == (slots, sum(slots))
        assert (found.task_rank, found.local_rank, found.cookie) == (None, None, script.cookie)
        assert str(script.cookie) not in repr(found)
    for name, task in tasks.items():
        assert task.node_rank is not None
        assert f".{hosts[task.node_rank]}" in name
        assert (task.local_count, task.is_batch) == (slots[task.node_rank], False)
        assert task.cpus == int(environ(OPENPBS, name)["NCPUS"])
    assert {task.node_rank for task in tasks.values()} == set(range(len(hosts)))


@pytest.mark.parametrize(
    ("job", "task", "place"),
    [("1.ctl", "1", (0, 3, False)), ("0.ctl", "1", (None, 2, True)), ("0.ctl", "00000002", (None, None, False))],
)
def test_without_a_number_of_its_node_the_only_host_s_process_is_on_it(
    job: str, task: str, place: tuple[object, ...], home: Path
) -> None:
    found = facts_of({**environ(OPENPBS, f"job.{job}"), "PBS_NODENUM": "", "PBS_TASKNUM": task}, home)
    assert (found.node_rank, found.local_count, found.is_batch, found.slot) == (*place, None)


def test_the_configuration_says_where_the_programs_are_and_whether_jobs_run_here(tmp_path: Path) -> None:
    """A missing file, a directory and a pipe, for which nobody waits, say nothing."""
    conf, pipe = tmp_path / "pbs.conf", tmp_path / "pipe"
    os.mkfifo(pipe)
    conf.write_text("PBS_HOME=/h\nPBS_EXEC=/opt/pbs\n")
    assert (pbs.home(str(conf)), pbs.programs(str(conf)), pbs.starts_mom(str(conf))) == ("/h", "/opt/pbs/bin", True)
    for silent in map(str, (tmp_path / "none", tmp_path, pipe)):
        assert (pbs.home(silent), pbs.programs(silent), pbs.starts_mom(silent)) == (pbs.HOME, None, True)
        assert pbs.facts({"PBS_JOBID": "987654321.x", "PBS_NODENUM": "0"}, silent).nodes is None
    conf.write_text(" PBS_START_MOM = '0' \n")
    assert (pbs.home(str(conf)), pbs.starts_mom(str(conf))) == (pbs.HOME, False)


SISTER = "tmrsh.0.ctl.node2"


def test_a_task_on_the_first_host_finds_the_node_file_that_no_variable_names(home: Path) -> None:
    """PBS keeps it in PBS_HOME/aux, as the source says; if it cannot be read, the number of nodes is left open."""
    variables = environ(OPENPBS, "tmrsh.0.ctl.node1")
    assert facts_of(variables, home).sources["hosts"] == f"{home}/aux/0.ctl"
    (home / "aux" / "0.ctl").unlink()
    task = facts_of(variables, home)
    assert (task.nodes, task.node_rank, task.hosts, task.is_batch) == (None, 0, (), False)


@pytest.mark.parametrize("content", [None, b"", b"\0\xff", b"n1\n$(id)\n"])
def test_a_node_file_that_was_named_must_be_good(content: bytes | None, home: Path) -> None:
    """A missing, empty or garbled PBS_NODEFILE is an error that names it."""
    path = home / "aux" / "0.ctl"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(FactsError, match=r"0\.ctl"):
        facts_of(environ(OPENPBS, SISTER), home)


@pytest.mark.parametrize(
    "variables",
    [
        *({"PBS_JOBID": text} for text in ("../../etc/passwd", "1/../2", "x", "1;id", "1\n", "1[", "\u0661.ctl")),
        *({"PBS_NODENUM": text} for text in ("3", "-1", "0x1", "\u0661", "9" * 30)),
        *({"PBS_JOBCOOKIE": text} for text in ("short", "A" * 300, "secret!" * 9)),
        {"NCPUS": "none"},
    ],
)
def test_garbled_variables_are_errors(variables: dict[str, str], home: Path) -> None:
    """A job id cannot leave the folder of node files, numbers are numbers, and what may be a cookie is not shown."""
    with pytest.raises(FactsError) as caught:
        facts_of({**environ(OPENPBS, SISTER), **variables}, home)
    assert "secret!" not in str(caught.value)


TORQUE = {"PBS_JOBID": "12.server", "PBS_NUM_NODES": "2", "PBS_NUM_PPN": "4", "PBS_NP": "8", "PBS_JOBCOOKIE": "C" * 32}


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Write Torque's node file and GPU file."""
    (tmp_path / "nodes").write_text("n1\n" * 4 + "n2\n" * 4)
    (tmp_path / "gpus").write_text("n1-gpu0\nn1-gpu1\nn2-gpu0\n")
    return {"PBS_NODEFILE": str(tmp_path / "nodes"), "PBS_GPUFILE": str(tmp_path / "gpus")}


def test_torque_tasks_know_hosts_and_gpus_and_scripts_of_several_hosts_do_not_take_part(files: dict[str, str]) -> None:
    """Tasks of pbsdsh have a node number, and GPUs are counted per host; task 1 on node 0 is the job script."""
    places = (("0", "2"), ("1", "3"), ("0", "1"))
    first, last, script = (
        pbs.torque({**TORQUE, **files, "PBS_NODENUM": node, "PBS_TASKNUM": task}) for node, task in places
    )
    assert (first.nodes, first.node_rank, first.gpus, first.is_batch) == (2, 0, 2, False)
    assert (last.nodes, last.node_rank, last.gpus, last.hosts) == (2, 1, 1, ("n1", "n2"))
    assert (last.job_id, last.local_count, last.task_count) == ("12.server", 4, 8)
    assert (script.is_batch, script.node_rank, script.gpus) == (True, None, 2)


def test_torque_s_job_of_one_host_takes_part_and_its_gpus_may_be_unknown(files: dict[str, str]) -> None:
    """Of a file that is empty there are none; without a node file the variables count, from one."""
    Path(files["PBS_NODEFILE"]).write_text("n1\n")
    script = {**TORQUE, **files, "PBS_NODENUM": "0", "PBS_TASKNUM": "1"}
    found = pbs.torque(script)
    assert (found.is_batch, found.node_rank, found.nodes, found.local_count, found.gpus) == (False, 0, 1, 1, 2)
    assert pbs.torque({**script, "PBS_GPUFILE": "/none"}).gpus is None
    Path(files["PBS_GPUFILE"]).write_text("")
    assert pbs.torque(script).gpus == 0
    alone = pbs.torque({"PBS_JOBID": "1.ctl", "PBS_NUM_NODES": "1", "PBS_NP": "1", "PBS_NUM_PPN": "1"})
    assert (alone.nodes, alone.task_count, alone.local_count, alone.gpus) == (1, 1, 1, None)


def test_torque_sisters_may_lack_the_node_file() -> None:
    """There the variables count the nodes; on the first host the file must be there."""
    gone = {**TORQUE, "PBS_NODEFILE": "/gone"}
    sister = pbs.torque({**gone, "PBS_NODENUM": "1"})
    assert (sister.nodes, sister.node_rank, sister.hosts) == (2, 1, ())
    with pytest.raises(FactsError, match="gone"):
        pbs.torque({**gone, "PBS_NODENUM": "0"})


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("is_second", [False, True])
def test_tasks_of_one_pbsdsh_have_the_places_on_their_host_in_order(job: str, home: Path, *, is_second: bool) -> None:
    """The numbers of a second pbsdsh continue those of the first; the script has no place."""
    places: dict[int | None, list[int | None]] = {}
    for name in names(OPENPBS, "tm"):
        if name.startswith(f"tm.{job}."):
            variables = environ(OPENPBS, name)
            rank = facts_of(variables, home).node_rank or 0
            number = int(variables["PBS_TASKNUM"], 16) + is_second * JOBS[job][1][rank]
            task = facts_of({**variables, "PBS_TASKNUM": f"{number:08X}"}, home)
            places.setdefault(rank, []).append(task.slot)
    assert places == {rank: list(range(count)) for rank, count in enumerate(JOBS[job][1])}


@pytest.mark.parametrize("host", range(3))
@pytest.mark.parametrize("task", range(6))
def test_a_slot_comes_from_the_lower_bits_of_a_tasks_number(host: int, task: int) -> None:
    """The upper ones are the host's; on the first one the script is task 1."""
    number = host << (32 - (9).bit_length()) | task + (1 if host else 2)
    assert pbs._slot(number, host, local_count=3, slots=9) == task % 3
