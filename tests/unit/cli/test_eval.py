"""`eval "$(mingle env …)"` in real shells where mingle fails: the script ends, a person's session stays."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from needs import need
from support.executables import executable

from mingle_hooks.cli import main

POSIX = ("sh", "dash", "bash", "ksh93", "mksh", "zsh")
DOCUMENTED = 'eval "$(mingle env --id $JOB {} || echo exit 1)"; echo trained alone'


def run(shell: str, script: str, *, path: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a shell that finds the installed mingle, or only what lies in `path`."""
    need(shell)
    scripts = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with tempfile.TemporaryDirectory() as home:  # shells and mingle write there
        return subprocess.run(
            [shutil.which(shell) or shell, "-c", script],
            env={"PATH": path or scripts, "HOME": home, **environ},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )


@pytest.mark.parametrize("shell", POSIX)
@pytest.mark.parametrize(
    "form",
    ['eval "$(mingle env {})"; echo trained alone', 'eval "$(mingle evn {})"; echo trained alone', DOCUMENTED],
    ids=["short", "command mistyped", "whole"],
)
def test_a_mistyped_option_ends_the_script_with_mingles_code(shell: str, form: str) -> None:
    """Seen: `mingle env --timout 10m` and then `torchrun train.py` trained alone on each node."""
    done = run(shell, form.format("--timout 10m"), JOB="a", MASTER_ADDR="left")
    assert (done.returncode, done.stdout) == (64, "")
    assert ("saw evn" if "evn" in form else "--timout") in done.stderr


@pytest.mark.parametrize("shell", POSIX)
def test_the_documented_form_goes_on_only_where_there_is_a_world(shell: str, tmp_path: Path) -> None:
    """A program that is not there prints nothing, so the form says what to do; else `|| echo exit 1` adds nothing."""
    done = run(shell, DOCUMENTED.format(""), path=str(tmp_path), JOB="a")
    assert (done.returncode, done.stdout) == (1, "")
    assert "mingle" in done.stderr
    done = run(shell, DOCUMENTED.format("--nodes 1").replace("trained alone", "$NODE_RANK of $NNODES"), JOB="a")
    assert (done.returncode, done.stdout, done.stderr) == (0, "0 of 1\n", "")


# The ends of texts that fail.
IN_CSH = r"if \( ! \$\?prompt \) exec sh -c 'exit 64';\nsh -c 'exit 64';"
IN_SH, STATUS = r"\*\) exit 64;; esac;", r"; \(exit 64\);"


@pytest.mark.parametrize(
    ("options", "variable", "end"),
    [
        *((f"--shell{one}json --shell{other}csh", "", IN_CSH) for one, other in (" =", "= ", "  ")),
        ("--shell=csh", "MINGLE_SHELL=json", IN_CSH),
        ("", "MINGLE_SHELL=csh", IN_CSH),
        ("--on-failure status --on-failure=exit", "", IN_SH),
        ("--on-failure exit --on-failure=status", "", STATUS),
        ("", "MINGLE_ON_FAILURE=status", STATUS),
    ],
)
def test_the_last_of_a_repeated_option_counts(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], options: str, variable: str, end: str
) -> None:
    """A failure is in the language that a success would be in, and ends the script unless it is not to."""
    monkeypatch.setenv(*(variable or "X=").split("="))
    assert main.run(["env", "--nodes", "0", *options.split()]) == 64
    assert re.search(f"{end}\n$", capfd.readouterr().out)


@pytest.mark.parametrize("shell", ["tcsh", "bsd-csh"])
def test_what_is_written_for_bash_ends_csh_before_anything_is_started(shell: str) -> None:
    """These shells read `$(` as a variable's name, inside of double quotes too, and never ask mingle."""
    done = run(shell, 'eval "$(mingle env --id a --nodes 1)"; echo trained alone')
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "Illegal variable name.\n")


FOREIGN = {
    "tcsh": ['eval "`mingle env {}`"'],
    "bsd-csh": ['eval "`mingle env {}`"'],
    "fish": ["mingle env {} | source", 'eval "$(mingle env {})"', "eval (mingle env {})"],
}
FORMS = [(shell, form) for shell, forms in FOREIGN.items() for form in forms]


@pytest.mark.parametrize(("shell", "form"), FORMS, ids=" ".join)
def test_a_shell_that_does_not_read_sh_ends_and_the_line_advised_works(shell: str, form: str, tmp_path: Path) -> None:
    """Also in a script, which the kernel calls by its own name; SGE starts csh for every script that names no shell.

    Seen: csh and fish said that they know no `export`, went on, and trained alone on each node. And fish was advised a
    line in backquotes, which it takes for the name of a command, and goes on.
    """
    done = run(shell, f"{form.format('--timout 5')}; echo trained alone", MASTER_ADDR="left")
    assert (done.returncode, done.stdout, "--shell" in done.stderr) == (64, "", False)
    script = tmp_path / "job"

    def run_script(line: str) -> subprocess.CompletedProcess[str]:
        executable(script, f"#!{shutil.which(shell)}\n{line}\necho $NODE_RANK of $NNODES\n")
        return run("sh", f"exec {script}")

    done = run_script(form.format("--id a --nodes 1"))
    assert (done.returncode, done.stdout) == (64, "")
    assert re.fullmatch("mingle: expected --shell [^\n]+; saw [^\n]+; try [^\n]+\n", done.stderr)
    _, _, line = done.stderr.strip().rpartition("; try ")
    assert run_script(line.replace("env", "env --id a --nodes 1")).stdout == "0 of 1\n"


@pytest.mark.parametrize("how", ["--shell sh | cat", "--quiet >text; cat text"])
def test_what_another_shell_is_to_read_is_printed_in_any(how: str, tmp_path: Path) -> None:
    """A word or a file asks for it, as nobody knows who will read a file."""
    done = run("fish", f"cd {tmp_path}; mingle env --id a --nodes 1 {how}")
    assert (done.returncode, done.stderr) == (0, "")
    assert "export NNODES='1';" in done.stdout
