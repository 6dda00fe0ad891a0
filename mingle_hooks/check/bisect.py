"""A command on some of the hosts after the other, as `mingle run` runs it, until who makes it fail is known."""

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

# Which host, or which two together, make a command fail: found by running it on ever fewer of them.
#
# The search knows nothing of hosts or commands: it asks for one run after the other, and is told whether it passed.

Hosts = tuple[str, ...]
# It passes on all; who fails is known; it fails wherever it runs; it fails at times.
How = Literal["passes", "found", "everywhere", "unsteady"]

# Culprits that are looked for, one after the other, and runs in all.
_MOST_CULPRITS, MOST_RUNS = 8, 200
# Hosts that are asked, one by one, whether the command passes anywhere.
_MOST_ASKED = 3
_PAIR = 2


class Verdict(NamedTuple):
    """Who it is: of `culprits` each is one host that fails in any company, or two that fail only together.

    `suspects` were in every run that failed, where it is unsteady; `runs` and `failed` count the runs.
    """

    how: How
    culprits: tuple[Hosts, ...] = ()
    suspects: Hosts = ()
    runs: int = 0
    failed: int = 0


class ExhaustedError(Exception):
    """More runs are wanted than are allowed."""


def bisect(hosts: Hosts, passes: Callable[[Hosts], bool]) -> Verdict:
    """Return who makes a command fail; `passes(some)` runs it on some of these hosts."""
    search = _Search(hosts, passes)
    try:
        verdict = search.verdict()
    except ExhaustedError:
        verdict = search.unsteady()
    failed = sum(not passed for _, passed in search.runs)
    return verdict._replace(runs=len(search.runs), failed=failed)


class _Search:
    """The runs of one search: on each set of hosts one, but where something is to be confirmed."""

    def __init__(self, hosts: Hosts, passes: Callable[[Hosts], bool]) -> None:
        self._hosts, self._passes = hosts, passes
        self._known: dict[Hosts, bool] = {}
        self._is_alone_enough: bool | None = None  # whether the command can pass on one host
        self.runs: list[tuple[Hosts, bool]] = []

    def verdict(self) -> Verdict:
        """Return who it is. Raises ExhaustedError."""
        left = self._hosts
        culprits: list[Hosts] = []
        while left and not self._run(left):
            if culprits and not any(passed for _, passed in self.runs):
                return Verdict("everywhere")
            smallest = self._smallest(left, ())
            if len(culprits) == _MOST_CULPRITS or len(smallest) > _PAIR or self._run(smallest, again=True):
                return self.unsteady()
            found = self._told_apart(smallest, left)
            if self._is_contradicted(found):
                self._is_alone_enough = False  # it fails on one host, whichever it is
                return self.verdict()
            culprits += found
            out = {culprit[-1] for culprit in found}  # of two that fail together one may stay
            left = tuple(host for host in left if host not in out)
        if culprits and not any(passed for _, passed in self.runs):
            return Verdict("everywhere")
        return Verdict("found" if culprits else "passes", tuple(culprits))

    def unsteady(self) -> Verdict:
        """Return those that were in every run that failed, and of these those that were in the fewest that passed."""
        failed = [set(its) for its, passed in self.runs if not passed]
        counts = {
            host: sum(host in its for its, passed in self.runs if passed)
            for host in self._hosts
            if all(host in its for its in failed)
        }
        fewest = min(counts.values(), default=0)
        return Verdict("unsteady", suspects=tuple(host for host, count in counts.items() if count == fewest))

    def _run(self, hosts: Iterable[str], *, again: bool = False) -> bool:
        """Tell whether it passes; on one host alone, where none is enough, it says nothing against that host."""
        wanted = {*hosts}
        some = tuple(host for host in self._hosts if host in wanted)
        if len(some) == 1 and not self._can_be_alone(some[0]):
            return True
        if again or some not in self._known:
            if len(self.runs) == MOST_RUNS:
                raise ExhaustedError
            self._known[some] = self._passes(some)
            self.runs.append((some, self._known[some]))
        return self._known[some]

    def _can_be_alone(self, host: str) -> bool:
        """Find out, once, whether the command passes on one host: on others than that which is in doubt."""
        if self._is_alone_enough is None:
            self._is_alone_enough = True
            others = [its for its in reversed(self._hosts) if its != host]
            others = others[::2] + others[1::2]  # neighbours may share what is wrong
            for one in others[:_MOST_ASKED]:
                if self._run((one,)):
                    break
                company = [its for its in (*others, host) if its != one][:_MOST_ASKED]
                if any(self._run((one, other)) for other in company):
                    self._is_alone_enough = False
                    break
        return self._is_alone_enough

    def _smallest(self, part: Hosts, beside: Hosts) -> Hosts:
        """Return the fewest of a part that still fail beside others, by Zeller's dd.

        Where neither half fails by itself each has something of it: one is sought beside all of the other.
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

    def _told_apart(self, smallest: Hosts, among: Hosts) -> tuple[Hosts, ...]:
        """Tell two that fail only together from one that fails in any company, but passes alone."""
        if len(smallest) < _PAIR:
            return (smallest,)
        for witness in self._witnesses([host for host in among if host not in smallest]):
            fails = [host for host in smallest if not self._run((host, witness))]
            if len(fails) < _PAIR:
                return ((fails[0],),) if fails else (smallest,)
        is_alone = len(among) == len(smallest)
        return (smallest,) if is_alone else tuple((host,) for host in smallest)

    def _is_contradicted(self, found: tuple[Hosts, ...]) -> bool:
        """Tell whether who fails alone has passed in company."""
        alone = {culprit[0] for culprit in found if len(culprit) == 1 and self._known.get(culprit) is False}
        return any(passed and len(its) > 1 and not alone.isdisjoint(its) for its, passed in self.runs)

    def _witnesses(self, others: list[str]) -> list[str]:
        """Return some hosts that are well as far as is known, those first that have passed in company."""
        most = {
            host: max((len(its) for its, passed in self.runs if passed and host in its), default=0) for host in others
        }
        return sorted(others, key=lambda host: -most[host])[:_MOST_ASKED]


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
        request = runner.plan_request(command, runner.Options(hosts=hosts, limit=limit), settings, ())
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
        return trial_text(bisect(hosts, self._passes), words)

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
            _become(request._replace(plan=plan, settings=request.settings._replace(quiet=True)))
        status = _wait(child)
        how = "passed" if not status else f"failed with status {status}"
        self._note(f"run {self._count} on {fold(hosts)}: {how} after {time.monotonic() - began:.1f} s")
        return not status


def _become(request: Request) -> None:
    """Run it, and end with its status."""
    status = 70  # a bug, whose trace has been written
    try:
        os.dup2(_STDERR, _STDOUT)
        status = runner.run_command(request)
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


def trial_text(verdict: Verdict, words: str) -> tuple[Finding, ...]:
    """Make findings of who it is."""
    among = f"(in {verdict.failed} of {verdict.runs} runs)"
    if verdict.how == "everywhere":
        text = f"`{words}` fails on whatever hosts it runs {among}: the cause is the command, or something on all hosts"
        return (Finding("node", (), text, remedy="user: run it on one host, and read what it says"),)
    if verdict.how == "unsteady":
        who = f"; {fold(verdict.suspects)} took part in each of these" if verdict.suspects else ""
        text = f"`{words}` fails at times {among}{who}"
        return (Finding("node", verdict.suspects, text, remedy="user: run it again, with a longer --limit"),)
    found = []
    for hosts in verdict.culprits:
        where = "with it, and passes without it" if len(hosts) == 1 else "where both take part"
        text = f"{' and '.join(hosts)}: `{words}` fails {where} {among}"
        found.append(Finding("node", hosts, text, hosts[-1:], remedy="user: leave it out, and report it to an admin"))
    return tuple(found)
