"""COMMAND's process: `mingle exec`, which becomes COMMAND once the world has formed.

The supervisor's child goes on as that: a new interpreter, and loading what both need, would cost each host 20 ms.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from mingle_hooks import jsontext
from mingle_hooks.open_files import close_all_but
from mingle_hooks.supervise.node import signals
from mingle_hooks.supervise.node.options import AT, KEY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    from mingle_hooks.supervise.protocol.messages import Start

FORMED, ATTEMPT, FACTS = "MINGLE_RUN_FORMED", "MINGLE_ATTEMPT", "MINGLE_RUN"
_PROGRAM = "mingle_hooks.cli.main"
_CANNOT_BEGIN = 73  # EX_CANTCREAT, as PlaceError's
_STDERR = 2


class Command(NamedTuple):
    """COMMAND's process, and the pipes that it writes to."""

    pid: int
    stdout: int
    stderr: int
    formed: int


def environment(own: Mapping[str, str], start: Start) -> dict[str, str]:
    """Return COMMAND's environment, without what opens the runner's door."""
    mine = {name: value for name, value in own.items() if name not in (KEY, AT)}
    facts = {FACTS: jsontext.dumps(dict(start.facts))} if start.facts else {}
    return {**mine, **start.environ, ATTEMPT: str(start.attempt), **facts}


def prepare() -> None:
    """Load what `mingle exec` needs, while the other hosts are waited for."""


def begin(own: Mapping[str, str], start: Start) -> Command:
    """Start it. Raises OSError for want of descriptors or processes."""
    ends: list[int] = []
    try:
        for _ in range(3):
            ends += os.pipe2(os.O_CLOEXEC)
        signals.hold()
        pid = os.fork()
    except OSError:
        signals.release()
        for end in ends:
            os.close(end)
        raise
    out, stdout, err, stderr, formed, telling = ends
    if not pid:
        _become(own, start, stdout, stderr, telling)
    signals.release()
    for theirs, ours in ((stdout, out), (stderr, err), (telling, formed)):
        os.close(theirs)
        os.set_blocking(ours, False)
    return Command(pid, out, err, formed)


class _Elsewhere:
    """Looks into Python's other directories, once what is wanted is not beside mingle: few runs need that, for 4 ms."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return where a module is, None where there is none; what Python itself may lack is in none of them."""
        if name in sys.stdlib_module_names:
            return None
        import site
        from importlib.machinery import PathFinder

        sys.meta_path.remove(self)
        sys.path += filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
        site.main()
        return PathFinder.find_spec(name, path, target)


def _become(own: Mapping[str, str], start: Start, stdout: int, stderr: int, telling: int) -> None:
    """Become `mingle exec`; what goes wrong is told where COMMAND's errors are."""
    try:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        os.umask(start.umask)
        os.chdir(start.directory)
        os.set_inheritable(telling, True)  # noqa: FBT003 - os's own
        close_all_but(0, 1, _STDERR, telling)  # a copy of the supervisor's connections here would hide its end
        signals.forget()
        signals.release()
        _exec({**environment(own, start), FORMED: str(telling)}, ("exec", *start.options, "--", *start.command))
    except BaseException as wrong:  # noqa: BLE001 - nothing may go back into the supervisor's code
        seen = f"{wrong.filename}: {wrong.strerror}" if isinstance(wrong, OSError) else str(wrong)
        os.write(_STDERR, f"mingle run: cannot start: {seen}\n".encode(errors="replace"))
    finally:
        os._exit(_CANNOT_BEGIN)


def _exec(environ: Mapping[str, str], arguments: tuple[str, ...]) -> None:
    """Run mingle's command line in this process, which knows Python's own modules and those beside mingle."""
    os.environ.clear()
    os.environ.update(environ)
    sys.argv[1:] = arguments
    sys.meta_path.append(_Elsewhere())
    import_module(_PROGRAM).main()
