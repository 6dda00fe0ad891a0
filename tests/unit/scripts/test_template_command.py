"""`mingle template` as a user runs it."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.forked import Forked

from mingle_hooks.scripts.script import describe, render_script as render

Mingle = Callable[..., subprocess.CompletedProcess[str]]


CLEAN = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}


def started(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `mingle template` with these words, with a start of its own, as a user does."""
    command = [sys.executable, "-m", "mingle_hooks", "template", *arguments]
    return subprocess.run(command, capture_output=True, text=True, errors="surrogateescape", check=False, env=CLEAN)


@pytest.fixture
def mingle(forked: Forked) -> Mingle:
    """Give what runs `mingle template` with these words and nothing but PATH and `environ` in its environment."""

    def run(*arguments: str, cwd: Path | None = None, **environ: str) -> subprocess.CompletedProcess[str]:
        return forked.run("template", *arguments, env=CLEAN | environ, cwd=cwd or "/")

    return run


@pytest.mark.parametrize("scheduler", ["sbatch", "slurm", "pbs", "torque", "lsf", "sge"])
def test_it_prints_the_script_and_nothing_else(mingle: Mingle, scheduler: str) -> None:
    """The script alone is on stdout, the same as the library makes, and stderr is empty."""
    options = ["--nodes", "3", "--launcher", "torchrun", "--time", "5:00", "--no-environment"]
    arguments = [*options, "--", "train.py", "--lr", "1e-3"]
    done = started(scheduler, *arguments) if scheduler == "sbatch" else mingle(scheduler, *arguments)
    job = describe({"nodes": "3", "launcher": "torchrun", "time": "5:00"}, arguments[-3:])
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == render(scheduler, job, made_by=["mingle", "template", scheduler, *arguments])


def test_a_word_that_is_not_utf_8_arrives() -> None:
    """Bytes of the command line that no locale knows are written as bash's own escapes."""
    assert "train.py $'\\377'\n" in started("pbs", "--", "train.py", "\udcff").stdout


def test_options_are_sbatchs_own_letters(mingle: Mingle) -> None:
    """What sbatch users type is the same as the long options, of which users of PBS know two by other names."""
    short = ["-J", "x", "-N2", "-n", "16", "-c", "2", "-C", "ib", "-t", "30", "-p", "gpu", "-A", "me", "-q", "high"]
    short += ["-o", "o", "-e", "e", "-a", "0-3", "-d", "singleton", "-D", "/x", "-G", "16"]
    long = ["--job-name", "x", "--nodes=2", "--ntasks", "16", "--cpus-per-task", "2", "--constraint", "ib"]
    long += ["--walltime", "30", "--queue", "gpu", "--account", "me", "--qos", "high", "--output", "o", "--error", "e"]
    long += ["--array", "0-3", "--dependency", "singleton", "--chdir", "/x", "--gpus", "16"]
    scripts = [mingle("sbatch", *arguments, "--", "train.py").stdout.splitlines() for arguments in (short, long)]
    assert scripts[0][2:] == scripts[1][2:]
    assert "#SBATCH --gpus-per-node=8" in scripts[0]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["pbs", "--time", "soon", "--", "train.py"], "mingle: expected a duration; saw --time: 'soon'; try "),
        (["pbs", "--launcher", "jax", "--", "train.py"], "saw jax; try --launcher process"),
        ([], "saw none; try `mingle template --help`"),
        (["--lint", "x", "list"], "saw both"),
        (["pbs"], "expected a training command; saw none; try -- train.py"),
    ],
)
def test_the_error_of_a_mistake_has_a_remedy(mingle: Mingle, arguments: list[str], expected: str) -> None:
    """One line says what was expected and what was there; nothing is on stdout, so nothing is submitted."""
    done = mingle(*arguments)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (64, "", 1)
    assert expected in done.stderr


def test_the_launcher_and_directories_of_the_settings_are_used(mingle: Mingle, tmp_path: Path) -> None:
    """The settings' launcher and template directories apply where no option says otherwise."""
    (tmp_path / "mingle").mkdir()
    (tmp_path / "mingle/mingle.toml").write_text('[template]\nlauncher = "plain"\n')
    (tmp_path / "slurm.sh.j2").write_text("own {{ job.launcher.name }}\n")
    done = mingle("sbatch", "--", "train.py", XDG_CONFIG_HOME=str(tmp_path), MINGLE_TEMPLATES=str(tmp_path))
    assert done.stdout == "own plain\n", done.stderr


def test_list_show_and_eject(mingle: Mingle, tmp_path: Path) -> None:
    """What there is can be listed, read, and copied to the user's own directory, where it then counts."""
    listed = mingle("list").stdout
    assert "Grid Engine; mingle template sge … | qsub\nlaunchers:\n  torchrun  " in listed
    assert re.search(r"\n  plain  .*\ntemplates:\n  script  .*/templates/job\n", listed)
    made = mingle("eject", "script", HOME=str(tmp_path)).stdout.strip()
    assert made == f"{tmp_path}/.config/mingle/templates/script.sh.j2"
    assert mingle("show", "script").stdout == Path(made).read_text()
    with open(made, "a") as file:
        file.write("changed\n")
    assert "\nchanged\n" in mingle("sbatch", "--", "train.py", HOME=str(tmp_path)).stdout


TRAP = "#!/bin/bash\n#SBATCH --nodes=2\nsrun deepspeed train.py \udcff\n"
FIXED = TRAP.replace("deepspeed", "mingle exec deepspeed")


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """Return a script with one trap, and a byte that is not UTF-8."""
    path = tmp_path / "job.sh"
    path.write_bytes(TRAP.encode(errors="surrogateescape"))
    return path


def lint(*arguments: str, cwd: Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run `mingle lint`."""
    command = [sys.executable, "-m", "mingle_hooks", *arguments]
    return subprocess.run(
        command, input=stdin, capture_output=True, text=True, errors="surrogateescape", cwd=cwd, check=False, timeout=60
    )


@pytest.mark.parametrize("arguments", [["lint", "job.sh"], ["template", "--lint", "job.sh"], ["lint", "-"]])
def test_lint_prints_line_trap_and_remedy(arguments: list[str], job: Path, tmp_path: Path) -> None:
    """Each finding is a line, and the exit code is 1; a script without findings has 0."""
    done = lint(*arguments, cwd=tmp_path, stdin=TRAP)
    begin = "-" if arguments[-1] == "-" else "job.sh"
    assert (done.returncode, done.stdout.count("\n"), done.stderr) == (1, 1, "")
    assert done.stdout.startswith(f"{begin}:3: no-rendezvous: deepspeed is not told of the other nodes")
    assert done.stdout.endswith("; try `srun mingle exec deepspeed …`\n")
    job.write_text(FIXED, errors="surrogateescape")
    assert lint(*arguments, cwd=tmp_path, stdin=FIXED).returncode == 0


def test_lint_reads_many_files_and_prints_json(job: Path, tmp_path: Path) -> None:
    """Each finding has its file, line, kind, certainty, what happens and what to write."""
    (tmp_path / "b.sh").write_text("torchrun --master_port=1 x.py\n")
    done = lint("lint", "--json", "--nodes", "2", job.name, "b.sh", cwd=tmp_path)
    found = json.loads(done.stdout)
    assert [(its["file"], its["line"], its["kind"], its["certainty"]) for its in found] == [
        ("job.sh", 3, "no-rendezvous", "sure"),
        ("b.sh", 1, "fixed-port", "sure"),
    ]
    assert found[0].keys() == {"file", "line", "kind", "mistake", "remedy", "certainty"}
    assert done.returncode == 1


def test_lint_prints_a_diff_that_patch_takes(job: Path, tmp_path: Path) -> None:
    """The script with mingle in it; where that is not certain, the reason, on stderr, and 1."""
    done = lint("lint", "--diff", "job.sh", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    subprocess.run(["git", "apply"], input=done.stdout.encode(errors="surrogateescape"), cwd=tmp_path, check=True)
    assert job.read_bytes() == FIXED.encode(errors="surrogateescape")
    unsure = TRAP.replace("srun", "srun -n9")
    done = lint("lint", "--diff", "-", cwd=tmp_path, stdin=unsure)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("-: left as it is: line 3: deepspeed needs one task on each node")


def test_lint_writes_the_fixed_script_and_keeps_the_old_one(job: Path, tmp_path: Path) -> None:
    """With its mode, and not over an older FILE.orig; from stdin it goes to stdout."""
    job.chmod(0o750)
    assert lint("lint", "--fix", "job.sh", cwd=tmp_path).returncode == 0
    assert job.read_bytes() == FIXED.encode(errors="surrogateescape")
    assert (tmp_path / "job.sh.orig").read_bytes() == TRAP.encode(errors="surrogateescape")
    assert (job.stat().st_mode & 0o777, sorted(os.listdir(tmp_path))) == (0o750, ["job.sh", "job.sh.orig"])
    job.write_bytes(TRAP.encode(errors="surrogateescape"))
    done = lint("lint", "--fix", "job.sh", cwd=tmp_path)
    assert (done.returncode, job.read_bytes()) == (64, TRAP.encode(errors="surrogateescape"))
    assert "job.sh.orig" in done.stderr
    assert lint("lint", "--fix", "-", cwd=tmp_path, stdin=TRAP).stdout == FIXED


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["lint"], "expected job scripts, or - for stdin; saw none"),
        (["lint", "none.sh"], "none.sh: No such file"),
        (["lint", "--nodes", "0", "-"], "0 is not in the range"),
        (["lint", "--fix", "none.sh"], "none.sh: No such file"),
    ],
)
def test_the_error_of_lint_has_a_remedy(arguments: list[str], expected: str, tmp_path: Path) -> None:
    """One line, and nothing on stdout."""
    done = lint(*arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout, expected in done.stderr) == (64, "", True)


def test_jinja2_is_loaded_only_for_a_script() -> None:
    """Help, and every other command, does without it."""
    code = "import sys, mingle_hooks.cli.template; print(sorted({'jinja2', 'asyncio', 'pathlib'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize(
    ("arguments", "is_noted"),
    [
        (["--", "python3", "train.py"], True),
        (["--", "train.py"], False),
        (["--launcher", "torchrun", "--", "python3", "train.py"], False),
        (["--launcher", "process", "--", "python3", "train.py"], False),
        (["--", "srun", "python3", "train.py"], False),
    ],
)
def test_a_launcher_before_a_users_python_is_announced(mingle: Mingle, arguments: list[str], *, is_noted: bool) -> None:
    """The script and stderr both say that torchrun starts it, and which option changes that."""
    done = mingle("slurm", *arguments)
    note = "torchrun starts python3; with --launcher process each task is one python3"
    assert done.returncode == 0
    assert (f"\n# {note}\n" in done.stdout, done.stderr) == ((True, f"mingle: {note}\n") if is_noted else (False, ""))
