"""Files: settings and keys, standard streams, private directories, and the files that ship with the package."""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable, Container, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from mingle_hooks.errors import MingleError, PlaceError, SettingsError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    import jinja2


# A settings file is a screenful; the bound keeps a wrong path from filling the memory.
_MOST_SETTINGS_BYTES = 1 << 20


class UnusableFileError(Exception):
    """A file that must not be used, with what was expected, what was seen and what to try."""

    def __init__(self, expected: str, seen: str, remedy: str) -> None:
        super().__init__(expected, seen, remedy)
        self.expected, self.seen, self.remedy = expected, seen, remedy


def contents(
    path: str, *, most_bytes: int, refused_mode: int, owners: Container[int] | None, within: int | None = None
) -> bytes:
    """Return the contents of a regular file; the checks run on the open file, so that it cannot be swapped.

    `refused_mode` holds the permission bits that the file must not have, `owners` the user ids that may own it (None:
    any). `within` is a descriptor of the path's directory: the file is opened there and must not be a symbolic link.
    Raises UnusableFileError, and OSError if the file cannot be opened or read.
    """
    # O_NONBLOCK: opening a FIFO must not wait for its writer.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    name = path if within is None else os.path.basename(path)
    descriptor = os.open(name, flags if within is None else flags | os.O_NOFOLLOW, dir_fd=within)
    try:
        _check(path, os.fstat(descriptor), refused_mode, owners)
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(most_bytes + 1)
    finally:
        os.close(descriptor)
    if len(data) > most_bytes:
        raise UnusableFileError(f"at most {most_bytes} bytes", f"{path}, which is larger", "a smaller file")
    return data


def _check(path: str, found: os.stat_result, refused_mode: int, owners: Container[int] | None) -> None:
    mode = stat.S_IMODE(found.st_mode)
    if not stat.S_ISREG(found.st_mode):
        raise UnusableFileError("a regular file", f"{path}, which is not one", "replacing it with a regular file")
    if owners is not None and found.st_uid not in owners:
        owner = f"{path} owned by uid {found.st_uid}"
        raise UnusableFileError("a file owned by this user or root", owner, f"chown {os.getuid()} {path}")
    if mode & refused_mode:
        expected, seen = f"a file with none of the mode bits {refused_mode:03o}", f"{path} with mode {mode:04o}"
        raise UnusableFileError(expected, seen, f"chmod {mode & ~refused_mode:04o} {path}")


def read_bounded(path: str, most: int, flags: int = 0) -> bytes:
    """Return the beginning of a regular file. Raises OSError for any other, as a pipe would block."""
    # open() takes twice as long, and nodes read dozens of files.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path} is not a regular file")
        return os.read(descriptor, most)
    finally:
        os.close(descriptor)


def config_directory(environ: Mapping[str, str]) -> str | None:
    """Return the user's own `mingle` directory (XDG base directories), or None if no home is known."""
    xdg = environ.get("XDG_CONFIG_HOME", "")
    if os.path.isabs(xdg):  # the standard has relative ones ignored
        return f"{xdg}/mingle"
    home = environ.get("HOME")
    return f"{home}/.config/mingle" if home and os.path.isabs(home) else None


def settings_tree(path: str, *, site: bool) -> Mapping[str, object]:
    """Return a settings file as a tree, which is empty if there is no such file.

    The file may name the key file, so no other user may write it. The owner of the site's file is not checked: a
    container may not know the administrator's user id. Raises SettingsError.
    """
    owners = None if site else (0, os.getuid())
    try:
        data = contents(path, most_bytes=_MOST_SETTINGS_BYTES, refused_mode=stat.S_IWGRP | stat.S_IWOTH, owners=owners)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except UnusableFileError as wrong:
        raise SettingsError(wrong.expected, wrong.seen, wrong.remedy) from None
    except OSError as wrong:
        raise SettingsError("a readable settings file", f"{path}: {wrong.strerror}", f"chmod go+r {path}") from None

    try:
        return toml(data)
    except ValueError as wrong:
        raise SettingsError("a TOML file", f"{path}: {wrong}", "correcting that line") from None


def toml(data: bytes) -> dict[str, Any]:
    """Return TOML as a tree, of which all can be shown in messages.

    Raises ValueError for invalid TOML or UTF-8, for nesting too deep, and for a number with thousands of digits.
    """
    if sys.version_info >= (3, 11):
        import tomllib  # 18 ms, so only if there is a file
    else:
        import tomli as tomllib

    try:
        tree = tomllib.loads(data.decode("utf-8-sig"))  # some editors write a byte order mark
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    for key, value in tree.items():
        try:
            repr(value)
        except (ValueError, RecursionError) as error:  # a hexadecimal number, or a name with a thousand dots
            raise ValueError(f"{key} is nested too deeply, or has a number with thousands of digits") from error
    return tree


def write_new(path: str, data: bytes, *, mode: int = 0o600, uid: int = -1, gid: int = -1) -> None:
    """Write a new file to disk; uid and gid -1 are this process's. Raises OSError and leaves no partial file."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as file:
            os.fchown(descriptor, uid, gid)
            os.fchmod(descriptor, mode)  # whatever the umask
            file.write(data)
            file.flush()
            os.fsync(descriptor)  # before another host reads it; and NFS reports a full disk only here
    except BaseException:
        os.unlink(path)
        raise


def open_to_append(path: str, mode: int) -> int:
    """Open or create a regular file. Raises OSError for a link and any other file, and never waits."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    descriptor = os.open(path, flags, mode)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file")
    return descriptor


# File systems, as this process sees them.

MOUNTS = "/proc/self/mountinfo"
# What proc(5) writes for these in a path; its own backslash comes last.
_ESCAPES = (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\043", "#"), ("\\134", "\\"))


def file_system(path: str, mountinfo: str = MOUNTS) -> str:
    """Return the type of the file system that a path, or its deepest existing part, is on; empty if unknown."""
    path = os.path.realpath(path)
    deepest, kind = "", ""
    try:
        with open(mountinfo, encoding="utf-8", errors="surrogateescape") as file:
            for line in file:
                # proc(5): "36 35 98:0 /root /mount/point rw - type device options"; the last line wins.
                left, _, right = line.partition(" - ")
                point = left.split(" ")[4]
                for escape, character in _ESCAPES:
                    point = point.replace(escape, character)
                inside = path == point or path.startswith(point.rstrip("/") + "/")
                if inside and len(point) >= len(deepest):
                    deepest, kind = point, right.split(" ")[0]
    except OSError:  # no /proc: not Linux, or a container without it
        return ""
    return kind


# The types of file systems that several hosts can mount, as the table of mounts names them.
_NETWORK = (
    *("nfs", "nfs4", "cifs", "smb", "smbfs", "smb3", "afs", "auristorfs", "coda", "9p", "virtiofs", "dvs"),
    *("lustre", "gpfs", "beegfs", "ceph", "glusterfs", "wekafs", "panfs", "pvfs2", "orangefs", "gfs2", "ocfs2"),
)
# Of containers and desktops.
_LOCAL_FUSE = {f"fuse.{name}" for name in ("fuse-overlayfs", "overlayfs", "lxcfs", "portal", "squashfuse")}


def network_type(path: str, mountinfo: str = MOUNTS) -> str:
    """Return the type of the file system of a path if several hosts can mount it; empty for others."""
    kind = file_system(path, mountinfo)
    return kind if kind in _NETWORK or (kind.startswith("fuse.") and kind not in _LOCAL_FUSE) else ""


# Open descriptors.


def fill_standard_descriptors(flags: int) -> None:
    """Open /dev/null for each closed standard stream, so that no socket or pipe gets its number."""
    while (descriptor := os.open(os.devnull, flags)) <= 2:  # noqa: PLR2004 - stderr's
        pass
    os.close(descriptor)


def close_descriptors_except(*exceptions: int) -> None:
    """Close all other open descriptors; they are listed, as the limit may be a billion."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in exceptions:
            try:
                os.close(int(name))
            except OSError:  # that of the listing itself
                pass


def raise_open_files_limit(wanted: int) -> int:
    """Raise the soft limit of open files to `wanted`, at most the hard limit; return the new limit."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    return max(soft, wanted)


# Standard error; failures to write are ignored, as there is nowhere else to report them.


def write_stderr(text: str) -> None:
    """Write text to stderr as far as possible."""
    send_stderr(text.encode(sys.stderr.encoding, "backslashreplace"))


def send_stderr(data: bytes) -> None:
    """Write bytes to stderr as far as possible."""
    try:
        while data:
            data = data[os.write(2, data) :]
    except OSError:  # closed, full, or without a reader
        return


# Standard output: the whole text, or an error and no partial text in a file.


def write_stdout(text: str) -> None:
    """Write the whole text to stdout. Raises PlaceError."""
    send_stdout(os.fsencode(text))


def send_stdout(data: bytes) -> None:
    """Write bytes to stdout, waiting if it is a full non-blocking pipe. Raises PlaceError."""
    written = 0
    while written < len(data):
        try:
            written += os.write(1, data[written:])
        except BlockingIOError:
            import select

            select.select([], [1], [])
        except OSError as error:
            _take_back(written)
            raise _unwritable(error) from None


def _take_back(written: int) -> None:
    """Truncate a partial text from the file, unless another process has written after it."""
    try:
        end = os.lseek(1, 0, os.SEEK_CUR)
        if written and os.fstat(1).st_size == end:
            os.ftruncate(1, end - written)
            os.lseek(1, end - written, os.SEEK_SET)
    except OSError:  # a pipe
        return


def _unwritable(error: OSError) -> PlaceError:
    if error.errno == errno.EPIPE:
        return PlaceError("a reader of the output", "a closed pipe", "a command that reads all of it")
    if error.errno == errno.EBADF:
        return PlaceError("an open standard output", "a closed one", "leaving out `>&-`")
    return PlaceError("to write the output", str(error.strerror), "another file or file system")


# Private directories on this node, for what the tasks of one attempt share.

RUN_ROOT = "/run/mingle"  # where the Prolog creates a directory for each job
# Free space required there: the answer of a large world takes about 1 MiB. The Prolog bounds the total.
_ROOM_BYTES, _ROOM_NAMES = 1 << 20, 16


def private_path(environ: Mapping[str, str], job_id: str | None, name: str, run_root: str = RUN_ROOT) -> str:
    """Return the directory's path, the same for every task of this user on this node; it need not exist.

    It is in the Prolog's directory for the job unless that is full, else in XDG_RUNTIME_DIR, else in /tmp. In /tmp
    anybody can create any name, so `name` must be one that others cannot guess.
    """
    if job_id is not None and "/" not in job_id and is_private(job := f"{run_root}/{job_id}") and _has_room(job):
        return f"{job}/{name}"
    session = environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(session) and is_private(session):
        return f"{session}/mingle-{name}"
    return f"/tmp/mingle-{os.getuid()}-{name}"  # noqa: S108 - mode 0700, and checked


def record_process(job_id: str | None, run_root: str = RUN_ROOT) -> None:
    """Add this process to the Prolog's list, if there is one, so that the Epilog can end it.

    A line is the pid and its start time (field 22 of /proc/PID/stat), as pids are reused.
    """
    if job_id is None or "/" in job_id or not is_private(job := f"{run_root}/{job_id}"):
        return
    with open("/proc/self/stat") as stat:
        start = stat.read().rpartition(")")[2].split()[19]
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with open(os.open(f"{job}/processes", flags, 0o600), "wb", buffering=0) as file:
            file.write(f"{os.getpid()} {start}\n".encode())
    except OSError:  # a full file system: the job's own end ends its processes too
        return


def _has_room(directory: str) -> bool:
    try:
        found = os.statvfs(directory)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize >= _ROOM_BYTES and (found.f_favail >= _ROOM_NAMES or not found.f_files)


def make_private(directory: str) -> None:
    """Create the directory, unless a private one exists. Raises PlaceError."""
    if not try_make_private(directory):
        seen = f"{directory}, which others can enter"
        raise PlaceError("a directory that only this user can enter", seen, "removing it, or another XDG_RUNTIME_DIR")


def try_make_private(directory: str) -> bool:
    """Create the directory unless it exists, and return whether it is private. Raises PlaceError."""
    try:
        os.mkdir(directory, 0o700)
    except FileExistsError:
        pass
    except OSError as error:
        seen = f"{directory}: {error.strerror}"
        raise PlaceError("to create a directory", seen, "another XDG_RUNTIME_DIR") from error
    return is_private(directory)


def is_taken_by_others(directory: str) -> bool:
    """Return whether the name exists and is not a private directory."""
    return os.path.lexists(directory) and not is_private(directory)


def hold_private(directory: str) -> int | None:
    """Lock a directory; return the descriptor that holds the lock, or None if another process holds it.

    The kernel releases the lock when the process ends. Raises PlaceError.
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
    """Remove the files in a private directory. Raises OSError."""
    for name in os.listdir(directory):
        os.unlink(f"{directory}/{name}")


def remove_private(directory: str) -> None:
    """Remove a private directory and its files; a file that another task adds meanwhile keeps it."""
    try:
        empty_private(directory)
        os.rmdir(directory)
    except OSError:  # the Epilog removed it, or another task just added a file
        return


def is_private(directory: str) -> bool:
    """Return whether this is a directory, no link, that this user owns and can write and nobody else can enter."""
    try:
        found = os.lstat(directory)
    except OSError:
        return False
    is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
    return is_own and os.access(directory, os.W_OK | os.X_OK)


# Files that ship with the package: inside it in a wheel or a zip file, beside it in a checkout.

ENVIRONMENTS = "templates/hooks/environments"  # recorded on real clusters, for `mingle hooks simulate`
_CHECKOUT = "pyproject.toml"  # beside the package in a checkout only


def shipped_path(path: str) -> Traversable:
    """Return a shipped file or directory, such as templates/job. Raises MingleError if it is missing."""
    from importlib.resources import files  # 13 ms, needed for templates and pages only

    inside = files("mingle_hooks")
    beside = inside.joinpath("..")
    for place in (inside, beside) if beside.joinpath(_CHECKOUT).is_file() else (inside,):
        found = place.joinpath(*path.split("/"))
        if found.is_dir() or found.is_file():
            return found
    raise MingleError(f"{path} in the package", f"none in {inside}", "reinstalling mingle-hooks")


def shipped_text(path: str) -> str:
    """Return the text of a shipped file. Raises MingleError if it is missing."""
    return shipped_path(path).read_text(encoding="utf-8")


def shipped_names(path: str) -> tuple[str, ...]:
    """Return the files below a shipped directory, as sorted relative paths. Raises MingleError if it is missing."""
    return tuple(sorted(_below(shipped_path(path), "")))


def _below(directory: Traversable, before: str) -> Iterator[str]:
    for entry in directory.iterdir():
        if entry.is_dir():
            yield from _below(entry, f"{before}{entry.name}/")
        else:
            yield before + entry.name


# The programs that `mingle run` and `mingle check` start on each host.

_PACKAGE = os.path.dirname(os.path.abspath(__file__))
_PLACE, _NAME = os.path.split(_PACKAGE)


def own_archive() -> str | None:
    """Return the path of mingle.pyz, or None if this mingle is installed."""
    return _PLACE if os.path.isfile(_PLACE) else None


def own_program_argv(program: str) -> tuple[str, ...]:
    """Return the command that starts a program, such as `agent`, on any host that sees this mingle's files.

    mingle.pyz takes the path of __main__.py as its first argument: see packaging/build.py.
    """
    if (archive := own_archive()) is not None:
        return (sys.executable, "-I", archive, f"{_NAME}/__main__.py", program)
    return (sys.executable, "-I", f"{_PACKAGE}/__main__.py", program)


# Templates. jinja2 takes 48 ms to import, so it is imported inside the functions.


def template_loader(directory: str) -> jinja2.BaseLoader:
    """Return a loader for the templates in a directory of templates/."""
    import jinja2

    place = f"templates/{directory}"
    names = shipped_names(place)

    def load(name: str) -> tuple[str, str, Callable[[], bool]] | None:
        """Return a template's text, its path for messages, and a function that says that it is up to date."""
        path = f"{place}/{name}"
        return (shipped_text(path), str(shipped_path(path)), lambda: True) if name in names else None

    return jinja2.FunctionLoader(load)


def template_environment(loader: jinja2.BaseLoader, filters: Mapping[str, Callable[..., str]]) -> jinja2.Environment:
    """Return the jinja2 environment for templates of shell scripts; a page is to escape what is in it (overlay)."""
    import jinja2

    found = jinja2.Environment(
        loader=loader,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        comment_start_string="{##",  # {# occurs in shell scripts, as in ${#name} and ${#list[@]}
        comment_end_string="##}",
        autoescape=False,  # noqa: S701 -- no HTML; each place has its own filter
    )
    found.filters |= filters
    return found
