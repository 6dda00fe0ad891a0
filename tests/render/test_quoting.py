"""Values arrive in the program as they were given: rendered, run by real shells, and read back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import nasty
import pytest
from nasty import TELL

from mingle_hooks.errors import UsageError
from mingle_hooks.scripts.directives import TABLE as SCHEDULERS
from mingle_hooks.scripts.job import LAUNCHERS
from mingle_hooks.scripts.script import describe
from mingle_hooks.scripts.script import quote_argument as argument
from mingle_hooks.scripts.script import quote_word as word
from mingle_hooks.scripts.script import quote_words as words
from mingle_hooks.scripts.script import render_script as render

if TYPE_CHECKING:
    from cluster.slurm import SlurmCluster

NASTY = [*nasty.NASTY, ""]
# What a line of a directive can hold, and squeue shows as it is.
ONE_LINE = [value for value in NASTY if value and value.isprintable() and "%" not in value]


def test_words_arrive_through_a_shell_and_through_declare() -> None:
    """Every value survives bash, and bash -c of a function that `declare -f` has written out again."""
    command = words([sys.executable, "-c", TELL, *NASTY])
    script = f'work() {{\n  {command}\n}}\nwork\nbash -c "$(declare -f work); work"\n'
    done = subprocess.run(["bash"], input=os.fsencode(script), capture_output=True, check=True)
    assert [json.loads(line)[0] for line in done.stdout.splitlines()] == [NASTY, NASTY]
    assert done.stderr == b""


def test_an_assignment_is_quoted_where_it_would_be_one() -> None:
    """As the first word of a command; behind it, it is an argument and reads better as it is."""
    assert words(["A=1", "--lr=3", "x=2"]) == "'A=1' --lr=3 x=2"
    assert (word("A=1"), argument("A=1")) == ("'A=1'", "A=1")


@pytest.mark.parametrize("value", NASTY)
def test_a_word_is_one_line_of_printable_text(value: str) -> None:
    """No value can end a line, a comment or a here-document, and none holds a control character."""
    assert word(value).isprintable()
    assert argument(value).isprintable()


@pytest.mark.parametrize("value", ["a\0b", "\x01", "\x7f"])
def test_what_bash_mangles_is_refused(value: str) -> None:
    """NUL and bash's own two marks are refused rather than changed."""
    with pytest.raises(UsageError, match="a shell can carry"):
        word(value)


@pytest.mark.parametrize("scheduler", [its.name for its in SCHEDULERS])
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_every_launcher_hands_arguments_on(scheduler: str, launcher: str, tmp_path: Path) -> None:
    """Whatever stands between, the script of each launcher carries the command's arguments as they are."""
    job = describe({"launcher": launcher, "container": "i m.sif", "bind": ["/a b"]}, ["train.py", *NASTY])
    script = render(scheduler, job)
    line = next(
        line for line in script.splitlines() if line.startswith(("  apptainer", "  mpirun")) and "train.py" in line
    )
    after = line.split("train.py", 1)[1]
    command = f"{words([sys.executable, '-c', TELL])}{after}"
    done = subprocess.run(["bash"], input=os.fsencode(command), capture_output=True, check=True, cwd=tmp_path)
    assert json.loads(done.stdout)[0] == NASTY
    assert not (tmp_path / "pwned").exists()


def test_every_field_arrives_on_real_slurm(slurm: SlurmCluster, tmp_path: Path) -> None:
    """Name, directory, output, environment, module and arguments arrive intact in a job that really ran."""
    name = "é 'n' \"m\" $HOME; `x` #c \\ *"
    place = tmp_path / "-d 'q' \"é\" $(touch pwned);"
    place.mkdir()
    place.chmod(0o1777)
    (place / "tell.py").write_text(
        f"import sys\n{TELL}\nprint(json.dumps([os.environ['SLURM_JOB_NAME'], os.environ['MODULES']]))\n"
        "print('to stderr', file=sys.stderr)\n"
    )
    module = "cuda/1 2'3$x"
    value = "\n".join(NASTY)
    options = {
        "job-name": name,
        "chdir": str(place),
        "output": f"{place}/o 'u' \"t\" #1 \\.txt".replace("\\", "+"),
        "error": f"{place}/e;$x.txt",
        "env": [f"NASTY={value}", f"PATH={Path(sys.executable).parent}:/usr/bin:/bin"],
        "launcher": "plain",
        "time": "5:00",
        "module": [module],
    }
    script = render("slurm", describe(options, ["tell.py", *NASTY]), made_by=["mingle", *NASTY])
    (tmp_path / "modules.sh").write_text('module() { export MODULES="$2"; }\n')
    job = slurm.submit(script, user="alice", cwd=str(tmp_path), env={"BASH_ENV": str(tmp_path / "modules.sh")})
    assert slurm.wait(job) == "COMPLETED", slurm.logs()
    text = Path(str(options["output"])).read_text()
    assert [json.loads(line) for line in text.splitlines()] == [[NASTY, value, str(place)], [name, module]]
    assert Path(str(options["error"])).read_text() == "to stderr\n"
    assert not list(tmp_path.rglob("pwned"))


def test_a_directive_of_slurm_carries_any_line(slurm: SlurmCluster, tmp_path: Path) -> None:
    """The real sbatch reads a job's name as it was given."""
    for number, value in enumerate(ONE_LINE):
        script = render("slurm", describe({"job-name": f"x{value}", "launcher": "plain"}, ["true"]))
        (tmp_path / f"{number:03}.sh").write_text(script)
    # One shell for all, as each command on a host has to get there first.
    line = 'for f in "$1"/*.sh; do sbatch --parsable --hold "$f" || exit; done'
    ids = slurm.controller.run(["bash", "-c", line, "bash", tmp_path], user="alice", check=True).stdout.split()
    shown = slurm.controller.run(["squeue", "--noheader", "--format=%i %j"], check=True).stdout
    slurm.controller.run(["scancel", *ids], check=True)
    assert len(ids) == len(ONE_LINE)
    assert set(shown.splitlines()) == {f"{job} x{value}" for job, value in zip(ids, ONE_LINE, strict=True)}


def test_the_words_of_the_command_line_stand_in_a_comment() -> None:
    """The first line repeats the command, and whatever stands in it remains a comment."""
    script = render("slurm", describe({"launcher": "plain"}, ["true"]), made_by=["mingle", *NASTY])
    assert script.splitlines()[1].startswith("# Made by: mingle 'a b' ")
    assert script.splitlines()[2] == "#SBATCH --job-name=true"
