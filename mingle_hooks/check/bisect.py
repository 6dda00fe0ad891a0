"""Which hosts make a command fail: it is run on ever fewer hosts, as `mingle run` runs it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Literal, NamedTuple

from mingle_hooks.check.report import Finding
from mingle_hooks.errors import UsageError, printable
from mingle_hooks.run import runner
from mingle_hooks.run.runner import Request
from mingle_hooks.schedulers.hostlist import fold

# The search for one host, or two together, that make a command fail.
#
# It knows nothing of hosts and commands: it requests one run after the other, and gets whether that passed.

Hosts = tuple[str, ...]
# It passes on all hosts; the culprits are found; it fails on any hosts; it fails at times.
Outcome = Literal["passes", "found", "everywhere", "unsteady"]

# Culprits that are searched for, one after the other, and runs in all.
_MOST_CULPRITS, MOST_RUNS = 8, 200
# Hosts on which is tried, one by one, whether the command passes anywhere; and hosts beside which a suspect is tried.
_MOST_TRIED = 3
_PAIR = 2


class Verdict(NamedTuple):
    """The result: each of `culprits` is one host that fails beside any others, or two that fail only together.

    `suspects` took part in every failed run of an unsteady command; `runs` and `failed` count the runs.
    """

    outcome: Outcome
    culprits: tuple[Hosts, ...] = ()
    suspects: Hosts = ()
    runs: int = 0
    failed: int = 0


class ExhaustedError(Exception):
    """The search needs more runs than are allowed."""


def bisect(hosts: Hosts, passes: Callable[[Hosts], bool]) -> Verdict:
    """Return which hosts make a command fail; `passes(some)` runs it on some of these hosts."""
    search = _Search(hosts, passes)
    try:
        verdict = search.verdict()
    except ExhaustedError:
        verdict = search.unsteady()
    failed = sum(not passed for _, passed in search.runs)
    return verdict._replace(runs=len(search.runs), failed=failed)


class _Search:
    """The runs of one search: one on each set of hosts, except where a failure is confirmed."""

    def __init__(self, hosts: Hosts, passes: Callable[[Hosts], bool]) -> None:
        self._hosts, self._passes = hosts, passes
        self._known: dict[Hosts, bool] = {}
        self._passes_alone: bool | None = None  # whether the command can pass on one host
        self.runs: list[tuple[Hosts, bool]] = []

    def verdict(self) -> Verdict:
        """Return the result, without the numbers of runs. Raises ExhaustedError."""
        left = self._hosts
        culprits: list[Hosts] = []
        while left and not self._run(left):
            if culprits and not any(passed for _, passed in self.runs):
                return Verdict("everywhere")
            smallest = self._smallest(left, ())
            if len(culprits) == _MOST_CULPRITS or len(smallest) > _PAIR or self._run(smallest, again=True):
                return self.unsteady()
            found = self._separated(smallest, left)
            if self._is_contradicted(found):
                self._passes_alone = False  # it fails on any single host
                return self.verdict()
            culprits += found
            excluded = {culprit[-1] for culprit in found}  # of two that fail together one may stay
            left = tuple(host for host in left if host not in excluded)
        if culprits and not any(passed for _, passed in self.runs):
            return Verdict("everywhere")
        return Verdict("found" if culprits else "passes", tuple(culprits))

    def unsteady(self) -> Verdict:
        """Return the hosts of every failed run, of these those that took part in the fewest runs that passed."""
        failed = [set(hosts) for hosts, passed in self.runs if not passed]
        counts = {
            host: sum(host in hosts for hosts, passed in self.runs if passed)
            for host in self._hosts
            if all(host in hosts for hosts in failed)
        }
        fewest = min(counts.values(), default=0)
        return Verdict("unsteady", suspects=tuple(host for host, count in counts.items() if count == fewest))

    def _run(self, hosts: Iterable[str], *, again: bool = False) -> bool:
        """Return whether it passes; True for one host if it passes on no single host, as that proves nothing."""
        wanted = {*hosts}
        some = tuple(host for host in self._hosts if host in wanted)
        if len(some) == 1 and not self._can_pass_alone(some[0]):
            return True
        if again or some not in self._known:
            if len(self.runs) == MOST_RUNS:
                raise ExhaustedError
            self._known[some] = self._passes(some)
            self.runs.append((some, self._known[some]))
        return self._known[some]

    def _can_pass_alone(self, host: str) -> bool:
        """Return whether the command can pass on one host; found out once, on hosts other than a suspect."""
        if self._passes_alone is None:
            self._passes_alone = True
            others = [other for other in reversed(self._hosts) if other != host]
            others = others[::2] + others[1::2]  # neighbours may share a fault
            for one in others[:_MOST_TRIED]:
                if self._run((one,)):
                    break
                company = [other for other in (*others, host) if other != one][:_MOST_TRIED]
                if any(self._run((one, other)) for other in company):
                    self._passes_alone = False
                    break
        return self._passes_alone

    def _smallest(self, part: Hosts, beside: Hosts) -> Hosts:
        """Return the fewest hosts of a part that still fail beside others, by Zeller's dd.

        If neither half fails by itself, each has some of them: these are searched beside the whole other half.
        """
        if len(part) == 1:
            return part
        middle = len(part) // 2
        one, other = part[:middle], part[middle:]
        for half in (one, other):
            if not self._run((*half, *beside)):
                return self._smallest(half, beside)
        first = self._smallest(one, (*other, *beside))
        return first + self._smallest(other, (*first, *beside))

    def _separated(self, smallest: Hosts, among: Hosts) -> tuple[Hosts, ...]:
        """Distinguish two hosts that fail only together from one that fails beside any other, but passes alone."""
        if len(smallest) < _PAIR:
            return (smallest,)
        for witness in self._witnesses([host for host in among if host not in smallest]):
            fails = [host for host in smallest if not self._run((host, witness))]
            if len(fails) < _PAIR:
                return ((fails[0],),) if fails else (smallest,)
        return (smallest,) if len(among) == len(smallest) else tuple((host,) for host in smallest)

    def _is_contradicted(self, found: tuple[Hosts, ...]) -> bool:
        """Tell whether a host that fails alone has passed beside others."""
        alone = {culprit[0] for culprit in found if len(culprit) == 1 and self._known.get(culprit) is False}
        return any(passed and len(hosts) > 1 and not alone.isdisjoint(hosts) for hosts, passed in self.runs)

    def _witnesses(self, others: list[str]) -> list[str]:
        """Return some hosts that are probably well: first those that passed beside the most others."""
        most = {
            host: max((len(hosts) for hosts, passed in self.runs if passed and host in hosts), default=0)
            for host in others
        }
        return sorted(others, key=lambda host: -most[host])[:_MOST_TRIED]


# The runs themselves.

_STDOUT, _STDERR = 1, 2
_SHOWN = 80


class Trials:
    """The runs of one command; `note(line)` gets a line for each."""

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
        """Return the trials of a command. Raises UsageError and FactsError."""
        request = runner.plan_request(command, runner.Options(hosts=hosts, limit=limit), settings, ())
        if request.is_of_job:
            raise UsageError(
                "a command that mingle starts on each host",
                f"{command[0]}, which reaches the hosts by itself",
                "what it starts there, such as the program after its options",
            )
        return cls(request, note)

    def findings(self, hosts: tuple[str, ...]) -> tuple[Finding, ...]:
        """Return which of these hosts make the command fail."""
        command = printable(" ".join(self._request.command), _SHOWN)
        return verdict_findings(bisect(hosts, self._passes), command)

    def _passes(self, hosts: tuple[str, ...]) -> bool:
        """Run it in a child, so that no run affects the next; its stdout goes to stderr."""
        request, began = self._request, time.monotonic()
        slots = dict(zip(request.plan.hosts, request.plan.slots, strict=True))
        plan = request.plan._replace(
            hosts=hosts, slots=tuple(slots[host] for host in hosts), least=len(hosts), most=len(hosts)
        )
        self._count += 1
        child = os.fork()
        if not child:
            _run_and_exit(request._replace(plan=plan, settings=request.settings._replace(quiet=True)))
        status = _wait(child)
        result = "passed" if not status else f"failed with status {status}"
        self._note(f"run {self._count} on {fold(hosts)}: {result} after {time.monotonic() - began:.1f} s")
        return not status


def _run_and_exit(request: Request) -> None:
    """Run it, and exit with its status."""
    status = 70  # a bug in mingle
    try:
        os.dup2(_STDERR, _STDOUT)
        status = runner.run_command(request)
    except Exception as error:  # noqa: BLE001 - the caller's handlers belong to another process
        os.write(_STDERR, f"mingle check: {printable(error)}\n".encode())
    finally:
        os._exit(status)


def _wait(child: int) -> int:
    """Return a run's exit status; if this process is interrupted, the run ends first."""
    try:
        _, status = os.waitpid(child, 0)
    except BaseException:
        os.kill(child, signal.SIGTERM)
        os.waitpid(child, 0)
        raise
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def verdict_findings(verdict: Verdict, command: str) -> tuple[Finding, ...]:
    """Return the findings of a search."""
    among = f"(in {verdict.failed} of {verdict.runs} runs)"
    if verdict.outcome == "everywhere":
        fails = f"`{command}` fails on whatever hosts it runs {among}"
        text = f"{fails}: the cause is the command, or something on all hosts"
        return (Finding("node", (), text, remedy="user: run it on one host, and read what it says"),)
    if verdict.outcome == "unsteady":
        suspects = f"; {fold(verdict.suspects)} took part in each of these" if verdict.suspects else ""
        text = f"`{command}` fails at times {among}{suspects}"
        return (Finding("node", verdict.suspects, text, remedy="user: run it again, with a longer --limit"),)
    found = []
    for hosts in verdict.culprits:
        where = "with it, and passes without it" if len(hosts) == 1 else "where both take part"
        text = f"{' and '.join(hosts)}: `{command}` fails {where} {among}"
        found.append(Finding("node", hosts, text, hosts[-1:], remedy="user: leave it out, and report it to an admin"))
    return tuple(found)
