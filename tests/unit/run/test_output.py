"""COMMAND's output on the runner's own streams."""

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from support.gathering import until

from mingle_hooks.errors import LimitError, PlaceError
from mingle_hooks.rendezvous.connection import Loop
from mingle_hooks.run import output
from mingle_hooks.run.messages import ERR, OUT
from mingle_hooks.run.output import FileWriter, Output, label_lines as labelled


class Pipes:
    """An Output whose stdout and stderr are pipes of this test."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        (self.out, stdout), (self.err, stderr) = os.pipe(), os.pipe()
        self.ends = [self.out, stdout, self.err, stderr]
        self.held: list[bool] = []
        self.gone: list[bool] = []
        output.STDOUT, output.STDERR = stdout, stderr  # type: ignore[misc]
        self.output = Output(loop, lambda: self.gone.append(True), self.held.append)

    def read(self) -> bytes:
        """Return all that comes on stdout until nothing waits."""
        os.set_blocking(self.out, False)
        found = b""
        while True:
            try:
                found += os.read(self.out, 1 << 20)
            except BlockingIOError:
                if not self.output.waiting_bytes:
                    return found
                self.loop.turn(0.01)


@pytest.fixture
def pipes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipes]:
    """Give an Output on pipes."""
    monkeypatch.setattr(output, "STDOUT", 1)
    monkeypatch.setattr(output, "STDERR", 2)
    with Loop() as loop:
        made = Pipes(loop)
        yield made
        made.output.files.close()
        for end in made.ends:
            try:
                os.close(end)
            except OSError:
                pass


def test_each_line_has_its_label() -> None:
    assert b"".join(labelled(b"a: ", b"one\n")) == b"a: one\n"
    assert b"".join(labelled(b"a: ", b"one\n\ntwo\n")) == b"a: one\na: \na: two\n"
    assert b"".join(labelled(b"a: ", b"one\ntwo")) == b"a: one\na: two\n"


def test_pieces_of_a_line_become_one_and_the_rest_of_the_last_comes_at_its_end(pipes: Pipes) -> None:
    pipes.output.begin(0, "a: ", 0)
    pipes.output.begin(1, "b: ", 1)
    for place, data in ((0, b"one\nbegin"), (1, b"other\n"), (0, b"ning\n"), (0, b"rest")):
        pipes.output.take(place, OUT, data)
    pipes.output.end(0)
    assert pipes.read() == b"a: one\nb: other\na: beginning\na: rest\n"
    pipes.output.begin(0, "", 0)  # without a label all is as it was
    pipes.output.take(0, OUT, b"no\nend")
    pipes.output.end(0)
    assert pipes.read() == b"no\nend"


def test_what_waits_for_a_reader_is_bounded(pipes: Pipes) -> None:
    """Members are held while it is, and go on when there is room; nothing is lost."""
    pipes.output.begin(0, "a: ", 0)
    line = b"x" * 1000 + b"\n"
    written = 0
    while not pipes.held:
        pipes.output.take(0, OUT, line * 64)
        written += 64
        assert written < 100_000
    assert pipes.held == [True]
    assert pipes.read() == (b"a: " + line) * written
    assert pipes.held == [True, False]


def test_a_terminal_has_coloured_labels_unless_none_are_wanted(pipes: Pipes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "isatty", lambda descriptor: descriptor == output.STDOUT)
    plain = [f"{number}: " for number in range(7)]
    coloured = [
        f"\x1b[{colour}m{label}\x1b[0m" for colour, label in zip((36, 33, 32, 35, 34, 31, 36), plain, strict=True)
    ]
    for no_color, shown in (("", coloured), ("1", plain)):
        monkeypatch.setenv("NO_COLOR", no_color)
        for number, label in enumerate(plain):
            pipes.output.begin(number, label, number)
            pipes.output.take(number, ERR, b"e\n")
            pipes.output.take(number, OUT, b"o\n")
        assert pipes.read().decode() == "".join(f"{label}o\n" for label in shown)
        assert os.read(pipes.err, 4096).decode() == "".join(f"{label}e\n" for label in plain)


def test_one_file_for_both_streams_is_written_in_order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as file, Loop() as loop:
        monkeypatch.setattr(output, "STDOUT", file.fileno())
        monkeypatch.setattr(output, "STDERR", file.fileno())
        made = Output(loop, pytest.fail, pytest.fail)
        made.begin(0, "a: ", 0)
        for kind, data in ((OUT, b"one\n"), (ERR, b"two\n"), (OUT, b"x" * output.LONGEST_LINE), (ERR, b"rest")):
            made.take(0, kind, data)
        made.begin(0, "", 0)
        made.show("four\n")
        lines = ["a: one", "a: two", f"a: {'x' * output.LONGEST_LINE}", "a: rest", "four", ""]
        assert (made.waiting_bytes, made.files.taken_bytes) == (len("\n".join(lines)), 0)
        until(loop, lambda: not made.waiting_bytes)
        made.files.close()
        assert (made.taken_bytes, (tmp_path / "out").read_text().split("\n")) == (len("\n".join(lines)), lines)


def test_what_waits_for_a_reader_that_goes_is_dropped(pipes: Pipes) -> None:
    pipes.output.begin(0, "", 0)
    pipes.output.take(0, OUT, b"x" * (3 << 20))
    assert pipes.output.taken_bytes + pipes.output.waiting_bytes == 3 << 20
    assert 0 < pipes.output.waiting_bytes < 3 << 20
    os.close(pipes.out)
    pipes.loop.turn(0)
    assert (pipes.gone, pipes.output.waiting_bytes, pipes.output.give_up()) == ([True], 0, 0)


@pytest.mark.parametrize("is_file", [True, False])
def test_who_has_gone_ends_a_stream_and_any_other_error_is_reported_once(tmp_path: Path, *, is_file: bool) -> None:
    """What was closed from the beginning is neither; a file may be written again."""
    reading, writing = os.pipe()
    with (tmp_path / "file").open("wb") as file, Loop() as loop:
        files = FileWriter(loop, lambda: None)
        for number in (errno.EPIPE, errno.ECONNRESET, errno.EIO, errno.EBADF, errno.ENOSPC):
            writer = output.Writer(loop, files, file.fileno() if is_file else writing)
            seen: list[str] = []
            writer.on_gone, writer.on_fault = lambda seen=seen: seen.append("gone"), seen.append
            for _ in range(2):
                writer._fail(OSError(number, "fault"))
            is_lost = number in (errno.EPIPE, errno.ECONNRESET) or (number == errno.EIO and not is_file)
            assert seen == (["gone"] * 2 if is_lost else ["fault"] * (number != errno.EBADF)), number
        files.close()
    os.close(reading)
    os.close(writing)


def test_a_file_that_cannot_be_closed_is_reported_and_others_are_written(tmp_path: Path) -> None:
    """NFS and quotas report a full disk only then."""
    errors: list[OSError] = []
    with Loop() as loop, (tmp_path / "other").open("wb") as other:
        writer = FileWriter(loop, lambda: None)
        writer.start()
        gone = os.open(tmp_path / "gone", os.O_WRONLY | os.O_CREAT)
        os.close(gone)
        writer.call(partial(os.close, gone), errors.append)
        until(loop, lambda: errors)
        writer.write(other.fileno(), (b"line\n",), errors.append)
        until(loop, lambda: not writer.waiting_bytes)
        writer.close()
    assert (tmp_path / "other").read_bytes() == b"line\n"
    assert [error.errno for error in errors] == [errno.EBADF]


@pytest.mark.parametrize("plant", ["link", "fifo"])
def test_what_another_put_in_place_of_a_log_is_neither_waited_for_nor_written(tmp_path: Path, plant: str) -> None:
    """A link to the whole directory is the user's own."""
    faults: list[str] = []
    (tmp_path / "logs").mkdir()
    (tmp_path / "link").symlink_to("logs")
    (tmp_path / "other").touch()

    def put(name: str) -> None:
        path = tmp_path / "logs" / name
        path.symlink_to(tmp_path / "other") if plant == "link" else os.mkfifo(path)

    with Loop() as loop, closing(FileWriter(loop, lambda: None)) as writer:
        logs = output.Logs(f"{tmp_path}/link", writer, faults.append)
        put("rank0-a.log")
        logs.begin(0, "rank0-a.log")
        logs.take(0, b"line\n")
        assert [fault.partition(":")[0] for fault in faults] == [f"no more logs are written below {tmp_path}/link"]
        (tmp_path / "logs" / output.EVENTS).unlink()
        put(output.EVENTS)
        with pytest.raises(PlaceError, match="another --log-dir"):
            output.Logs(f"{tmp_path}/link", writer, faults.append)
    assert (tmp_path / "other").read_bytes() == b""


def test_a_disk_that_is_full_only_at_the_close_of_a_log_is_reported(tmp_path: Path) -> None:
    """NFS takes what is written at first, and says at the close that its disk is full."""

    class Nfs(FileWriter):
        def call(self, write: Callable[[], None], on_error: Callable[[OSError], None]) -> None:
            def close() -> None:
                write()
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

            super().call(close, on_error)

    faults: list[str] = []
    with Loop() as loop, closing(Nfs(loop, lambda: None)) as writer:
        logs = output.Logs(str(tmp_path), writer, faults.append)
        logs.begin(0, "rank0-a.log")
        logs.take(0, b"line\n")
        logs.close()
        loop.run(lambda: not writer.waiting_bytes)
    assert faults == [f"no more logs are written below {tmp_path}: No space left on device"]
    assert (tmp_path / "rank0-a.log").read_bytes() == b"line\n"


def test_for_want_of_a_thread_nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with Loop() as loop, closing(FileWriter(loop, lambda: None)) as writer, pytest.raises(LimitError, match="thread"):
        writer.start()


def test_what_a_pipe_takes_in_pieces_arrives_whole() -> None:
    """A non-blocking descriptor takes some parts and half of another at a time."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    parts = [bytes([65 + index]) * size for index, size in enumerate((10_000, 50_000, 1, 70_000, 3))]
    arrived = bytearray()

    def read() -> None:
        while data := os.read(reading, 1000):
            arrived.extend(data)

    reader = threading.Thread(target=read)
    reader.start()
    output._write_all(writing, [*parts])
    os.close(writing)
    reader.join()
    os.close(reading)
    assert arrived == b"".join(parts)
