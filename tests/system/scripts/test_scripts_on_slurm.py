"""Generated scripts on the real Slurm of the test hosts, as a user who is not root."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import launcher_stand_ins
import pytest
from cluster.slurm import SlurmCluster
from light import BIN
from light import TRAIN as LIGHT
from support.directives import CARRIED, VALUES, script_with
from support.nasty import NASTIER
from support.needs import need

from mingle_hooks.scripts.script import describe
from mingle_hooks.scripts.script import render_script as render

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
# A batch script has the PATH of the one who submits; the tests' Python is nobody's default.
SETUP = f"PATH={Path(sys.executable).parent}:$PATH"
JOB_S = 120.0
# Long enough that nothing but a signal ends it within the test.
LONG = ("--steps", "100000", "--pause", "0.1")
BARE = ("--backend", "sockets")  # saves the seconds that torch takes to load


# Rank 1 fails while rank 0 is at work; when they are there again, both say so.
FAILS_ONCE = """
import os, sys, time, train
if not os.path.exists("failed"):
    if os.environ["RANK"] == "0":
        open("began", "w").close()
        time.sleep(600)
    while not os.path.exists("began"):
        time.sleep(0.1)
    open("failed", "w").close()
    sys.exit(3)
train.main()
"""


def submit(slurm: SlurmCluster, place: Path, options: dict[str, Any], *command: str) -> str:
    """Give in the job of these options as alice, with train.py in its directory."""
    if not (place / "train.py").exists():
        shutil.copy(EXAMPLES / "train.py", place)
    common = {"time": "5:00", "output": f"{place}/%j.out", "setup": [SETUP]}
    script = render("slurm", describe(common | options, command or ("train.py",)))
    return slurm.submit(script, user="alice", cwd=str(place))


def output(place: Path, job: str) -> str:
    """Return what a job wrote."""
    return (place / f"{job}.out").read_text()


def begun(place: Path, job: str, size: int) -> list[tuple[str, str]]:
    """Return the host and the rank of each process that says that it begins."""
    return sorted(re.findall(rf"^(node\d): rank (\d) of {size} begins", output(place, job), re.MULTILINE))


def wait_for_text(place: Path, job: str, text: str, seconds: float = JOB_S) -> None:
    """Wait until a job's output holds a text."""
    deadline = time.monotonic() + seconds
    while not (place / f"{job}.out").exists() or text not in output(place, job):
        assert time.monotonic() < deadline, f"no {text!r} in the output of job {job}"
        time.sleep(0.2)


# The real static one trains from a script in test_hosts_with_different_gpus.
def test_torchrun_starts_one_on_each_host(slurm: SlurmCluster, tmp_path: Path) -> None:
    """It is on all hosts, and each line says on which it was written."""
    shutil.copy(LIGHT, tmp_path)
    options = {"nodes": "4", "launcher": "torchrun", "setup": [SETUP, f"PATH={BIN}:$PATH"]}
    job = submit(slurm, tmp_path, options)
    assert slurm.wait(job, timeout=JOB_S) == "COMPLETED", output(tmp_path, job)
    assert begun(tmp_path, job, 4) == [(f"node{n + 1}", str(n)) for n in range(4)]


def test_one_process_per_task(slurm: SlurmCluster, tmp_path: Path) -> None:
    """The launcher "process" has Slurm start every process, each with its own rank."""
    options = {"nodes": "4", "ntasks-per-node": "2", "launcher": "process"}
    job = submit(slurm, tmp_path, options, "train.py", *BARE)
    assert slurm.wait(job, timeout=JOB_S) == "COMPLETED", output(tmp_path, job)
    text = output(tmp_path, job)
    assert "8 processes at step 200" in text
    begins = sorted(re.findall(r"^(\d node\d): rank (\d) of 8 begins", text, re.MULTILINE))
    assert begins == [(f"{n} node{n // 2 + 1}", str(n)) for n in range(8)]


def test_groups_of_different_nodes(slurm: SlurmCluster, tmp_path: Path) -> None:
    """A heterogeneous job is one world over all of its groups."""
    options = {"nodes": "1+2", "ntasks-per-node": "1+2", "launcher": "process"}
    job = submit(slurm, tmp_path, options, "train.py", *BARE)
    assert slurm.wait(job, timeout=JOB_S) == "COMPLETED", output(tmp_path, job)
    assert "5 processes at step 200" in output(tmp_path, job)


def test_an_array_is_one_world_for_each_of_its_jobs(slurm: SlurmCluster, tmp_path: Path) -> None:
    """Two jobs of an array, two hosts each, run at once and do not meet."""
    options = {"nodes": "2", "array": "1-2", "launcher": "plain", "output": f"{tmp_path}/%a.out"}
    job = submit(
        slurm,
        tmp_path,
        options,
        "bash",
        "-c",
        'exec python3 train.py --checkpoint "$SLURM_ARRAY_TASK_ID.json" --backend sockets',
    )
    assert slurm.wait(job, timeout=JOB_S) == "COMPLETED"
    assert ["2 processes at step 200" in output(tmp_path, n) for n in "12"] == [True, True]


def test_a_failing_rank_fails_the_job(slurm: SlurmCluster, tmp_path: Path) -> None:
    """When one rank fails the job fails with its status, and nothing is left on any host."""
    options = {"nodes": "4", "launcher": "plain"}
    line = 'if [ "$NODE_RANK" = 2 ]; then exit 7; fi; exec sleep 600'
    job = submit(slurm, tmp_path, options, "bash", "-c", line)
    assert slurm.wait(job, timeout=30) == "FAILED"
    assert slurm.job(job)["ExitCode"] == "7:0", output(tmp_path, job)


def test_elastic_restarts_a_failed_process(slurm: SlurmCluster, tmp_path: Path) -> None:
    """With torchrun-elastic a process that fails is started again, with all others, and the job completes."""
    need("torch")
    shutil.copy(LIGHT, tmp_path)
    (tmp_path / "fails_once.py").write_text(FAILS_ONCE)
    options = {"nodes": "2", "launcher": "torchrun-elastic", "max-restarts": "1"}
    job = submit(slurm, tmp_path, options, "fails_once.py")
    assert slurm.wait(job, timeout=JOB_S) == "COMPLETED", output(tmp_path, job)
    assert begun(tmp_path, job, 2) == [("node1", "0"), ("node2", "1")]


@pytest.mark.parametrize(("launcher", "nodes"), [("process", 4), ("torchrun", 2)])
def test_a_cancelled_job_saves(slurm: SlurmCluster, tmp_path: Path, launcher: str, nodes: int) -> None:
    """On scancel the training gets TERM, writes its checkpoint and ends; nothing is left."""
    if launcher == "torchrun":
        need("torch")
        shutil.copy(LIGHT, tmp_path)
    command = ("train.py", *LONG, *BARE) if launcher == "process" else ("train.py", "--wait")
    job = submit(slurm, tmp_path, {"nodes": str(nodes), "launcher": launcher}, *command)
    wait_for_text(tmp_path, job, f"rank 0 of {nodes} begins")
    slurm.controller.run(["scancel", job], user="alice", check=True)
    assert slurm.wait(job, timeout=30) == "CANCELLED"
    slurm.wait_idle()
    assert (tmp_path / "checkpoint.json").exists(), output(tmp_path, job)


def test_a_requeued_job_goes_on_from_its_checkpoint(slurm: SlurmCluster, tmp_path: Path) -> None:
    """With --requeue the warned job saves, is queued again, and begins where it stopped."""
    options = {"nodes": "2", "launcher": "process", "time": "5", "requeue": True}
    job = submit(slurm, tmp_path, options, "train.py", *LONG, *BARE)
    wait_for_text(tmp_path, job, "rank 0 of 2 begins at step 0")
    # What Slurm does before the time limit, without the wait for it.
    slurm.controller.run(["scancel", "--batch", "--signal=USR1", job], user="alice", check=True)
    slurm.wait_state(job, "PENDING")
    assert slurm.job(job)["Restarts"] == "1"
    # Slurm puts a requeued job off for two minutes, as its old credentials are revoked: by the second, so that
    # a few are enough.
    time.sleep(3)
    deadline = time.monotonic() + 60
    while len(begins := re.findall(r"rank 0 of 2 begins at step (\d+)", output(tmp_path, job))) < 2:
        assert time.monotonic() < deadline, output(tmp_path, job)
        slurm.controller.run(["scontrol", "update", f"jobid={job}", "starttime=now"])
        time.sleep(0.5)
    assert int(begins[1]) > 0


TRAIN = Path(__file__).resolve().parents[3] / "examples" / "train.py"
# Ray's driver: it waits for all nodes, as a program that wants all of them does.
DRIVER = """
import os, socket, sys, time
host, _, port = os.environ["RAY_ADDRESS"].rpartition(":")
while True:
    with socket.create_connection((host, int(port))) as connection, connection.makefile("rw") as file:
        file.write("status\\n")
        file.flush()
        nodes = int(file.readline())
    if nodes == 3:
        break
    time.sleep(0.2)
print(nodes, "nodes", flush=True)
sys.exit(int(sys.argv[1]))
"""


def run(
    slurm: SlurmCluster, place: Path, options: dict[str, Any], *command: str, train: Path = TRAIN
) -> tuple[str, str, str]:
    """Run a job of these options as alice, and return its state, its exit code and its output."""
    (place / "bin").mkdir()
    for name in ("accelerate", "deepspeed", "ray"):
        (place / "bin" / name).write_text(
            f'#!/bin/sh\nexec {sys.executable} {launcher_stand_ins.__file__} {name} "$@"\n'
        )
        (place / "bin" / name).chmod(0o755)
    (place / "driver.py").write_text(DRIVER)
    shutil.copy(train, place)
    common = {"time": "5", "output": f"{place}/out", "setup": [f"PATH={place}/bin:{Path(sys.executable).parent}:$PATH"]}
    job = slurm.submit(render("slurm", describe(common | options, command)), user="alice", cwd=str(place))
    return slurm.wait(job), slurm.job(job)["ExitCode"], (place / "out").read_text()


@pytest.mark.parametrize("launcher", ["accelerate", "deepspeed"])
@pytest.mark.parametrize("command", [["train.py"], ["-m", "train"], ["python3", "train.py"]], ids=" ".join)
def test_a_launcher_starts_modules_and_programs(
    slurm: SlurmCluster, tmp_path: Path, launcher: str, command: list[str]
) -> None:
    """All six processes have one address, and each its rank."""
    options = {"nodes": "3", "ntasks-per-node": "2", "launcher": launcher}
    state, _, text = run(slurm, tmp_path, options, *command, train=LIGHT)
    assert state == "COMPLETED", text
    assert sorted(text.count(f"rank {rank} of 6 begins") for rank in range(6)) == [1] * 6
    assert [*Counter(re.findall(r"\bAT=(\S+)", text)).values()] == [6], text


@pytest.mark.parametrize("launcher", ["accelerate", "deepspeed"])
def test_a_failure_under_a_launcher_is_the_jobs(slurm: SlurmCluster, tmp_path: Path, launcher: str) -> None:
    """The status of the process that failed is the job's, and the others end."""
    command = 'if [ "$RANK" = 3 ]; then exit 7; fi; exec sleep 600'
    state, code, text = run(
        slurm, tmp_path, {"nodes": "2", "ntasks-per-node": "2", "launcher": launcher}, "bash", "-c", command
    )
    assert (state, code) == ("FAILED", "7:0"), text


@pytest.mark.parametrize("status", [0, 7])
def test_ray_has_a_head_and_workers(slurm: SlurmCluster, tmp_path: Path, status: int) -> None:
    """The driver runs beside the head once, with all nodes; its end is the job's, with its status."""
    state, code, text = run(slurm, tmp_path, {"nodes": "3", "launcher": "ray"}, "driver.py", str(status))
    assert (state, code) == ("FAILED" if status else "COMPLETED", f"{status}:0"), text
    assert text.count("node1: 3 nodes") == 1


def test_mpirun_starts_all_ranks(slurm: SlurmCluster, tmp_path: Path) -> None:
    """Open MPI's own mpirun starts a process for each slot of three hosts."""
    need("mpirun")
    options = {"nodes": "3", "ntasks-per-node": "2", "launcher": "mpirun"}
    state, _, text = run(slurm, tmp_path, options, "train.py", "--backend", "sockets")
    assert state == "COMPLETED", text
    assert "6 processes at step 200" in text


# fmt: on
APPTAINER = """#!/bin/sh
# A stand-in for Apptainer: it writes down its words, and runs what follows the options and the image.
printf '%s\\0' "$@" >"$0.words"
[ "$1" = exec ] || exit 255
shift
while case $1 in --nv | --bind=*) true ;; -*) exit 255 ;; *) false ;; esac do shift; done
shift
exec "$@"
"""


SRUN = """#!/bin/sh
# A stand-in for pyxis, which adds options to srun: it writes down srun's words and runs it without these.
printf '%s\\0' "$@" >"$0.words"
for word; do
  shift
  case $word in --container-image=* | --container-mounts=*) ;; *) set -- "$@" "$word" ;; esac
done
exec {srun} "$@"
"""


# To a file, as srun takes long lines apart.
TELL_ALL = (
    "import json, os, sys\n"
    "found = [sys.argv[2:], [os.environ[f'V{n}'] for n in range(len(sys.argv) - 2)], os.getcwd()]\n"
    "json.dump(found, open(sys.argv[1], 'w'))"
)


@pytest.mark.parametrize("image", ["i 'm\" $HOME;é\n.sif", "-x.sif", "reg#a b;$x", "/a b/x.sqsh"])
def test_a_container_and_all_words_arrive_in_a_job_that_ran(slurm: SlurmCluster, tmp_path: Path, image: str) -> None:
    """Image, binds, variables, modules, directory and command are the same on the node as in the description."""
    for name, text in (("apptainer", APPTAINER), ("srun", SRUN.format(srun=shutil.which("srun")))):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    place = tmp_path / "-d 'q' \"é\" $(touch pwned);\n"
    place.mkdir()
    (tmp_path / "modules.sh").write_text(f'module() {{ printf "%s\\0" "$2" >>{tmp_path}/modules; }}\n')
    binds = [value for value in NASTIER if "," not in value]
    job = describe(
        {
            "container": image,
            "bind": binds,
            "env": [f"V{number}={value}" for number, value in enumerate(NASTIER)],
            "module": NASTIER,
            "chdir": str(place),
            "setup": [f". {tmp_path}/modules.sh", f"PATH={tmp_path}:{Path(sys.executable).parent}:$PATH"],
            "output": f"{tmp_path}/out",
            "launcher": "plain",
        },
        [sys.executable, "-c", TELL_ALL, str(tmp_path / "told"), *NASTIER],
    )
    # Modules are loaded after what --setup makes known.
    (tmp_path / "job.sh").write_bytes(os.fsencode(render("slurm", job)))
    given = ["sbatch", "--parsable", "job.sh"]
    done = slurm.controller.run(
        given, user="alice", cwd=tmp_path, env={"BASH_ENV": f"{tmp_path}/modules.sh"}, check=True
    )
    assert slurm.wait(done.stdout.strip()) == "COMPLETED", (tmp_path / "out").read_text()
    assert json.loads((tmp_path / "told").read_text()) == [[*NASTIER], [*NASTIER], str(place)]
    assert words_of(tmp_path / "modules") == [*NASTIER]
    assert not list(tmp_path.rglob("pwned"))
    if image.endswith(".sif"):
        words = words_of(tmp_path / "apptainer.words")
        assert words[: 2 + len(binds)] == [
            "exec",
            *(f"--bind={bind}" for bind in binds),
            f"./{image}" if image[0] == "-" else image,
        ]
    else:
        mounts = ",".join(bind if ":" in bind else f"{bind}:{bind}" for bind in binds)
        assert {f"--container-image={image}", f"--container-mounts={mounts}"} <= {*words_of(tmp_path / "srun.words")}


def words_of(path: Path) -> list[str]:
    """Return words that a program wrote, each ended by NUL."""
    return [os.fsdecode(word) for word in path.read_bytes().split(b"\0")[:-1]]


def test_sbatch_reads_every_value_as_it_was_given(slurm: SlurmCluster, tmp_path: Path) -> None:
    """The options that the real sbatch tells with -v are, for every field and value, what was given."""
    wanted: dict[str, dict[str, str]] = {}
    for number, value in enumerate(VALUES):
        # One script for each value, with the directives of all fields that take it.
        taken = {field: text for field in CARRIED["slurm"] if (text := script_with("slurm", field, value)) is not None}
        options = {field: [value] if field == "constraint" else value for field in taken}
        whole = render("slurm", describe({**options, "launcher": "plain"}, ["true"]))
        (tmp_path / f"{number}.sh").write_bytes(os.fsencode(whole))
        wanted[str(number)] = dict.fromkeys(taken, value)
    loop = 'cd "$1"; for f in *.sh; do sbatch -v --test-only "$f" >"${f%.sh}.out" 2>&1; done; true'
    slurm.controller.run(["bash", "-c", loop, "bash", tmp_path], user="alice", check=True)
    for which, fields in wanted.items():
        told = os.fsdecode((tmp_path / f"{which}.out").read_bytes())
        for field, value in fields.items():
            exact = value.upper() if field == "mail-type" else value
            if field in ("output", "error"):  # sbatch has a word of its own there
                exact = "/dev/null" if value == "none" else os.path.join(tmp_path, value)
            assert f"sbatch: {field:<19} : {exact}\n" in told, (field, value, told)
    assert sum(map(len, wanted.values())) > 800  # of about 95 values and 13 fields


def test_slurm_keeps_every_name_as_it_was_given(fresh_slurm: Callable[..., SlurmCluster]) -> None:
    """Partitions, features and reservations with nasty names are found by the job that asks for them, and it runs."""
    names = ["it's", "é漢", "$HOME", "a;b", "-x", "~", "{a}", "%j", "`x`"]
    slurm = fresh_slurm(1, conf_lines=[f"PartitionName={name} Nodes=ALL" for name in names])
    control, features = ["scontrol", "update", "nodename=node1"], ",".join(names)
    slurm.controller.run([*control, f"availablefeatures={features}", f"activefeatures={features}"], check=True)
    for name in names:  # before any job, which would keep the node busy
        made = ["scontrol", "create", "reservation", f"reservationname={name}", "users=alice", "nodes=node1"]
        slurm.controller.run([*made, "starttime=now", "duration=10", "flags=overlap"], check=True)
    jobs = {}
    for name in names:
        fields: dict[str, object] = dict.fromkeys(
            ("job-name", "account", "partition", "reservation", "constraint"), name
        )
        fields |= {"output": "/home/alice/out", "launcher": "plain", "directive": ['--comment="it\'s $x é"']}
        jobs[name] = slurm.submit(render("slurm", describe(fields, ["true"])), user="alice", cwd="/home/alice")
    for name, job in jobs.items():
        assert slurm.wait(job) == "COMPLETED"
        command = ["squeue", "--noheader", "--states=all", "--job", job]
        shown = slurm.controller.run([*command, "--format=%j|%a|%P|%v|%f|%k"])
        # Slurm itself writes accounts in small letters.
        assert shown.stdout == f"{name}|{name.lower()}|{name}|{name}|{name}|it's $x é\n", slurm.logs()
        slurm.controller.run(["scontrol", "delete", f"reservationname={name}"], check=True)
    groups = {"nodes": "1+1", "constraint": names[:2], "mem": "100+200", "launcher": "process"}
    job = slurm.submit(render("slurm", describe(groups, ["true"])), "--hold", user="alice", cwd="/home/alice")
    parts = slurm.controller.run(["squeue", "--noheader", "--sort=i", "--job", job, "--format=%f|%m"], check=True)
    assert parts.stdout == f"{names[0]}|100M\n{names[1]}|200M\n"
