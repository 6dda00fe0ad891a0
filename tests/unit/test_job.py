"""The request of one call, from an environment and options alone, and whether its command can start."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from support.executables import executable
from support.recorded import FOLDER, OPENPBS, SLURM_VERSIONS, STEP, environ

from mingle_hooks.errors import SettingsError, UsageError
from mingle_hooks.job import member_spec, obstacle_to
from mingle_hooks.rendezvous.member import MemberSpec
from mingle_hooks.rendezvous.messages import Failure

# Without GPUs, also where the tests run on a machine that has some.
EMPTY = {"HOME": "/nowhere", "CUDA_VISIBLE_DEVICES": ""}
# A step of two nodes with a task each, as Slurm describes it to the second one; then with two tasks each, and of four.
SLURM = {**EMPTY, **STEP, "SLURM_NODEID": "1", "SLURM_PROCID": "1"}
SEVERAL = {**SLURM, "SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_TASKS_PER_NODE": "2(x2)", "SLURM_PROCID": "2"}
OF_FOUR = {
    **SLURM,
    **dict.fromkeys(("SLURM_JOB_NODELIST", "SLURM_STEP_NODELIST"), "node[1-4]"),
    **dict.fromkeys(("SLURM_STEP_NUM_NODES", "SLURM_STEP_NUM_TASKS"), "4"),
    "SLURM_STEP_TASKS_PER_NODE": "1(x4)",
}
EXPORTED = {"MASTER_ADDR": "node1", "MASTER_PORT": "23456", "WORLD_SIZE": "8"}
KUBEFLOW = {"MASTER_ADDR": "node1", "RANK": "1", "WORLD_SIZE": "8", "PET_NNODES": "2", "PET_NODE_RANK": "1"}
# Of a job whose script is at work.
IN_SCRIPT = {**EMPTY, "SLURM_JOB_ID": "5", "SLURM_JOB_NODELIST": "node[1-4]"}
ONE_OF_MPI = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}
PBS = {**environ(OPENPBS, "tm.0.ctl.node2.20000001"), **EMPTY, "PBS_NODEFILE": str(FOLDER / OPENPBS / "nodefile.0.ctl")}


def spec_of(variables: dict[str, str] | None = None, **options: object) -> MemberSpec:
    """Return what a call asks for a world of two, without a scheduler unless variables tell of one."""
    return member_spec({**EMPTY, **(variables or {})}, {"id": "a", "nodes": "2", **options})


@pytest.mark.parametrize("version", SLURM_VERSIONS)
def test_a_recorded_task_has_its_own_place(version: str) -> None:
    """All of it comes from the scheduler, step and restarts too."""
    spec = member_spec({**environ(version, "task.1.1.1"), **EMPTY}, {})
    assert (spec.attempt.id, spec.attempt.step, spec.attempt.restarts) == ("1", "1", 0)
    assert (spec.nodes, spec.nodes_source) == (2, "SLURM_STEP_NUM_NODES")
    assert (spec.rank, spec.rank_source) == (1, "SLURM_NODEID")
    assert (spec.slots, spec.slots_from, spec.pinned) == (1, "tasks", {})


@pytest.mark.parametrize(
    ("variables", "options", "message"),
    [
        ({}, {"rank": "2"}, "a node rank from 0 to 1; saw 2 (--rank)"),
        ({"NODE_RANK": "2"}, {}, "a node rank from 0 to 1; saw 2 (NODE_RANK)"),
        (SLURM, {"nodes": "3"}, "at most 2 nodes, as slurm says; saw 3 (--nodes)"),
        ({}, {"scope": "task"}, "a task's number on its node from the scheduler"),
        (SEVERAL, {"nodes": None}, "one task on each node; saw 2 (slurm)"),
        (PBS, {"nodes": None}, "one slot on each host, or --scope; saw 2 slots (pbs)"),
        ({**SLURM, "NNODES": "1"}, {"nodes": None}, "2 nodes, as slurm says; saw NNODES=1, as exported"),
        ({"NNODES": "0"}, {"nodes": None}, "a number from 1 to 65536 in NNODES"),
        ({}, {"nodes": None}, "a job, or --nodes N; saw no job here"),
        ({}, {"id": None}, "an id that all members share; saw no job here"),
        ({"MASTER_PORT": "0"}, {}, "a number from 1 to 65535 in MASTER_PORT"),
        ({"WORLD_SIZE": "0"}, {}, "a number from 1 to 99999999 in WORLD_SIZE"),
        ({"LOCAL_WORLD_SIZE": "0"}, {}, "a number from 1 to 4096 in LOCAL_WORLD_SIZE"),
        ({"MASTER_ADDR": "a;b"}, {}, "a host name or an address in MASTER_ADDR; saw a;b"),
        (OF_FOUR, {}, "all 4 nodes of the job (slurm); saw 2 (--nodes); try leaving out --nodes"),
        (OF_FOUR, {"nodes": "1"}, "saw 1 (--nodes); try leaving out --nodes, or --alone to train on this node only"),
        ({**OF_FOUR, "MINGLE_NODES": "1"}, {"nodes": None}, "saw 1 (MINGLE_NODES); try unset MINGLE_NODES, or --alone"),
        (IN_SCRIPT, {"nodes": "1"}, "all 4 nodes of the job (slurm); saw 1 (--nodes)"),
        (PBS, {"nodes": "1", "scope": "node"}, "all 3 nodes of the job (pbs); saw 1 (--nodes)"),
        ({**IN_SCRIPT, **ONE_OF_MPI}, {"nodes": None}, "all 4 nodes of the job (slurm+mpi); saw 1 (OMPI_COMM"),
        ({"NNODES": "1"}, {"nodes": None}, "a job, or --nodes N; saw NNODES=1 alone"),
        ({}, {"alone": True}, "one node, for --alone; saw 2 (--nodes)"),
        ({}, {"slots": "cpus"}, "a count of cpus on this node; saw none"),
        ({}, {"order": "topology", "scope": "task", "slots": "1"}, "expected --scope node; saw --order topology"),
        ({}, {"order": "topology", "rank": "0"}, "no rank from --rank; saw --order topology"),
        ({"NODE_RANK": "0"}, {"order": "topology"}, "no rank from NODE_RANK"),
    ],
)
def test_what_cannot_be_is_refused(variables: dict[str, str], options: dict[str, object], message: str) -> None:
    """The error has what was expected and the source of the other value."""
    with pytest.raises(UsageError, match=re.escape(message)):
        spec_of(variables, **options)


def test_an_unknown_framework_is_refused_with_where_it_was_set() -> None:
    """As any other setting."""
    with pytest.raises(SettingsError, match=r"saw nope \(MINGLE_FOR\); try --for none"):
        spec_of({"MINGLE_FOR": "nope"})
    with pytest.raises(UsageError, match=r"saw nope \(--for\); try --for none"):
        spec_of({}, frameworks="nope")


@pytest.mark.parametrize(
    ("variables", "options", "nodes"),
    [
        (IN_SCRIPT, {}, 2),  # for a step of two nodes that the script starts
        (PBS, {"scope": "node"}, 2),  # started on two of the hosts
        (OF_FOUR, {"rank": "0"}, 2),  # two worlds in one step, made by hand
        ({**IN_SCRIPT, **ONE_OF_MPI, "MINGLE_RUN": '{"nodes": 1, "node_rank": 0}'}, {"nodes": None}, 1),
    ],
)
def test_fewer_nodes_than_the_jobs_are_a_world_where_not_all_have_to_take_part(
    variables: dict[str, str], options: dict[str, object], nodes: int
) -> None:
    """Nobody is left out by mistake."""
    assert spec_of(variables, **options).nodes == nodes


@pytest.mark.parametrize("variables", [{}, SLURM, OF_FOUR, IN_SCRIPT, PBS, {**IN_SCRIPT, **ONE_OF_MPI}])
def test_a_node_that_is_alone_on_purpose_is_the_first_of_one(variables: dict[str, str]) -> None:
    """The job's size does not count, and no id is needed."""
    spec = spec_of(variables, id=None, nodes=None, alone=True, scope="node")
    assert (spec.nodes, spec.rank, spec.facts.is_batch, spec.facts.hosts) == (1, 0, False, ())
    assert spec.attempt.id == (spec.facts.job_id or "alone")


@pytest.mark.parametrize(
    ("variables", "options", "rank", "source", "pinned"),
    [
        ({**SLURM, "NODE_RANK": "0"}, {"nodes": None}, 1, "SLURM_NODEID", {"NODE_RANK": "0"}),
        ({**SLURM, "NODE_RANK": "1"}, {"nodes": None}, 1, "SLURM_NODEID", {}),
        ({"NODE_RANK": "1"}, {}, 1, "NODE_RANK", {}),
        ({"NODE_RANK": "1"}, {"rank": "0"}, 0, "--rank", {}),
        ({**EXPORTED, "MASTER_PORT": "023456"}, {}, None, "none", EXPORTED),
        (KUBEFLOW, {"nodes": None}, 1, "PET_NODE_RANK", {"MASTER_ADDR": "node1", "WORLD_SIZE": "8"}),
        ({**KUBEFLOW, "WORLD_SIZE": "2"}, {"nodes": None}, 1, "PET_NODE_RANK", {"MASTER_ADDR": "node1"}),
        ({**EXPORTED, "MINGLE_ID": "b", "MINGLE_EXPORTS": " ".join(["MINGLE_ID", *EXPORTED])}, {}, None, "none", {}),
    ],
)
def test_what_the_user_exported_of_the_world_is_pinned(
    variables: dict[str, str], options: dict[str, object], rank: int | None, source: str, pinned: dict[str, str]
) -> None:
    """A node rank only if it contradicts the scheduler: the leader reports it to all members; no number of replicas."""
    spec = spec_of(variables, **options)
    assert (spec.rank, spec.rank_source, spec.pinned) == (rank, source, pinned)


EVERYTHING = {**SEVERAL, "CUDA_VISIBLE_DEVICES": "0,1,2", "LOCAL_WORLD_SIZE": "5", "SLURM_CPUS_ON_NODE": "8"}
GPUS_AND_TASKS = {name: value for name, value in EVERYTHING.items() if name != "LOCAL_WORLD_SIZE"}


@pytest.mark.parametrize(
    ("variables", "requested", "slots"),
    [
        (EVERYTHING, "7", (7, "--slots")),
        (EVERYTHING, "cpus", (8, "cpus")),
        (EVERYTHING, None, (5, "LOCAL_WORLD_SIZE")),
        (GPUS_AND_TASKS, None, (3, "gpus")),
        (GPUS_AND_TASKS, "tasks", (2, "tasks")),
        ({"NNODES": "2"}, None, (1, "default")),
    ],
)
def test_slots_are_counted_in_this_order(
    variables: dict[str, str], requested: str | None, slots: tuple[int, str]
) -> None:
    """--slots, LOCAL_WORLD_SIZE, the GPUs that can be seen, the scheduler's tasks, and else one."""
    spec = spec_of(variables, nodes=None, scope="node", slots=requested)
    assert (spec.slots, spec.slots_from) == slots


# What is refused before check-in is what execve(2), the shells and Python would refuse, and nothing else.

# Scripts, in a directory of PATH.
FILES = {
    "script": "#!/bin/sh\nexit 0\n",
    "spaces": "#! \t/bin/sh \t -e \nexit 0\n",
    "without_end": "#!/bin/sh",
    "by_env": "#!/usr/bin/env script\n",
    "by_env_with_options": "#!/usr/bin/env -S sh -e\n",
    "by_env_without_line": "#!/usr/bin/env no_line\n",
    "by_env_missing": "#!/usr/bin/env no-such-python\n",
    "by_env_two_words": "#!/usr/bin/env sh -e\n",
    "dos": "#!/bin/sh\r\nexit 0\r\n",
    "no_interpreter": "#!/no/such/python\n",
    "directory_as_interpreter": "#!/usr\n",
    "data_as_interpreter": "#!/etc/passwd\n",
    "empty_interpreter": "#!\n",
    "no_line": "exit 0\n",
    "empty": "",
}
NESTED = 7  # scripts, each of which is the interpreter of the next


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Make the files, and a PATH that has a directory before theirs, with files that cannot be run."""
    for directory in ("first", "bin"):
        (tmp_path / directory).mkdir()
    place = tmp_path / "bin"
    for name, text in FILES.items():
        executable(place / name, text)
    for number in range(NESTED):
        before = f"{place}/nested{number - 1}" if number else "/bin/true"
        executable(place / f"nested{number}", f"#!{before}\n")
    (place / "data").write_text(FILES["script"])
    (place / "link").symlink_to("script")
    (place / "dead_link").symlink_to("nothing")
    (place / "loop").symlink_to("loop")
    for name in ("twice", "twice_bad"):
        (tmp_path / f"first/{name}").write_text(FILES["script" if name == "twice" else "no_interpreter"])
        executable(place / name, FILES["script"])
    (tmp_path / "first/twice_bad").chmod(0o755)
    (tmp_path / "first/data").mkdir()
    (tmp_path / "first/script").write_bytes(b"")
    return f"{tmp_path}/first:{tmp_path}/bin:/usr/bin:/bin"


def refused(words: Sequence[str], environ: Mapping[str, str], **job: str) -> Failure | None:
    """Return what keeps this process from starting a command as a member of a job of four."""
    return obstacle_to(words, member_spec(environ, {"id": "a", "nodes": "4", **job}))


NAMES = [
    *FILES,
    *(f"nested{number}" for number in range(NESTED)),
    *("data", "link", "dead_link", "loop", "twice", "twice_bad", "first", "true", "missing"),
]


@pytest.mark.parametrize("by", ["name", "path"])
def test_a_program_is_refused_where_execve_fails(path: str, by: str) -> None:
    """A program is found along PATH or by its path, through its `#!` lines."""
    place = path.split(":")[1]
    words = NAMES if by == "name" else [f"{place}/{name}" for name in NAMES]
    failures = {word: refused([word], {"PATH": path}) for word in words}
    found = {word: failure.error().exit_code if failure else 0 for word, failure in failures.items()}
    assert found == {word: status_of(word, path) for word in words}
    assert {0, 126, 127} == set(found.values())
    assert refused([""], {"PATH": path}).error().exit_code == 127  # as of "$COMMAND", which is not set


def status_of(word: str, path: str) -> int:
    """Return what comes of a command that is really executed: 0 where it begins, else 126 or 127."""
    places = [word] if "/" in word else [f"{directory}/{word}" for directory in path.split(":")]
    try:
        done = subprocess.run([word], env={"PATH": path}, capture_output=True, check=False)
    except OSError as error:
        return 126 if not isinstance(error, FileNotFoundError) or any(map(os.path.exists, places)) else 127
    return 126 if done.returncode == 127 else 0  # env(1) found no interpreter


SCRIPTS = [
    *("python gone.py", "python3 -u gone.py --lr 1", "python3.11 -W ignore -X dev -OO gone.py", "sh gone.sh"),
    *("python /no/such/gone.py", "bash -eux gone.sh one", "torchrun gone.py", "torchrun --nproc_per_node=2 gone.py"),
    "torchrun --nproc-per-node 2 --standalone gone.py config.yaml",
    "python -m torch.distributed.run --max-restarts 3 gone.py",
    "accelerate launch --mixed_precision bf16 gone.py",
    *(
        "deepspeed --num_gpus 2 gone.py",
        "torchrun --nnodes 2 --no-such=1 gone.py a.py",
        "accelerate launch --cpu gone.py",
    ),
]
UNCERTAIN = [
    *("python", "python -", "python -c pass gone.py", "python -m gone", "python -Wignore gone.py", "sh -c gone.sh"),
    *("bash -l gone.sh", "bash --rcfile rc gone.sh", "bash -o pipefail gone.sh", "bash -s gone.sh"),
    "sh script",  # found along PATH
    *("torchrun gone", "torchrun -m gone.py", "torchrun --mod gone.py", "torchrun --no-python gone.py"),
    *("torchrun", "torchrun --nnodes", "torchrun -mgone.py", "torchrun --no-py gone.py", "torchrun --log=a.py gone.py"),
    "composer gone.py",
    *("torchrun --later data.py gone.py", "env A=1 python gone.py", "apptainer exec image python gone.py"),
    "wrapped_python gone.py",
]


@pytest.fixture
def launchers(path: str) -> str:
    """Add launchers to PATH that are Python scripts, and wrappers of a site that are not."""
    place = Path(path.split(":")[1])
    for name in ("torchrun", "accelerate", "deepspeed", "apptainer", "composer"):
        executable(place / name, f"#!{place}/python\n")
    executable(place / "wrapped_python", "#!/bin/sh\n")
    for name in ("python", "python3", "python3.11"):
        (place / name).symlink_to(sys.executable)
    return path


@pytest.mark.parametrize("words", SCRIPTS)
def test_a_script_that_is_certain_to_be_run_has_to_be_there(
    launchers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    """An interpreter or a launcher in Python runs it, relative to the working directory."""
    monkeypatch.chdir(tmp_path)
    failure = refused(words.split(), {"PATH": launchers})
    assert failure.error().exit_code == 127
    assert "gone." in failure.error().seen
    if "/no/such" not in words:
        (tmp_path / "gone.py").touch()
        (tmp_path / "gone.sh").touch()
        assert refused(words.split(), {"PATH": launchers}) is None


def test_a_hostfile_of_several_nodes_has_to_be_there(
    launchers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it deepspeed trains on rank 0's node alone."""
    monkeypatch.chdir(tmp_path)
    for words in ("deepspeed --hostfile=gone x", "deepspeed --force_multi -H gone x"):
        assert "gone" in refused(words.split(), {"PATH": launchers}).error().seen
        assert refused(words.split(), {"PATH": launchers}, nodes="1") is None


def test_where_it_is_not_certain_what_is_run_nothing_is_refused(
    launchers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module, a command line, a directory, an option of a version to come, a site's wrapper, torchrun's variables."""
    monkeypatch.chdir(tmp_path)
    assert [words for words in UNCERTAIN if refused(words.split(), {"PATH": launchers}) is not None] == []
    for name in ("PET_MODULE", "PET_NO_PYTHON"):
        assert refused(["torchrun", "gone.py"], {"PATH": launchers, name: "1"}) is None


def test_what_rank_0_starts_for_all_has_to_be_there_only() -> None:
    """mpirun, where the first node is known."""
    nowhere = {"PATH": "/no/such"}
    assert refused(["mpirun", "true"], nowhere, rank="1") is None
    assert refused(["mpirun", "true"], nowhere) is None
    assert refused(["mpirun", "true"], nowhere, rank="0") is not None


@pytest.mark.parametrize(
    ("words", "kind"), [(["true"], "unwritable"), (["missing"], "command"), ([], None), (["mpirun", "true"], None)]
)
def test_a_directory_that_cannot_be_written_comes_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: Sequence[str], kind: str | None
) -> None:
    """It counts only where other nodes can write theirs; who starts for all cannot compare."""
    monkeypatch.chdir(tmp_path)
    executable(tmp_path / "mpirun")
    can = os.access
    monkeypatch.setattr(os, "access", lambda path, mode, **how: mode != os.W_OK and can(path, mode, **how))
    failure = refused(words, {"PATH": f"{tmp_path}:/usr/bin:/bin"}, rank="0")
    assert (failure and failure.kind) == kind
    if kind == "unwritable":
        assert failure.parts[1] == f"{tmp_path}: Permission denied"
