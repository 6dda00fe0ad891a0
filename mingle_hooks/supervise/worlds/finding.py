"""The runs of this user that hold one of the user's keys, and how they do."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mingle_hooks.errors import SettingsError, UsageError
from mingle_hooks.nearest import nearest
from mingle_hooks.supervise.worlds import asking, process, registry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mingle_hooks.supervise.worlds.asking import Way
    from mingle_hooks.supervise.worlds.registry import Entry
    from mingle_hooks.supervise.worlds.words import State

# Of several runs that are meant, so many are named.
_MOST_NAMED = 10


class Seen(NamedTuple):
    """A run, and how it does; None where it does not answer."""

    entry: Entry
    state: State | None


class Runs:
    """Those written down in the user's directory. `note` gets a line on what is left out. Raises SettingsError."""

    def __init__(self, environ: Mapping[str, str], keys: Sequence[bytes], note: Callable[[str], None]) -> None:
        path = registry.directory(environ)
        if path is None:
            raise SettingsError("a home directory, which holds the list of runs", "none", "HOME, or XDG_STATE_HOME")
        self.path, self._keys, self._note = path, keys, note

    def ways(self) -> list[Way]:
        """Return how to ask each that is there; those of which certainly nothing is left are forgotten."""
        found, others = [], 0
        for entry in registry.read(self.path, self._note):
            way = asking.way(entry, self._keys)
            if way is None:
                others += 1
            elif not self.is_gone(entry):
                found.append(way)
        if others:
            what = "run has" if others == 1 else "runs have"
            self._note(f"{others} {what} another key than those found here (MINGLE_KEY, --key-file)")
        return found

    def is_gone(self, entry: Entry) -> bool:
        """Tell whether a run has certainly ended; what a killed runner left in the directory is removed then."""
        if process.is_gone(entry.process):
            registry.remove(self.path, entry.run)
            return True
        return not registry.is_there(self.path, entry.run)

    def look(self, ways: Sequence[Way], *, is_whole: bool = False) -> list[Seen]:
        """Return how each run does, but for those that have ended meanwhile."""
        states = asking.ask(ways, is_whole=is_whole)
        pairs = [Seen(way.entry, state) for way, state in zip(ways, states, strict=True)]
        return [seen for seen in pairs if seen.state is not None or not self.is_gone(seen.entry)]

    def one(self, name: str) -> Way:
        """Return the run that is meant by the job's id, the run's own, or the beginning of one. Raises UsageError."""
        ways = self.ways()
        found = [way for way in ways if name in (way.entry.id, way.entry.run)]
        found = found or [way for way in ways if way.entry.id.startswith(name) or way.entry.run.startswith(name)]
        if len(found) == 1:
            return found[0]
        if found:
            runs = ", ".join(f"{way.entry.run} ({way.entry.id})" for way in found[:_MOST_NAMED])
            raise UsageError("the id of one run", f"{name}, which {len(found)} have: {runs}", found[0].entry.run)
        known = [way.entry.id for way in ways]
        raise UsageError("the id of a run", name, nearest(name, known) if known else "`mingle ls` on another host")
