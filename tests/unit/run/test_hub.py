"""The hub: which agents are here and alive; and the starters, real programs on this host."""

import math
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.gathering import no_descriptor_left

from mingle_hooks.errors import NetworkError, NotExecutableError, PlaceError
from mingle_hooks.rendezvous.connection import Loop
from mingle_hooks.rendezvous.wire import Secret
from mingle_hooks.run import hub, messages, starters
from mingle_hooks.run.hub import EventCommand, Hub
from mingle_hooks.run.launching import MOST_OUTPUT, Launching, Limit, Process, Processes, Sockets
from mingle_hooks.run.machine import Alive, Event, Isolated, Joined, Lost, Paused, Quiet
from mingle_hooks.run.messages import AGENT, WELCOME, Join, Link, Silence
from mingle_hooks.run.starters import Allocation, Launch, Place
from mingle_hooks.settings import load

SECRET = Secret(b"s" * 32)
# The second is as short as the first: kernels here acknowledge by the real clock, and not by the test's.
SILENCE = Silence(15.0, 15.0)


class Scene:
    """A hub with one place, and a clock that the test turns."""

    def __init__(self, silence: Silence = SILENCE, hosts: str = "a") -> None:
        self.now = 100.0
        self.drops_all = False  # at the first agent that is lost
        self.loop = Loop(clock=lambda: self.now)
        self.sockets = Sockets(is_local=True)
        self.events: list[Event] = []
        self.links: list[Link] = []
        places = [Place(host, 0) for host in hosts]
        self.hub = Hub(self.loop, self.sockets, SECRET, places, silence, "a")
        self.hub.on_event = self.take

    def take(self, event: Event) -> None:
        """Take an event, as the runner does, which may drop agents at once."""
        self.events.append(event)
        if self.drops_all and isinstance(event, Lost):
            for place in [*self.hub.here]:
                self.hub.drop(place)

    def link(self, secret: Secret = SECRET) -> Link:
        """Connect as an agent does."""
        sock = socket.create_connection(("127.0.0.1", self.sockets.port))
        sock.settimeout(0)
        self.ended = False

        def end(_reason: str) -> None:
            self.ended = True

        self.links.append(Link(self.loop, sock, secret, is_runner=False, on_end=end))
        return self.links[-1]

    def kinds(self) -> list[type]:
        """Return the kinds of all events."""
        return [type(event) for event in self.events]

    def turn(self, count: int = 20) -> None:
        """Serve what is ready."""
        for _ in range(count):
            self.loop.turn(0.002)

    def join(self, host: str = "a", *, output: bool = False) -> Link:
        """Connect, and say who this is."""
        link = self.link()
        self.turn()
        link.send_record(Join(host, 0, 1, is_output=output))
        self.turn()
        return link

    def agent(self, host: str = "a") -> tuple[Link, Link]:
        """Connect as a whole agent, for messages and for output."""
        return self.join(host), self.join(host, output=True)

    def passes(self, seconds: float, step_s: float = 1.0) -> None:
        """Let time go by, second by second."""
        for _ in range(int(seconds / step_s)):
            self.now += step_s
            self.turn(3)


@pytest.fixture
def scenes() -> Iterator[Callable[..., Scene]]:
    """Make scenes, and close them."""
    made: list[Scene] = []

    def make(*how: Any) -> Scene:
        made.append(Scene(*how))
        return made[-1]

    yield make
    for scene in made:
        for place in [*scene.hub.here]:
            scene.hub.drop(place)
        scene.sockets.close()
        for link in scene.links:
            link.close()
        scene.loop.poller.close()


@pytest.fixture
def scene(scenes: Callable[..., Scene]) -> Scene:
    """Give a scene with one place."""
    return scenes()


def test_an_agent_is_here_with_both_connections_and_lost_once_it_is_silent(scene: Scene) -> None:
    scene.join()
    assert scene.events == []
    scene.join(output=True)
    assert scene.kinds() == [Joined]
    scene.passes(5)
    assert scene.kinds() == [Joined, Quiet]
    scene.passes(11)
    assert scene.kinds() == [Joined, Quiet, Lost]
    assert not scene.hub.here


def test_an_agent_whose_host_answers_is_paused_and_lost_only_after_minutes(scenes: Callable[..., Scene]) -> None:
    scene = scenes(Silence(15.0, 60.0))
    _, output = scene.agent()
    scene.passes(58)
    assert scene.kinds() == [Joined, Quiet, Paused]
    output.send_output(32, b"line\n")
    scene.turn()
    assert scene.kinds() == [Joined, Quiet, Paused, Alive]
    scene.passes(61)
    assert scene.kinds()[4:] == [Quiet, Paused, Lost]


@pytest.mark.parametrize(("unacknowledged_s", "count"), [(math.inf, 1), (1.0, 0)], ids=["cut off", "stopped"])
def test_the_runners_host_is_cut_off_if_no_other_host_answers(
    scenes: Callable[..., Scene], monkeypatch: pytest.MonkeyPatch, unacknowledged_s: float, count: int
) -> None:
    """Where hosts answer, a file system that all of them use may have stopped their agents."""
    monkeypatch.setattr(Link, "unacknowledged_s", unacknowledged_s)
    scene = scenes(SILENCE, "abc")
    (_, own), *_ = [scene.agent(host) for host in "abc"]
    for _ in range(40):
        scene.passes(1)
        own.send_output(32, b"line\n")
        scene.turn(3)
    assert scene.kinds().count(Isolated) == count
    assert [event.place for event in scene.events if isinstance(event, Lost)] == [1, 2]


def test_what_is_dropped_when_another_is_lost_is_no_more_looked_at(scenes: Callable[..., Scene]) -> None:
    scene = scenes(SILENCE, "ab")
    scene.drops_all = True
    for host in "ab":
        scene.agent(host)
    scene.passes(40)
    assert scene.kinds().count(Lost) == 1


@pytest.mark.parametrize(
    ("silent_s", "unacknowledged_s", "is_over"),
    [(14.9, 15.0, False), (15.0, 15.0, True), (15.0, 11.0, False), (599.9, 5.0, False), (600.0, 5.0, True)],
)
def test_a_host_that_acknowledges_has_longer(silent_s: float, unacknowledged_s: float, *, is_over: bool) -> None:
    assert Silence().is_over(silent_s, unacknowledged_s) == is_over
    assert [Silence(host_s=seconds).probe_s for seconds in (1.0, 6.5, 60.0)] == [1, 2, 5]


def test_a_silence_is_over_in_its_time_and_not_at_the_next_look(scene: Scene) -> None:
    _, output = scene.agent()
    scene.now += 0.5
    output.send_output(32, b"line\n")
    scene.turn()
    scene.passes(14.75, step_s=0.25)
    assert Lost not in scene.kinds()
    scene.passes(0.25, step_s=0.25)
    assert scene.events[-1] == Lost(0, 15.0)


def test_a_stop_of_the_runner_is_nobodys_silence(scene: Scene) -> None:
    scene.agent()
    scene.now += 600
    scene.turn()
    assert scene.kinds() == [Joined]


def test_the_next_agent_of_a_place_counts_its_heartbeats_anew_and_a_replayed_one_does_not_count(scene: Scene) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(("127.0.0.1", scene.sockets.port))

        def beat(sequence: int) -> None:
            heartbeat = messages.Heartbeat(0, sequence)
            sock.send(messages.pack_heartbeat(SECRET, AGENT, heartbeat))
            scene.turn()

        control, _ = scene.agent()
        beat(9)
        control.close()
        scene.turn()
        scene.agent()
        scene.passes(5)
        assert scene.kinds() == [Joined, Lost, Joined, Quiet]
        assert scene.events[1] == Lost(0, None)
        beat(1)
        assert scene.kinds()[4:] == [Alive]
        scene.passes(5)
        beat(1)  # an old one, which somebody has kept
        assert scene.kinds()[5:] == [Quiet]


def test_a_caller_without_place_or_key_or_that_comes_twice_is_dropped(scene: Scene) -> None:
    scene.join("b")
    assert scene.ended
    other = scene.link(Secret(b"t" * 32))
    scene.turn()
    other.send_record(Join("a", 0, 1, is_output=False))
    scene.turn()
    assert scene.ended
    scene.join()
    scene.join()
    assert scene.ended
    assert 0 in scene.hub.here


def test_welcome_has_the_number_and_the_port_for_heartbeats(scene: Scene) -> None:
    link = scene.link()
    said: list[tuple[int, dict[str, object]]] = []
    link.on_message = lambda kind, body: said.append((kind, body))
    scene.turn()
    link.send_record(Join("a", 0, 1, is_output=False))
    scene.turn()
    assert said == [(WELCOME, {"number": 0, "port": scene.sockets.port, "silence": 15000, "pause": 15000})]


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


def test_agents_wait_while_the_runner_is_out_of_descriptors(scene: Scene) -> None:
    link = scene.link()
    with no_descriptor_left(256):
        scene.turn()
        assert not {listener.fileno() for listener in scene.sockets.listeners} & {*scene.loop.poller.watched}
    scene.passes(1)
    scene.turn()
    link.send_record(Join("a", 0, 1, is_output=False))
    scene.turn()
    assert [*scene.hub.here] == [0]


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


@pytest.mark.parametrize(
    ("line", "status"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill -TERM $$", 143), ("exit 255", 255)]
)
def test_its_status_is_a_shells(started: Started, line: str, status: int) -> None:
    assert started.done("sh", "-c", f"echo out; echo err >&2; {line}") == (status, "out\nerr\n")


def test_it_reads_what_it_is_given_or_nothing(started: Started) -> None:
    data = os.urandom(300_000).hex().encode()  # more than a pipe holds
    assert started.done("sh", "-c", "wc -c; cat", stdin=data)[1].startswith(str(len(data)))
    started.ended.clear()
    started.output = b""
    assert started.done("cat") == (0, "")


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
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(FileNotFoundError):
        started.start("no-such-program")
    assert started.processes.running == ()
    assert len(os.listdir("/proc/self/fd")) == before


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
    monkeypatch.setattr(hub, "EVENT_S", 0.05)
    monkeypatch.setattr(hub, "MOST_EVENTS", 2)
    notes: list[str] = []
    line = f"read event; echo $event >>{tmp_path}/events; [ $event != first ] || sleep 60"
    events = EventCommand(started.loop, started.processes, line, notes.append)
    for event in (b"first\n", b"second\n", b"third\n", b"fourth\n"):
        events.take(event)
    assert notes == ["--on-event: 2 events wait for it"]
    started.until(lambda: events.done == 3)
    assert (tmp_path / "events").read_text() == "first\nsecond\nthird\n"
    assert started.processes.running == ()
