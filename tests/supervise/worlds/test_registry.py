"""Where runs are written down: what is there is read strictly, and what cannot be written stops nobody."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest
from supervise.worlds.served import KEY, OTHER_KEY, Served

from mingle_hooks import values as jsontext
from mingle_hooks.errors import PlaceError, SettingsError, UsageError
from mingle_hooks.run import status as registry
from mingle_hooks.run.status import Entry, Listener, RunnerProcess, Runs, in_time

if TYPE_CHECKING:
    from pathlib import Path

ENTRY = Entry(
    id="4711",
    run="0011",
    host="node1",
    addresses=("127.0.0.1", "fd00::1"),
    doors=(Listener("00" * 8, 1),),
    process=RunnerProcess("elsewhere", 1, 1),
    began=1_700_000_000,
    wanted=2,
    command="torchrun train.py",
)


def path(tmp_path: Path) -> str:
    """Return the directory of a user whose state is below tmp_path."""
    found = registry.registry_directory({"XDG_STATE_HOME": str(tmp_path)})
    assert found is not None
    return found


def dead() -> RunnerProcess:
    """Return a process of this machine that has ended."""
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    return RunnerProcess(registry.runs_here(), done.pid, 1)


def runs(tmp_path: Path, notes: list[str], key: bytes = KEY) -> Runs:
    """Return what is found with a key."""
    return Runs({"XDG_STATE_HOME": str(tmp_path)}, [key], notes.append)


def test_a_run_is_written_down_for_its_user_alone_and_no_key_is(tmp_path: Path, served: Served) -> None:
    """In a directory of the user's state, until it ends."""
    world = served.world(directory=path(tmp_path))
    where = tmp_path / "mingle" / "runs"
    file = where / "00112233aabbccdd.json"
    assert (where.stat().st_mode & 0o777, file.stat().st_mode & 0o777) == (0o700, 0o600)
    assert registry.read_entries(str(where), print) == [world.entry]
    assert KEY not in file.read_bytes()
    world.close(0)
    assert [*where.iterdir()] == []


def test_where_it_lies() -> None:
    """XDG_STATE_HOME where it is absolute, else below the home."""
    assert registry.registry_directory({"HOME": "/h"}) == "/h/.local/state/mingle/runs"
    assert registry.registry_directory({"HOME": "/h", "XDG_STATE_HOME": "s"}) == "/h/.local/state/mingle/runs"
    assert registry.registry_directory({"HOME": "/h", "XDG_STATE_HOME": "/s"}) == "/s/mingle/runs"
    assert registry.registry_directory({}) is None


def test_a_home_that_cannot_be_written_is_one_note(tmp_path: Path, served: Served) -> None:
    """And the run goes on, without a door."""
    (tmp_path / "mingle").write_text("a file where the directory would be")
    world = served.world(directory=path(tmp_path))
    assert world.entry is None
    assert len(served.notes) == 1
    assert served.notes[0].startswith("`mingle ls` does not show this run: expected to record this run in")
    world.close(0)


def test_a_full_home_leaves_nothing_half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does one that takes the file and not its name."""

    def full(*_paths: str) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "rename", full)
    with pytest.raises(PlaceError, match="No space left"):
        registry.write_entry(path(tmp_path), ENTRY)
    assert os.listdir(path(tmp_path)) == []


def test_a_home_that_does_not_answer_holds_nothing_up() -> None:
    """What is done there is left to itself."""
    home = threading.Event()
    assert not in_time(home.wait, 0.01)
    home.set()
    assert in_time(home.wait, 60)


@pytest.mark.parametrize("its", [{"keys": ()}, {"directory": None}], ids=["no key", "no home"])
def test_without_a_key_or_a_home_nothing_is_written(tmp_path: Path, served: Served, its: dict[str, object]) -> None:
    """Nor said."""
    world = served.world(**{"directory": path(tmp_path), **its})
    assert (world.entry, served.notes, [*tmp_path.iterdir()]) == (None, [], [])


def hostile(where: Path) -> None:
    """Put into a directory what no runner writes."""
    text = jsontext.to_json(ENTRY.body())
    files = {
        "large": text + " " * 10_000,
        "text": "no JSON",
        "list": "[]",
        "deep": "[" * 5000,
        "control": text.replace("torchrun", "\\u001b[2J"),
        "address": text.replace("fd00::1", "$(reboot)"),
        "port": text.replace(",1]", ",70000]"),
        "pid": text.replace('["elsewhere",1,1]', '["elsewhere",-1,1]'),
        "binary": "\udcff\udcfe",
    }
    for name, said in files.items():
        (where / f"{name}.json").write_text(said, errors="surrogateescape")
        (where / f"{name}.json").chmod(0o600)
    (where / "open.json").write_text(text)
    (where / "open.json").chmod(0o644)
    (where / "elsewhere").write_text(text)
    (where / "elsewhere").chmod(0o600)
    (where / "link.json").symlink_to(where / "elsewhere")
    (where / "directory.json").mkdir()
    os.mkfifo(where / "fifo.json", 0o600)
    if os.getuid() == 0:
        (where / "other.json").write_text(text)
        (where / "other.json").chmod(0o600)
        os.chown(where / "other.json", 4711, 4711)


def test_what_no_runner_writes_is_left_out_with_a_note(tmp_path: Path) -> None:
    """One for each; the others are shown."""
    registry.write_entry(path(tmp_path), ENTRY)
    where = tmp_path / "mingle" / "runs"
    hostile(where)
    notes: list[str] = []
    assert registry.read_entries(str(where), notes.append) == [ENTRY]
    assert len(notes) == len([*where.glob("*.json")]) - 1
    assert not [note for note in notes if not note.startswith(f"left out: {where}/")]


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702], ids=oct)
def test_a_directory_that_others_can_write_is_refused(tmp_path: Path, mode: int) -> None:
    """Whoever reads there, and whoever writes."""
    registry.write_entry(path(tmp_path), ENTRY)
    os.chmod(path(tmp_path), mode)
    with pytest.raises(SettingsError, match="only this user can write"):
        runs(tmp_path, []).ways()
    with pytest.raises(PlaceError, match="only this user can write"):
        registry.write_entry(path(tmp_path), ENTRY)


def test_what_a_killed_runner_left_is_removed_where_that_is_certain(tmp_path: Path, served: Served) -> None:
    """A process of this machine that has ended; another machine's is shown as it is, for it may be out of reach."""
    here, there = served.world(directory=path(tmp_path)), served.world("9", "9", directory=path(tmp_path))
    for world in (here, there):
        world._shut()  # it was killed
    registry.write_entry(path(tmp_path), here.entry._replace(process=dead()))
    registry.write_entry(path(tmp_path), there.entry._replace(process=RunnerProcess("elsewhere", 1, 1)))
    known = runs(tmp_path, [])
    ways = known.ways()
    assert [way.entry.id for way in ways] == ["9"]
    assert [(seen.entry.id, seen.state) for seen in known.look(ways)] == [("9", None)]
    assert os.listdir(path(tmp_path)) == ["9.json"]


def test_a_pid_that_another_process_has_by_now_is_no_runner() -> None:
    """It began at another time."""
    own = RunnerProcess.own()
    assert not own.has_ended
    assert own._replace(start=own.start - 1).has_ended
    assert not own._replace(start=0).has_ended
    assert not own._replace(machine="elsewhere", pid=dead().pid).has_ended


def test_a_run_that_ends_while_it_is_asked_is_not_shown(tmp_path: Path, served: Served) -> None:
    """Its entry is gone by then."""
    world = served.world(directory=path(tmp_path))
    known = runs(tmp_path, [])
    ways = known.ways()
    world.close(0)
    assert known.look(ways) == []


def test_runs_of_another_key_are_counted_and_no_more(tmp_path: Path, served: Served) -> None:
    """The one line says what may be missing."""
    served.world(directory=path(tmp_path))
    notes: list[str] = []
    known = runs(tmp_path, notes, OTHER_KEY)
    assert known.ways() == []
    assert notes == ["1 run has another key than those found here (MINGLE_KEY, --key-file)"]
    with pytest.raises(UsageError, match="the id of a run"):
        known.one("4711")


def test_a_run_is_named_by_either_id_or_a_beginning_that_no_other_has(tmp_path: Path, served: Served) -> None:
    """Where several have it, they are named."""
    for name, run in (("4711", "aa11"), ("4711", "aa22"), ("47", "bb11"), ("48[1]", "bb22")):
        served.world(name, run, directory=path(tmp_path))
    known = runs(tmp_path, [])
    meant = {"aa1": "aa11", "aa22": "aa22", "47": "bb11", "48": "bb22", "bb1": "bb11"}
    assert {name: known.one(name).entry.run for name in meant} == meant
    with pytest.raises(UsageError, match=r"4711, which 2 have: aa\d\d \(4711\), aa\d\d \(4711\)"):
        known.one("4711")
    with pytest.raises(UsageError, match="which 2 have"):
        known.one("aa")
    with pytest.raises(UsageError, match="saw 49; try"):
        known.one("49")
