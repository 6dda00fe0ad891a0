"""What Python programs may call: the examples of docs/api.md as they stand, and nothing is loaded before that."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cluster.hosts import Hosts

import mingle_hooks
from mingle_hooks import api, errors
from mingle_hooks.settings import TABLE

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "api.md").read_text()
JOIN, FAIL, RENDER = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
KEYED = {"MINGLE_KEY": "00112233445566778899aabbccddeeff" * 2}
PYTHON = [sys.executable, "-c"]
EMPTY = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}


def fresh(script: str) -> str:
    """Return what a script prints in an interpreter of its own, in which nothing of this project is loaded."""
    done = subprocess.run([*PYTHON, script], env=EMPTY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_two_hosts_run_the_example_and_are_in_one_world(hosts: Callable[..., Hosts]) -> None:
    """The same address on both, each rank once, and the variables are set as `mingle env` sets them."""
    names = ["MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "NNODES", "PET_NODE_RANK", "NCCL_SOCKET_IFNAME", "MINGLE_WORLD"]
    show = f"\nprint(*(os.environ[name] for name in {names}))"
    done = hosts(2).run_all([*PYTHON, JOIN + show], env=KEYED)
    assert [one.returncode for one in done] == [0, 0], done
    assert [one.stderr for one in done] == ["", ""]  # it is a library
    told, values = zip(*sorted(one.stdout.splitlines() for one in done), strict=True)
    addr, port, *_ = values[0].split()
    assert told == tuple(f"node {rank} of 2, rank 0 at {addr}:{port}" for rank in (0, 1))
    for rank, line in enumerate(values):
        assert line.split()[:-1] == [
            addr,
            port,
            str(rank),
            "2",
            str(rank),
            "=ib0" if addr.startswith("10.78") else "=eth0",
        ]
    assert len({line.split()[-1] for line in values}) == 1


def test_one_host_runs_the_example_and_fails_as_the_command_does(hosts: Callable[..., Hosts]) -> None:
    """The same code and the same line as `mingle env` gives."""
    (host,) = hosts(1)
    done = host.run([*PYTHON, FAIL], env=KEYED)
    typed = [str(Path(sys.executable).with_name("mingle")), *["env", "--id", "exp8", "--nodes", "2", "--timeout", "1"]]
    command = host.run(typed, env=KEYED)
    assert done.returncode == command.returncode == errors.MissingError.exit_code
    expected, seen, remedy = done.stdout.rstrip("\n").split(" | ")
    assert command.stderr.splitlines()[-1] == f"mingle: expected {expected}; saw {seen}; try {remedy}"


def test_a_job_is_rendered_as_the_command_renders_it() -> None:
    """But for the line that says what made it."""
    words = "template pbs --no-environment --nodes 2 --gpus-per-node 4 --time 2:00:00 -- torchrun train.py"
    mingle = Path(sys.executable).with_name("mingle")
    command = subprocess.run([mingle, *words.split()], env=EMPTY, capture_output=True, text=True, check=True).stdout
    (made, one), (_, other) = (text.split("\n", 2)[1:] for text in (fresh(RENDER).rstrip("\n") + "\n", command))
    assert made == f"# Made by: mingle template pbs (mingle-hooks {mingle_hooks.__version__})"
    assert one == other


@pytest.mark.parametrize(
    ("job", "told"),
    [
        ({"command": "train.py", "nodez": 2}, "nodes, which is the nearest"),
        ({"command": "train.py", "nodes": 0}, "nodes in the job: 0"),
        ({}, "saw none; try -- train.py"),
    ],
)
def test_a_job_that_is_none_is_refused_by_the_fields_name(job: dict[str, Any], told: str) -> None:
    """As one in a file is."""
    with pytest.raises(mingle_hooks.UsageError, match=re.escape(told)):
        mingle_hooks.render(job)


def test_every_error_of_the_command_line_is_there() -> None:
    """As the same class, so that `except` takes it by either name; the page has a line for each."""
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, errors.MingleError):
            assert getattr(mingle_hooks, name) is kind
            assert f"`{name}`" in PAGE


def test_what_runs_out_is_told_as_the_command_tells_it() -> None:
    """Whatever of Python's errors it was at first."""
    script = (
        "import mingle_hooks, resource\n"
        "from mingle_hooks import joining\nfrom mingle_hooks.rendezvous import rendezvous\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (5, 5))\n"
        "try: mingle_hooks.join(id='a', nodes=2, insecure=True, timeout=5)\n"
        "except mingle_hooks.LimitError as error: print(error.seen)"
    )
    assert "file descriptors" in fresh(script)


def test_an_environment_can_be_given() -> None:
    """Its scheduler counts, not the process's own; one member needs nobody."""
    view = mingle_hooks.join(environ={"SLURM_JOB_ID": "7"}, nodes=1, slots=3)
    assert (view.world.id, view.world.size, view.place.node_rank) == ("7", 3, 0)
    assert mingle_hooks.variables(view)["LOCAL_WORLD_SIZE"] == "3"


def test_one_member_refuses_a_size_that_is_not_its_own() -> None:
    """WORLD_SIZE of another job would make its frameworks wait for processes that nobody starts."""
    assert mingle_hooks.join(environ={"WORLD_SIZE": "3"}, id="a", nodes=1, slots=3).world.size == 3
    with pytest.raises(mingle_hooks.UsageError, match="WORLD_SIZE=4, as exported; saw 3 slots"):
        mingle_hooks.join(environ={"WORLD_SIZE": "4"}, id="a", nodes=1, slots=3)


def test_what_is_no_option_is_refused_with_the_nearest() -> None:
    """Also what only changes what is printed."""
    join: Any = mingle_hooks.join
    with pytest.raises(mingle_hooks.UsageError, match="try nodes"):
        join(nodez=2)
    with pytest.raises(mingle_hooks.UsageError, match="saw on_failure"):
        join(on_failure="exit")


def test_a_framework_that_reads_a_file_is_left_to_the_command() -> None:
    """Who writes it has to know when to remove it."""
    view = mingle_hooks.join(id="a", nodes=1, frameworks=["deepspeed"], environ={})
    with pytest.raises(mingle_hooks.UsageError, match="mingle exec --for deepspeed"):
        mingle_hooks.variables(view)


def test_the_options_that_type_checkers_know_are_those_there_are() -> None:
    """And the page lists them."""
    named = list(api.Options.__annotations__)
    assert named == [s.name for s in TABLE if s.option and s.name not in api.PRINTED]
    told = re.search(r"several: `([^`]*)`", PAGE)
    assert told
    assert told[1].split() == named


def test_every_name_that_type_checkers_know_is_there() -> None:
    """They read the imports under TYPE_CHECKING, which a program never runs."""
    source = Path(mingle_hooks.__file__).read_text()
    named = re.findall(r"^    from \S+ import \w+ as (\w+)$", source, re.MULTILINE)
    assert {"join", "View", "Member"} <= set(named)
    assert [name for name in named if not hasattr(mingle_hooks, name)] == []


def test_importing_it_loads_nothing() -> None:
    """Not even its own modules; and whatever was imported before, the names are the functions."""
    assert fresh("import sys, mingle_hooks; print([m for m in sys.modules if m.startswith('mingle_hooks.')])") == "[]\n"
    before = "import mingle_hooks.cli.answer, mingle_hooks.scripts.script, mingle_hooks"
    assert (
        fresh(f"{before}; print(callable(mingle_hooks.join), mingle_hooks.render({{'command': 'a.py'}})[:2])")
        == "True #!\n"
    )
    with pytest.raises(AttributeError, match="no attribute 'joyn'"):
        mingle_hooks.joyn  # noqa: B018 - it is the test
