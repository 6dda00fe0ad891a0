"""Reading small files that somebody else may have prepared: settings and keys."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Container, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from mingle_hooks.errors import MingleError, PlaceError, SettingsError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    import jinja2


# A settings file is a screenful; this keeps a wrong path from filling the memory.
_MOST_SETTINGS_BYTES = 1 << 20


class UnfitError(Exception):
    """A file that must not be used: what was expected, what was seen and what to try."""

    def __init__(self, expected: str, seen: str, remedy: str) -> None:
        super().__init__(expected, seen, remedy)
        self.expected, self.seen, self.remedy = expected, seen, remedy


def contents(
    path: str, *, most_bytes: int, refused_mode: int, owners: Container[int] | None, within: int | None = None
) -> bytes:
    """Return a whole regular file; the checks are made on what was opened, so nobody can swap it meanwhile.

    `refused_mode` holds the permission bits that it must not have, `owners` the user ids that may own
    it (None: anybody). With `within`, the path's directory held open, the file is looked up there and
    must not be a symbolic link. Raises UnfitError; OSError where it cannot be opened or read.
    """
    # O_NONBLOCK: opening a FIFO must not wait for its writer.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    if within is None:
        descriptor = os.open(path, flags)
    else:
        descriptor = os.open(os.path.basename(path), flags | os.O_NOFOLLOW, dir_fd=within)
    try:
        _check(path, os.fstat(descriptor), refused_mode, owners)
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(most_bytes + 1)
    finally:
        os.close(descriptor)
    if len(data) > most_bytes:
        raise UnfitError(f"at most {most_bytes} bytes", f"{path}, which is larger", "a smaller file")
    return data


def _check(path: str, found: os.stat_result, refused_mode: int, owners: Container[int] | None) -> None:
    mode = stat.S_IMODE(found.st_mode)
    if not stat.S_ISREG(found.st_mode):
        raise UnfitError("a regular file", f"{path}, which is not one", "replacing it with a regular file")
    if owners is not None and found.st_uid not in owners:
        owner = f"{path} owned by uid {found.st_uid}"
        raise UnfitError("a file owned by this user or root", owner, f"chown {os.getuid()} {path}")
    if mode & refused_mode:
        raise UnfitError(
            f"a file with none of the mode bits {refused_mode:03o}",
            f"{path} with mode {mode:04o}",
            f"chmod {mode & ~refused_mode:04o} {path}",
        )


def config_directory(environ: Mapping[str, str], home: str | None = None) -> str | None:
    """Return the user's own `mingle` directory (XDG base directories), or None where no home is known."""
    xdg = environ.get("XDG_CONFIG_HOME", "")
    if home is None and os.path.isabs(xdg):  # the standard has relative ones ignored
        return f"{xdg}/mingle"
    home = home or environ.get("HOME")
    return f"{home}/.config/mingle" if home and os.path.isabs(home) else None


def settings_tree(path: str, *, site: bool) -> Mapping[str, object]:
    """Return a settings file as a tree; an empty one where there is no such file.

    It may name the key file, so nobody else may write it. The site's file lies in a directory of the
    admin's, whose id a container may not know. Raises SettingsError.
    """
    owners = None if site else (0, os.getuid())
    try:
        data = contents(path, most_bytes=_MOST_SETTINGS_BYTES, refused_mode=stat.S_IWGRP | stat.S_IWOTH, owners=owners)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except UnfitError as wrong:
        raise SettingsError(wrong.expected, wrong.seen, wrong.remedy) from None
    except OSError as wrong:
        raise SettingsError("a readable settings file", f"{path}: {wrong.strerror}", f"chmod go+r {path}") from None

    try:
        return toml(data)
    except ValueError as wrong:
        raise SettingsError("a TOML file", f"{path}: {wrong}", "correcting that line") from None


def toml(data: bytes) -> dict[str, Any]:
    """Return a TOML file's tree; ValueError for bad TOML and bad UTF-8, and where it is nested without end."""
    if sys.version_info >= (3, 11):
        import tomllib  # 18 ms, only where there is a file
    else:
        import tomli as tomllib

    try:
        return tomllib.loads(data.decode())
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


# What a process has open: the limit, higher for one that many others call, and what a child has of its parent's.


def close_descriptors_except(*kept_descriptors: int) -> None:
    """Close every other descriptor of this process, one by one: the limit may be a billion."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept_descriptors:
            try:
                os.close(int(name))
            except OSError:  # that of the listing itself
                pass


def raise_open_files_limit(wanted: int) -> int:
    """Allow so many open files, as far as this user may; return how many are allowed now."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    return max(soft, wanted)


# A directory on this node that only this user can enter, for what the tasks of one attempt share.

RUN_ROOT = "/run/mingle"  # where the Prolog makes a directory for each job
# Left free there before more is put into it: an answer of a large world takes about one. The Prolog bounds the whole.
_ROOM_BYTES, _ROOM_NAMES = 1 << 20, 16


def private_path(environ: Mapping[str, str], job_id: str | None, name: str, run_root: str = RUN_ROOT) -> str:
    """Return the directory's path, the same for every task of this user on this node; it may not be there yet.

    It lies in the Prolog's directory for the job unless that is full, the login session's, or /tmp. In /tmp
    anybody can make any name, so `name` must be one that others cannot guess.
    """
    if job_id is not None and "/" not in job_id and is_private(job := f"{run_root}/{job_id}") and _has_room(job):
        return f"{job}/{name}"
    session = environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(session) and is_private(session):
        return f"{session}/mingle-{name}"
    return f"/tmp/mingle-{os.getuid()}-{name}"  # noqa: S108 - mode 0700, and checked


def record_process(job_id: str | None, run_root: str = RUN_ROOT) -> None:
    """Write this process into the Prolog's list, where there is one: the Epilog ends what is left of it.

    A line is the pid and its start time (field 22 of /proc/PID/stat), for a pid is used again.
    """
    if job_id is None or "/" in job_id or not is_private(job := f"{run_root}/{job_id}"):
        return
    with open("/proc/self/stat") as stat:
        start = stat.read().rpartition(")")[2].split()[19]
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(f"{job}/processes", flags, 0o600)
        try:
            os.write(descriptor, f"{os.getpid()} {start}\n".encode())
        finally:
            os.close(descriptor)
    except OSError:  # a full file system: the job's own end ends its processes too
        return


def _has_room(directory: str) -> bool:
    try:
        found = os.statvfs(directory)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize >= _ROOM_BYTES and (found.f_favail >= _ROOM_NAMES or not found.f_files)


def make_private(directory: str) -> None:
    """Make the directory, unless it is there and private. Raises PlaceError."""
    if not try_make_private(directory):
        raise PlaceError(
            "a directory that only this user can enter",
            f"{directory}, which others can enter",
            "removing it, or another XDG_RUNTIME_DIR",
        )


def try_make_private(directory: str) -> bool:
    """Make the directory unless its name is taken, and tell whether it is private. Raises PlaceError."""
    try:
        os.mkdir(directory, 0o700)
    except FileExistsError:
        pass
    except OSError as error:
        raise PlaceError(
            "to create a directory", f"{directory}: {error.strerror}", "another XDG_RUNTIME_DIR"
        ) from error
    return is_private(directory)


def is_taken_by_others(directory: str) -> bool:
    """Tell whether somebody has made something of this name that is not private."""
    return os.path.lexists(directory) and not is_private(directory)


def hold_private(directory: str) -> int | None:
    """Return a descriptor that keeps a directory for this process until it is closed; None where another has it.

    The kernel lets go of it when the process is killed. Raises PlaceError.
    """
    import fcntl

    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(descriptor)
            raise
    except BlockingIOError:
        return None
    except OSError as error:
        raise PlaceError("to lock a directory", f"{directory}: {error.strerror}", "another XDG_RUNTIME_DIR") from error
    return descriptor


def empty_private(directory: str) -> None:
    """Remove the files in a directory of ours. Raises OSError."""
    for name in os.listdir(directory):
        os.unlink(f"{directory}/{name}")


def remove_private(directory: str) -> None:
    """Remove a directory of ours with the files in it; what comes into it meanwhile keeps it."""
    try:
        empty_private(directory)
        os.rmdir(directory)
    except OSError:  # the job's end has removed it, or somebody has just come
        return


def is_private(directory: str) -> bool:
    """Tell whether this is a real directory of this user's that nobody else can enter and that can be written."""
    try:
        found = os.lstat(directory)
    except OSError:
        return False
    is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
    return is_own and os.access(directory, os.W_OK | os.X_OK)


# The files that ship with the package: in a wheel inside it, in a checkout beside it, in a zip file within that.

ENVIRONMENTS = "templates/hooks/environments"  # recorded on real clusters, to try hooks with
_CHECKOUT = "pyproject.toml"  # what lies beside the package there, and in no directory of packages


def shipped_path(path: str) -> Traversable:
    """Return a file or directory, such as templates/job. Raises MingleError where the installation has none."""
    from importlib.resources import files  # 13 ms, which only templates and pages need

    inside = files("mingle_hooks")
    parts = path.split("/")
    found = inside.joinpath(*parts)
    if not (found.is_dir() or found.is_file()):
        beside = files("mingle_hooks").joinpath("..")
        found = beside.joinpath(*parts) if beside.joinpath(_CHECKOUT).is_file() else found
    if not (found.is_dir() or found.is_file()):
        raise MingleError(f"{path} in the package", f"none in {inside}", "reinstalling mingle-hooks")
    return found


def shipped_text(path: str) -> str:
    """Return what a file holds. Raises MingleError where there is none."""
    return shipped_path(path).read_text(encoding="utf-8")


def shipped_names(path: str) -> tuple[str, ...]:
    """Return the files of a directory and of those below it, by their paths from there, sorted.

    Raises MingleError where there is none.
    """
    return tuple(sorted(_below(shipped_path(path), "")))


def _below(directory: Traversable, before: str) -> Iterator[str]:
    for entry in directory.iterdir():
        if entry.is_dir():
            yield from _below(entry, f"{before}{entry.name}/")
        else:
            yield before + entry.name


# The programs that `mingle run` and `mingle check` start on each host: start.py of the package, or mingle.pyz itself.

_PACKAGE = os.path.dirname(os.path.abspath(__file__))
_PLACE, _NAME = os.path.split(_PACKAGE)


def own_archive() -> str | None:
    """Return the path of mingle.pyz, None where this mingle is installed."""
    return _PLACE if os.path.isfile(_PLACE) else None


def own_program_argv(program: str) -> tuple[str, ...]:
    """Return what starts a program, such as `agent`, on any host that sees this mingle's file.

    mingle.pyz takes the path of start.py as its first word: see packaging/build.py.
    """
    if (archive := own_archive()) is not None:
        return (sys.executable, "-I", archive, f"{_NAME}/start.py", program)
    return (sys.executable, "-I", f"{_PACKAGE}/start.py", program)


# jinja2 takes 48 ms to import, which only those who fill templates in spend.


def template_loader(directory: str) -> jinja2.BaseLoader:
    """Return a loader of the project's own templates, from a directory of templates/."""
    import jinja2

    place = f"templates/{directory}"
    names = shipped_names(place)

    def load(name: str) -> tuple[str, str, Callable[[], bool]] | None:
        """Return a template's text, its path for messages, and that it stays as it is."""
        path = f"{place}/{name}"
        return (shipped_text(path), str(shipped_path(path)), lambda: True) if name in names else None

    return jinja2.FunctionLoader(load)


def template_environment(loader: jinja2.BaseLoader, filters: Mapping[str, Callable[..., str]]) -> jinja2.Environment:
    """Return the environment of templates that make shell scripts."""
    import jinja2

    found = jinja2.Environment(
        loader=loader,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        comment_start_string="{##",  # {# stands in every shell script that measures a variable or counts an array
        comment_end_string="##}",
        autoescape=False,  # noqa: S701 -- no HTML; each place has its own filter
    )
    found.filters |= filters
    return found
