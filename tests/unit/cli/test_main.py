"""A command line becomes a call, and an error one line and a code; what `mingle env` and `exec` print and become."""

import io
import json
import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import click
import pytest
from hypothesis import given, strategies as st

from mingle_hooks.cli import main
from mingle_hooks.cli.commands import RUN, own_options, settings_options
from mingle_hooks.cli.main import FORMED, Flags
from mingle_hooks.errors import (
    ConflictError,
    MingleError,
    MissingError,
    NotExecutableError,
    NotFoundError,
    PlaceError,
    UsageError,
)
from mingle_hooks.rendezvous.messages import Assignment, Member, View, World
from mingle_hooks.run import start
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


ONE = {"id": "a", "nodes": "1", "slots": "3"}
TWO = {"id": "a", "nodes": "2", "slots": "3", "rank": "1"}
ROSTER = (Member(0, "n0", "10.0.0.1", 3), Member(1, "n1", "10.0.0.2", 3))
VIEW = View(World("a", 2, 6, "10.0.0.1", 29500, "0" * 16, ROSTER), Assignment(1, 3, 3, "10.0.0.2"), "node", {})
IN_SCRIPT = {"SLURM_JOB_ID": "5", "SLURM_JOB_NODELIST": "node[1-2]", "SLURM_TASKS_PER_NODE": "1(x2)"}


class BecameError(BaseException):
    """In place of this process's end: its file, arguments and environment."""


@pytest.fixture(autouse=True)
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Give an environment of the test's own, in which os.execve only tells what it was given."""

    def become(*given: object) -> None:
        raise BecameError(*given)

    usual = {"PATH": "/usr/bin:/bin", "HOME": "/nowhere", "XDG_RUNTIME_DIR": str(tmp_path), "CUDA_VISIBLE_DEVICES": ""}
    tmp_path.chmod(0o700)
    monkeypatch.setattr(os, "execve", become)
    monkeypatch.setattr(main, "signal", SimpleNamespace(**{**vars(signal), "signal": mock.Mock()}))
    with mock.patch.dict(os.environ, usual, clear=True):
        yield os.environ


def meets(monkeypatch: pytest.MonkeyPatch) -> mock.Mock:
    """Have all members there at once."""
    join = mock.Mock(return_value=VIEW)
    monkeypatch.setattr(main, "join", join)
    return join


def became(words: str, options: Mapping[str, object], **flags: bool) -> tuple[str, str, dict[str, str]]:
    """Return what a command becomes, and its environment."""
    with pytest.raises(BecameError) as caught:
        main.execute(tuple(words.split()), options, Flags(**flags))
    file, command, its = caught.value.args
    return file, " ".join(command), its


def test_a_command_gets_the_world_in_place_of_what_an_earlier_one_left(environ: dict[str, str]) -> None:
    """The command gets the default handlers of the signals that Python ignores."""
    environ.update(MINGLE_ID="b", MINGLE_EXPORTS="JAX_PROCESS_ID", JAX_PROCESS_ID="1", OWN="2", MINGLE_KEY="5" * 64)
    assert Flags() == (False, False, False, False, False)
    file, command, its = became("true x", ONE)
    assert (os.path.basename(file), command) == ("true", "true x")
    assert (its["OWN"], its["WORLD_SIZE"], its["NODE_RANK"]) == ("2", "3", "0")
    assert not {"JAX_PROCESS_ID", "MINGLE_KEY"} & its.keys()
    reset: Any = vars(main)["signal"].signal
    assert reset.mock_calls == [mock.call(number, signal.SIG_DFL) for number in (signal.SIGPIPE, signal.SIGXFSZ)]


def test_only_a_command_that_starts_mingle_gets_the_key() -> None:
    os.environ["MINGLE_KEY"] = "5" * 64
    assert "MINGLE_KEY" in became("true", ONE, keep_key=True)[2]
    lines = {"true": 0, "sh -c $(mingle env)": 1, "sh -c /opt/bin/mingle exec true": 1, "true /mingle/x mingler": 0}
    assert {line: "MINGLE_KEY" in became(line, ONE)[2] for line in lines} == lines


@pytest.mark.parametrize(
    ("number", "kind"), [(2, NotFoundError), (13, NotExecutableError), (8, NotExecutableError)], ids=str
)
def test_a_command_that_cannot_be_run_after_all_has_a_code_of_its_own(
    monkeypatch: pytest.MonkeyPatch, number: int, kind: type[MingleError]
) -> None:
    monkeypatch.setattr(os, "execve", mock.Mock(side_effect=OSError(number, os.strerror(number))))
    with pytest.raises(kind, match=f"expected a command that can be run; saw true: {os.strerror(number)};"):
        main.execute(("true",), ONE, Flags())


def test_the_agent_of_a_run_hears_of_the_world(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The command does not hear of the agent; --explain tells what it became, and what it found."""
    meets(monkeypatch)
    for flags in ({}, {"together": True}):
        reader, writer = os.pipe()
        environ[FORMED] = str(writer)
        with os.fdopen(reader) as pipe:
            _, words, its = became("python3 -c pass", TWO, explain=True, **flags)
            told = json.load(pipe)
        assert told == {"nodes": 2, "addr": "10.0.0.1", "port": 29500, "spent": []}
        assert (words, its["NODE_RANK"], FORMED in its) == ("python3 -c pass", "1", False)
        lines = capfd.readouterr().err.splitlines()
        assert [line.partition(": ")[2] for line in lines][-1] == "becomes python3 -c pass"
        assert any(re.search(r": NODE_RANK +1 +", line) for line in lines)


def test_what_rank_0_starts_for_all_is_not_started_elsewhere(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A single member starts it in any case, a launcher that misses the nodes is refused, and --quiet is quiet."""
    join = meets(monkeypatch)
    note = "mingle: mpirun runs on rank 0's node and reaches this node from there\n"
    for options, said in ((TWO, note), ({**TWO, "quiet": True}, "")):
        assert main.execute(("mpirun", "true"), options, Flags()) == 0
        assert capsys.readouterr().err == said
    with pytest.raises(UsageError, match="mpirun with options that name its nodes"):
        main.execute(("mpirun", "true"), TWO, Flags(verbatim=True))
    join.return_value = VIEW._replace(world=VIEW.world._replace(nodes=1), place=Assignment(0, 3, 0))
    assert became("sh mpirun", ONE)[1] == "sh mpirun"
    assert [call.kwargs["command"] for call in join.mock_calls] == [("mpirun", "true")] * 2 + [("sh", "mpirun")]


@pytest.mark.parametrize(
    ("variables", "options", "is_refused"),
    [({}, {}, True), ({}, {"nodes": "1", "rank": None}, False), (IN_SCRIPT, {"nodes": None, "rank": None}, False)],
)
def test_what_would_keep_torchrun_to_itself_is_refused_before_the_others_wait(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], options: dict[str, object], *, is_refused: bool
) -> None:
    """A single member is not refused, and nobody waits if a shell is unknown."""
    os.environ.update(variables, PET_STANDALONE="1")
    join = meets(monkeypatch)
    join.side_effect = MingleError("to wait", "", "")
    for no_wait in (False, True):
        with pytest.raises(MingleError, match="PET_STANDALONE" if is_refused and not no_wait else "expected to wait"):
            main.print_variables({**TWO, "frameworks": "torchrun", **options}, Flags(no_wait=no_wait))
    assert [call.kwargs["no_wait"] for call in join.mock_calls] == [False, True][is_refused:]
    with pytest.raises(MingleError, match="a shell: sh, "):
        main.print_variables({**TWO, "shell": "psh"}, Flags(no_wait=True))


def test_a_file_of_a_framework_is_there_when_its_variable_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The file is whole, in a private directory; an error names the place where it cannot be."""
    meets(monkeypatch).return_value = VIEW._replace(frameworks=("deepspeed",))
    options = {**TWO, "frameworks": "deepspeed"}
    became("true", options)
    (file,) = (path for path in tmp_path.rglob("*") if path.is_file())
    assert re.fullmatch(r"mingle-world-0{16}-[0-9a-f]{8}", file.parent.name)
    assert (file.parent.stat().st_mode & 0o777, file.read_text()) == (0o700, "n0 slots=3\nn1 slots=3\n")
    file.unlink()
    file.mkdir()
    with pytest.raises(PlaceError, match=f"a file for a framework; saw {file}: Is a directory; try another XDG_RUN"):
        became("true", options)


def test_members_that_run_a_command_as_one_meet_without_comparing_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run's own members do that. One member becomes the command, and what cannot be one is refused."""
    join, runs = meets(monkeypatch), mock.Mock(return_value=7)
    monkeypatch.setattr(start, "run_together", runs)
    assert main.execute(("true",), TWO, Flags(together=True, no_wait=False, keep_key=True)) == 7
    assert join.call_args.kwargs == {"wants_roster": True, "command": None, "obstacle": None}
    own = ("--id=a", "--slots=3", "--master=10.0.0.1", "--keep-key")
    command, _, view, given = runs.call_args.args
    assert (command, view, sorted(given)) == (("true",), VIEW, sorted(own))
    for words, flags, says in (
        ("true", Flags(together=True, no_wait=True), "the other members for --together"),
        ("mpirun true", Flags(together=True), "a COMMAND that every node starts"),
        ("mpirun true", Flags(together=True, verbatim=True), "mpirun with options that name its nodes"),
    ):
        with pytest.raises(UsageError, match=says):
            main.execute(tuple(words.split()), TWO, flags)
    assert became("true", ONE, together=True)[1] == "true"
    assert len(runs.mock_calls) == 1


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
        "import sys; from mingle_hooks.cli import main; from mingle_hooks.rendezvous import rendezvous;"
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
