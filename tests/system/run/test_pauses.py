"""A pause is not a death: a file system that hangs, a runner or an agent that is stopped."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from needs import skip_for_want_of
from places import Places

# Longer than a host may be silent, in seconds, by OPTIONS.
PAUSE_S = 4.5
OPTIONS = ("--silence", "3")
LINES = 300
# Writes about as long as the pause is, and then a mark of its end.
WRITES = f"i=0; while [ $i -lt {LINES} ]; do echo line $i; i=$((i + 1)); sleep 0.02; done; touch written.$RANK"


class Frozen:
    """A file system of its own, on which writes hang from freeze() to thaw()."""

    def __init__(self, place: Path) -> None:
        self.at, self._image = place / "disk", place / "image"
        self.at.mkdir()
        with self._image.open("wb") as file:
            file.truncate(16 << 20)
        self._run("mkfs.ext4", "-q", str(self._image))
        self._run("mount", "-o", "loop", str(self._image), str(self.at))
        self._is_frozen = False

    def freeze(self) -> None:
        """Let all writes wait."""
        self._run("fsfreeze", "--freeze", str(self.at))
        self._is_frozen = True

    def thaw(self) -> None:
        """Let them go on."""
        if self._is_frozen:
            self._run("fsfreeze", "--unfreeze", str(self.at))
        self._is_frozen = False

    def close(self) -> None:
        """Unmount it."""
        self.thaw()
        self._run("umount", "--lazy", str(self.at))

    def _run(self, *argv: str) -> None:
        subprocess.run(argv, check=True, capture_output=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Frozen]:
    """Give a file system that can be frozen, which takes root and loop devices."""
    if os.geteuid() != 0 or not Path("/dev/loop-control").exists():
        skip_for_want_of(["a loop device"])
    made = Frozen(tmp_path)
    try:
        yield made
    finally:
        made.close()


def stopped(pids: list[int]) -> None:
    """Stop processes for longer than a host may be silent."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(PAUSE_S)
    for pid in pids:
        os.kill(pid, signal.SIGCONT)


def test_output_and_logs_on_a_file_system_that_hangs_are_late_and_whole(places: Places, disk: Frozen) -> None:
    with (disk.at / "out").open("w") as out:
        command = ("sh", "-c", f"touch begun.$RANK.0; {WRITES}")
        run = places.start(*OPTIONS, "--log-dir", str(disk.at / "logs"), *command, hosts="node1,node2", stdout=out)
        places.begun(0, 1)
        disk.freeze()
        places.until(lambda: len(list(places.place.glob("written.*"))) == 2, "COMMAND is held up")
        assert run.poll() is None
        disk.thaw()
        status, _, err = places.end(run)
    assert (status, err) == (0, "")
    rows = [f"node{number}: line {i}" for number in (1, 2) for i in range(LINES)]
    assert sorted((disk.at / "out").read_text().splitlines()) == sorted(rows)
    for log in ("rank0-node1.log", "rank1-node2.log"):
        assert (disk.at / "logs" / log).read_text().splitlines() == [f"line {i}" for i in range(LINES)]
    assert '"event":"over"' in (disk.at / "logs" / "events.jsonl").read_text()


def test_a_runner_or_an_agent_that_is_stopped_goes_on(places: Places) -> None:
    run = places.start(*OPTIONS, "sh", "-c", f"touch begun.$RANK.0; {WRITES}", hosts="node1,node2")
    places.begun(0, 1)
    stopped([run.pid])
    assert not [*places.place.glob("written.*")]
    stopped(places.agent("node2"))
    status, out, err = places.end(run)
    assert status == 0, err
    assert err == "mingle run: node2 (rank 1): no heartbeat for 3 s, but the host answers: waiting for it\n"
    assert len(out.splitlines()) == 2 * LINES
