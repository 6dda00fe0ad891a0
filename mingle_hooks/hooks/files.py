"""Files written whole or not at all, and looked at without following links."""

from __future__ import annotations

import fcntl
import functools
import glob
import itertools
import json
import math
import os
import re
import shlex
import signal
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from mingle_hooks import __version__, values
from mingle_hooks.errors import PlaceError, SettingsError
from mingle_hooks.files import MOUNTS, RUN_ROOT, network_type, template_environment, template_loader, write_new
from mingle_hooks.net.addresses import DEFAULT_RANGE, read_attribute
from mingle_hooks.settings import Settings
from mingle_hooks.values import NONE

if TYPE_CHECKING:
    import jinja2

    from mingle_hooks.hooks.plan import Hook


# The prefix of temporary names: no glob in slurm.conf matches it, and only a power cut leaves one behind. It has the
# node's name, as several nodes may write into one directory at once.
TEMPORARY = f".mingle-new.{os.uname().nodename}."
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_MOST_LINKS = 40  # the kernel's own limit for one path


class Found(NamedTuple):
    """A regular file, or a link, as it is."""

    data: bytes  # of a link: where it leads
    mode: int
    uid: int
    gid: int = -1  # any
    is_link: bool = False


def owner_of() -> int:
    """Return the uid that owns installed files: root's, or the caller's in a test and in an image's build."""
    return os.geteuid()


def inside_root(root: str, path: str, *, follow: bool = False) -> str:
    """Return where a path is for a process whose root directory is `root`: no link leads out of it.

    The last part is kept even if it is a link, unless `follow` is set. Raises PlaceError.
    """
    parts, done, links = path.split("/")[::-1], "", 0
    while parts:
        name = parts.pop()
        if name == "..":
            done = os.path.dirname(done).rstrip("/")
        elif name not in {"", "."}:
            place = f"{root}{done}/{name}"
            if (any(parts) or follow) and os.path.islink(place):
                links += 1
                if links > _MOST_LINKS:
                    raise PlaceError("symbolic links that end at a file", f"a loop: {root}{path}", "removing one")
                target = os.readlink(place)
                done = "" if target.startswith("/") else done
                parts += target.split("/")[::-1]
            else:
                done = f"{done}/{name}"
    return root + done


def below_root(root: str, path: str) -> str:
    """Return what a path leads to below root, all of its links followed. Raises PlaceError."""
    return inside_root(root, path, follow=True)


def can_be_run(root: str, path: str) -> bool:
    """Return whether a path leads to a program that its owner may run. Raises PlaceError."""
    program = below_root(root, path)
    return os.path.isfile(program) and bool(os.stat(program).st_mode & stat.S_IXUSR)


def is_glob(path: str) -> bool:
    """Return whether slurm.conf means all files that match."""
    return re.search(r"[*?[]", path) is not None


def glob_matches(root: str, pattern: str) -> list[str]:
    """Return the paths that a glob of slurm.conf's kind matches below root, as they are there."""
    place, name = os.path.split(pattern)
    if is_glob(place):  # which no scheduler's own configuration has
        place, name = "/", pattern.lstrip("/")
    return sorted(os.path.join(place, found) for found in glob.glob(name, root_dir=below_root(root, place) or "/"))


def shared_type(root: str, path: str) -> str:
    """Return the type of the file system of a path, if other nodes may share it; empty for a local one."""
    return network_type(below_root(root, os.path.dirname(path)) or "/", MOUNTS)


def look_at(path: str, *, links: bool = False) -> Found | None:
    """Return the file, None where there is none. Raises PlaceError for anything but a regular file, or a link."""
    try:
        found = os.lstat(path)
        owned = stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid
        if links and stat.S_ISLNK(found.st_mode):
            return Found(os.fsencode(os.readlink(path)), *owned, is_link=True)
        if not stat.S_ISREG(found.st_mode):
            raise PlaceError("a regular file", f"{path}, which is another kind of file", "moving it away")
        with open(path, "rb") as file:
            return Found(file.read(), *owned)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as wrong:
        raise PlaceError("a readable file", f"{path}: {wrong.strerror}", "running it as root") from None


def look_below(root: str, path: str) -> Found | None:
    """Return the file or link at a path below root, None where there is none and for no path. Raises PlaceError."""
    return look_at(inside_root(root, path), links=True) if path else None


def write_whole(path: str, data: bytes, mode: int) -> None:
    """Write a file of ours, as put_files() does. Raises PlaceError."""
    put_files([(path, Found(data, mode, owner_of()))])


def put_files(wanted: Sequence[tuple[str, Found]]) -> None:
    """Write all files to disk under temporary names, then rename them in order.

    Missing directories are created, open to all users. A full disk leaves all old files. After a power cut each file
    is either old or new, and none is new unless those before it are. Raises PlaceError.
    """
    path = ""
    try:
        for path, found in wanted:
            _make(os.path.dirname(path))
            remove_file(unfinished_files(path))
            _write(unfinished_files(path), found)
        for path, _ in wanted:
            os.rename(unfinished_files(path), path)
            sync_directory(os.path.dirname(path))
    except BaseException as wrong:
        for each, _ in wanted:
            remove_file(unfinished_files(each))
        if isinstance(wrong, OSError):
            raise PlaceError("a place to write", f"{path}: {wrong.strerror}", "running it as root") from None
        raise


def _write(path: str, found: Found) -> None:
    """Write a new file and bring it to disk, or make a new link."""
    if found.is_link:
        os.symlink(os.fsdecode(found.data), path)
        os.chown(path, found.uid, found.gid, follow_symlinks=False)
    else:
        write_new(path, found.data, mode=found.mode, uid=found.uid, gid=found.gid)


def unfinished_files(path: str) -> str:
    """Return the temporary name of a file that is being written."""
    directory, name = os.path.split(path)
    return f"{directory}/{TEMPORARY}{name}"


def _make(directory: str) -> None:
    """Create a directory and its missing parents, each synced before anything is written into it."""
    if os.path.isdir(directory):
        return
    _make(os.path.dirname(directory))
    # Every job's user goes through it to the TaskProlog, so the umask of root's shell must not close it.
    before = os.umask(0o022)
    try:
        os.mkdir(directory)
    finally:
        os.umask(before)
    sync_directory(os.path.dirname(directory))


def remove_file(path: str) -> None:
    """Remove a file, if it is there. Raises PlaceError."""
    try:
        os.unlink(path)
        sync_directory(os.path.dirname(path))
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as wrong:
        raise PlaceError("a file to remove", f"{path}: {wrong.strerror}", "running it as root") from None


def sync_directory(directory: str) -> None:
    """Sync a directory's entries to disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# One installation at a time: two at once would each write a manifest without the other's files.

# Only root can open it: any user could hold a lock on a file that all can open. The lock counts, not the file, so one
# that a power cut leaves behind does no harm. The process that locked it removes it.
LOCK_PATH = "/run/mingle-hooks.lock"


@contextmanager
def installation_lock(root: str) -> Iterator[None]:
    """Exclude other installations below root. Raises PlaceError if one is in progress."""
    path = root or LOCK_PATH  # nothing is written into an image but the hooks
    flags = os.O_RDONLY | os.O_DIRECTORY if root else os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
    with ExitStack() as held:
        try:
            descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
            held.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_ours = os.fstat(descriptor).st_nlink > 0  # else the other one removed it since it was opened here
        except BlockingIOError:
            is_ours = False
        except OSError as wrong:
            raise PlaceError("a lock", f"{path}: {wrong.strerror}", "running it as root") from None
        if not is_ours:
            seen = f"another one in progress ({path} is locked)"
            raise PlaceError("one mingle hooks install or uninstall at a time", seen, "again when that ends")
        if not root:
            held.callback(remove_file, path)
        yield


# One node at a time in a directory that nodes may share, where flock may be local to each. A link is created
# atomically with its content, the node's name. Slurm's globs match no such name.
_NODES_LOCK = ".mingle-hooks.lock"
# A thousand nodes that install at once need most of a minute; what is ten minutes old is left of a node that crashed.
_LOCK_S, _STALE_S = 60.0, 600.0


def lock_beside(path: str) -> str:
    """Return the path of the lock beside a hook."""
    return f"{os.path.dirname(path)}/{_NODES_LOCK}"


@contextmanager
def directory_locks(root: str, paths: Iterable[str]) -> Iterator[None]:
    """Keep other nodes out of the directories that have a manifest beside these hooks. Raises PlaceError.

    Meanwhile the signals that end a process wait, so that it does not end between two files of one installation.
    """
    with ExitStack() as held:
        for path in sorted({inside_root(root, lock_beside(path)) for path in paths if manifest_beside(path)}):
            held.enter_context(_locked(path))
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
        try:
            yield
            held.close()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _locked(path: str) -> Iterator[bool]:
    """Lock a directory, and yield whether it is; where no link can be made, nothing else can be written either."""
    deadline, is_ours = time.monotonic() + _LOCK_S, False
    while not is_ours:
        try:
            os.symlink(os.uname().nodename, path)
            is_ours = True
        except FileExistsError:
            with suppress(FileNotFoundError):  # the other has just ended
                if _is_stale(path):
                    # Only one node at a time removes it: by now it may be the new lock of a faster node.
                    with _locked(f"{path}.left") as is_alone:
                        if is_alone and _is_stale(path):
                            remove_file(path)
                if time.monotonic() > deadline:
                    seen = f"{path} of {os.readlink(path)}, which is at work"
                    raise PlaceError("one node at a time", seen, "again when that ends") from None
            time.sleep(0.02)
        except OSError:
            break
    try:
        yield is_ours
    finally:
        if is_ours:
            remove_file(path)


def _is_stale(path: str) -> bool:
    """Return whether a killed process, or a node that crashed, left this lock behind."""
    # This process holds installation_lock(): no other one installs on this node.
    return os.readlink(path) == os.uname().nodename or time.time() - os.lstat(path).st_mtime > _STALE_S


def unfinished_beside(entry: Entry) -> list[str]:
    """Return the temporary names of all that installing one entry writes."""
    return [unfinished_files(path) for path in (entry.path, manifest_beside(entry.path), entry.kept) if path]


# The time since when a file is there, whatever somebody does to the wall clock.


def boot_clock() -> str:
    """Return the boot id and the seconds since boot, including suspension."""
    boot = read_attribute("/proc/sys/kernel/random/boot_id") or "boot"  # in a container without /proc
    return f"{boot} {time.clock_gettime(time.CLOCK_BOOTTIME):.0f}"


def seconds_since(then: str, root: str, path: str) -> float:
    """Return how long ago boot_clock() had this value; infinity for another boot, and for a value that is none.

    Another boot may be another node's where nodes share the file at the path, so the time of the file counts there.
    """
    (boot, _, now), (old_boot, _, old) = boot_clock().partition(" "), then.partition(" ")
    if boot != old_boot and (manifest_beside(path) or shared_type(root, path)):
        return abs(time.time() - os.stat(inside_root(root, path)).st_mtime)
    seconds = values.number(old, least=0, most=1 << 40) if boot == old_boot else None
    return math.inf if seconds is None else int(now) - seconds


# The header of a hook: who made it, which program it runs afterwards, and a checksum of the other lines.

_MAKER = "Made by: mingle hooks render "
_CHAIN = "Runs afterwards: "
_SUM = "sha256 of the other lines: "
_HEADER_LINES = 10  # the header ends before


class Header(NamedTuple):
    """The header of a file that mingle made, even if it was edited since."""

    scheduler: str
    name: str
    version: str
    chain: str
    is_whole: bool  # the checksum is that of the other lines


def header_lines(scheduler: str, name: str, chain: str) -> str:
    """Return the lines with a place for the checksum, which with_checksum() fills in."""
    lines = [
        f"{_MAKER}{scheduler} {name} (mingle-hooks {__version__}).",
        "Do not edit this file: change /etc/mingle/mingle.toml, then run mingle hooks install again.",
        *([f"{_CHAIN}{chain}"] if chain else []),
        f"{_SUM}@",
    ]
    return "\n".join(f"# {line}" for line in lines)


def with_checksum(text: str) -> str:
    """Return the text with its checksum."""
    line = f"# {_SUM}@\n"
    return text.replace(line, f"# {_SUM}{checksum(text.replace(line, '', 1).encode())}\n", 1)


def read_header(data: bytes) -> Header | None:
    """Return a file's header; None if mingle did not make the file."""
    head = b"\n".join(data.split(b"\n", _HEADER_LINES)[:_HEADER_LINES])
    maker = re.search(rb"%b(\S+) (\S+) \(mingle-hooks ([^\s)]+)" % _MAKER.encode(), head)
    if maker is None:
        return None
    scheduler, name, version = (word.decode(errors="replace") for word in maker.groups())
    chain = re.search(rb"%b(.*)" % _CHAIN.encode(), head)
    line = re.search(rb".*%b(.*)" % _SUM.encode(), head)
    is_whole = line is not None and line[1].decode(errors="replace") == checksum(data.replace(line[0] + b"\n", b"", 1))
    return Header(scheduler, name, version, chain[1].decode(errors="replace") if chain else "", is_whole)


def version_of(found: Found | None) -> str:
    """Return the version of mingle-hooks that made a file; empty where mingle did not."""
    header = read_header(found.data) if found is not None and not found.is_link else None
    return header.version if header else ""


def checksum(data: bytes) -> str:
    """Return the checksum that the manifest and the hooks hold."""
    return sha256(data).hexdigest()


# What was installed, so that it can be checked and removed: a JSON file on each node, and one beside the hooks in every
# directory that is not mingle's own. Nodes may share that: what one of them installs there is right for all of them.

MANIFEST_DIRECTORY = "/etc/mingle/hooks"
MANIFEST_PATH = f"{MANIFEST_DIRECTORY}/manifest.json"
_BESIDE = ".mingle-hooks.json"  # Slurm's globs match no such name
# Copies of the files that installed ones replaced, outside every directory whose files a scheduler runs.
COPIES = f"{MANIFEST_DIRECTORY}/kept"


class Entry(NamedTuple):
    """One installed file. `kept` is the copy of what was at the path before; `chain` is what the hook calls."""

    scheduler: str
    name: str
    path: str  # without the root that it was installed below
    sha256: str  # empty if it is no longer known what was installed
    mode: int
    chain: str = ""
    kept: str = ""
    kept_sha256: str = ""
    is_users: bool = False  # the job's user runs it
    stub: str = ""  # uninstalled: boot_clock() when a stub took its place


class Manifest(NamedTuple):
    """The installed files by path."""

    entries: Mapping[str, Entry] = {}
    is_rebuilt: bool = False  # from the hooks themselves, as the file is lost or makes no sense
    beside: frozenset[str] = frozenset()  # the paths of manifests beside hooks

    def of(self, scheduler: str) -> tuple[Entry, ...]:
        """Return one scheduler's files."""
        return tuple(entry for entry in self.entries.values() if entry.scheduler == scheduler)

    def files(self, root: str) -> list[tuple[str, Found]]:
        """Return the paths and files of the node's manifest, then of those beside hooks.

        Those have this node's name, and no copies of what was there before, which are on the node that made them.
        """
        node = "" if root else os.uname().nodename  # an image is for nodes of any name
        texts = {MANIFEST_PATH: _text(self.entries.values(), "")}
        for path in sorted(self.beside):
            entries = [entry for entry in self.entries.values() if manifest_beside(entry.path) == path]
            texts[path] = _text([entry._replace(kept="", kept_sha256="") for entry in entries], node)
        return [(path, Found(text.encode(), 0o644, owner_of())) for path, text in texts.items()]


def _text(entries: Iterable[Entry], node: str) -> str:
    """Return a manifest's text, the same for the same entries."""
    rows = [values.to_json(entry._asdict()) for entry in sorted(entries, key=lambda entry: entry.path)]
    installed_by = f'"node": {json.dumps(node)}, ' if node else ""
    return f'{{"version": 1, {installed_by}"files": [\n' + ",\n".join(rows) + "\n]}\n"


_NODE = re.compile(rb'\{"version": 1, "node": "([A-Za-z0-9_.-]+)"')  # as _text() begins


def other_node(root: str, path: str) -> str:
    """Return which other node wrote the manifest beside a hook; empty where none did. Raises PlaceError."""
    found = look_below(root, manifest_beside(path))
    named = _NODE.match(found.data) if found else None
    return named[1].decode() if named and named[1] != os.uname().nodename.encode() else ""


def manifest_beside(path: str) -> str:
    """Return the path of the manifest beside a hook; empty in mingle's own directories, which need no other."""
    is_own = path.startswith(f"{MANIFEST_DIRECTORY}/")
    return "" if is_own else f"{os.path.dirname(path)}/{_BESIDE}"


def manifest_of(entries: Mapping[str, Entry]) -> Manifest:
    """Return the manifest of these files as it is written, with those beside hooks."""
    return Manifest(entries, beside=frozenset(filter(None, map(manifest_beside, entries))))


def read_manifest(root: str) -> Manifest:
    """Return the node's manifest, in which those beside hooks count more, as another node may have installed since.

    Raises PlaceError where one cannot be read.
    """
    own = node_manifest(root)
    found = {path: look_at(inside_root(root, path)) for path in manifest_of(own.entries).beside}
    beside = {path: _parsed(file.data) for path, file in found.items() if file}
    entries = {**own.entries}
    for entry in itertools.chain.from_iterable(filter(None, beside.values())):
        if mine := own.entries.get(entry.path):
            entries[entry.path] = entry._replace(kept=mine.kept, kept_sha256=mine.kept_sha256)
    return Manifest(entries, own.is_rebuilt or None in beside.values(), frozenset(beside))


def node_manifest(root: str) -> Manifest:
    """Return the node's own manifest; where it is lost or makes no sense, one rebuilt from the hooks' headers.

    Raises PlaceError where it cannot be read.
    """
    found = look_at(inside_root(root, MANIFEST_PATH))
    entries = _parsed(found.data) if found else None
    if entries is not None:
        return Manifest({entry.path: entry for entry in entries})
    rebuilt = {entry.path: entry for entry in _hooks(root)}
    return Manifest(rebuilt, is_rebuilt=found is not None or bool(rebuilt))


def _parsed(data: bytes) -> list[Entry] | None:
    """Return the entries; names that a newer version may have added are left out. None for what makes no sense."""
    try:
        rows = values.from_json(data)["files"]
        entries = [Entry(**{name: row[name] for name in Entry._fields if name in row}) for row in rows]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return entries if all(_is_sound(entry) for entry in entries) else None


def _is_sound(entry: Entry) -> bool:
    """Return whether all types are right and each path is absolute and normal: uninstalling removes these paths."""
    if [type(value) for value in entry] != [type(value) for value in Entry("", "", "", "", 0)]:
        return False
    paths = entry.path, entry.kept or entry.path
    is_text = not any("\0" in value for value in entry if isinstance(value, str))
    return is_text and all(os.path.isabs(path) and path == os.path.normpath(path) for path in paths)


def _hooks(root: str) -> Iterator[Entry]:
    """Yield an entry for each hook in our own directories; others are found where they would be installed."""
    for name in sorted(glob.glob("*/*", root_dir=below_root(root, MANIFEST_DIRECTORY))):
        path = f"{MANIFEST_DIRECTORY}/{name}"
        found = look_below(root, path)
        header = read_header(found.data) if found else None
        if found and header and header.scheduler == os.path.dirname(name):
            sha256 = checksum(found.data) if header.is_whole else ""
            yield Entry(header.scheduler, header.name, path, sha256, found.mode, header.chain)


# The site's settings for its hooks, checked for the places where they are put into a script.

# As RUN_ROOT, the same everywhere, so that an admin who comes to a strange cluster knows where to look.
KILL_SWITCH = "/etc/mingle/disabled"

# slurm.conf's keys of the hooks that a site may have of its own, and the names of these in the settings.
KEYS = {"Prolog": "prolog", "Epilog": "epilog", "TaskProlog": "taskprolog"}
# The kernel's IFNAMSIZ is 16 with the closing NUL.
_INTERFACE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,14}")
_SUFFIX = re.compile(r"[A-Za-z0-9_.-]{0,200}")
_PATH = re.compile(r"/[A-Za-z0-9_./+@-]{1,4000}")


@dataclass(frozen=True)
class Site:
    """The [hooks] table and the settings that hooks share with `mingle env`. Raises SettingsError."""

    cluster: str = "cluster"
    key_file: str = "/etc/mingle/key"
    observe: bool = False
    partitions: tuple[str, ...] = ()  # empty: all
    hosts: tuple[str, ...] = ()  # empty: all
    opt_in: str | None = None  # the word that a job's comment must hold
    interfaces: tuple[str, ...] = ()  # in order; the first that a host has is used
    host_suffix: str = ""
    port_range: range = DEFAULT_RANGE
    prolog: str | None = None  # the site's own programs; "none" for none, None where that is not said
    epilog: str | None = None
    taskprolog: str | None = None
    containers: str = "auto"

    def __post_init__(self) -> None:
        """Raise SettingsError for a value that no script can hold; the settings' readers checked the rest."""
        said = [(f"hooks.{key}", self.chain(key)) for key in KEYS.values()]
        programs = [(key, _PATH, program) for key, program in said if program not in {None, NONE}]
        checks = (("hooks.key_file", _PATH, self.key_file), ("host_suffix", _SUFFIX, self.host_suffix), *programs)
        for key, pattern, value in checks:
            if not pattern.fullmatch(value):
                raise SettingsError(f"text that fits {pattern.pattern}", f"{value!r} ({key})", "a plain name")

    def chain(self, key: str) -> str | None:
        """Return the site's own program for one of the values of KEYS."""
        program: str | None = getattr(self, key)
        return program

    @property
    def port_stride(self) -> int:
        """How far apart the ports of two jobs with ids next to each other are.

        By the golden section, the ports of a job's many steps are far from those of all jobs near it; a number that
        has no divisor in common with the range's length uses all of it.
        """
        ports = len(self.port_range)
        return next(n for n in itertools.count(round(ports * 0.618)) if math.gcd(n, ports) == 1)


def read_site(settings: Settings) -> Site:
    """Return what the hooks need of the settings; networks given as CIDR are left out, as no script can look."""
    return Site(
        interfaces=tuple(one.text for one in settings.iface if _INTERFACE.fullmatch(one.text)),
        host_suffix=settings.host_suffix,
        port_range=settings.port_range,
        **settings.section("hooks"),
    )


# A hook's text: the template filled in, with its header.

# Where the site's prolog.d, epilog.d and taskprolog.d are, whose programs Slurm's hooks run.
DROP_INS = "/etc/mingle"
# Programs of the site's own that run beside mingle's TaskProlog, where there is such a directory.
TASK_PROLOGS = "/etc/slurm/task_prolog.d"
# Where Slurm's hooks are that others of them call.
SLURM_DIRECTORY = f"{MANIFEST_DIRECTORY}/slurm"


class Chain(NamedTuple):
    """What the site has of its own: a program that the hook calls, a directory of programs, and prolog.d and so on."""

    program: str = ""
    directory: str = ""
    drop_ins: str = DROP_INS


NO_CHAIN = Chain()


def render_hook(
    hook: Hook,
    site: Site,
    chain: Chain = NO_CHAIN,
    *,
    place: str = SLURM_DIRECTORY,
    state_directory: str = RUN_ROOT,
    kill_switch: str = KILL_SWITCH,
) -> str:
    """Return the whole file; the same arguments always give the same text.

    The three paths are the same on every host, except in a simulation.
    """
    header = header_lines(hook.scheduler, hook.name, chain.program)
    paths = {"place": place, "state_directory": state_directory, "kill_switch": kill_switch}
    template = _environment().get_template(hook.template)
    return with_checksum(template.render(header=header, hook=hook, site=site, chain=chain, **paths))


@functools.cache
def _environment() -> jinja2.Environment:
    return template_environment(template_loader("hooks"), {"sh": shlex.quote, "json": json.dumps})
