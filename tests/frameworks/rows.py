"""The frameworks that are tried, from rows.toml."""

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from mingle_hooks.files import toml

SCRIPTS = Path(__file__).parent
NODES = 3
# Slots of the three nodes: alike, or all different.
ALIKE, UNEVEN = (1, 1, 1), (1, 2, 4)


class Row(NamedTuple):
    """One line of the table.

    `line` is typed on every node, or after srun; {size} and {nodes} are the numbers of this world, {python} is the
    interpreter's full path. `per_slot` says that the framework starts a process for each slot, else it is `each`.
    `env` is exported as well, with {prefix} for the environment's place. `needs_names` says why it does not train where
    names do not resolve, and what to do: the page has it there.
    """

    name: str
    package: str  # whose version stands in the table; "" for a program, whose `version` command tells
    line: str
    per_slot: bool = False
    each: int = 1
    env: Mapping[str, str] = MappingProxyType({})
    own_pids: bool = False  # looks at all processes of its machine, and ends those of its kind
    version: str = ""
    by_tasks: bool = False  # counts Slurm's tasks, whatever the slots
    longest_s: float = 200.0  # a try takes 20 s, beside others 60; one that torch's own end spoils would wait for 300
    needs_names: str = ""

    @property
    def script(self) -> str:
        """The script in the line."""
        return re.findall(r"train_\w+\.py", self.line)[0]

    @property
    def uneven(self) -> tuple[int, ...]:
        """Slots that differ from node to node, where the framework has a process for each."""
        return UNEVEN if self.per_slot else ALIKE

    def size(self, slots: tuple[int, ...]) -> int:
        """Return how many processes are to train."""
        return sum(slots) if self.per_slot else len(slots) * self.each

    def command(self, slots: tuple[int, ...], python: str) -> str:
        """Return what follows the first options of `mingle exec`, as a shell reads it."""
        line = self.line.replace(self.script, str(SCRIPTS / self.script))
        return line.format(size=self.size(slots), nodes=len(slots), python=python)


def _row(its: dict[str, Any]) -> Row:
    env = {name: text.format(prefix=sys.prefix) for name, text in its.get("env", {}).items()}
    return Row(**{**its, "env": env})


_TABLE = toml((SCRIPTS / "rows.toml").read_bytes())
ROWS = tuple(map(_row, _TABLE["row"]))
REJOIN = _row(_TABLE["rejoin"])
