"""What installing would do, doing it and undoing it, and whether what was installed is still there."""

from __future__ import annotations

import glob
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, NamedTuple

from mingle_hooks.errors import FactsError, MingleError, PlaceError, UsageError
from mingle_hooks.files import ENVIRONMENTS, RUN_ROOT, shipped_names, shipped_text
from mingle_hooks.hooks import files
from mingle_hooks.hooks.files import NO_CHAIN, Chain, Entry, Found, Manifest, Site, checksum, read_header, render_hook
from mingle_hooks.net.devices import output_of_child
from mingle_hooks.settings import SYSTEM_FILE, load
from mingle_hooks.values import LONGEST_WAIT_S

# What is at a hook's path now, and where its copy goes before the hook replaces it.
#
# The site's original stays for good: a hook may call it, and uninstalling restores it. A hook of ours that somebody
# edited is copied too, but never called. No copy is ever written over another.

Origin = Literal["nobody", "ours", "edited", "site"]

# Ends the name of the site's own file, in its own directory: pbs_mom runs none of that name, and a script that looks
# for others beside itself (`dirname "$0"`) finds them.
SUFFIX = ".before-mingle"
_SUFFIXES = re.compile(re.escape(SUFFIX) + r"(\.[0-9]+)?$")


class Present(NamedTuple):
    """What is at a hook's path: `original` is where the site's own is, or will be; `copy` is still to be made there."""

    now: Found | None
    origin: Origin
    original: str = ""
    original_sha256: str = ""
    copy: tuple[str, Found] | None = None  # its path, and what to write there


def origin_of(now: Found | None, path: str, entry: Entry | None) -> Origin:
    """Return where a file is from; `ours` is as mingle wrote it, at this installation or at another."""
    if now is None:
        return "nobody"
    if not now.is_link and entry and checksum(now.data) == entry.sha256:
        return "ours"
    header = None if now.is_link else read_header(now.data)
    if header is not None and header.is_whole:
        return "ours"
    return "edited" if header is not None or path.startswith(f"{files.MANIFEST_DIRECTORY}/") else "site"


def restored(copy: Found) -> Found:
    """Return the original of a copy that _copied() made."""
    return copy._replace(data=os.fsencode(_SUFFIXES.sub("", os.fsdecode(copy.data)))) if copy.is_link else copy


class Line(NamedTuple):
    """A line for the scheduler's own configuration, or a command to run there."""

    text: str
    is_there: bool = False


@dataclass(frozen=True)
class File:
    """One file to be installed, and what is there now."""

    entry: Entry
    text: str
    present: Present
    is_right: bool = False  # content, owner and mode are as they shall be

    @property
    def what(self) -> Literal["keep", "create", "replace"]:
        """Return what will happen to it."""
        if self.is_right:
            return "keep"
        return "create" if self.present.now is None else "replace"

    def is_unfinished(self, root: str) -> bool:
        """Return whether an interrupted installation left files beside it, or another node is installing."""
        temporary = (files.lock_beside(self.entry.path), *files.unfinished_beside(self.entry))
        return any(os.path.lexists(files.inside_root(root, path)) for path in temporary)

    @property
    def before(self) -> str:
        """Return the text that is there now, for people; empty if there is none."""
        now = self.present.now
        return "" if now is None else now.data.decode(errors="backslashreplace")


@dataclass(frozen=True)
class Plan:
    """A whole installation. Applying it twice is the same as once."""

    scheduler: str
    root: str
    files: tuple[File, ...]
    old: Manifest
    manifest: Manifest  # as it will be
    where: str  # what the lines are for
    lines: tuple[Line, ...]
    notes: tuple[str, ...] = ()

    @property
    def changes(self) -> bool:
        """Return whether there is anything to write."""
        is_right = all(file.is_right and not file.is_unfinished(self.root) for file in self.files)
        return not is_right or self.manifest != self.old


class Draft:
    """A plan in the making, from what is on the node. Its methods raise PlaceError."""

    def __init__(self, site: Site, where: Where) -> None:
        self.site, self.where, self.root = site, where, where.root
        self.old = files.read_manifest(where.root)
        self.files: list[File] = []
        self.lines: list[Line] = []
        self.notes: list[str] = []

    def add(
        self, hook: Hook, path: str, chain: Chain = NO_CHAIN, *, mode: int = 0o755, classic: Collection[str] = ()
    ) -> None:
        """Add a file to install; one that is at its path now and is not ours will be copied.

        `classic` are the names of all scripts in its directory that the scheduler runs, if it runs no others there.
        The site's original is then copied to beside the hook, which calls it, and may be a link.
        """
        found = self._look(hook, path, classic)
        chain = Chain(found.original) if classic else chain
        data, copied = render_hook(hook, self.site, chain).encode(), (found.original, found.original_sha256)
        entry = Entry(hook.scheduler, hook.name, path, checksum(data), mode, chain.program, *copied, hook.is_users)
        now = found.now
        if now is not None and not now.is_link and now.data == data:  # nothing is lost
            found = found._replace(origin="ours", copy=None)
        is_right = found.origin == "ours" and now is not None and now[:3] == (data, mode, files.owner_of())
        self.files.append(File(entry, data.decode(), found, is_right))

    def _look(self, hook: Hook, path: str, classic: Collection[str]) -> Present:
        now, entry = files.look_at(files.inside_root(self.root, path), links=bool(classic)), self.old.entries.get(path)
        kept = f"{files.COPIES}/{hook.scheduler}-{hook.name}"
        base = f"{path}{SUFFIX}" if classic else kept
        origin, copies = origin_of(now, path, entry), self._copies(base)
        if now is not None and origin == "site":
            return self._with_copy(base, now, self._copied(hook, path, now, classic), origin)
        taken = {each.kept for each in self.old.entries.values()}  # by this hook at another path, with older settings
        free = [copy for copy in copies.values() if copy not in taken]
        original = entry.kept if entry and entry.kept else "".join(free[-1:])
        there = files.look_below(self.root, original)
        known = entry.kept_sha256 if entry else ""
        copy = None
        if now is not None and origin == "edited":
            private = now._replace(mode=0o600, uid=files.owner_of(), gid=-1)
            copy = self._with_copy(f"{kept}.edited", now, private, origin).copy
        return Present(now, origin, original, checksum(there.data) if there else known, copy)

    def _copies(self, base: str) -> dict[int, str]:
        """Return the copies of one file that are there by their numbers, the oldest first: X, X.2, X.3."""
        copy = re.compile(re.escape(base) + r"(?:\.([2-9]|[1-9][0-9]{1,6}))?")
        found = filter(None, map(copy.fullmatch, files.glob_matches(self.root, f"{glob.escape(base)}*")))
        return dict(sorted((int(match[1] or 1), match[0]) for match in found))

    def _with_copy(self, base: str, now: Found, copy: Found, origin: Origin) -> Present:
        """Return where a copy is, or the first name that is free."""
        copies = self._copies(base)
        for path in copies.values():
            there = files.look_below(self.root, path)
            if there is not None and (there.data, there.is_link, there.mode) == (copy.data, copy.is_link, copy.mode):
                return Present(now, origin, path, checksum(copy.data))
        path = f"{base}.{max(copies) + 1}" if copies else base
        return Present(now, origin, path, checksum(copy.data), (path, copy))

    def _copied(self, hook: Hook, path: str, now: Found, classic: Collection[str]) -> Found:
        """Return the copy of the site's original: a link to another classic script leads to that script's copy.

        It would lead to our hook otherwise: Torque's prologue.parallel often is a link to prologue.
        Raises PlaceError for links that lead in a circle.
        """
        if not now.is_link:
            return now
        place, target = os.path.dirname(path), os.fsdecode(now.data)
        other = os.path.join(place, target)
        files.below_root(self.root, other)
        is_beside = len({os.path.dirname(files.inside_root(self.root, each)) for each in (other, path)}) == 1
        name = os.path.basename(other)
        if not is_beside or name not in classic:
            return now
        copy = self._look(hook, f"{place}/{name}", classic).original or name + SUFFIX
        return now._replace(data=os.fsencode(os.path.join(os.path.dirname(target), os.path.basename(copy))))

    def plan(self, scheduler: str, where: str) -> Plan:
        """Return the plan, with a manifest that also has what earlier settings needed, until that is gone."""
        entries = {
            path: entry
            for path, entry in self.old.entries.items()
            if entry.scheduler != scheduler or _fate(self.root, entry) != "gone"
        }
        needed = {file.entry.path: file.entry for file in self.files}
        # Installing leaves it, as the scheduler may run it until it reads its own configuration anew.
        remedy = f"mingle hooks uninstall {scheduler}, then mingle hooks install {scheduler}"
        unneeded = [path for path, entry in entries.items() if entry.scheduler == scheduler and path not in needed]
        notes = (
            *self.notes,
            *(f"{path} is no longer needed; fix: {remedy}" for path in unneeded),
            *dict.fromkeys(self._shared_notes()),
        )
        entries |= needed
        manifest = files.manifest_of(entries)
        return Plan(scheduler, self.root, tuple(self.files), self.old, manifest, where, tuple(self.lines), notes)

    def _shared_notes(self) -> Iterator[str]:
        """Yield notes on directories that other nodes share by their file system, or have installed into."""
        for path in (file.entry.path for file in self.files):
            kind, node = files.shared_type(self.root, path), files.other_node(self.root, path)
            if kind or node:
                why = f"{os.path.dirname(path)} " + (f"is on {kind}" if kind else f"has the manifest of {node}")
                yield f"{why}: other nodes run these files too; install and uninstall act for all"


# What a scheduler's hooks are: the files, and all that installing, checking and simulating them needs.

Run = tuple[str, tuple[str, ...], Mapping[str, str]]  # a label, the hook's arguments, its environment

# The hooks bound themselves at 12 s; this is for a machine that is itself in trouble.
TRIAL_S = 30.0


class Trial(NamedTuple):
    """One run of one hook."""

    hook: str
    environment: str
    status: int
    milliseconds: float
    output: tuple[str, ...]  # what the job would get, line by line, or what the hook put into its directory


def recorded(kind: str) -> Iterator[tuple[str, str]]:
    """Yield what was recorded of one kind of hook on real clusters, each with a label."""
    for file in shipped_names(ENVIRONMENTS):
        if file.endswith(f".{kind}"):
            yield file.removesuffix(f".{kind}"), shipped_text(f"{ENVIRONMENTS}/{file}")


# What pbs_mom gives a classic prologue and epilogue beside the job and the user, and what a hostile user could be.
EVIL = "$(touch /tmp/mingle-simulate-owned);`id`'\"\nexport LD_PRELOAD=/tmp/evil.so\n\x1b[2J"
_CLASSIC: tuple[Run, ...] = (
    ("a job", ("12.server", "nobody", "nogroup"), {}),
    ("a job of an array", ("12[3].server", "nobody", "nogroup"), {}),
    ("a hostile job id", ("../../etc;" + EVIL, "nobody", "nogroup"), {}),
    ("a hostile user", ("12.server", EVIL, "nogroup"), {}),
)


class Hook(NamedTuple):
    """One file of one scheduler."""

    scheduler: str
    name: str
    template: str
    after: str = ""  # the hook that ran at the start of the job whose end this one is for
    is_users: bool = False  # the job's user runs it, and what it prints is for the job


def by_name(*hooks: Hook) -> dict[str, Hook]:
    """Return the hooks by their names."""
    return {hook.name: hook for hook in hooks}


class Stub(NamedTuple):
    """What takes the place of a hook that the scheduler may still run; `is_run` unless it is known not to."""

    text: str
    is_run: bool


class Where(NamedTuple):
    """Where to look and to write."""

    root: str = ""
    slurm_conf: str | None = None
    slurm_version: tuple[int, int] | None = None
    pbs_home: str | None = None
    is_preview: bool = False  # a preview: nothing is written, so unknown values may stay unknown


def _nothing(*_: object) -> tuple[()]:
    return ()


# Where a scheduler's programs are on hosts whose PATH lacks them.
_PROGRAMS = "/usr/bin:/bin:/usr/sbin:/sbin:/usr/local/bin:/usr/local/sbin:/opt/slurm/bin:/opt/slurm/sbin:/opt/pbs/sbin"


def program_path(program: str) -> str:
    """Return where a scheduler's program is, on PATH or in a usual place; empty where it is not on this host."""
    return shutil.which(program) or shutil.which(program, path=_PROGRAMS) or ""


class Target(NamedTuple):
    """A scheduler that hooks can be installed for.

    `program` is its daemon, which prints its version with `version_option`; without it the scheduler is not on this
    host. `plan` returns what to write, `findings` what is wrong beyond those files; `refuse` raises ConflictError while
    the scheduler still runs what is to be removed; `stubs` take the place of files that a daemon may still run, by
    their paths; `clear` removes what ended jobs have left, and returns the rest; `undo` are commands for the admin.
    `simulate` runs `scripts` in their order, each with all of `runs`, and then `trials`.
    """

    name: str  # that people type
    hooks: Mapping[str, Hook]
    plan: Callable[[Site, Where], Plan]
    program: str
    scripts: tuple[str, ...]
    version_option: str = "--version"
    undo: tuple[str, ...] = ()
    runs: Callable[[str], Iterable[Run]] = lambda _name: _CLASSIC
    trials: Callable[[str], Iterable[Trial]] = _nothing
    findings: Callable[[Plan, Where], Iterable[Finding]] = _nothing
    refuse: Callable[[Where, tuple[Entry, ...]], object] = _nothing
    stubs: Callable[[Where, tuple[Entry, ...]], Mapping[str, Stub]] = lambda *_: {}
    clear: Callable[[Where], Iterable[str]] = _nothing


# Installing, and removing what was installed; a power cut at any point loses nothing of the site's.


def apply(plan: Plan) -> None:
    """Write what the plan says. Raises PlaceError; then installing again goes on from there.

    All files are on disk before the first is renamed. Copies of the site's originals come first, then the manifest, so
    that everything written can be found again, then the hooks, each of which works beside older or newer ones. In a
    directory that nodes may share all are written, as another node may have installed there since.
    """
    if not plan.changes:
        return
    owner = files.owner_of()
    wanted: list[tuple[str, Found]] = [file.present.copy for file in plan.files if file.present.copy]
    wanted += plan.manifest.files(plan.root)
    wanted += [
        (file.entry.path, Found(file.text.encode(), file.entry.mode, owner))
        for file in plan.files
        if not file.is_right or files.manifest_beside(file.entry.path)
    ]
    with files.directory_locks(plan.root, plan.manifest.entries):
        files.put_files([(files.inside_root(plan.root, path), found) for path, found in wanted])
    for path in plan.old.beside - plan.manifest.beside:  # of what is gone by now
        files.remove_file(files.inside_root(plan.root, path))


# Removing the hooks, and restoring what was there before.

Fate = Literal["remove", "restore", "leave", "gone", "restored", "stub", "wait"]

# slurmctld tells all nodes within seconds; a node that swaps, or is asked through many others, needs longer.
STUB_S = 60


class Removal(NamedTuple):
    """What will happen to one file: removed, restored, left because somebody edited it, or done already.

    First a stub takes the place of what a daemon may still run: its text is `stub`. It waits there for STUB_S.
    """

    entry: Entry
    what: Fate
    stub: str = ""


def removals(where: Where, target: Target, site: Site) -> tuple[Removal, ...]:
    """Return what uninstalling would do.

    Raises ConflictError while the scheduler still runs one of the files: a hook of Slurm that is missing, or a glob
    that matches nothing, drains every node. Raises UsageError, FactsError and PlaceError too.
    """
    old = files.read_manifest(where.root)
    entries = old.of(target.name)
    if old.is_rebuilt or not entries:
        entries = (*entries, *_unlisted(where, target, site, old))
    target.refuse(where, entries)
    stubs = target.stubs(where, entries)
    return tuple(_removal(where.root, entry, stubs.get(entry.path)) for entry in entries)


def _unlisted(where: Where, target: Target, site: Site, old: Manifest) -> Iterator[Entry]:
    """Yield the files that an installation would replace and that are ours, are begun, or have a copy.

    Raises FactsError and UsageError only where the manifest was lost.
    """
    try:
        plan = target.plan(site, where)
    except (FactsError, UsageError):
        if old.is_rebuilt:
            raise
        return
    for file in plan.files:
        present, entry = file.present, file.entry
        is_left = file.is_unfinished(where.root) or (present.original and not present.copy)
        if entry.path not in old.entries and (is_left or present.origin in {"ours", "edited"}):
            yield entry


def uninstall(root: str, scheduler: str, found: tuple[Removal, ...]) -> None:
    """Remove the files, and what an interrupted installation or removal left unfinished. Raises PlaceError.

    The manifest goes last: until then, uninstalling again goes on from there.
    """
    for entry, what, stub in found:
        path, copy = files.inside_root(root, entry.path), files.look_below(root, entry.kept)
        if what == "restore" and copy is not None:
            files.put_files([(path, restored(copy))])
        elif what == "remove":
            files.remove_file(path)
        elif what == "stub":
            files.write_whole(path, stub.encode(), entry.mode)
        if what in {"restore", "restored"}:
            files.remove_file(files.inside_root(root, entry.kept))
    places = f"{files.MANIFEST_DIRECTORY}/{scheduler}", files.COPIES, files.MANIFEST_DIRECTORY
    begun = [path for entry, _, _ in found for path in files.unfinished_beside(entry)]
    begun += [path for place in places for path in files.glob_matches(root, f"{place}/{files.TEMPORARY}*")]
    old = files.read_manifest(root)
    rest = {path: entry for path, entry in old.entries.items() if entry.scheduler != scheduler}
    rest |= {entry.path: entry for entry, what, _ in found if what in {"stub", "wait"}}
    left = files.manifest_of(rest)
    empty = sorted({files.manifest_beside(entry.path) for entry, _, _ in found} - left.beside - {""})
    if not left.entries:
        empty.append(files.MANIFEST_PATH)
    for path in (*begun, *empty):
        files.remove_file(files.inside_root(root, path))
    if left.entries and old != left:
        files.put_files([(files.inside_root(root, path), found) for path, found in left.files(root)])
    for place in (*places, "/etc/mingle"):  # that installing made
        with suppress(OSError):  # something is in it, it is a link, or another node that shares it was first
            os.rmdir(files.inside_root(root, place))


def _removal(root: str, entry: Entry, stub: Stub | None) -> Removal:
    what = _fate(root, entry)
    if stub is None or what not in {"remove", "gone"}:
        return Removal(entry, what)
    if entry.stub and not stub.is_run:  # another node may have removed it since
        is_early = what == "remove" and files.seconds_since(entry.stub, root, entry.path) < STUB_S
        return Removal(entry, "wait" if is_early else what)
    since = files.boot_clock()
    return Removal(entry._replace(sha256=checksum(stub.text.encode()), stub=since), "stub", stub.text)


def _fate(root: str, entry: Entry) -> Fate:
    now, copy = files.look_below(root, entry.path), files.look_below(root, entry.kept)
    if now is None:
        return "restore" if copy else "gone"
    if copy and now == restored(copy):
        return "restored"
    if origin_of(now, entry.path, entry) != "ours":  # a stub is ours, also if the manifest does not know of it yet
        return "leave"
    return "restore" if copy else "remove"


# Whether what was installed is still there: by the manifest's checksums alone, so that a health check is quick.

_ALL_ENTER = stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH
_KEY = re.compile(rb"([0-9a-f]{2}){32,64}\n?")  # as _directory.sh.j2 and _key.py.j2 take it
UNHEALTHY = 1  # the exit status of `mingle hooks verify` with findings
VERIFY_S = 10.0  # a node health check that takes longer is a problem of its own
AGAIN_S = 1.0  # the first check may have run in the middle of an installation


class Finding(NamedTuple):
    """One deviation: where it is, what is wrong, how to fix it. A `note` is information, not a deviation."""

    where: str
    what: str
    remedy: str
    note: bool = False


def check_health(root: str, installed: Manifest, scheduler: str, key_file: str) -> Iterator[Finding]:
    """Yield what is wrong with one scheduler's hooks on this node. Raises PlaceError."""
    again, entries = f"mingle hooks install {scheduler}", installed.of(scheduler)
    if not entries:
        yield Finding(scheduler, "has no hooks installed", again)
    if installed.is_rebuilt:
        yield Finding(files.MANIFEST_PATH, "is missing, or not what mingle hooks wrote", again)
    for entry in entries:
        yield from file_findings(root, entry, again)
        yield from _originals(root, entry, again)
    if scheduler == "slurm":
        yield from chain_findings(root, entries)
    yield from (*open_directories(root, entries), *closed_directories(root, entries), *_state(root))
    # The host of PBS' server, which has no classic script, runs no jobs.
    if scheduler != "pbs" or any(entry.mode & stat.S_IXUSR for entry in entries):
        yield from site_key(root, key_file)


def quick_findings(root: str, scheduler: str, seconds: float = VERIFY_S) -> list[Finding]:
    """Return what the health check of a node finds. Raises PlaceError and SettingsError."""
    if hung := hung_finding(root, scheduler, seconds):
        return [hung]
    key_file = load({}, {}, system_file=files.below_root(root, SYSTEM_FILE)).section("hooks")["key_file"]
    if any(check_health(root, files.read_manifest(root), scheduler, key_file)):
        time.sleep(AGAIN_S)
        return [*check_health(root, files.read_manifest(root), scheduler, key_file)]
    return []


def hung_finding(root: str, scheduler: str, seconds: float, more: Iterable[str] = ()) -> Finding | None:
    """Return the finding for the first path of an installation, or of more, that does not answer in time.

    A process that touches a file of a dead server hangs in the kernel, so a child does it.
    """

    def look(pipe: int) -> None:
        for path in _paths(root, scheduler, more):
            os.write(pipe, os.fsencode(f"{path}\0"))
            with suppress(OSError, MingleError):
                files.look_at(files.below_root(root, path))

    names, is_over = output_of_child(look, min(LONGEST_WAIT_S, seconds))  # also of nan
    if is_over:
        return None
    hung = os.fsdecode(names.split(b"\0")[-2]) if names else SYSTEM_FILE
    return Finding(hung, f"does not answer within {seconds:g} s", "mending the file system that it is on")


def _paths(root: str, scheduler: str, more: Iterable[str]) -> Iterator[str]:
    """Yield what a check of an installation looks at, each path before anything else looks at it."""
    yield SYSTEM_FILE
    with suppress(OSError, MingleError):
        yield load({}, {}, system_file=files.below_root(root, SYSTEM_FILE)).section("hooks")["key_file"]
    yield from (files.MANIFEST_PATH, RUN_ROOT, files.KILL_SWITCH)
    for place in (f"{files.DROP_INS}/{name}.d" for name in files.KEYS.values()):
        yield place
        with suppress(OSError, MingleError):
            yield from files.glob_matches(root, f"{place}/*")
    yield from more
    for entry in files.node_manifest(root).of(scheduler):
        yield from filter(None, (entry.path, entry.kept, entry.chain))


def file_findings(root: str, entry: Entry, again: str) -> Iterator[Finding]:
    """Find what is wrong with one installed file. Raises PlaceError."""
    now = files.look_below(root, entry.path)
    if now is None:
        yield Finding(entry.path, "is missing", again)
        return
    if now.is_link:
        yield Finding(entry.path, "is a link", f"removing it, then {again}")
        return
    if checksum(now.data) != entry.sha256:
        version = files.version_of(now)
        changed = {
            "ours": (f"comes from another installation than the manifest (mingle-hooks {version})", again),
            "edited": ("was edited by hand", f"{again}, which keeps the edited one in {files.COPIES}"),
            "site": ("is a foreign file", f"{again}, which keeps it"),
        }
        yield Finding(entry.path, *changed[origin_of(now, entry.path, entry)])
    if now.uid != files.owner_of():
        yield Finding(entry.path, f"belongs to uid {now.uid}", f"chown 0 {entry.path}")
    if now.mode != entry.mode:
        yield Finding(entry.path, f"has mode {now.mode:04o}", f"chmod {entry.mode:04o} {entry.path}")


def _originals(root: str, entry: Entry, again: str) -> Iterator[Finding]:
    """Look at the site's own: the copy to be put back, and the program that the hook runs."""
    if entry.kept:
        there = files.look_below(root, entry.kept)
        if there is None:
            yield Finding(entry.kept, f"is missing: the site's own {entry.path}", "putting it back there")
            return
        if checksum(there.data) != entry.kept_sha256:
            remedy = f"putting the copy back, or, if this file is right: {again}"
            yield Finding(entry.kept, f"is not the copy of the site's own {entry.path}", remedy)
    if entry.chain and entry.scheduler != "slurm" and not files.can_be_run(root, entry.chain):
        yield Finding(entry.chain, f"cannot be run, and {entry.path} runs it", f"chmod +x {entry.chain}")


def chain_findings(root: str, entries: Collection[Entry]) -> Iterator[Finding]:
    """Find the site's own programs that cannot run: Slurm then drains the node or fails tasks, even without ours."""
    for name in files.KEYS.values():
        is_users, place = name == "taskprolog", f"{files.DROP_INS}/{name}.d"
        for program in sorted({entry.chain for entry in entries if entry.name.removesuffix("-all") == name} - {""}):
            remedy = f"another {name} in [hooks] of {SYSTEM_FILE}"
            yield from _program(root, program, remedy, is_users=is_users)
        yield from _directory(root, place, is_users=is_users)
        for path in files.glob_matches(root, f"{place}/*"):
            yield from _program(root, path, f"moving it out of {place}", is_users=is_users)
    yield from _directory(root, files.TASK_PROLOGS, is_users=True)


def _directory(root: str, place: str, *, is_users: bool) -> Iterator[Finding]:
    directory = files.below_root(root, place)
    if os.path.isdir(directory):
        found = os.stat(directory)
        yield from _open(place, found)
        if is_users and ~found.st_mode & (stat.S_IROTH | stat.S_IXOTH):
            yield Finding(place, "cannot be listed by users, so it is skipped", f"chmod a+rx {place}")


def _program(root: str, path: str, remedy: str, *, is_users: bool) -> Iterator[Finding]:
    what = "cannot be run, which " + ("fails every task" if is_users else "drains the node")
    try:
        found = os.stat(files.below_root(root, path))
    except OSError as wrong:
        yield Finding(path, f"{what}: {wrong.strerror}", f"putting it there, or {remedy}")
        return
    if not stat.S_ISREG(found.st_mode) or not found.st_mode & (stat.S_IXOTH if is_users else stat.S_IXUSR):
        yield Finding(path, what, f"chmod a+rx {path}, or {remedy}")
    else:
        yield from _open(path, found)


def _open(path: str, found: os.stat_result) -> Iterator[Finding]:
    if found.st_mode & files.OTHERS_WRITE or found.st_uid not in {0, files.owner_of()}:
        yield Finding(path, "can be changed by others than root", f"chown 0 {path}; chmod go-w {path}")


def closed_directories(root: str, entries: Iterable[Entry]) -> Iterator[Finding]:
    """Find directories that users cannot enter to run a hook: Slurm then cancels every task of every job."""
    for place, status in _above(root, [entry.path for entry in entries if entry.is_users]):
        if status.st_mode & _ALL_ENTER != _ALL_ENTER:
            what = f"is closed to users (mode {stat.S_IMODE(status.st_mode):04o}), so every task fails"
            yield Finding(place, what, f"chmod a+x {place}")


def open_directories(root: str, entries: Iterable[Entry]) -> Iterator[Finding]:
    """Look at all directories above the files: whoever can write to one can replace a hook."""
    for place, status in _above(root, [entry.path for entry in entries]):
        if status.st_mode & files.OTHERS_WRITE:
            mode = stat.S_IMODE(status.st_mode)
            yield Finding(place, f"can be written by others (mode {mode:04o})", f"chmod go-w {place}")
        if status.st_uid not in {0, files.owner_of()}:
            yield Finding(place, f"belongs to uid {status.st_uid}", f"chown 0 {place}")


def _above(root: str, paths: list[str]) -> Iterator[tuple[str, os.stat_result]]:
    """Yield each directory above these files, as far as they are there."""
    parents = set()
    for path in paths:
        place = os.path.dirname(path)
        while place not in parents and place != "/":
            parents.add(place)
            place = os.path.dirname(place)
    for place in sorted(parents):
        with suppress(FileNotFoundError):
            yield place, os.stat(files.below_root(root, place))


def site_key(root: str, path: str) -> Iterator[Finding]:
    """Find what keeps the site's key from being used."""
    try:
        found = files.look_at(files.inside_root(root, path))
    except PlaceError as wrong:
        yield Finding(path, f"cannot be used: expected {wrong.expected}, saw {wrong.seen}", wrong.remedy)
        return
    if found is None:
        yield Finding(path, "is missing, so jobs get no key", "putting it there, the same on all nodes (mingle key)")
    elif found.mode not in {0o400, 0o600} or found.uid != files.owner_of():
        yield Finding(path, "is not a regular file owned by root with mode 0400", f"chown 0 {path}; chmod 0400 {path}")
    elif not _KEY.fullmatch(found.data):
        yield Finding(path, "does not hold 64 to 128 lower-case hex digits", f"mingle key > {path}")


def _state(root: str) -> Iterator[Finding]:
    path = files.inside_root(root, RUN_ROOT)
    if os.path.lexists(path):
        found = os.lstat(path)
        if (found.st_uid, found.st_mode) != (files.owner_of(), stat.S_IFDIR | 0o755):
            remedy = f"rm -r {RUN_ROOT}; the next Prolog makes it"
            yield Finding(RUN_ROOT, "is not a directory of root's with mode 0755", remedy)
