"""The user's runs, one small file each in a directory that all of the user's hosts see; no file holds a key."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import NamedTuple

from mingle_hooks import values
from mingle_hooks.errors import PlaceError, SettingsError, reason
from mingle_hooks.files import UnfitError, contents
from mingle_hooks.net import addresses
from mingle_hooks.net.addresses import is_hostname_or_address
from mingle_hooks.rendezvous.wire import Body, WireError, address, integer, text
from mingle_hooks.schedulers.facts import LONGEST_ID

LONGEST_COMMAND = 200
MOST_SECONDS = 1 << 40
_ENDING = ".json"
_MOST_BYTES = 8 * 1024
_MOST_RUNS = 10_000
MOST_ADDRESSES, MOST_DOORS = 16, 4
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


# Which process of which machine a runner is, so that one that was killed can be told from one that is out of reach.


class RunnerProcess(NamedTuple):
    """A machine, as one boot of it and one namespace of processes there; a pid; when that began (0: not known)."""

    machine: str
    pid: int
    start: int


def own_process() -> RunnerProcess:
    """Return this process."""
    return RunnerProcess(runs_here(), os.getpid(), _start(os.getpid()) or 0)


def runs_here() -> str:
    """Return 16 hex digits that two processes share when they see the same processes, and the same network."""
    try:
        pids = os.stat("/proc/self/ns/pid").st_ino
    except OSError:  # not Linux
        pids = 0
    return sha256(f"{addresses.machine_id()} {pids}".encode()).hexdigest()[:16]


def process_is_gone(process: RunnerProcess) -> bool:
    """Tell whether this process has certainly ended: it was of this machine, where another or none has its pid now."""
    return process.machine == runs_here() and process.start > 0 and _start(process.pid) != process.start


def _start(pid: int) -> int | None:
    """Return when a process began, in ticks since the machine did; None where there is none, or it is a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            words = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if words[0] in (b"Z", b"X") else int(words[19])


# What a run's runner writes down, and what others read.


class RegisteredDoor(NamedTuple):
    """A port where a run answers those who hold one key; `tag` tells them which (status.status_tag)."""

    tag: str
    port: int


class Entry(NamedTuple):
    """One run, as its runner wrote it down at its beginning."""

    id: str
    run: str
    host: str
    addresses: tuple[str, ...]
    doors: tuple[RegisteredDoor, ...]
    process: RunnerProcess
    began: int  # in seconds since 1970
    wanted: int
    command: str

    def body(self) -> Body:
        """Return what is written."""
        return {**self._asdict(), "addresses": [*self.addresses], "doors": [[*door] for door in self.doors]} | {
            "process": [*self.process]
        }

    @classmethod
    def parse(cls, body: Body) -> Entry:
        """Return what was written. Raises WireError."""
        addresses = [address({"address": its}, "address") for its in _list(body, "addresses", MOST_ADDRESSES)]
        machine, pid, start = _fields(body.get("process"), 3)
        return cls(
            text(body, "id", LONGEST_ID),
            text(body, "run", LONGEST_ID),
            parse_status_host(body, "host"),
            tuple(addresses),
            tuple(_door(row) for row in _list(body, "doors", MOST_DOORS)),
            RunnerProcess(
                text({"machine": machine}, "machine", 64),
                integer({"pid": pid}, "pid", 1, (1 << 31) - 1),
                integer({"start": start}, "start", 0, MOST_SECONDS),
            ),
            integer(body, "began", 0, MOST_SECONDS),
            integer(body, "wanted", 1, 1 << 16),
            text(body, "command", LONGEST_COMMAND),
        )


def registry_directory(environ: Mapping[str, str]) -> str | None:
    """Return where the user's runs are written down (XDG base directories), None where no home is known."""
    state, home = environ.get("XDG_STATE_HOME", ""), environ.get("HOME", "")
    if os.path.isabs(state):  # the standard has relative ones ignored
        return f"{state}/mingle/runs"
    return f"{home}/.local/state/mingle/runs" if os.path.isabs(home) else None


def write_entry(path: str, entry: Entry) -> None:
    """Write an entry, whole. Raises PlaceError."""
    draft = f"{path}/.{entry.run}"
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
        _check(os.stat(path), path)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(draft, flags, 0o600)
        try:
            with open(descriptor, "wb") as file:
                file.write(values.to_json(entry.body()).encode())  # NFS tells of a full disk when it is closed
            os.rename(draft, f"{path}/{entry.run}{_ENDING}")
        except BaseException:
            os.unlink(draft)
            raise
    except (OSError, SettingsError) as error:
        raise PlaceError(f"to record this run in {path}", reason(error), "XDG_STATE_HOME") from None


def remove_entry(path: str, run: str) -> None:
    """Remove an entry; harmless where there is none."""
    try:
        os.unlink(f"{path}/{run}{_ENDING}")
    except OSError:
        return


def entry_is_there(path: str, run: str) -> bool:
    """Tell whether a run is still written down."""
    return os.path.lexists(f"{path}/{run}{_ENDING}")


def read_entries(path: str, note: Callable[[str], None]) -> list[Entry]:
    """Return all entries, the oldest first; `note` gets what is wrong with those that are left out.

    Raises SettingsError where somebody else may write there.
    """
    try:
        opened = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise SettingsError("a directory of this user's runs", f"{path}: {error.strerror}", "XDG_STATE_HOME") from None
    try:
        _check(os.fstat(opened), path)
        names = sorted(name for name in os.listdir(opened) if name.endswith(_ENDING) and name[0] != ".")
        found = [_read(path, name, opened, note) for name in names[:_MOST_RUNS]]
    finally:
        os.close(opened)
    return sorted((entry for entry in found if entry is not None), key=lambda entry: (entry.began, entry.run))


def _read(path: str, name: str, within: int, note: Callable[[str], None]) -> Entry | None:
    where = f"{path}/{name}"
    try:
        data = contents(where, most_bytes=_MOST_BYTES, refused_mode=_OTHERS, owners=(os.getuid(),), within=within)
        body = values.from_json(data)
        return Entry.parse({**body, "run": name.removesuffix(_ENDING)} if isinstance(body, dict) else {})
    except FileNotFoundError:  # it has just ended
        return None
    except UnfitError as wrong:
        note(f"left out: {wrong.seen}; expected {wrong.expected}")
    except (OSError, ValueError, RecursionError, WireError) as error:
        note(f"left out: {where}, not a run's file: {reason(error)}")
    return None


def _check(found: os.stat_result, path: str) -> None:
    """Refuse a directory in which somebody else can put what is then believed. Raises SettingsError."""
    if found.st_uid != os.getuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        seen = f"{path} of uid {found.st_uid} with mode {stat.S_IMODE(found.st_mode):04o}"
        raise SettingsError("a directory that only this user can write", seen, f"chmod 700 {path}")


def parse_status_host(body: Body, name: str) -> str:
    """Return body[name], a host as --hosts may have it. Raises WireError."""
    found = text(body, name, 253)
    if not is_hostname_or_address(found):
        raise WireError(f"{name}: not a host")
    return found


def _door(row: object) -> RegisteredDoor:
    tag, port = _fields(row, 2)
    return RegisteredDoor(text({"tag": tag}, "tag", 64), integer({"port": port}, "port", 1, 65535))


def _list(body: Body, name: str, most: int) -> list[object]:
    found = body.get(name)
    if not isinstance(found, list) or len(found) > most:
        raise WireError(f"{name}: not a list of at most {most}")
    return found


def _fields(row: object, count: int) -> list[object]:
    if not isinstance(row, list) or len(row) != count:
        raise WireError(f"not a row of {count}")
    return row
