"""Reading small files that somebody else may have prepared: settings and keys."""

from __future__ import annotations

import os
import stat
import sys
from typing import TYPE_CHECKING, Any

from mingle_hooks.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

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
