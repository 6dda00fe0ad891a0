"""Which host, or which two together, make a command fail: found by running it on ever fewer of them.

The search knows nothing of hosts or commands: it asks for one run after the other, and is told whether it passed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Literal

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
