"""The environment in which a script is made, made again where its job runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from test_scripts import checked

from mingle_hooks.errors import UsageError
from mingle_hooks.scripts.directives import TABLE as SCHEDULERS
from mingle_hooks.scripts.script import describe
from mingle_hooks.scripts.script import environment_lines as lines
from mingle_hooks.scripts.script import render_script as render

if TYPE_CHECKING:
    from pathlib import Path

HOSTILE = [
    "plain",
    "a b",
    "it's",
    'say "hi"',
    "$HOME",
    "$(touch pwned)",
    "`touch pwned`",
    "a;b",
    "-x",
    "é 漢",
    "a\nb",
    "\\",
]
# What `conda shell.bash hook` prints is some hundred lines of this kind.
CONDA = """#!/bin/sh
[ "$*" = "shell.bash hook" ] || exit 64
echo 'conda() { [ "$1" = activate ] && export CONDA_PREFIX="$2" PATH="$2/bin:$PATH" HOOKED=yes; }'
"""


def venv(place: Path) -> Path:
    """Make a venv as Python does, without pip."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    return place


def program(path: Path, text: str = "#!/bin/sh\n") -> Path:
    """Make a program."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def shown(place: Path, given: tuple[str, ...], *names: str) -> list[str]:
    """Return these variables after the lines, in a shell that begins with nothing."""
    told = "\n".join([*given, *(f'printf "%s\\0" "${name}"' for name in names)])
    done = subprocess.run(
        ["bash", "-c", told], env={"PATH": "/usr/bin:/bin"}, capture_output=True, check=True, cwd=place
    )
    return [os.fsdecode(value) for value in done.stdout.split(b"\0")[:-1]]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_venv_is_activated_again(tmp_path: Path, name: str) -> None:
    """Whatever its directory is called, its programs come first."""
    place = venv(tmp_path / "v")
    file = program(tmp_path / name / "bin/mingle")
    # A venv cannot be moved, so only its activation is read from the hostile place.
    (file.parent / "activate").write_bytes((place / "bin/activate").read_bytes())
    given = lines({"VIRTUAL_ENV": str(tmp_path / name)}, str(file))
    assert len(given) == 1
    path, active = shown(tmp_path, given, "PATH", "VIRTUAL_ENV")
    assert (path.split(":")[0], active) == (f"{place}/bin", str(place))
    assert not list(tmp_path.rglob("pwned"))


@pytest.mark.parametrize("name", HOSTILE)
def test_the_directory_of_this_mingle_is_on_path(tmp_path: Path, name: str) -> None:
    """The mingle that made the script is found, whatever its directory is called, and no text of it is run."""
    file = program(tmp_path / name / "mingle")
    given = lines({}, str(file))
    assert shown(tmp_path, given, "PATH") == [f"{tmp_path / name}:/usr/bin:/bin"]
    assert not list(tmp_path.rglob("pwned"))


@pytest.mark.parametrize("name", HOSTILE)
def test_a_conda_environment_is_activated_by_conda(tmp_path: Path, name: str) -> None:
    """What conda's own hook does is done again, for the prefix that was active."""
    conda = program(tmp_path / name / "bin/conda", CONDA)
    prefix = tmp_path / name / "envs/it's"
    prefix.mkdir(parents=True)
    environ = {"CONDA_PREFIX": str(prefix), "CONDA_EXE": str(conda), "CONDA_DEFAULT_ENV": "it's"}
    given = lines(environ, str(program(tmp_path / "bin/mingle")))
    path, active, hooked = shown(tmp_path, given, "PATH", "CONDA_PREFIX", "HOOKED")
    assert (path.split(":")[:2], active, hooked) == ([f"{prefix}/bin", f"{tmp_path}/bin"], str(prefix), "yes")
    assert not list(tmp_path.rglob("pwned"))


def test_without_conda_its_environment_is_on_path(tmp_path: Path) -> None:
    """Pixi and micromamba have no conda: their programs are found."""
    file = program(tmp_path / "env/bin/mingle")
    given = lines({"CONDA_PREFIX": str(tmp_path / "env")}, str(file))
    assert shown(tmp_path, given, "PATH", "CONDA_PREFIX")[1] == str(tmp_path / "env")
    assert shown(tmp_path, given, "PATH")[0].startswith(f"{tmp_path}/env/bin:")


def test_a_venv_on_conda_comes_first(tmp_path: Path) -> None:
    """A venv that was made by conda's Python is in front of it."""
    place = venv(tmp_path / "v")
    (tmp_path / "env").mkdir()
    environ = {"VIRTUAL_ENV": str(place), "CONDA_PREFIX": str(tmp_path / "env")}
    assert shown(tmp_path, lines(environ, ""), "PATH")[0].startswith(f"{place}/bin:")


@pytest.mark.parametrize(
    "environ", [{}, {"VIRTUAL_ENV": "/no/such"}, {"VIRTUAL_ENV": "v"}, {"CONDA_PREFIX": "/no/such"}]
)
def test_what_is_not_there_is_left_out(environ: dict[str, str]) -> None:
    """A mingle in /usr/bin is on every PATH, and what a variable left behind is none."""
    assert not [line for line in lines(environ, "/bin/mingle") if "such" in line or "bin/activate" in line]


def test_a_directory_that_path_cannot_hold_is_refused(tmp_path: Path) -> None:
    """A colon would take it apart."""
    with pytest.raises(UsageError, match="--no-environment"):
        lines({}, str(program(tmp_path / "a:b/mingle")))


def test_a_venv_that_has_gone_ends_the_job(tmp_path: Path) -> None:
    """Nothing runs in another Python than was meant."""
    place = venv(tmp_path / "v")
    given = lines({"VIRTUAL_ENV": str(place)}, f"{place}/bin/mingle")
    place.rename(tmp_path / "gone")
    done = subprocess.run(["bash", "-c", "\n".join([*given, "echo on"])], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")


@pytest.mark.parametrize("scheduler", [its.name for its in SCHEDULERS])
def test_the_block_is_short_and_after_the_modules(tmp_path: Path, scheduler: str) -> None:
    """A comment and a line for each, which bash and shellcheck take, and --env and --setup have the last word."""
    given = lines({"VIRTUAL_ENV": str(venv(tmp_path / "it's"))}, str(program(tmp_path / "a b/mingle")))
    job = describe({"module": ["gcc"], "env": ["A=1"]}, ["train.py"])
    script = render(scheduler, job, environment=given)
    checked(script)
    block = re.search(r"module load gcc.*\n *# What was active .*\n *export PATH=.*\n *\. .*\n *export A=1\n", script)
    assert block
    assert "What was active" not in render(scheduler, job)


def test_it_can_be_left_out(tmp_path: Path) -> None:
    """By an option, or in a file."""
    (tmp_path / "job.toml").write_text("no-environment = true\n")
    environ = {"PATH": os.environ["PATH"], "VIRTUAL_ENV": sys.prefix}

    def made(*words: str) -> bool:
        command = [sys.executable, "-m", "mingle_hooks", "template", "pbs", *words, "--", "train.py"]
        done = subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, text=True, check=True)
        return "What was active" in done.stdout

    assert [made(), made("--no-environment"), made("--spec", "job.toml")] == [True, False, False]
