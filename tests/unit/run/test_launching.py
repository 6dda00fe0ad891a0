"""The starters, real programs on this host, and the port of the runner's sockets."""

import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from support.running import open_files

from mingle_hooks.errors import NetworkError, NotExecutableError, PlaceError
from mingle_hooks.files import own_program_argv
from mingle_hooks.rendezvous.connection import Loop
from mingle_hooks.run import launching, starters
from mingle_hooks.run.launching import MOST_OUTPUT, EventCommand, Launching, Limit, Process, Processes, Sockets
from mingle_hooks.run.starters import Allocation, Launch
from mingle_hooks.settings import load

ENVIRON = {"PATH": "/usr/bin:/bin", "LANG": "C"}
# A bound on what hangs, not a measure.
PATIENCE_S = 30.0


class Started:
    """Processes of one loop, and what came of them."""

    def __init__(self, loop: Loop) -> None:
        self.loop, self.output = loop, b""
        self.ended: list[tuple[Process, int]] = []
        self.processes = Processes(loop, ENVIRON, self._say, Limit(1))

    def start(self, *argv: str, stdin: bytes | None = None) -> Process:
        return self.processes.start(Launch(argv, ("node1",), stdin), lambda *how: self.ended.append(how))

    def until(self, holds: Callable[[], object]) -> None:
        def look() -> None:
            self.processes.poll()
            self.loop.after(0.01, look)

        look()
        end = self.loop.clock() + PATIENCE_S
        self.loop.run(lambda: bool(holds()) or self.loop.clock() > end)
        assert holds()

    def done(self, *argv: str, stdin: bytes | None = None) -> tuple[int, str]:
        """Return the status and the output of one."""
        self.ended, self.output = [], b""
        process = self.start(*argv, stdin=stdin)
        self.until(lambda: self.ended)
        assert self.ended[0][0] is process
        return self.ended[0][1], self.output.decode()

    def _say(self, data: bytes) -> None:
        self.output += data


@pytest.fixture
def started() -> Iterator[Started]:
    with Loop() as loop:
        made = Started(loop)
        yield made
        for process in made.processes.running:
            process.kill(signal.SIGKILL)
        made.until(lambda: not made.processes.running)


def test_its_status_is_a_shells_and_it_reads_what_it_is_given_or_nothing(started: Started) -> None:
    for line, status in (("exit 0", 0), ("exit 255", 255), ("kill -9 $$", 137), ("kill -TERM $$", 143)):
        assert started.done("sh", "-c", f"echo out; cat; echo err >&2; {line}") == (status, "out\nerr\n")
    data = os.urandom(300_000).hex().encode()  # more than a pipe holds
    assert started.done("sh", "-c", "wc -c; cat", stdin=data)[1].startswith(str(len(data)))


def test_only_the_end_of_what_it_wrote_is_kept(started: Started) -> None:
    started.done("sh", "-c", f"head -c {MOST_OUTPUT * 3} /dev/zero; echo end")
    assert len(started.ended[0][0].output) == MOST_OUTPUT
    assert started.ended[0][0].output.endswith(b"end\n")
    assert len(started.output) == MOST_OUTPUT * 3 + 4


def test_it_has_three_streams_a_session_of_its_own_and_no_signal_ignored_that_was_not() -> None:
    """Though this process's parent left something open; Python ignores two signals for itself."""
    left, right = os.pipe()
    os.set_inheritable(left, True)  # noqa: FBT003 - os's own
    assert signal.getsignal(signal.SIGPIPE) == signal.SIG_IGN
    try:
        with Loop() as loop:
            status, text = Started(loop).done(
                "sh", "-c", "ls /proc/$$/fd; ps -o sid= $$; echo $$; grep SigI /proc/$$/status"
            )
    finally:
        os.close(left)
        os.close(right)
    *descriptors, session, own, _, ignored = text.split()
    assert (status, descriptors, session) == (0, ["0", "1", "2"], own)
    assert not int(ignored, 16) & (1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1)


def test_a_program_that_is_not_there_is_the_callers_error(started: Started) -> None:
    before = open_files()
    with pytest.raises(FileNotFoundError):
        started.start("no-such-program")
    assert started.processes.running == ()
    assert open_files() == before


@pytest.mark.parametrize("stdin", [None, b"data"])
def test_with_more_open_files_than_the_user_may_have_programs_start_and_have_the_users_limit(
    stdin: bytes | None,
) -> None:
    own = resource.getrlimit(resource.RLIMIT_NOFILE)
    with Loop() as loop, ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, own)
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, own[1]))
        started = Started(loop)
        for _ in range(80):
            stack.enter_context(open(os.devnull, "rb"))
        assert started.done("sh", "-c", "ulimit -Sn; cat", stdin=stdin) == (0, f"64\n{(stdin or b'').decode()}")
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 80


def test_without_a_place_for_its_file_nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:

    def no_place(*_words: object) -> None:
        raise PlaceError("a directory for the environment", "none", "a home")

    monkeypatch.setattr(starters, "write_environ", no_place)
    job = Allocation(("node1",), (1,), own="node1")
    starter = next(row for row in starters.TABLE if row.name == "lsf")
    with Loop() as loop, closing(Launching(loop, starter, job, "agent", load({}, {}), None)) as launching:
        with pytest.raises(PlaceError):
            launching.start(("node1",))
        assert launching.processes.running == ()


def test_hosts_without_mingles_file_are_said_once_and_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The starter of several may hang, as others of its hosts have begun; Python's own message is left out."""
    monkeypatch.setattr(launching, "_UNSEEN_S", 0.01)
    program = own_program_argv("agent")[2]
    lines = {"ac": f"echo \"python: can't open file '{program}'\"; echo other; exec sleep 60", "b": "echo fine; exit 3"}
    launches = tuple(Launch(("sh", "-c", line), (*hosts,)) for hosts, line in lines.items())
    starter = starters.Starter("local", "", lambda *_: launches, 30.0, environment="own", is_at_once=True)
    ends, said = list[tuple[object, ...]](), list[bytes]()
    with Loop() as loop:
        job = Allocation(("a", "b", "c"), (1, 1, 1))
        with closing(Launching(loop, starter, job, "agent", load({}, {}), None)) as its:
            its.on_output, its.on_end = said.append, lambda *end: ends.append(end)
            its.start(job.hosts)
            end_s = loop.clock() + PATIENCE_S
            while len(ends) < 2 and loop.clock() < end_s:
                loop.turn(0.01)
                its.processes.poll()
        why = f"expected mingle's file {program} on every host; saw no such file on some of a,c; try a copy of it"
        why += " there, or a directory that all hosts see"
        assert sorted(ends) == [(("a", "c"), 127, why), (("b",), 3, "fine\n")]
        assert sorted(b"".join(said).decode().splitlines()) == sorted(["other", "fine", f"mingle run: {why}"])
        (left,) = its.processes.running
        assert left.wait() == 128 + signal.SIGKILL
        its.processes.poll()


def test_the_end_of_any_of_a_hosts_starters_is_reported_unless_it_was_started_again() -> None:
    """One starter per task: each starts one agent."""
    codes = iter((3, 4, 5, 6))

    def start(_job: object, hosts: tuple[str, ...], _program: object) -> tuple[Launch, ...]:
        return tuple(Launch(("sh", "-c", f"exit {next(codes)}"), (host,)) for host in hosts)

    starter = starters.Starter("local", "", start, 30.0, environment="own")
    ends = list[int]()
    with Loop() as loop:
        job = Allocation(("a",), (2,), is_per_task=True)
        with closing(Launching(loop, starter, job, "agent", load({}, {}), None)) as its:
            its.on_end = lambda _hosts, status, _output: ends.append(status)
            its.start(job.hosts)
            its.start(job.hosts)
            for process in its.processes.running:
                process.wait()
            its.processes.poll()
    assert ends == [5, 6]


def test_where_a_python_cannot_start_programs_the_command_is_refused(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyPy has no posix_spawnp."""
    monkeypatch.delattr(os, "posix_spawnp")
    with pytest.raises(NotExecutableError, match="expected CPython for this command; saw cpython; try mingle exec"):
        started.start("true")


def test_a_line_for_events_that_hangs_is_ended_and_what_it_cannot_take_is_left_out(
    started: Started, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(launching, "EVENT_S", 0.05)
    monkeypatch.setattr(launching, "MOST_EVENTS", 2)
    notes: list[str] = []
    line = f"read event; echo $event >>{tmp_path}/events; [ $event != first ] || sleep 60"
    events = EventCommand(started.loop, started.processes, line, notes.append)
    for event in (b"first\n", b"second\n", b"third\n", b"fourth\n"):
        events.take(event)
    assert notes == ["--on-event: 2 events wait for it"]
    started.until(lambda: not events.running)
    assert (tmp_path / "events").read_text() == "first\nsecond\nthird\n"
    assert started.processes.running == ()


def test_a_program_that_has_become_another_users_holds_up_nobody(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By sudo, or as OAR's ssh: the kernel refuses to signal a group of which nobody is ours."""

    def refuse(_group: int, _number: int) -> None:
        raise PermissionError

    process = started.start("sh", "-c", "read line")
    with monkeypatch.context() as patch:
        patch.setattr(os, "killpg", refuse)
        process.kill(signal.SIGKILL)
    process.kill(signal.SIGKILL)
    started.until(lambda: started.ended)


def test_the_sockets_are_on_a_port_of_the_range() -> None:
    chosen = range(17987, 17989)
    with (
        closing(Sockets(is_local=False, port_range=chosen)) as first,
        closing(Sockets(is_local=False, port_range=chosen)) as second,
    ):
        assert {first.port, second.port} == {*chosen}
        assert {sock.getsockname()[1] for sock in (*first.listeners, *first.datagrams)} == {first.port}
        with pytest.raises(NetworkError, match="2 of 17987-17988 are taken"):
            Sockets(is_local=False, port_range=chosen)
