"""A command line becomes a call, and an error one line and a code."""

import io
import os
import stat
import subprocess
import sys
from types import SimpleNamespace
from typing import Any
from unittest import mock

import click
import pytest
from hypothesis import given, strategies as st

import mingle_hooks.cli
from mingle_hooks.cli import main
from mingle_hooks.cli.commands import RUN, own_options, settings_options
from mingle_hooks.errors import ConflictError, MissingError, UsageError
from mingle_hooks.settings import EXEC_ONLY, FLAGS, NOT_FOR_RUN, OPTIONS

ERROR = {
    "usage": UsageError("a", "b", "c"),
    "rank 0": ConflictError("a", "b", "c"),
    "printed": MissingError("a", "b", "c"),
}
ERROR["usage"].is_about_arguments = ERROR["rank 0"].repeats_rank_0 = ERROR["printed"].is_printed = True
TASK = {"SLURM_STEP_ID": "0", "SLURM_LOCALID": "1", "SLURM_PROCID": "1"}


@pytest.mark.parametrize(
    ("kind", "changes", "parent", "is_printed"),
    [
        ("usage", {}, "slurmstepd\n", False),
        ("usage", {"_": "/usr/bin/srun"}, "slurmstepd\n", False),
        ("usage", {"_": "/bin/bash"}, "slurmstepd\n", True),
        ("usage", {}, "bash\n", True),
        ("usage", {}, "", True),  # /proc hides it
        *(("usage", {name: None}, "slurmstepd\n", True) for name in TASK),
        *(("usage", {name: "0"}, "slurmstepd\n", True) for name in ("SLURM_PROCID", "SLURM_HET_SIZE")),
        *(("rank 0", {name: None}, "bash\n", name != "SLURM_PROCID") for name in TASK),
        *((kind, {"file": "yes"}, "slurmstepd\n", True) for kind in ("usage", "rank 0")),
        ("other", {}, "slurmstepd\n", True),
        ("printed", dict.fromkeys(TASK), "bash\n", False),
    ],
)
def test_one_of_many_processes_prints_what_all_have_to_say(
    monkeypatch: pytest.MonkeyPatch,
    kind: str, changes: dict[str, str | None], parent: str, *, is_printed: bool,
) -> None:  # fmt: skip
    """Task 0, if srun has started all with the same arguments and shows what they print; or rank 0.

    What repeats rank 0 fails after it: srun and `mingle run` end all others at the first failure.
    """
    waits_s: list[float] = []
    monkeypatch.setattr(main.time, "sleep", waits_s.append)
    error = ERROR.get(kind) or UsageError("a", "b", "c")
    said: list[str] = []
    monkeypatch.setattr(main, "write_stderr", said.append)
    monkeypatch.setattr(os, "environ", {name: its for name, its in {**TASK, **changes}.items() if its is not None})
    mode = stat.S_IFREG if "file" in changes else stat.S_IFIFO
    its, real = SimpleNamespace(st_mode=mode), os.fstat
    monkeypatch.setattr(os, "fstat", lambda number: its if number == 2 else real(number))
    opened = {f"/proc/{os.getppid()}/comm": io.StringIO(parent)} if parent else {}
    monkeypatch.setattr(main, "open", lambda path: opened.get(path) or os.stat("/no/such/file"), raising=False)
    monkeypatch.setattr(main, "_run", mock.Mock(side_effect=error))
    assert main.run(["exec"]) == error.exit_code
    assert said == ["mingle: expected a; saw b; try c\n"] * is_printed
    assert waits_s == [main.RANK_0_PRINTS_S] * (kind == "rank 0" and not is_printed)


def test_what_fails_while_it_loads_makes_eval_fail(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nothing that forms a world is loaded before an error of its import has a text for eval."""
    monkeypatch.delattr(mingle_hooks.cli, "answer", raising=False)
    monkeypatch.setitem(sys.modules, "mingle_hooks.cli.answer", None)
    assert main.run(["env", "--shell", "sh"]) == 70
    out, err = capfd.readouterr()
    assert ("exit 70" in out, err.splitlines()[-1]) == (
        True,
        "mingle: this is a bug in mingle; please report it with the lines above",
    )


# The reader without click reads what click reads, or leaves it to click.

OF_RUN = [f"--{name.replace('_', '-')}" for name in RUN]
WORDS = st.sampled_from(
    [
        *(*OPTIONS, *FLAGS, *OF_RUN),
        *("x", "4", "--", "-h", "--help", "", "--id=a", "--id=", "--quiet=1", "a b", "=", "-", "--no"),
    ]
)


def by_click(command: str, words: list[str]) -> tuple[dict[str, Any], tuple[str, ...]] | None:
    """Return what click makes of a command line, None where it complains."""

    def callback(**options: Any) -> dict[str, Any]:
        return options

    without = {"env": EXEC_ONLY, "exec": (), "run": NOT_FOR_RUN}[command]
    wrapped = settings_options(callback, without=without)
    if command == "run":
        wrapped = own_options(wrapped, RUN)
    if command != "env":
        wrapped = click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)(wrapped)
    settings = {"allow_interspersed_args": command == "env"}
    try:
        found = click.command(context_settings=settings)(wrapped).main(words, standalone_mode=False)
    except click.ClickException:
        return None
    if not isinstance(found, dict):  # --help
        return None
    rest = found.pop("command", ())
    return {name: value for name, value in found.items() if value not in (None, False)}, rest


@given(command=st.sampled_from(["env", "exec", "run"]), words=st.lists(WORDS, max_size=8))
def test_a_call_that_is_read_is_the_one_that_click_reads(command: str, words: list[str]) -> None:
    """Both readers agree on options, flags and the command to become."""
    call = main.read_call([command, *words])
    assert call is None or by_click(command, words) == call


# Options, and the command to become.
PLAIN = {
    "env --id a --id b --nodes=4 --quiet": ({"id": "b", "nodes": "4", "quiet": True}, ""),
    "exec --id a -- python3 a.py --id x --": ({"id": "a"}, "python3 a.py --id x --"),
    "exec -- -- x": ({}, "-- x"),
    "run --no-label --hosts=a,b --nodes 1:2 x": ({"no_label": True, "hosts": "a,b", "nodes": "1:2"}, "x"),
}
# Help, mistakes and other commands.
OTHERS = (
    *("", "key", "env --help", "env x", "env --id", "env --id --nodes", "exec --unknown true", "exec --id -- true"),
    *("exec --", "run", "run --rank 1 x", "run --start-option=-x true"),
)


def test_plain_command_lines_need_no_click_and_everything_else_is_left_to_it() -> None:
    for line, (options, rest) in PLAIN.items():
        assert main.read_call(line.split()) == (options, tuple(rest.split()))
    assert [line for line in OTHERS if main.read_call(line.split()) is not None] == []


def test_a_member_loads_nothing_that_it_does_not_use() -> None:
    """Each of these costs every node of every job 20 to 80 ms."""
    script = (
        "import sys; from mingle_hooks.cli import answer, main; from mingle_hooks.rendezvous import rendezvous;"
        " from mingle_hooks.schedulers import slurm, detect; from mingle_hooks.job import launchers, member_spec;"
        # No plugin is looked for where a row of ours fits.
        "member_spec({'SLURM_JOB_ID': '1', 'SLURM_JOB_NUM_NODES': '1'}, {'frameworks': 'jax'});"
        "member_spec({}, {'id': 'a', 'nodes': '2'}); launchers.find(['torchrun']); launchers.find(['python3', 'x.py']);"
        "print(*sorted(sys.modules))"
    )
    argv, env = [sys.executable, "-I", "-c", script], {"PATH": os.environ["PATH"]}
    done = subprocess.run(argv, check=True, capture_output=True, text=True, env=env)
    loaded = set(done.stdout.split())
    assert {"mingle_hooks.joining", "mingle_hooks.rendezvous.member"} <= loaded
    assert not loaded & {"click", "jinja2", "multicast_expert", "asyncio", "importlib.metadata"}
