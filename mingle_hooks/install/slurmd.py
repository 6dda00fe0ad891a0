"""How slurmd was started, or will be: which configuration it reads depends on it."""

from __future__ import annotations

import contextlib
import glob
import re

from mingle_hooks.install import files

# What Debian's and Red Hat's units read: SLURMD_OPTIONS="--conf-server ctl:6817".
_FILES = ("/etc/default/slurmd", "/etc/sysconfig/slurmd")
_ASSIGNED = re.compile(r"^\s*SLURMD_OPTIONS\s*=\s*(.*)$", re.MULTILINE)
_MOST_BYTES = 1 << 16


def option(root: str, name: str) -> str:
    """Return the value of an option of slurmd's; empty where it has none. Of two, the last counts."""
    found = ""
    words = [*words_of_unit(root), *([] if root else words_of_process())]
    for number, word in enumerate(words):
        if word == name:
            found = "".join(words[number + 1 : number + 2])
        elif word.startswith(f"{name}=") or (len(name) == len("-f") and word.startswith(name)):
            found = word[len(name) :].removeprefix("=")
    return found


def words_of_unit(root: str) -> list[str]:
    """Return what the unit's environment file gives to slurmd."""
    words = []
    for path in _FILES:
        for value in _ASSIGNED.findall(_text(files.at(root, path))):
            words += value.strip().strip("\"'").split()
    return words


def words_of_process() -> list[str]:
    """Return the command line of the slurmd that runs on this host."""
    for path in sorted(glob.glob("/proc/[0-9]*/comm")):
        if _text(path) == "slurmd\n":
            return _text(path.removesuffix("comm") + "cmdline").split("\0")
    return []


def _text(path: str) -> str:
    with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
        return file.read(_MOST_BYTES)
    return ""
