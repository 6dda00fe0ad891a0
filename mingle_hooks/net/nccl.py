"""What the site, or the user, has told NCCL: in its files, or by a variable.

Read in NCCL 2.30: src/misc/param.cc has the files, src/misc/socket.cc and utils.cc what NCCL_SOCKET_IFNAME says.
A file's value is only for names that the environment does not have, so whatever is exported silently beats it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from mingle_hooks.files import UnfitError, contents

IFNAME = "NCCL_SOCKET_IFNAME"
_SITE = "etc/nccl.conf"
# NCCL's own buffers: what is longer is cut there.
_LONGEST = 1023
# A larger one is none; nor is what is no plain file, such as a pipe that nobody writes to.
_MOST_BYTES = 1 << 16


class Setting(NamedTuple):
    """A value, and the file that it stands in, or "the environment"."""

    value: str
    source: str


def settings(environ: Mapping[str, str], root: str = "/") -> dict[str, Setting]:
    """Return what NCCL will take from its files, given the user's environment.

    The first file that names a variable has it: NCCL_CONF_FILE, or where there is none .nccl.conf in the home of the
    user's account, whatever HOME says; then /etc/nccl.conf.
    """
    found: dict[str, Setting] = {}
    for path in _paths(environ, root):
        for name, value in _lines(path):
            if name not in environ:
                found.setdefault(name, Setting(value, path))
    return found


def ifname(environ: Mapping[str, str], root: str = "/") -> Setting | None:
    """Return the interfaces that NCCL is told to use, None where it is told nothing: one character is nothing to it."""
    value = environ.get(IFNAME)
    found = Setting(value, "the environment") if value is not None else settings(environ, root).get(IFNAME)
    return found if found is not None and len(found.value) > 1 else None


def is_named(text: str, name: str) -> bool:
    """Tell whether NCCL_SOCKET_IFNAME=text takes this interface: eth means eth0, =eth0 that one, ^eth all others."""
    is_others = text.startswith("^")
    rest = text[is_others:]
    is_exact = rest.startswith("=")
    names = [entry.partition(":")[0] for entry in rest[is_exact:].split(",")]
    is_listed = any(name == one if is_exact else name.startswith(one) for one in names if one)
    return is_listed != is_others


def _paths(environ: Mapping[str, str], root: str) -> Iterator[str]:
    if own := environ.get("NCCL_CONF_FILE"):
        yield own
    elif home := _home():
        yield f"{home}/.nccl.conf"
    yield os.path.join(root, _SITE)


def _home() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:  # a container's user without an account
        return ""


def _lines(path: str) -> Iterator[tuple[str, str]]:
    """Yield name and value of each line as NCCL takes it: nothing is stripped, and only a first `#` is a comment."""
    try:
        data = contents(path, most_bytes=_MOST_BYTES, refused_mode=0, owners=None)
    except (OSError, ValueError, UnfitError):
        return
    for line in data.decode(errors="surrogateescape").split("\n"):
        name, is_setting, value = line.partition("=")
        if is_setting and not line.startswith("#"):
            yield name[:_LONGEST], value[:_LONGEST]
