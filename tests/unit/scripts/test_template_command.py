"""`mingle template` and `mingle lint` as a user runs them."""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest
from support.forked import Forked

from mingle_hooks import files
from mingle_hooks.cli.main import run
from mingle_hooks.scripts.script import describe, render_script as render

Mingle = Callable[..., subprocess.CompletedProcess[str]]
CLEAN = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}


@pytest.fixture
def mingle(forked: Forked) -> Mingle:
    """Give what runs `mingle` with these words and nothing but PATH and `environ` in its environment."""

    def run(
        *words: str, cwd: Path = Path("/"), stdin: str = os.devnull, **environ: str
    ) -> subprocess.CompletedProcess[str]:
        return forked.run(*words, env=CLEAN | environ, cwd=cwd, streams={0: stdin})

    return run


@pytest.mark.parametrize("scheduler", ["sbatch", "slurm", "pbs", "torque", "lsf", "sge"])
def test_it_prints_the_script_and_nothing_else(mingle: Mingle, scheduler: str) -> None:
    """The script alone is on stdout, the same as the library makes, and what is not UTF-8 as bash's own escapes."""
    options = ["--nodes", "3", "--launcher", "torchrun", "--time", "5:00", "--no-environment"]
    words = ["template", scheduler, *options, "--", "train.py", "--lr", "1e-3", "\udcff"]
    done = mingle(*words)
    job = describe({"nodes": "3", "launcher": "torchrun", "time": "5:00"}, words[-4:])
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == render(scheduler, job, made_by=["mingle", *words])
    assert "train.py --lr 1e-3 $'\\377'\n" in done.stdout
    if scheduler == "sbatch":  # with a start of its own, as a user does
        command = [sys.executable, "-m", "mingle_hooks", *words]
        assert subprocess.run(command, capture_output=True, text=True, check=True, env=CLEAN).stdout == done.stdout


def test_options_are_sbatchs_own_letters(mingle: Mingle) -> None:
    """What sbatch users type is the same as the long options, of which users of PBS know two by other names."""
    short = "-J x -N2 -n 16 -c 2 -C ib -t 30 -p gpu -A me -q high -o o -e e -a 0-3 -d singleton -D /x -G 16"
    long = "--job-name x --nodes=2 --ntasks 16 --cpus-per-task 2 --constraint ib --walltime 30 --queue gpu --account me"
    long += " --qos high --output o --error e --array 0-3 --dependency singleton --chdir /x --gpus 16"
    scripts = [mingle("template", "sbatch", *its.split(), "--", "x.py").stdout.splitlines() for its in (short, long)]
    assert scripts[0][2:] == scripts[1][2:]
    assert "#SBATCH --gpus-per-node=8" in scripts[0]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("template pbs --time soon -- train.py", "mingle: expected a duration; saw --time: 'soon'; try "),
        ("template pbs --launcher jax -- train.py", "saw jax; try --launcher process"),
        ("template", "saw none; try `mingle template --help`"), ("template --lint x list", "saw both"),
        ("template pbs", "expected a training command; saw none; try -- train.py"),
        ("lint", "expected job scripts, or - for stdin; saw none"), ("lint none.sh", "none.sh: No such file"),
        ("lint --nodes 0 -", "0 is not in the range"),
    ],
)  # fmt: skip
def test_the_error_of_a_mistake_has_a_remedy(mingle: Mingle, line: str, expected: str) -> None:
    """One line says what was expected and what was there; nothing is on stdout, so nothing is submitted."""
    done = mingle(*line.split())
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (64, "", 1)
    assert expected in done.stderr


def test_the_launcher_and_directories_of_the_settings_are_used(mingle: Mingle, tmp_path: Path) -> None:
    """The settings' launcher and template directories apply where no option says otherwise."""
    (tmp_path / "mingle").mkdir()
    (tmp_path / "mingle/mingle.toml").write_text('[template]\nlauncher = "plain"\n')
    (tmp_path / "slurm.sh.j2").write_text("own {{ job.launcher.name }}\n")
    done = mingle("template", "sbatch", "--", "train.py", XDG_CONFIG_HOME=str(tmp_path), MINGLE_TEMPLATES=str(tmp_path))
    assert done.stdout == "own plain\n", done.stderr


def test_list_show_and_eject(mingle: Mingle, tmp_path: Path) -> None:
    """What there is can be listed, read, and copied to the user's own directory, where it then counts."""
    listed = mingle("template", "list").stdout
    assert "Grid Engine; mingle template sge … | qsub\nlaunchers:\n  torchrun  " in listed
    assert re.search(r"\n  plain  .*\ntemplates:\n  script  .*/templates/job\n", listed)
    made = mingle("template", "eject", "script", HOME=str(tmp_path)).stdout.strip()
    assert made == f"{tmp_path}/.config/mingle/templates/script.sh.j2"
    assert mingle("template", "show", "script").stdout == Path(made).read_text()
    with open(made, "a") as file:
        file.write("changed\n")
    assert "\nchanged\n" in mingle("template", "sbatch", "--", "train.py", HOME=str(tmp_path)).stdout


TRAP = "#!/bin/bash\n#SBATCH --nodes=2\n\f# train\u2028\nsrun deepspeed train.py \udcff\n"
FIXED = TRAP.replace("deepspeed", "mingle exec deepspeed")


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """Return a script with one trap, and a byte that is not UTF-8."""
    path = tmp_path / "job.sh"
    path.write_bytes(TRAP.encode(errors="surrogateescape"))
    return path


@pytest.mark.parametrize("words", [["lint", "job.sh"], ["template", "--lint", "job.sh"], ["lint", "-"]])
def test_lint_prints_line_trap_and_remedy(mingle: Mingle, words: list[str], job: Path) -> None:
    """Each finding is a line, and the exit code is 1; a script without findings has 0."""
    done = mingle(*words, cwd=job.parent, stdin=str(job))
    assert (done.returncode, done.stdout.count("\n"), done.stderr) == (1, 1, "")
    assert done.stdout.startswith(f"{words[-1]}:4: no-rendezvous: deepspeed is not told of the other nodes")
    assert done.stdout.endswith("; try `srun mingle exec deepspeed …`\n")
    job.write_text(FIXED, errors="surrogateescape")
    assert mingle(*words, cwd=job.parent, stdin=str(job)).returncode == 0


def test_lint_reads_many_files_and_prints_json(mingle: Mingle, job: Path) -> None:
    """Each finding has its file, line, kind, certainty, what happens and what to write."""
    (job.parent / "b.sh").write_text("torchrun --master_port=1 x.py\n")
    done = mingle("lint", "--json", "--nodes", "2", job.name, "b.sh", cwd=job.parent)
    found = json.loads(done.stdout)
    told = [(its["file"], its["line"], its["kind"], its["certainty"]) for its in found]
    assert told == [("job.sh", 4, "no-rendezvous", "sure"), ("b.sh", 1, "fixed-port", "sure")]
    assert found[0].keys() == {"file", "line", "kind", "mistake", "remedy", "certainty"}
    assert done.returncode == 1


def test_lint_prints_a_diff_that_patch_takes(forked: Forked, job: Path, tmp_path: Path) -> None:
    """The script with mingle in it; where that is not certain, the reason, on stderr, and 1."""
    (tmp_path / "diff").touch()
    streams = {0: str(job), 1: str(tmp_path / "diff")}
    done = forked.run("lint", "--diff", "job.sh", env=CLEAN, cwd=tmp_path, streams=streams)
    assert (done.returncode, done.stderr) == (0, "")
    subprocess.run(["git", "apply", "diff"], cwd=tmp_path, check=True)
    assert job.read_text(errors="surrogateescape") == FIXED
    job.write_text(TRAP.replace("srun", "srun -n9"), errors="surrogateescape")
    done = forked.run("lint", "--diff", "-", env=CLEAN, streams={0: str(job)})
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("-: left as it is: line 4: deepspeed needs one task on each node")


def test_lint_writes_the_fixed_script_and_keeps_the_old_one(forked: Forked, job: Path, tmp_path: Path) -> None:
    """With its mode, and not over an older FILE.orig; from stdin it goes to stdout."""
    job.chmod(0o750)
    (tmp_path / "out").touch()
    forked.run("lint", "--fix", "-", env=CLEAN, streams={0: str(job), 1: f"{tmp_path}/out"})
    for status in (0, 64):
        done = forked.run("lint", "--fix", "job.sh", env=CLEAN, cwd=tmp_path)
        texts = [path.read_text(errors="surrogateescape") for path in (job, tmp_path / "job.sh.orig", tmp_path / "out")]
        assert (done.returncode, "job.sh.orig" in done.stderr) == (status, status > 0)
        assert texts == [TRAP if status else FIXED, TRAP, FIXED]
        assert (job.stat().st_mode & 0o777, sorted(os.listdir(tmp_path))) == (0o750, ["job.sh", "job.sh.orig", "out"])
        job.write_text(TRAP, errors="surrogateescape")


def test_lint_writes_over_no_pipe(mingle: Mingle, tmp_path: Path) -> None:
    """Whoever writes into it next would fill a file."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=[TRAP, "utf-8", "surrogateescape"], daemon=True)
    writer.start()
    done = mingle("lint", "--fix", "pipe", cwd=tmp_path)
    writer.join(9)
    assert (done.returncode, os.listdir(tmp_path)) == (64, ["pipe"])


@pytest.mark.parametrize("mode", ["--fix", "--diff"])
def test_lint_changes_no_script_if_one_cannot_be_read(mingle: Mingle, mode: str, job: Path) -> None:
    """Nor does it print a part of the diff."""
    done = mingle("lint", mode, "job.sh", "none.sh", cwd=job.parent)
    assert (done.returncode, done.stdout, os.listdir(job.parent)) == (64, "", ["job.sh"])


def test_what_keeps_lint_from_writing_a_script_leaves_nothing_behind(
    job: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Once a file that is in the way has been moved, the next try works; a full disk is no file to move."""
    draft = job.with_name("job.sh.new")
    draft.touch()
    assert (run(["lint", "--fix", str(job)]), sorted(os.listdir(job.parent))) == (64, ["job.sh", "job.sh.new"])
    assert capfd.readouterr().err.endswith(f"; saw File exists; try moving {draft} away, or --diff\n")
    draft.unlink()
    with monkeypatch.context() as full:
        full.setattr(files, "write_new", mock.Mock(side_effect=OSError(28, "No space left on device")))
        assert (run(["lint", "--fix", str(job)]), os.listdir(job.parent)) == (64, ["job.sh"])
    assert capfd.readouterr().err.endswith("; saw No space left on device; try --diff\n")
    assert run(["lint", "--fix", str(job)]) == 0
    assert job.read_text(errors="surrogateescape") == FIXED


def test_jinja2_is_loaded_only_for_a_script() -> None:
    """Help, and every other command, does without it."""
    code = "import sys, mingle_hooks.cli.template; print(sorted({'jinja2', 'asyncio', 'pathlib'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize(
    ("line", "is_noted"),
    [
        ("-- python3 train.py", True), ("-- train.py", False), ("--launcher torchrun -- python3 train.py", False),
        ("--launcher process -- python3 train.py", False), ("-- srun python3 train.py", False),
    ],
)  # fmt: skip
def test_a_launcher_before_a_users_python_is_announced(mingle: Mingle, line: str, *, is_noted: bool) -> None:
    """The script and stderr both say that torchrun starts it, and which option changes that."""
    done = mingle("template", "slurm", *line.split())
    note = "torchrun starts python3; with --launcher process each task is one python3"
    assert done.returncode == 0
    assert (f"\n# {note}\n" in done.stdout, done.stderr) == ((True, f"mingle: {note}\n") if is_noted else (False, ""))
