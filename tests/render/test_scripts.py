"""Whole scripts: golden files, shellcheck and bash's own parser for every scheduler and launcher."""

from __future__ import annotations

import itertools
import subprocess
from pathlib import Path

import pytest
from needs import need

from mingle_hooks.errors import UsageError
from mingle_hooks.scripts.directives import TABLE as SCHEDULERS
from mingle_hooks.scripts.job import LAUNCHERS
from mingle_hooks.scripts.script import describe
from mingle_hooks.scripts.script import render_script as render

GOLDEN = Path(__file__).parent / "golden"
NAMES = [(s.name, launcher) for s in SCHEDULERS for launcher in LAUNCHERS]
OPTIONS = {
    "nodes": "2",
    "gpus-per-node": "4",
    "cpus-per-task": "8",
    "mem": "64G",
    "time": "4:00:00",
    "account": "physics",
    "module": ["cuda/12.4"],
    "setup": [". venv/bin/activate"],
}
# Each of these on and off: what changes a script's shape.
SHAPES = {
    "requeue": True,
    "env": ["GREETING=it's $HOME"],
    "container": "image.sif",
    "ntasks-per-node": "3",
    "exclusive": True,
    "time": "30",
    "chdir": "/scratch/a b",
}


def golden(scheduler: str, launcher: str) -> str:
    job = describe(OPTIONS | {"launcher": launcher}, ["train.py", "--lr", "1e-3"])
    return render(scheduler, job)


def checked(script: str, exclude: str = "1091") -> None:
    """Fail on anything that bash cannot parse or that shellcheck has to say."""
    parsed = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
    assert (parsed.returncode, parsed.stderr) == (0, ""), script
    need("shellcheck")
    # 1091: the user's own venv is not here to be read.
    command = ["shellcheck", "--shell=bash", f"--exclude={exclude}", "--format=gcc", "-"]
    done = subprocess.run(command, input=script, capture_output=True, text=True, check=False)
    assert done.stdout == "", script


@pytest.mark.parametrize(("scheduler", "launcher"), NAMES)
def test_a_script_is_what_was_reviewed(scheduler: str, launcher: str) -> None:
    """Each script is, byte for byte, the one in golden/."""
    assert golden(scheduler, launcher) == (GOLDEN / f"{scheduler}.{launcher}.sh").read_text()


@pytest.mark.parametrize(("scheduler", "launcher"), NAMES)
def test_a_script_is_clean(scheduler: str, launcher: str) -> None:
    """Bash parses each script and shellcheck has nothing to say."""
    checked(golden(scheduler, launcher))


@pytest.mark.parametrize(("scheduler", "launcher"), NAMES)
def test_a_script_with_everything_is_clean(scheduler: str, launcher: str) -> None:
    """Shellcheck has nothing to say of a script in which every option is used."""
    script = render(scheduler, describe(SHAPES | {"launcher": launcher}, ["train.py", "it's", "a\nb", "$(x)"]))
    checked(script, "2016")  # 2016: "$(x)" in single quotes is the user's own text


@pytest.mark.parametrize("scheduler", [s.name for s in SCHEDULERS])
def test_every_combination_parses(scheduler: str) -> None:
    """Any combination of options renders to a script that bash parses, for every launcher."""
    scripts = []
    every = itertools.product(LAUNCHERS, *([False, True] for _ in SHAPES))
    # Every third: among these are still each launcher with every four options on and off.
    for launcher, *chosen in itertools.islice(every, 0, None, 3):
        options = {name: value for (name, value), on in zip(SHAPES.items(), chosen, strict=True) if on}
        scripts.append(render(scheduler, describe(options | {"launcher": launcher}, ["./run", "a b"])))
    # One bash for all: each stands in a function of its own, and the last line tells that it got there.
    joined = "".join(f"f{n}() {{\n{script}\n}}\n" for n, script in enumerate(scripts))
    done = subprocess.run(["bash"], input=joined + "echo end", capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


@pytest.mark.parametrize("scheduler", [its.name for its in SCHEDULERS])
def test_set_up_lines_may_hold_tabs(scheduler: str) -> None:
    """Blanks between words, or text within quotes: bash parses the line, and it stands in the script as it is."""
    line = "\texport\tA='a\tb' # why"
    script = render(scheduler, describe({"setup": [line]}, ["train.py"]))
    assert f"{line}\n" in script
    checked(script)


@pytest.mark.parametrize(("field", "longest"), [("output", 4095), ("error", 4095), ("qos", 1024)])
def test_a_value_may_be_as_long_as_slurm_takes_it(field: str, longest: int) -> None:
    """Slurm's controller refuses what is longer, each field by a limit of its own, once sbatch has taken it."""
    assert f"--{field}={'x' * longest}\n" in render("slurm", describe({field: "x" * longest}, ["train.py"]))
    with pytest.raises(UsageError, match=f"--{field} as at most {longest} bytes"):
        render("slurm", describe({field: "x" * (longest + 1)}, ["train.py"]))


def test_what_mingle_sets_is_refused_as_a_variable() -> None:
    """A --env that is set again for each process does not arrive, so it is an error."""
    for name in ("MINGLE_KEY", "RANK", "LOCAL_RANK", "GROUP_RANK"):
        with pytest.raises(UsageError, match=f"-- env {name}="):
            describe({"env": [f"{name}=1"]}, ["train.py"])


@pytest.mark.parametrize("scheduler", [its.name for its in SCHEDULERS])
def test_a_script_is_its_directives_the_environment_and_one_line(scheduler: str) -> None:
    """Nothing else is shell: the same body for every scheduler, but for the directory."""
    bodies = [golden(scheduler, launcher).partition("\n\n")[2].splitlines() for launcher in LAUNCHERS]
    assert all(len(body) <= 15 for body in bodies)
    at = [line for line in bodies[0] if not line.startswith("cd ")]
    assert at == golden("slurm", next(iter(LAUNCHERS))).partition("\n\n")[2].splitlines()


@pytest.mark.parametrize(
    "name", ["host", "hosts", "v", "warned", "TMOUT", "status", "NODE", "mingle", "mingle_x", "MINGLE_PORT_RANGE"]
)
def test_other_variables_are_the_users(name: str) -> None:
    """Short names are not taken by the scripts."""
    assert f"export {name}=1\n" in render("pbs", describe({"env": [f"{name}=1"]}, ["train.py"]))


@pytest.mark.parametrize(
    ("scheduler", "again"),
    [
        ("slurm", '"scontrol requeue $SLURM_JOB_ID"'),
        ("pbs", """"$(printf 'cd %q && qsub %q' "$PBS_O_WORKDIR" "$0")\""""),
        ("lsf", '"brequeue $LSB_JOBID"'),
        ("sge", '"exit 99"'),
    ],
)
def test_a_script_says_when_to_warn_by_what_and_how_it_is_queued_again(scheduler: str, again: str) -> None:
    """In the options of its one line; what the lines above it have taken of the time is not the training's."""
    text = render(scheduler, describe({"requeue": True, "time": "60", "signal": "TERM@60"}, ["train.py"]))
    limit = '"$((3600 - SECONDS))"'
    assert f" --warn-signal TERM --warn 60 --limit {limit} --again {again} -- \\\n" in text


def test_the_training_command_is_the_same_text_everywhere() -> None:
    """Every scheduler and launcher has the command of the user as it stands."""
    assert {"train.py --lr 1e-3" in golden(*its) for its in NAMES} == {True}


def test_groups_of_nodes_become_a_heterogeneous_job() -> None:
    """1+2 nodes with different GPUs are a het job for Slurm and several chunks for PBS."""
    job = describe({"nodes": "1+2", "gpus-per-node": "a100:4+v100:2"}, ["train.py"])
    assert "#SBATCH hetjob\n#SBATCH --nodes=2\n" in render("slurm", job)
    assert "select=1:ncpus=4:mpiprocs=4:ngpus=4:gpu_type=a100+2:ncpus=2:mpiprocs=2" in render("pbs", job)


def test_explain_says_where_a_directive_comes_from() -> None:
    """Each directive has a comment with its option, file or "default" above it."""
    text = render("slurm", describe({"nodes": "2"}, ["train.py"]), explain=True)
    assert "# nodes: --nodes\n#SBATCH --nodes=2\n" in text
    assert "# job-name: default\n#SBATCH --job-name=train\n" in text


def test_explain_is_a_comment_whatever_the_file_is_called(tmp_path: Path) -> None:
    """No name of a file ends the comment that it stands in."""
    spec = tmp_path / "a\nexit 3 #"
    spec.write_text("nodes = 2")
    text = render("slurm", describe({}, ["train.py"], spec=str(spec)), explain=True)
    assert f"# nodes: $'{tmp_path}/a\\nexit 3 #'\n#SBATCH --nodes=2\n" in text


@pytest.mark.parametrize(
    ("scheduler", "options", "field"),
    [
        ("slurm", {"job-name": "a\nb"}, "job-name"),
        ("slurm", {"output": "a\\b"}, "output"),
        ("slurm", {"directive": ["--x\n#SBATCH -n9"]}, "directive"),
        ("slurm", {"array": "1-2", "nodes": "1+1"}, "array"),
        ("slurm", {"ntasks-per-node": "1+2", "nodes": "1+1"}, "ntasks-per-node"),
        ("pbs", {"job-name": "a b"}, "job-name"),
        ("pbs", {"output": "é"}, "output"),
        ("pbs", {"output": "%j.out"}, "output"),
        ("pbs", {"qos": "high"}, "qos"),
        ("pbs", {"array": "1,3"}, "array"),
        ("pbs", {"dependency": "singleton"}, "dependency"),
        ("pbs", {"constraint": "gpu&ib"}, "constraint"),
        ("pbs", {"container": "x.sqsh"}, "container"),
        ("torque", {"array": "1-9:2"}, "array"),
        ("torque", {"output": "a:b"}, "output"),
        ("lsf", {"nodes": "1+1"}, "nodes"),
        ("lsf", {"output": "%5j.out"}, "output"),
        ("lsf", {"output": "%%J"}, "output"),
        ("sge", {"output": "%t"}, "output"),
        ("lsf", {"array": "0-9"}, "array"),
        ("lsf", {"mail-type": "REQUEUE"}, "mail-type"),
        ("sge", {"gpus-per-node": "a100:4"}, "gpus-per-node"),
        ("sge", {"output": "a#b"}, "output"),
        ("sge", {"dependency": "afterok:1"}, "dependency"),
        ("sge", {"qos": "high"}, "qos"),
        ("pbs", {"array": "1-2", "requeue": True}, "requeue"),
        ("pbs", {"setup": ["a\nb"]}, "setup"),
    ],
)
def test_what_a_scheduler_cannot_carry_is_refused_by_name(
    scheduler: str, options: dict[str, object], field: str
) -> None:
    """A value that a directive cannot hold is an error that names its field."""
    with pytest.raises(UsageError, match=f"--{field}"):
        render(scheduler, describe(options, ["train.py"]))


@pytest.mark.parametrize(
    ("scheduler", "options", "works"),
    [
        ("pbs", {"array": "1-3,5"}, {"array": "1-3"}),
        ("pbs", {"array": "7"}, {"array": "1-2"}),
        ("pbs", {"job-name": "3dgan"}, {"job-name": "job3dgan"}),
        ("pbs", {"job-name": "my job"}, {"job-name": "my_job"}),
        ("pbs", {"mail-type": "END,TIME_LIMIT"}, {"mail-type": "END,FAIL"}),
        ("pbs", {"output": "logs/%x-%j.out"}, {"output": "logs/"}),
        ("pbs", {"output": "%j"}, {"output": "./"}),
        ("pbs", {"output": "a:é"}, {"output": "a__"}),
        ("pbs", {"mail-user": "é"}, {"mail-user": "me@example.org"}),
        ("torque", {"output": "/logs/%j"}, {"output": "/logs/"}),
        ("torque", {"output": "${HOME}/x"}, {"output": "$HOME/x"}),
        ("torque", {"constraint": "a b"}, {"constraint": "infiniband"}),
        ("lsf", {"array": "0-9:2,12%3"}, {"array": "1-10:2,13%3"}),
        ("lsf", {"job-name": "my job"}, {"job-name": "my_job"}),
        ("lsf", {"output": "%t-%5j"}, {"output": "%j-%j"}),
        ("lsf", {"mail-type": "TIME_LIMIT"}, {"mail-type": "FAIL"}),
        ("lsf", {"nodes": "1+2"}, {"nodes": "3"}),
        ("sge", {"array": "0-9%2"}, {"array": "1-10%2"}),
        ("sge", {"dependency": "afterok:12"}, {"dependency": "afterany:12"}),
        ("sge", {"output": "%5a"}, {"output": "%a"}),
        ("sge", {"gpus-per-node": "a100:4"}, {"gpus-per-node": "4"}),
        ("slurm", {"output": "a\\b"}, {"output": "a_b"}),
    ],
)
def test_the_remedy_works(scheduler: str, options: dict[str, object], works: dict[str, object]) -> None:
    """The error tells a value that the scheduler takes."""
    (field, value), *_ = works.items()
    with pytest.raises(UsageError) as refused:
        render(scheduler, describe(options, ["train.py"]))
    assert f"{refused.value.remedy}, ".startswith((f"--{field} {value}, ", f"leaving --{field} out, "))
    assert render(scheduler, describe(works, ["train.py"]))


@pytest.mark.parametrize("path", ["h:/x", "$HOME/x"])
def test_torque_takes_a_host_and_the_home(path: str) -> None:
    """Its qsub knows both in front of a path."""
    assert path in render("torque", describe({"output": path}, ["train.py"]))
