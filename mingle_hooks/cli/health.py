"""`mingle hooks verify SCHEDULER --quiet`: for a health check that runs on every node every few minutes.

It loads neither click nor jinja2, which would take most of its time.
"""

from __future__ import annotations

from collections.abc import Sequence

from mingle_hooks import settings
from mingle_hooks.cli.main import write_stdout
from mingle_hooks.errors import printable
from mingle_hooks.hooks import files
from mingle_hooks.hooks.plan import check_health

DEVIATES = 1  # something is there to mend


def read(words: Sequence[str]) -> tuple[str, str] | None:
    """Return the scheduler and the root of `hooks verify SCHEDULER --quiet [--root DIR]`; None for anything else."""
    if words[:2] != ["hooks", "verify"] or "--quiet" not in words:
        return None
    rest = [word for word in words[2:] if word != "--quiet"]
    root = ""
    if "--root" in rest[:-1]:
        position = rest.index("--root")
        root = rest[position + 1]
        del rest[position : position + 2]
    is_plain = len(rest) == 1 and not rest[0].startswith("-") and not root.startswith("-")
    return (rest[0], root.rstrip("/")) if is_plain else None


def check(scheduler: str, root: str) -> int | None:
    """Print what is wrong, and nothing else; return the exit status, None where no hooks of that name are installed.

    Raises PlaceError and SettingsError.
    """
    installed = files.read_manifest(root)
    if not installed.of(scheduler):
        return None
    given = settings.load({}, {}, system_file=files.below_root(root, settings.SYSTEM_FILE))
    found = list(check_health(root, installed, scheduler, given.section("hooks")["key_file"]))
    write_stdout("".join(f"BAD  {its.where}: {printable(its.what)}; fix: {printable(its.mend)}\n" for its in found))
    return DEVIATES if found else 0
