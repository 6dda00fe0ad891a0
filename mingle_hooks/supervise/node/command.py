"""COMMAND's process: `mingle exec`, which becomes COMMAND once the world has formed."""

from __future__ import annotations

import os
import sys

from mingle_hooks import jsontext
from mingle_hooks.supervise.node import signals
from mingle_hooks.supervise.node.options import AT, KEY
from mingle_hooks.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mingle_hooks.supervise.protocol.messages import Start

FORMED, ATTEMPT, FACTS = "MINGLE_RUN_FORMED", "MINGLE_ATTEMPT", "MINGLE_RUN"
_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_PROGRAM = os.path.join(_PACKAGE, "cli", "member.py")
_CANNOT_BEGIN = 73  # EX_CANTCREAT, as PlaceError's


class Command(NamedTuple):
    """COMMAND's process, and the pipes that it writes to."""

    pid: int
    stdout: int
    stderr: int
    formed: int


def environment(own: Mapping[str, str], start: Start) -> dict[str, str]:
    """Return COMMAND's environment, without what opens the runner's door."""
    mine = {name: value for name, value in own.items() if name not in (KEY, AT)}
    facts = jsontext.dumps(dict(start.facts))
    return {**mine, **start.environ, ATTEMPT: str(start.attempt), FACTS: facts}


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
        signals.forget()
        signals.release()
        environ = {**environment(own, start), FORMED: str(telling)}
        argv = [sys.executable, _PROGRAM, "exec", *start.options, "--", *start.command]
        os.execve(sys.executable, argv, environ)  # noqa: S606 - mingle itself
    except BaseException as wrong:  # noqa: BLE001 - nothing may go back into the supervisor's code
        seen = f"{wrong.filename}: {wrong.strerror}" if isinstance(wrong, OSError) else str(wrong)
        os.write(2, f"mingle run: cannot begin: {seen}\n".encode(errors="replace"))
    finally:
        os._exit(_CANNOT_BEGIN)
