"""`make frameworks ARGS=networks`: an unchanged script on hosts with each network, and the table of docs/networks.md.

It is started by torchrun, and where only the hosts' names are odd also alone, as one process on each node.

With more words it tries those whose names hold one of them, and writes nothing. It takes torch alone, as `make test`
installs it: `cd tests && ../.venv/bin/python -m frameworks networks`.
"""

import re
import shlex
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from cluster.host import Host
from cluster.hosts import Hosts, missing
from cluster.layouts import HOSTS, LAYOUTS, Layout
from cluster.paths import LEAN

from frameworks.rows import SCRIPTS
from frameworks.runs import KEY, Seen, ended, on_all, tried

PAGE = Path(__file__).parents[2] / "docs" / "networks.md"
HEAD = ("| network | trains over |", "|---|---|")
# A try takes 6 s, on the slow link 15.
LONGEST_S = 100.0
# What a person types after `mingle exec` and the world's name.
BY_TORCHRUN, ALONE = "torchrun", "python"
KEY_FILE = "/root/.config/mingle/key"


class Trained(NamedTuple):
    """How a try ended: why it did not train, if so, and over which interface each host sent most."""

    why: str
    sent: tuple[str, ...]

    def verdict(self, layout: Layout) -> str:
        """Return "" where the script trained, over the network that is wanted."""
        if self.why or self.sent == layout.wanted:
            return self.why
        return f"most went over {', '.join(self.sent)}, not {', '.join(layout.wanted)}"


def starts(layout: Layout) -> tuple[str, ...]:
    """Return the ways to start the script that are tried: what another interface changes, torchrun shows."""
    return (BY_TORCHRUN, ALONE) if HOSTS in layout.files else (BY_TORCHRUN,)


def train(layout: Layout, hosts: Hosts, place: Path, lines: Sequence[str]) -> Trained:
    """Lay the network, and run the script as a person would without any of mingle's options or variables."""
    layout.lay(hosts, place)
    hosts[0].write(KEY_FILE, KEY["MINGLE_KEY"] + "\n", mode=0o600)  # in the home that all share
    size = len(hosts)
    script = shlex.quote(str(SCRIPTS / "train_torch.py"))

    def one(start: str, number: int) -> Seen:
        line = f"exec mingle exec --id job --nodes {size} {start} {script} {size}"
        return ended(hosts[number], ["bash", "-c", line], LEAN, LONGEST_S)

    before = [octets(host) for host in hosts]
    whys = [tried(f"{layout.name}, {start}", partial(on_all, hosts, partial(one, start)), size) for start in lines]
    return Trained(
        "; ".join(filter(None, whys)),
        tuple(busiest(was, octets(host)) for was, host in zip(before, hosts, strict=True)),
    )


def octets(host: Host) -> dict[str, int]:
    """Return how many octets each interface has sent."""
    table = host.run(["cat", "/proc/net/dev"], check=True).stdout
    return {name: int(words.split()[8]) for name, words in re.findall(r"^ *([^\s:]+):(.*)$", table, re.MULTILINE)}


def busiest(before: Mapping[str, int], after: Mapping[str, int]) -> str:
    """Return the interface that has sent most meanwhile."""
    return max(after, key=lambda name: after[name] - before.get(name, 0))


def main(*words: str) -> int:
    """Try the networks, write the table, and return 0 only where each trained over the interface that is wanted."""
    if lacks := missing():
        sys.stderr.write(f"no networks tried, for want of {', '.join(lacks)}\n")
        return 69
    found: dict[str, Trained] = {}
    chosen = [its for its in LAYOUTS if not words or any(word.lower() in its.name.lower() for word in words)]
    for layout in chosen:
        began = time.monotonic()
        with TemporaryDirectory() as place:
            Path(place).chmod(0o755)  # what is closed to other users is no host's
            with Hosts(len(layout.machines), share=[place]) as hosts:
                found[layout.name] = train(layout, hosts, Path(place), starts(layout))
        why = found[layout.name].verdict(layout) or "trained over " + over(found[layout.name].sent)
        sys.stderr.write(f"{layout.name}: {why} ({time.monotonic() - began:.0f} s)\n")
    if not words:
        PAGE.write_text(replaced(PAGE.read_text(), table(LAYOUTS, found)))
    return int(any(its.verdict(layout) for layout, its in zip(chosen, found.values(), strict=True)))


def over(names: Iterable[str]) -> str:
    """Return the interfaces' names, each once."""
    return ", ".join(dict.fromkeys(f"`{name}`" for name in names))


def table(layouts: Iterable[Layout], found: Mapping[str, Trained]) -> str:
    """Return the table as the page has it."""
    rows = (f"| {its.name} | {found[its.name].why or over(found[its.name].sent)} |" for its in layouts)
    return "\n".join((*HEAD, *rows)) + "\n"


def replaced(page: str, text: str) -> str:
    """Return the page with another table in the place of its own."""
    before, head, rest = page.partition(HEAD[0] + "\n")
    if not head:
        raise ValueError(f"no table that begins with {HEAD[0]}")
    after = re.sub(r"\A(\|.*\n)*", "", rest)
    return before + text + after
