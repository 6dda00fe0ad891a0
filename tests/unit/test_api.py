"""What Python programs may call: the examples of docs/api.md as they stand, and nothing is loaded before that."""

import errno
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import mingle_hooks
from mingle_hooks import api, errors, joining
from mingle_hooks.settings import TABLE

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "api.md").read_text()
*_, RENDER = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
PYTHON = [sys.executable, "-c"]
EMPTY = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}


def fresh(script: str) -> str:
    """Return what a script prints in an interpreter of its own, in which nothing of this project is loaded."""
    done = subprocess.run([*PYTHON, script], env=EMPTY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_job_is_rendered_as_the_command_renders_it() -> None:
    """Only the line that says what made the script differs."""
    words = "template pbs --no-environment --nodes 2 --gpus-per-node 4 --time 2:00:00 -- torchrun train.py"
    mingle = Path(sys.executable).with_name("mingle")
    command = subprocess.run([mingle, *words.split()], env=EMPTY, capture_output=True, text=True, check=True).stdout
    (made, one), (_, other) = (text.split("\n", 2)[1:] for text in (fresh(RENDER).rstrip("\n") + "\n", command))
    assert made == f"# Made by: mingle template pbs (mingle-hooks {mingle_hooks.__version__})"
    assert one == other


def test_every_error_of_the_command_line_is_there() -> None:
    """The class is the same, so that `except` takes it by either name; the page has a line for each."""
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, errors.MingleError):
            assert getattr(mingle_hooks, name) is kind
            assert f"`{name}`" in PAGE


def test_an_environment_can_be_given() -> None:
    """Its scheduler counts, not the process's own; one member needs nobody, and refuses another job's WORLD_SIZE."""
    view = mingle_hooks.join(environ={"SLURM_JOB_ID": "7", "WORLD_SIZE": "3"}, nodes=1, slots=3)
    assert (view.world.id, view.world.size, view.place.node_rank) == ("7", 3, 0)
    assert mingle_hooks.variables(view)["LOCAL_WORLD_SIZE"] == "3"
    with pytest.raises(mingle_hooks.UsageError, match="WORLD_SIZE=4, as exported; saw 3 slots"):
        mingle_hooks.join(environ={"WORLD_SIZE": "4"}, id="a", nodes=1, slots=3)


def test_a_block_has_the_variables_and_ends_with_what_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of an earlier world are gone; an exception ends it too; the view shows nothing of the environment."""
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MINGLE_KEY", "5" * 64)
    of_an_earlier = {"RANK": "3", "MINGLE_ID": "b", "MINGLE_EXPORTS": "RANK MINGLE_ID", "MINGLE_WORLD": "0"}
    for name, value in of_an_earlier.items():
        monkeypatch.setenv(name, value)
    before = dict(os.environ)
    with mingle_hooks.world(id="a", nodes=1, slots=3) as view:
        assert (os.environ["WORLD_SIZE"], "RANK" in os.environ) == ("3", False)
        assert os.environ["MINGLE_WORLD"] == view.world.digest
        assert str(view) == f"<world a: node 0 of 1, 3 slots, rank 0 at 127.0.0.1:{view.world.master_port}>"
    assert dict(os.environ) == before
    with pytest.raises(KeyError, match="mine"), mingle_hooks.world(id="a", nodes=1):
        raise KeyError("mine")
    assert dict(os.environ) == before
    unsure = mingle_hooks.join(id="a", nodes=2, master="n1:29500", environ={}, no_wait=True)
    assert repr(unsure) == "<world a: node ? of 2, ? slots, rank 0 at n1:29500>"


def test_a_resource_that_has_run_out_is_named_as_by_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any other error of Python stays as it is."""
    for error, kind in ((OSError(errno.EMFILE, ""), mingle_hooks.LimitError), (RuntimeError("x"), RuntimeError)):
        monkeypatch.setattr(joining, "join", mock.Mock(side_effect=error))
        with pytest.raises(kind):
            mingle_hooks.join(id="a", nodes=1)


def test_what_only_the_command_can_do_is_refused() -> None:
    """An option that only changes what is printed, or is none; a file, whose writer has to know when to remove it."""
    join: Any = mingle_hooks.join
    for options, match in (({"nodez": 2}, "try nodes"), ({"on_failure": "exit"}, "saw on_failure")):
        with pytest.raises(mingle_hooks.UsageError, match=match):
            join(**options)
    view = mingle_hooks.join(id="a", nodes=1, frameworks=["deepspeed"], environ={})
    with pytest.raises(mingle_hooks.UsageError, match="mingle exec --for deepspeed"):
        mingle_hooks.variables(view)


def test_the_options_that_type_checkers_know_are_those_there_are() -> None:
    """docs/api.md lists the same options."""
    named = list(api.Options.__annotations__)
    assert named == [s.name for s in TABLE if s.option and s.name not in api.PRINTED]
    message = re.search(r"several: `([^`]*)`", PAGE)
    assert message
    assert message[1].split() == named


def test_every_name_that_type_checkers_know_is_there() -> None:
    """They read the imports under TYPE_CHECKING, which a program never runs."""
    source = Path(mingle_hooks.__file__).read_text()
    named = re.findall(r"\b(\w+) as \1\b", source)
    assert {"join", "View", "Member"} <= set(named)
    assert [name for name in named if not hasattr(mingle_hooks, name)] == []


def test_importing_it_loads_nothing() -> None:
    """The package imports none of its modules, and its names are the functions whatever was imported before."""
    assert fresh("import sys, mingle_hooks; print([m for m in sys.modules if m.startswith('mingle_hooks.')])") == "[]\n"
    script = "import mingle_hooks.cli.main, mingle_hooks.scripts.script, mingle_hooks\n"
    script += "print(callable(mingle_hooks.world), mingle_hooks.render({'command': 'a.py'})[:2])"
    assert fresh(script) == "True #!\n"
    with pytest.raises(AttributeError, match="no attribute 'joyn'"):
        mingle_hooks.joyn  # noqa: B018 - it is the test
