"""What COMMAND runs: its program's file, and the commit that is checked out where it starts."""

from __future__ import annotations

import os

from mingle_hooks.digest import sha256
from mingle_hooks.lint.sources import software
from mingle_hooks.lint.sources.asked import contents, text
from mingle_hooks.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from mingle_hooks.lint.sources.asked import Asked

# A program's file is hashed up to here, 0.3 ms; scripts are shorter.
MOST_BYTES = 1 << 16
MOST_WORDS = 64  # of COMMAND that are looked at
MOST_LEVELS = 32  # of directories above
_SCRIPTS = (".py", ".sh", ".jl", ".lua", ".R", ".pl")
_HASH = 8  # digits
# packed-refs of a repository with thousands of branches; what is longer is left unknown.
MOST_REFS_BYTES = 1 << 20


def program(asked: Asked) -> dict[str, str]:
    """Return a hash of the first script among COMMAND's words, else of the command's own file."""
    if not asked.command:
        return {}
    words = [word for word in asked.command[1:MOST_WORDS] if word.endswith(_SCRIPTS) and not word.startswith("-")]
    for path in (*words, software.program(asked, asked.command[0])):
        try:
            data = contents(f"{asked.root}{os.path.join(asked.directory, path)}", MOST_BYTES)
        except OSError:
            continue
        return {"program": sha256(data).hexdigest()[:_HASH]}
    return {}


def git(asked: Asked) -> dict[str, str]:
    """Return the commit that is checked out in the working directory or above it; nothing where that is unknown."""
    directory = asked.directory
    for _ in range(MOST_LEVELS):
        place = os.path.join(directory, ".git")
        if os.path.isdir(f"{asked.root}{place}"):
            return _named(_commit(asked.root, place))
        said = text(f"{asked.root}{place}", 1024)
        if said.startswith("gitdir:"):  # a worktree or a submodule
            return _named(_commit(asked.root, os.path.join(directory, said[len("gitdir:") :].strip())))
        if directory in ("/", ""):
            break
        directory = os.path.dirname(directory)
    return {}


def _named(commit: str) -> dict[str, str]:
    is_one = len(commit) >= _HASH and not commit.strip("0123456789abcdef")
    return {"git": commit[:_HASH]} if is_one else {}


def _commit(root: str, place: str) -> str:
    """Return the commit of a git directory by its files; "" where refs are kept in another way (reftable)."""
    head = text(f"{root}{place}/HEAD", 1024).strip()
    if not head.startswith("ref: "):
        return head
    name = head[len("ref: ") :]
    common = os.path.join(place, text(f"{root}{place}/commondir", 1024).strip())
    for folder in (place, common):
        if commit := text(f"{root}{folder}/{name}", 128).strip():
            return commit
    try:
        packed = b"\n" + contents(f"{root}{common}/packed-refs", MOST_REFS_BYTES)
    except OSError:
        return ""
    before, is_there, _ = packed.partition(f" {name}\n".encode("utf-8", "surrogateescape"))
    return before.rpartition(b"\n")[2].decode("ascii", "replace") if is_there else ""
