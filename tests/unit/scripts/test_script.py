"""Commands as people type them, whole scripts, values in them, and templates."""

import os
import re
import shlex
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
from support import nasty
from support.executables import executable
from support.forked import Forked
from support.needs import need

from mingle_hooks.errors import PlaceError, UsageError
from mingle_hooks.scripts import script as search
from mingle_hooks.scripts.directives import TABLE
from mingle_hooks.scripts.job import LAUNCHERS
from mingle_hooks.scripts.script import describe, environment_lines, quote_argv, quote_word, render_script as render

NAMES = [scheduler.name for scheduler in TABLE]


def body(command: str, scheduler: str = "slurm", **options: object) -> str:
    """Return the script of a job on four nodes."""
    return render(scheduler, describe({"nodes": "4", **options}, shlex.split(command)))


# What is typed with which --launcher, what is started in its place, and what mingle sets.
AS_TYPED = [
    *((line, "", line, "torchrun,nccl,gloo --slots 1") for line in (
        "torchrun train.py --lr 1", "torchrun --nproc-per-node 2 -m pkg", "/opt/x/bin/torchrun 'a b.py'",
        "env A=1 torchrun train.py", "torchrun train.py c10d", "python -m torch.distributed.run x.py",
        "python3 -u -W ignore -m torch.distributed.run x.py", "python3.12 -m torch.distributed.launch x.py",
        "env A=1 python -u /opt/bin/torchrun x.py",
    )),
    *((line, "", line, "nccl") for line in (
        "accelerate launch --mixed_precision bf16 train.py", "accelerate-launch x.py",
    )),
    ("deepspeed train.py --deepspeed", "", "deepspeed train.py --deepspeed", "deepspeed"),
    *((f"torchrun --rdzv{mark}c10d x.py", "", f"torchrun --max-restarts=3 --rdzv{mark}c10d x.py", "torchrun-elastic")
      for mark in ("-backend=", "_backend=", "_backend ")),
    ("-m torch.distributed.run x.py", "", "python3 -m torch.distributed.run x.py", "torchrun"),
    ("srun torchrun x.py", "", "torchrun x.py", "torchrun"), ("srun python x.py", "", "python x.py", "nccl"),
    ("srun mingle exec -- torchrun train.py", "", "torchrun train.py", "torchrun"),
    ("mingle exec python train.py", "", "torchrun --no-python python train.py", "torchrun"),
    # An option that agrees is no contradiction: it says how, or leaves the line as it is.
    ("srun torchrun x.py", "torchrun", "torchrun x.py", "torchrun"),
    ("srun torchrun x.py", "torchrun-elastic", "torchrun --max-restarts=3 x.py", "torchrun-elastic"),
    *((line, "plain", line, "nccl,gloo,torchrun --slots 1") for line in ("torchrun x.py", "strace -f torchrun x.py")),
    # What is not a script of Python's is said to each launcher in its own words.
    ("-m pkg.train", "torchrun", "torchrun -m pkg.train", "torchrun"), ("-m pkg", "process", "python3 -m pkg", "nccl"),
    ("./run x", "torchrun", "torchrun --no-python ./run x", "torchrun"),
    ("python3 -u x.py", "plain", "python3 -u x.py", "nccl"),
    ("-m pkg", "accelerate", "accelerate launch --module pkg", "nccl"),
    ("./run", "deepspeed", "deepspeed --no_local_rank --no_python ./run", "deepspeed"),
]  # fmt: skip


@pytest.mark.parametrize(("command", "launcher", "line", "reads"), AS_TYPED)
def test_a_launcher_is_started_as_it_was_typed(command: str, launcher: str, line: str, reads: str) -> None:
    """It is not nested in another, the user's words stay, and mingle sets what it reads."""
    script = body(command, launcher=launcher or None)
    assert f"\n  {line}\n" in script
    assert f" --for {reads}" in script


@pytest.mark.parametrize("scheduler", NAMES)
def test_srun_and_mpirun_are_the_scripts_to_start(scheduler: str) -> None:
    """One process for each task under srun, and Open MPI's ranks under mpirun, whatever the scheduler."""
    assert body("srun python train.py", scheduler) == body("python train.py", scheduler, launcher="process")
    assert body("mpirun train.py", scheduler) == body("train.py", scheduler, launcher="mpirun")


@pytest.mark.parametrize(
    ("command", "launcher", "remedy"),
    [
        ("torchrun train.py", "process", "-- train.py"), ("srun", None, "srun train.py"),
        ("srun -- --lr 1", None, "-- train.py"), ("mingle exec -- -m", None, "-- train.py"),
        ("torchrun --nproc-per-node 2 train.py", "accelerate", "-- train.py"),
        ("accelerate launch train.py", "torchrun", "leaving --launcher out"),
        ("srun python train.py", "mpirun", "-- python train.py"), ("torchrun", None, "-- torchrun train.py"),
        ("mpirun python train.py", "torchrun", "leaving --launcher out"),
        ("srun -N 2 -n8 --gres=gpu:2 python train.py", None, "-N 2 -n8 --gres=gpu:2 -- srun python train.py"),
        ("srun --exclusive torchrun train.py", None, "--exclusive -- srun torchrun train.py"),
        ("mingle exec --for jax python train.py", None, "only the command after --"),
        ("mpirun -np 8 python train.py", None, "-n 8 --launcher mpirun -- python train.py"),
        ("mpirun --bind-to none python train.py", None, "--launcher mpirun and the program"),
        ("mpirun torchrun x.py", None, "-- torchrun x.py"), ("ray start --head", None, "--launcher ray -- train.py"),
        ("horovodrun -np 4 python train.py", None, "--launcher mpirun -- train.py"),
        *((line, None, "--launcher plain for once on every node, or --launcher torchrun for once per GPU") for line in (
            "bash train.sh", "./run.sh --lr 1", "env A=1 /bin/sh -c 'python3 train.py'",
        )),
        ("strace -f torchrun train.py", None, "--launcher plain -- strace -f torchrun train.py"),
        ("bash -c 'cd x; deepspeed train.py'", None, "-- deepspeed …, with --setup"),
        ("bash -c 'cd x; torchrun train.py'", None, "--launcher plain -- bash -c 'cd x; torchrun train.py'"),
        ("torchrun --standalone x.py", None, "without --standalone"), ("torchrun --nnode=1 x.py", None, "--nnode"),
        ("torchrun --nnodes=1:2 x.py", None, "without --nnodes"), ("torchrun --nnodes 2 x.py", None, "it without"),
        ("accelerate launch --main_process_ip 127.0.0.1 train.py", None, "without --main_process_ip"),
    ],
)  # fmt: skip
def test_what_would_train_alone_is_refused_with_what_works(command: str, launcher: str | None, remedy: str) -> None:
    """A contradiction, or a launcher where the script cannot lead it, is one line that says what to type."""
    with pytest.raises(UsageError) as refused:
        body(command, launcher=launcher)
    assert remedy in refused.value.remedy


@pytest.mark.parametrize(
    "command",
    [
        "train.py --launcher torchrun", "python3 train.py deepspeed", "-m pkg torchrun", "srun ./run.sh", "python3",
        "python3 -u", "env", "env A=1", "python3 -c 'import torchrun'", "torchrun --nnodes=4 train.py",
        "torchrun --nnodes=1:4 train.py", "torchrun train.py --standalone --nnodes 1",
    ],
)  # fmt: skip
def test_the_programs_own_arguments_are_its_own(command: str) -> None:
    """Nothing is read into what follows the script."""
    assert body(command)


def test_the_settings_launcher_contradicts_none() -> None:
    """It is for commands without one."""
    script = render("slurm", describe({}, ["torchrun", "train.py"], default_launcher="process"))
    assert "\n  torchrun train.py\n" in script


def test_one_task_of_a_typed_launcher_is_all_gpus() -> None:
    """Who types torchrun and one task for each node, as sbatch wants it, means all its GPUs, and CPUs for all."""
    options: dict[str, object] = {"ntasks-per-node": "1", "gpus-per-node": "4", "cpus-per-task": "32"}
    script = body("torchrun train.py", **options)
    assert "--slots 4" in script
    assert "#SBATCH --ntasks-per-node=1\n#SBATCH --cpus-per-task=32\n" in script
    with pytest.raises(UsageError, match="--cpus-per-task 32"):
        body("torchrun train.py", **(options | {"cpus-per-task": "30"}))


GOLDEN = Path(__file__).parent / "golden"
OPTIONS = {
    "nodes": "2", "gpus-per-node": "4", "cpus-per-task": "8", "mem": "64G", "time": "4:00:00", "account": "physics",
    "module": ["cuda/12.4"], "setup": [". venv/bin/activate"],
}  # fmt: skip
# What changes a script's shape.
SHAPES = {
    "requeue": True, "env": ["GREETING=it's $HOME"], "container": "image.sif", "ntasks-per-node": "3", "time": "30",
    "exclusive": True, "chdir": "/scratch/a b", "setup": ["\texport\tA='a\tb' # why"],
}  # fmt: skip


def golden(scheduler: str, launcher: str) -> str:
    job = describe(OPTIONS | {"launcher": launcher}, ["train.py", "--lr", "1e-3"])
    return render(scheduler, job)


def checked(place: Path, *scripts: str, exclude: str = "1091") -> None:
    """Fail on anything that shellcheck has to say; 1091: the user's own venv is not here to be read."""
    need("shellcheck")
    for number, script in enumerate(scripts):
        (place / f"{number}.sh").write_text(script)
    command = ["shellcheck", "--shell=bash", f"--exclude={exclude}", "--format=gcc", *place.glob("*.sh")]
    assert subprocess.run(command, capture_output=True, text=True, check=False).stdout == ""


@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize("scheduler", NAMES)
def test_a_script_is_what_was_reviewed(scheduler: str, launcher: str) -> None:
    """Each script is, byte for byte, the one in golden/."""
    assert golden(scheduler, launcher) == (GOLDEN / f"{scheduler}.{launcher}.sh").read_text()


@pytest.mark.parametrize("scheduler", NAMES)
def test_a_script_is_clean(scheduler: str, tmp_path: Path) -> None:
    """Shellcheck has nothing to say of each launcher's script, nor of one in which every option is used."""
    checked(tmp_path, *(golden(scheduler, launcher) for launcher in LAUNCHERS))
    command = ["train.py", "it's", "a\nb", "$(x)"]
    scripts = [render(scheduler, describe(SHAPES | {"launcher": launcher}, command)) for launcher in LAUNCHERS]
    checked(tmp_path, *scripts, exclude="2016")  # 2016: "$(x)" in single quotes is the user's own text


@pytest.mark.parametrize(("field", "longest"), [("output", 4095), ("error", 4095), ("qos", 1024)])
def test_a_value_may_be_as_long_as_slurm_takes_it(field: str, longest: int) -> None:
    """Slurm's controller refuses what is longer, each field by a limit of its own, once sbatch has taken it."""
    assert f"--{field}={'x' * longest}\n" in render("slurm", describe({field: "x" * longest}, ["train.py"]))
    with pytest.raises(UsageError, match=f"--{field} as at most {longest} bytes"):
        render("slurm", describe({field: "x" * (longest + 1)}, ["train.py"]))


@pytest.mark.parametrize(
    ("scheduler", "again"),
    [
        ("slurm", '"scontrol requeue $SLURM_JOB_ID"'), ("lsf", '"brequeue $LSB_JOBID"'), ("sge", '"exit 99"'),
        ("pbs", """"$(printf 'cd %q && qsub %q' "$PBS_O_WORKDIR" "$0")\""""),
    ],
)  # fmt: skip
def test_a_script_has_the_warning_and_the_command_that_requeues_it(scheduler: str, again: str) -> None:
    """In the options of its one line; what the lines above it have taken of the time is not the training's."""
    text = render(scheduler, describe({"requeue": True, "time": "60", "signal": "TERM@60"}, ["train.py"]))
    limit = '"$((3600 - SECONDS))"'
    assert f" --warn-signal TERM --warn 60 --limit {limit} --again {again} -- \\\n" in text


def test_explain_shows_where_a_directive_comes_from(tmp_path: Path) -> None:
    """In a comment: the option, of a total too; "default"; or the file, whose name cannot end the comment."""
    text = render("slurm", describe({"nodes": "2", "gpus": "8"}, ["train.py"]), explain=True)
    assert "# nodes: --nodes\n#SBATCH --nodes=2\n" in text
    assert "# gpus-per-node: --gpus\n#SBATCH --gpus-per-node=4\n" in text
    assert "# job-name: default\n#SBATCH --job-name=train\n" in text
    spec = tmp_path / "a\nexit 3 #"
    spec.write_text("nodes = 2")
    text = render("slurm", describe({}, ["train.py"], spec=str(spec)), explain=True)
    assert f"# nodes: $'{tmp_path}/a\\nexit 3 #'\n#SBATCH --nodes=2\n" in text


def test_a_program_cannot_end_the_comment_that_names_it() -> None:
    """The note on the launcher is one line, whatever stands after `python` in the typed word."""
    text = render("slurm", describe({"nodes": "2"}, ["python3\n\r\v\f\x1b\x85\u2028\u2029exit 3", "train.py"]))
    assert "# torchrun starts $'python3" in text
    assert [line for line in text.splitlines() if line.startswith("exit 3")] == []


NASTY = [*nasty.NASTY, ""]


def test_a_word_is_one_line_of_printable_text() -> None:
    """No value can end a line, a comment or a here-document; NUL and bash's own two marks are refused."""
    assert [value for value in NASTY if not quote_word(value).isprintable()] == []
    for value in ("a\0b", "\x01", "\x7f"):
        with pytest.raises(UsageError, match="a shell can carry"):
            quote_word(value)
    # As the first word of a command it would be an assignment.
    assert quote_argv(["A=1", "--lr=3", "x=2"]) == "'A=1' --lr=3 x=2"


# It writes down its directory and its words, and its environment.
STAND_IN = """#!/bin/sh
printf '%s\\0' "$PWD" "$@" >{place}/words
env -0 >{place}/env
"""
IMAGES = ["i 'm\" $HOME;é\n.sif", "-x.sif", "reg#a b;$x", "/a b/x.sqsh"]


@pytest.mark.parametrize(("scheduler", "image"), [*product(NAMES, IMAGES[:1]), *product(["slurm"], IMAGES[1:])])
def test_all_that_a_script_carries_arrives(scheduler: str, image: str, tmp_path: Path) -> None:
    """Image, binds, variables, modules, directory and command are, behind any launcher, those of the description."""
    executable(tmp_path / "mingle", STAND_IN.format(place=tmp_path))
    (tmp_path / "modules.sh").write_text(f'module() {{ printf "%s\\0" "$2" >>{tmp_path}/modules; }}\n')
    place = tmp_path / "-d 'q' \"é\" $(touch pwned);\n"
    place.mkdir()
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "BASH_ENV": f"{tmp_path}/modules.sh"}
    options: dict[str, object] = {"container": image, "module": nasty.NASTIER, "chdir": str(place)}
    options["bind"] = binds = [value for value in nasty.NASTIER if "," not in value]
    options["env"] = [f"V{number}={value}" for number, value in enumerate(nasty.NASTIER)]
    for launcher in LAUNCHERS:
        script = render(scheduler, describe(options | {"launcher": launcher}, ["train.py", *nasty.NASTIER]))
        subprocess.run(["bash", "-c", os.fsencode(script)], env=env, check=True, cwd=tmp_path)
        directory, *words = texts((tmp_path / "words").read_bytes())
        assert directory == str(place)
        before, command = words[: words.index("--")], words[words.index("--") + 1 :]
        assert command[command.index("train.py") + 1 :] == [*nasty.NASTIER]
        if image.endswith(".sif"):
            path = f"./{image}" if image[0] == "-" else image
            found = ["apptainer", "exec", *(f"--bind={bind}" for bind in binds), path]
            assert command[: len(found)] == found
        else:
            mounts = ",".join(bind if ":" in bind else f"{bind}:{bind}" for bind in binds)
            wanted = (f"image={image}", f"mounts={mounts}")
            assert before[-2:] == [f"--start-option=--container-{name}" for name in wanted]
        exported = dict(text.split("=", 1) for text in texts((tmp_path / "env").read_bytes()))
        assert [exported[f"V{number}"] for number in range(len(nasty.NASTIER))] == [*nasty.NASTIER]
    assert texts((tmp_path / "modules").read_bytes()) == [*nasty.NASTIER] * len(LAUNCHERS)
    assert not list(tmp_path.rglob("pwned"))


def test_a_missing_mingle_is_reported(tmp_path: Path) -> None:
    """By the script, with its host; nothing is started."""
    for path, is_there in ((f"{tmp_path}:/usr/bin:/bin", True), ("/usr/bin:/bin", False)):
        executable(tmp_path / "mingle")
        script = body("train.py", setup=[f"PATH={path}"])
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
        is_told = f"{os.uname().nodename}: no mingle on PATH" in done.stderr
        assert (done.returncode, is_told) == ((0, False) if is_there else (69, True))


def texts(written: bytes) -> list[str]:
    """Return the texts that a program wrote, each ended by NUL."""
    return [os.fsdecode(text) for text in written.split(b"\0")[:-1]]


def test_the_words_of_the_command_line_stand_in_a_comment() -> None:
    """The first line repeats the command, and whatever stands in it remains a comment."""
    script = render("slurm", describe({"launcher": "plain"}, ["true"]), made_by=["mingle", *NASTY])
    assert script.splitlines()[1].startswith("# Made by: mingle 'a b' ")
    assert script.splitlines()[2] == "#SBATCH --job-name=true"


# Bash has these only once they are used.
OF_BASH = (
    "BASHPID", "BASH_ARGV0", "BASH_COMMAND", "EPOCHSECONDS", "EPOCHREALTIME", "SRANDOM", "RANDOM", "SECONDS",
    "LINENO", "GROUPS", "FUNCNAME", "DIRSTACK", "HISTCMD", "COMP_WORDBREAKS", "PIPESTATUS", "BASH_SUBSHELL",
    "POSIXLY_CORRECT", "BASH_ENV", "ENV", "CDPATH", "HOSTNAME", "LC_ALL", "REPLY", "COPROC", "MAPFILE", "TIMEFORMAT",
    "OLDPWD", "PWD", "_", "TMOUT", "HOSTTYPE",
)  # fmt: skip


# Short names that a script could use for itself.
OF_USERS = {"host", "hosts", "v", "warned", "status", "NODE", "mingle", "mingle_x", "MINGLE_PORT_RANGE"}


def test_a_variable_arrives_or_is_refused(tmp_path: Path) -> None:
    """Each name that bash knows by itself is refused, or has the value that it was given in the training."""
    listed = subprocess.run(["bash", "-c", "compgen -v"], env={}, capture_output=True, text=True, check=True).stdout
    script_ = tmp_path / "job.sh"
    # What matters is what bash does to a variable.
    executable(tmp_path / "mingle", '#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done; shift; exec "$@"\n')
    for name in {*listed.split(), *OF_BASH, *OF_USERS} - {"PATH"}:
        try:
            job = describe({"env": [f"{name}=1x"], "launcher": "plain"}, ["env"])
        except UsageError:
            assert name not in OF_USERS
            continue
        script_.write_text(render("slurm", job))
        path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
        done = subprocess.run(["bash", script_], env=path, capture_output=True, text=True, check=True)
        assert f"\n{name}=1x\n" in f"\n{done.stdout}", name


# What `conda shell.bash hook` prints is some hundred lines of this kind.
CONDA = """#!/bin/sh
[ "$*" = "shell.bash hook" ] || exit 64
echo 'conda() { [ "$1" = activate ] && export CONDA_PREFIX="$2" PATH="$2/bin:$PATH" HOOKED=yes; }'
"""


def shown(place: Path, given: tuple[str, ...], *names: str) -> list[str]:
    """Return these variables after the lines, in a shell that begins with nothing."""
    told = "\n".join([*given, *(f'printf "%s\\0" "${name}"' for name in names)])
    env = {"PATH": "/usr/bin:/bin"}
    return texts(subprocess.run(["bash", "-c", told], env=env, capture_output=True, check=True, cwd=place).stdout)


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a venv as Python does, without pip."""
    place = tmp_path_factory.mktemp("it's") / "v"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    return place


@pytest.mark.parametrize("name", ["plain", *nasty.NASTY[1::3]])
def test_the_active_environment_is_activated_again(tmp_path: Path, venv: Path, name: str) -> None:
    """A venv, conda by its own hook, or the directory of this mingle: whatever it is called, no text of it is run."""
    place = tmp_path / f"-{name}"
    mingle = str(executable(place / "bin/mingle"))
    assert shown(tmp_path, environment_lines({}, mingle), "PATH") == [f"{place}/bin:/usr/bin:/bin"]
    prefix = place / "envs/it's"
    prefix.mkdir(parents=True)
    environ = {"CONDA_PREFIX": str(prefix), "CONDA_EXE": str(executable(place / "bin/conda", CONDA))}
    path, active, hooked = shown(tmp_path, environment_lines(environ, mingle), "PATH", "CONDA_PREFIX", "HOOKED")
    assert (path.split(":")[:2], active, hooked) == ([f"{prefix}/bin", f"{place}/bin"], str(prefix), "yes")
    # A venv cannot be moved, so only its activation is read from the hostile place.
    (place / "bin/activate").write_bytes((venv / "bin/activate").read_bytes())
    given = environment_lines({"VIRTUAL_ENV": str(place)}, mingle)
    assert len(given) == 1
    path, active = shown(tmp_path, given, "PATH", "VIRTUAL_ENV")
    assert (path.split(":")[0], active) == (f"{venv}/bin", str(venv))
    assert not list(tmp_path.rglob("pwned"))


def test_without_conda_its_environment_is_on_path(tmp_path: Path, venv: Path) -> None:
    """As of pixi and micromamba; a venv comes first. What is not there is left out; a colon would take PATH apart."""
    environ = {"CONDA_PREFIX": str(tmp_path / "env")}
    file = executable(tmp_path / "env/bin/mingle")
    path, prefix = shown(tmp_path, environment_lines(environ, str(file)), "PATH", "CONDA_PREFIX")
    assert (path.split(":")[0], prefix) == (f"{tmp_path}/env/bin", str(tmp_path / "env"))
    environ["VIRTUAL_ENV"] = str(venv)
    assert shown(tmp_path, environment_lines(environ, ""), "PATH")[0].startswith(f"{venv}/bin:")
    for gone in ({}, {"VIRTUAL_ENV": "/no/such"}, {"VIRTUAL_ENV": "v"}, {"CONDA_PREFIX": "/no/such"}):
        left = environment_lines(gone, "/bin/mingle")  # which is on every PATH
        assert not [line for line in left if "such" in line or "bin/activate" in line]
    with pytest.raises(UsageError, match="--no-environment"):
        environment_lines({}, str(executable(tmp_path / "a:b/mingle")))


def test_the_environment_stands_between_modules_and_variables(tmp_path: Path, venv: Path) -> None:
    """A comment and a line for each, so that --env and --setup have the last word; a venv that is gone ends the job."""
    given = environment_lines({"VIRTUAL_ENV": str(venv)}, str(executable(tmp_path / "a b/mingle")))
    job = describe({"module": ["gcc"], "env": ["A=1"]}, ["train.py"])
    script = render("slurm", job, environment=given)
    checked(tmp_path, script)
    assert re.search(r"module load gcc.*\n# What was active .*\nexport PATH=.*\n\. .*\nexport A=1\n", script)
    assert "What was active" not in render("slurm", job)
    gone = "\n".join([given[-1].replace("/v/", "/w/"), "echo on"])
    done = subprocess.run(["bash", "-c", gone], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")


def test_it_can_be_left_out(tmp_path: Path, forked: Forked) -> None:
    """An option or a file leaves it out."""
    (tmp_path / "job.toml").write_text("no-environment = true\n")
    environ = {"PATH": os.environ["PATH"], "VIRTUAL_ENV": sys.prefix}
    for options, is_there in ([], True), (["--no-environment"], False), (["--spec", "job.toml"], False):
        done = forked.run("template", "pbs", *options, "--", "train.py", env=environ, cwd=tmp_path)
        assert ("What was active" in done.stdout) is is_there, done


def test_the_path_is_given_then_user_then_site_then_built_in(tmp_path: Path) -> None:
    """The search path has its order, and holds only what there is; a given directory has to be there."""
    given, home, site = (tmp_path / name for name in ("given", "home", "site"))
    for directory in (given, home / ".config/mingle/templates", site):
        directory.mkdir(parents=True)
    places = search.template_path([str(given)], {"HOME": str(home)}, site=str(site))
    assert places == (str(given), f"{home}/.config/mingle/templates", str(site))
    assert search.template_path([], {}, site="/no/such") == ()
    with pytest.raises(UsageError, match="/no/such"):
        search.template_path(["/no/such"], {})


def test_a_block_can_be_replaced_without_a_copy(tmp_path: Path) -> None:
    """A template of the user's that extends the built-in one by its path in the package changes one block."""
    own = '{% extends "built-in/script.sh.j2" %}\n{% block check %}\n# no check\n{% endblock %}\n'
    (tmp_path / "slurm.sh.j2").write_text(own)
    text = render("slurm", describe({"launcher": "plain"}, ["train.py"]), places=(str(tmp_path),))
    assert "# no check\n# On every node" in text
    assert "  python3 train.py\n" in text


@pytest.mark.parametrize(
    ("file", "text", "error"),
    [
        ("slurm.sh.j2", "#!/bin/bash\n\n{{ no_such_thing | sh }}\n", "slurm.sh.j2:3: 'no_such_thing' is undefined"),
        ("script.sh.j2", "\n{{ job.nodez }}", "script.sh.j2:2: .*nodez"), ("slurm.sh.j2", "{% if %}", "slurm.sh.j2:1"),
        ("slurm.sh.j2", "\n{{ job.nodes + job.job_name }}", "slurm.sh.j2:2: unsupported operand"),
        ("slurm.sh.j2", "\udcff", "one that cannot be read: 'utf-8' codec"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_template_has_its_file_and_line(tmp_path: Path, file: str, text: str, error: str) -> None:
    """A variable that is missing, also in a template for all schedulers, errors of the parser and of an expression."""
    (tmp_path / file).write_text(text, errors="surrogateescape")
    with pytest.raises(UsageError, match=error):
        render("slurm", describe({}, ["train.py"]), places=(str(tmp_path),))


def test_the_first_directory_with_a_template_of_that_name_counts(tmp_path: Path) -> None:
    """By its path below the directory; other files are none, and the built-in ones come last."""
    mine, site = (str(tmp_path / name) for name in ("mine", "site"))
    for path in ("mine/a.sh.j2", "mine/b/c.sh.j2", "mine/d.sh", "site/a.sh.j2", "site/script.sh.j2"):
        executable(tmp_path / path)
    found = search.template_names((mine, site))
    assert found == {"a": mine, "b/c": mine, "script": site}
    assert [*found] == sorted(found)


def test_a_template_is_copied_out_once(tmp_path: Path) -> None:
    """Eject writes the built-in text, and never over a file that is there, and reads no file but templates."""
    place = ()
    made = search.eject_template("script", place, str(tmp_path))
    assert (tmp_path / "script.sh.j2").read_text() == search.template_text("script", place)
    assert made == f"{tmp_path}/script.sh.j2"
    with pytest.raises(PlaceError, match=r"script\.sh\.j2"):
        search.eject_template("script", place, str(tmp_path))
    for name in ("nothing", "../../etc/passwd", "/etc/passwd", ""):
        with pytest.raises(UsageError, match="name of a template"):
            search.template_text(name, place)


EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
SHOWN = [EXAMPLES / kind / path.name for kind in ("pbs", "slurm") for path in sorted(EXAMPLES.glob("slurm/*.sh"))]


@pytest.mark.parametrize("path", SHOWN, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_an_example_is_what_its_command_makes(path: Path, forked: Forked) -> None:
    """The command in the second line, run again, gives the same file."""
    text = path.read_text()
    command = text.splitlines()[1].removeprefix("# Made by: ").rpartition(" (mingle-hooks ")[0]
    program, *words = shlex.split(command)
    assert program == "mingle"
    done = forked.run(*words, env={"PATH": os.environ["PATH"]})
    assert (done.returncode, done.stdout) == (0, text)
