"""Generated scripts on the real Slurm of the test hosts, as a user who is not root."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import launcher_stand_ins
import pytest
from cluster.slurm import SlurmCluster
from light import TRAIN as LIGHT
from light import VENV
from support.directives import CARRIED, VALUES, script_with
from support.jobs import JOB_S, SETUP, TRAIN
from support.nasty import NASTIER
from support.needs import need

from mingle_hooks.scripts.script import describe
from mingle_hooks.scripts.script import render_script as render

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


def submit(slurm: SlurmCluster, place: Path, options: dict[str, Any], *command: str, train: Path = TRAIN) -> str:
    """Submit a job of these options as alice, with train.py in its directory."""
    shutil.copy(train, place / "train.py")
    common = {"time": "5:00", "output": f"{place}/out", "setup": [SETUP]}
    script = render("slurm", describe(common | options, command))
    return slurm.submit(script, user="alice", cwd=str(place))


def run(
    slurm: SlurmCluster, place: Path, options: dict[str, Any], *command: str, train: Path = TRAIN
) -> tuple[str, str, str]:
    """Run a job of these options as alice, and return its state, its exit code and its output."""
    job = submit(slurm, place, options, *command, train=train)
    return slurm.wait(job, timeout=JOB_S), slurm.job(job)["ExitCode"], output(place)


def output(place: Path, name: str = "out") -> str:
    """Return what a job has written by now."""
    return (place / name).read_text() if (place / name).exists() else ""


@pytest.mark.parametrize(
    ("command", "processes", "venv"),
    [
        ("-N 2 -n 4 -- srun torchrun train.py", 4, VENV),
        ("-N 4 --launcher plain -- nice torchrun train.py", 4, VENV),
        ("-N 2 -- python -m torch.distributed.run --rdzv-backend c10d --nproc-per-node 2 train.py", 4, sys.prefix),
    ],
)
def test_torchrun_as_it_was_typed_starts_one_world(
    slurm: SlurmCluster, tmp_path: Path, command: str, processes: int, venv: str | Path
) -> None:
    """From the user's venv, though sbatch hands on no environment; each line says on which host it was written."""
    if venv != VENV:
        need("torch")
    shutil.copy(LIGHT, tmp_path)
    environ = {"PATH": f"{sys.prefix}/bin:/usr/bin:/bin", "VIRTUAL_ENV": str(venv), "HOME": os.environ["HOME"]}
    argv = [f"{sys.prefix}/bin/mingle", "template", "sbatch", "-t", "5", "-o", f"{tmp_path}/out", *shlex.split(command)]
    script = subprocess.run(argv, env=environ, capture_output=True, text=True, check=True).stdout
    job = slurm.submit(script, "--export=NONE", user="alice", cwd=str(tmp_path))
    assert slurm.wait(job, timeout=JOB_S) == "COMPLETED", output(tmp_path)
    ranks = sorted(re.findall(rf"^(node\d): .*?rank (\d) of {processes} begins", output(tmp_path), re.MULTILINE))
    nodes = int(command.split()[1])
    assert ranks == [(f"node{n * nodes // processes + 1}", str(n)) for n in range(processes)], output(tmp_path)


def test_groups_of_different_nodes(slurm: SlurmCluster, tmp_path: Path) -> None:
    """A heterogeneous job is one world over all of its groups."""
    options = {"nodes": "1+2", "ntasks-per-node": "1+2", "launcher": "process"}
    state, _, text = run(slurm, tmp_path, options, "train.py", "--backend", "sockets")
    assert (state, "5 processes at step 200" in text) == ("COMPLETED", True), text


def test_an_array_is_one_world_for_each_of_its_jobs(slurm: SlurmCluster, tmp_path: Path) -> None:
    """Two jobs of an array, two hosts each, run at once and do not meet."""
    options = {"nodes": "2", "array": "1-2", "launcher": "plain", "output": f"{tmp_path}/%a.out"}
    line = 'exec python3 train.py --checkpoint "$SLURM_ARRAY_TASK_ID.json" --backend sockets'
    assert run(slurm, tmp_path, options, "bash", "-c", line)[0] == "COMPLETED"
    assert ["2 processes at step 200" in output(tmp_path, f"{n}.out") for n in "12"] == [True, True]


def test_elastic_restarts_a_failed_process(slurm: SlurmCluster, tmp_path: Path) -> None:
    """With torchrun-elastic a process that fails is started again, with all others, and the job completes."""
    need("torch")
    (tmp_path / "fails_once.py").write_text(FAILS_ONCE)
    options = {"nodes": "2", "launcher": "torchrun-elastic", "max-restarts": "1"}
    state, _, text = run(slurm, tmp_path, options, "fails_once.py", train=LIGHT)
    assert state == "COMPLETED", text
    assert sorted(re.findall(r"^(node\d): rank (\d) of 2 begins", text, re.MULTILINE)) == [
        ("node1", "0"),
        ("node2", "1"),
    ]


def test_a_cancelled_torchrun_saves(slurm: SlurmCluster, tmp_path: Path) -> None:
    """On scancel the training below torchrun gets TERM, writes its checkpoint and ends; nothing is left."""
    need("torch")
    job = submit(slurm, tmp_path, {"nodes": "2", "launcher": "torchrun"}, "train.py", "--wait", train=LIGHT)
    slurm.until(lambda: "rank 0 of 2 begins" in output(tmp_path), "start of the training", JOB_S)
    slurm.controller.run(["scancel", job], user="alice", check=True)
    assert slurm.wait(job, timeout=30) == "CANCELLED"
    slurm.wait_idle()
    assert (tmp_path / "checkpoint.json").exists(), output(tmp_path)


@pytest.fixture
def programs(tmp_path: Path) -> list[str]:
    """Make the stand-ins of launchers, and return the line that puts them on PATH."""
    (tmp_path / "bin").mkdir()
    for name in ("accelerate", "deepspeed", "ray"):
        text = f'#!/bin/sh\nexec {sys.executable} {launcher_stand_ins.__file__} {name} "$@"\n'
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    return [f"PATH={tmp_path}/bin:{Path(sys.executable).parent}:$PATH"]


@pytest.mark.parametrize("launcher", ["accelerate", "deepspeed"])
@pytest.mark.parametrize("command", [["train.py"], ["-m", "train"], ["python3", "train.py"]], ids=" ".join)
def test_a_launcher_starts_modules_and_programs(
    slurm: SlurmCluster, tmp_path: Path, programs: list[str], launcher: str, command: list[str]
) -> None:
    """All six processes have one address, and each its rank."""
    options = {"nodes": "3", "ntasks-per-node": "2", "launcher": launcher, "setup": programs}
    state, _, text = run(slurm, tmp_path, options, *command, train=LIGHT)
    assert state == "COMPLETED", text
    assert sorted(text.count(f"rank {rank} of 6 begins") for rank in range(6)) == [1] * 6
    assert [*Counter(re.findall(r"\bAT=(\S+)", text)).values()] == [6], text


@pytest.mark.parametrize("launcher", ["accelerate", "deepspeed"])
def test_a_failure_under_a_launcher_is_the_jobs(
    slurm: SlurmCluster, tmp_path: Path, programs: list[str], launcher: str
) -> None:
    """The status of the process that failed is the job's, and the others end."""
    options = {"nodes": "2", "ntasks-per-node": "2", "launcher": launcher, "setup": programs}
    command = 'if [ "$RANK" = 3 ]; then exit 7; fi; exec sleep 600'
    state, code, text = run(slurm, tmp_path, options, "bash", "-c", command)
    assert (state, code) == ("FAILED", "7:0"), text


@pytest.mark.parametrize("status", [0, 7])
def test_ray_has_a_head_and_workers(slurm: SlurmCluster, tmp_path: Path, programs: list[str], status: int) -> None:
    """The driver runs beside the head once, with all nodes; its end is the job's, with its status."""
    options = {"nodes": "3", "launcher": "ray", "setup": programs}
    state, code, text = run(slurm, tmp_path, options, "sh", "-c", f'echo "driver of $RAY_ADDRESS"; exit {status}')
    assert (state, code) == ("FAILED" if status else "COMPLETED", f"{status}:0"), text
    assert re.findall(r"^(\w+): driver of \S+:\d+$", text, re.MULTILINE) == ["node1"]


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
    assert arguments_of(tmp_path / "modules") == [*NASTIER]
    assert not list(tmp_path.rglob("pwned"))
    if image.endswith(".sif"):
        arguments = arguments_of(tmp_path / "apptainer.words")
        assert arguments[: 2 + len(binds)] == [
            "exec",
            *(f"--bind={bind}" for bind in binds),
            f"./{image}" if image[0] == "-" else image,
        ]
    else:
        mounts = ",".join(bind if ":" in bind else f"{bind}:{bind}" for bind in binds)
        assert {f"--container-image={image}", f"--container-mounts={mounts}"} <= {
            *arguments_of(tmp_path / "srun.words")
        }


def arguments_of(path: Path) -> list[str]:
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
        shown = os.fsdecode((tmp_path / f"{which}.out").read_bytes())
        for field, value in fields.items():
            exact = value.upper() if field == "mail-type" else value
            if field in ("output", "error"):  # sbatch has a word of its own there
                exact = "/dev/null" if value == "none" else os.path.join(tmp_path, value)
            assert f"sbatch: {field:<19} : {exact}\n" in shown, (field, value, shown)
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
