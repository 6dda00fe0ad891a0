"""What `mingle env` and `mingle exec` print and become."""

import errno
import json
import os
import re
import signal
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from mingle_hooks.cli import answer
from mingle_hooks.cli.answer import FORMED, Flags
from mingle_hooks.errors import MingleError, NotExecutableError, NotFoundError, PlaceError, UsageError
from mingle_hooks.rendezvous.messages import Assignment, Member, View, World
from mingle_hooks.run import start

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
    monkeypatch.setattr(answer, "signal", SimpleNamespace(**{**vars(signal), "signal": mock.Mock()}))
    with mock.patch.dict(os.environ, usual, clear=True):
        yield os.environ


def meets(monkeypatch: pytest.MonkeyPatch) -> mock.Mock:
    """Have all members there at once."""
    join = mock.Mock(return_value=VIEW)
    monkeypatch.setattr(answer, "join", join)
    return join


def became(words: str, options: Mapping[str, object], **flags: bool) -> tuple[str, str, dict[str, str]]:
    """Return what a command becomes, and its environment."""
    with pytest.raises(BecameError) as caught:
        answer.execute(tuple(words.split()), options, Flags(**flags))
    file, command, its = caught.value.args
    return file, " ".join(command), its


def test_a_command_gets_the_world_in_place_of_what_an_earlier_one_left(environ: dict[str, str]) -> None:
    """The command gets the default handlers of the signals that Python ignores."""
    environ.update(MINGLE_ID="b", MINGLE_EXPORTS="JAX_PROCESS_ID", JAX_PROCESS_ID="1", OWN="2", MINGLE_KEY="5" * 64)
    file, command, its = became("true x", ONE)
    assert (os.path.basename(file), command) == ("true", "true x")
    assert (its["OWN"], its["WORLD_SIZE"], its["NODE_RANK"]) == ("2", "3", "0")
    assert not {"JAX_PROCESS_ID", "MINGLE_KEY"} & its.keys()
    reset: Any = vars(answer)["signal"].signal
    assert reset.mock_calls == [mock.call(number, signal.SIG_DFL) for number in (signal.SIGPIPE, signal.SIGXFSZ)]


def test_only_a_command_that_starts_mingle_gets_the_key() -> None:
    os.environ["MINGLE_KEY"] = "5" * 64
    assert "MINGLE_KEY" in became("true", ONE, keep_key=True)[2]
    lines = ("true", "true /mingle/x mingler", "sh -c $(mingle env)", "sh -c /opt/bin/mingle exec true")
    assert ["MINGLE_KEY" in became(line, ONE)[2] for line in lines] == [False, False, True, True]


def test_a_value_that_no_program_can_be_started_with_is_refused_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """As TF_CONFIG of thousands of workers: execve(2) would blame the command."""
    roster = tuple(Member(rank, f"n{rank}", f"10.0.{rank // 256}.{rank % 256}", 1) for rank in range(9000))
    meets(monkeypatch).return_value = VIEW._replace(world=VIEW.world._replace(roster=roster))
    with pytest.raises(UsageError, match=r"TF_CONFIG of at most 131072 bytes.*--for deepspeed or mpi"):
        answer.execute(("true",), {**TWO, "frameworks": "tensorflow"}, Flags())


@pytest.mark.parametrize(
    ("number", "kind"), [(2, NotFoundError), (13, NotExecutableError), (8, NotExecutableError)], ids=str
)
def test_a_command_that_cannot_be_run_after_all_has_a_code_of_its_own(
    monkeypatch: pytest.MonkeyPatch, number: int, kind: type[MingleError]
) -> None:
    monkeypatch.setattr(os, "execve", mock.Mock(side_effect=OSError(number, os.strerror(number))))
    with pytest.raises(kind, match=f"expected a command that can be run; saw true: {os.strerror(number)};"):
        answer.execute(("true",), ONE, Flags())


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
        assert answer.execute(("mpirun", "true"), options, Flags()) == 0
        assert capsys.readouterr().err == said
    with pytest.raises(UsageError, match="mpirun with options that name its nodes"):
        answer.execute(("mpirun", "true"), TWO, Flags(verbatim=True))
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
            answer.print_variables({**TWO, "frameworks": "torchrun", **options}, Flags(no_wait=no_wait))
    assert [call.kwargs["no_wait"] for call in join.mock_calls] == [False, True][is_refused:]
    with pytest.raises(MingleError, match="a shell: sh, "):
        answer.print_variables({**TWO, "shell": "psh"}, Flags(no_wait=True))


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


def test_nobody_forms_a_world_with_a_node_that_cannot_write_a_file_of_its_framework(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It says so at check-in, and leaves nothing. A launcher that reaches all nodes itself writes it on rank 0 only."""
    join = meets(monkeypatch)
    join.side_effect = MingleError("to wait", "", "")
    monkeypatch.setattr(os, "replace", mock.Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
    options = {**TWO, "frameworks": "deepspeed"}
    for words, cannot in (("true", True), ("sh -c true", True), ("mpirun true", False)):
        with pytest.raises(MingleError, match="expected to wait"):
            answer.execute(tuple(words.split()), options, Flags())
        obstacle = join.call_args.kwargs["obstacle"]
        assert (obstacle is not None and obstacle.kind == "file") == cannot
        assert not cannot or re.search(r"framework .*: No space left on device; try ", str(obstacle.error()))
    assert list(tmp_path.iterdir()) == []


def test_members_that_run_a_command_as_one_meet_without_comparing_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run's own members do that. One member becomes the command, and what cannot be one is refused."""
    join, runs = meets(monkeypatch), mock.Mock(return_value=7)
    monkeypatch.setattr(start, "run_together", runs)
    assert answer.execute(("true",), TWO, Flags(together=True, no_wait=False, keep_key=True)) == 7
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
            answer.execute(tuple(words.split()), TWO, flags)
    assert became("true", ONE, together=True)[1] == "true"
    assert len(runs.mock_calls) == 1
