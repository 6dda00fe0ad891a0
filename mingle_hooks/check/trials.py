"""A command on some of the hosts after the other, as `mingle run` runs it, until who makes it fail is known."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

from mingle_hooks.check.bisecting import bisect
from mingle_hooks.check.report import Finding
from mingle_hooks.errors import UsageError, printable
from mingle_hooks.schedulers.hostlist import fold
from mingle_hooks.supervise.runner import planning, run

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mingle_hooks.check.bisecting import Verdict
    from mingle_hooks.supervise.runner.request import Request

_STDOUT, _STDERR = 1, 2
_SHOWN = 80


class Trials:
    """Runs of one command; `note(line)` gets a line for each."""

    def __init__(self, request: Request, note: Callable[[str], None]) -> None:
        self._request, self._note, self._count = request, note, 0

    @classmethod
    def of(
        cls,
        command: tuple[str, ...],
        settings: Mapping[str, object],
        hosts: str | None,
        limit: str,
        note: Callable[[str], None],
    ) -> Trials:
        """Return what runs a command. Raises UsageError and FactsError."""
        request = planning.request(command, planning.Options(hosts=hosts, limit=limit), settings, ())
        if request.is_of_job:
            raise UsageError(
                "a command that mingle starts on each host",
                f"{command[0]}, which reaches the hosts by itself",
                "what it starts there, such as the program after its options",
            )
        return cls(request, note)

    def findings(self, hosts: tuple[str, ...]) -> tuple[Finding, ...]:
        """Return who makes the command fail on these hosts."""
        words = printable(" ".join(self._request.command), _SHOWN)
        return told(bisect(hosts, self._passes), words)

    def _passes(self, hosts: tuple[str, ...]) -> bool:
        """Run it, in a child, so that nothing of one run is left for the next; what it writes goes to stderr."""
        request, began = self._request, time.monotonic()
        slots = dict(zip(request.plan.hosts, request.plan.slots, strict=True))
        plan = request.plan._replace(
            hosts=hosts, slots=tuple(slots[host] for host in hosts), least=len(hosts), most=len(hosts)
        )
        self._count += 1
        child = os.fork()
        if not child:
            _become(request._replace(plan=plan, is_quiet=True))
        status = _wait(child)
        how = "passed" if not status else f"failed with status {status}"
        self._note(f"run {self._count} on {fold(hosts)}: {how} after {time.monotonic() - began:.1f} s")
        return not status


def _become(request: Request) -> None:
    """Run it, and end with its status."""
    status = 70  # a bug, whose trace has been written
    try:
        os.dup2(_STDERR, _STDOUT)
        status = run.run(request)
    except Exception as error:  # noqa: BLE001 - this is not the process that the caller's handlers are for
        os.write(_STDERR, f"mingle check: {printable(error)}\n".encode())
    finally:
        os._exit(status)


def _wait(child: int) -> int:
    """Wait for a run; where this process is to end, the run ends first."""
    try:
        _, status = os.waitpid(child, 0)
    except BaseException:
        os.kill(child, signal.SIGTERM)
        os.waitpid(child, 0)
        raise
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def told(verdict: Verdict, words: str) -> tuple[Finding, ...]:
    """Make findings of who it is."""
    among = f"(in {verdict.failed} of {verdict.runs} runs)"
    if verdict.how == "everywhere":
        text = f"`{words}` fails on whatever hosts it runs {among}: the cause is the command, or something on all hosts"
        return (Finding("node", (), text),)
    if verdict.how == "unsteady":
        who = f"; {fold(verdict.suspects)} took part in each of these" if verdict.suspects else ""
        return (Finding("node", verdict.suspects, f"`{words}` fails at times {among}{who}"),)
    found = []
    for hosts in verdict.culprits:
        where = "with it, and passes without it" if len(hosts) == 1 else "where both take part"
        found.append(Finding("node", hosts, f"{' and '.join(hosts)}: `{words}` fails {where} {among}", hosts[-1:]))
    return tuple(found)
