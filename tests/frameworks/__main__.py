"""`make frameworks`: try every framework on three hosts, bare and under Slurm, and write docs/frameworks.md.

`make frameworks ARGS=jax` tries those whose names hold a word, and writes nothing. Before all of them, or by
ARGS=parsers alone, each name is looked for where it is read, and each framework's own parser is asked. ARGS=networks
tries torch on all networks instead (networks.py).
"""

from __future__ import annotations

import subprocess
import sys
import time
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from cluster import hosts as cluster_hosts
from cluster import slurm as cluster_slurm
from cluster.hosts import Hosts
from cluster.slurm import SlurmCluster

from frameworks import elastic, networks, page, runs
from frameworks.parsers import wrong
from frameworks.rows import ALIKE, NODES, REJOIN, ROWS, Row
from frameworks.ssh import serve

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = Path(__file__).parents[2] / "docs" / "frameworks.md"


def main(*words: str) -> int:
    """Try the rows, write the page, and return 0 only where every try trained."""
    if lacks := cluster_hosts.missing() + cluster_slurm.missing():
        sys.stderr.write(f"no frameworks tried, for want of {', '.join(lacks)}\n")
        return 69
    if not words or "parsers" in words:
        with TemporaryDirectory() as place:
            unread = list(wrong(Path(place)))
        sys.stderr.write("".join(f"{line}\n" for line in unread))
        if unread or words:
            return int(bool(unread))
    chosen = [row for row in ROWS if not words or any(word.lower() in row.name.lower() for word in words)]
    results: dict[str, dict[str, str]] = {row.name: {} for row in chosen}
    versions = {row.name: version_of(row) for row in (*chosen, REJOIN)}
    with Hosts(NODES) as hosts:
        serve(hosts)
        for row in chosen:
            # Each network is seen with slots alike or uneven, and the other way round under Slurm.
            for place, iface, slots in (("bare, eth0", "eth0", ALIKE), ("bare, ib0", "ib0", row.uneven)):
                run = partial(runs.on_hosts, row, hosts, iface, slots)
                results[row.name][place] = told(row, place, versions, run)
        if not words:
            results[REJOIN.name] = {"bare, eth0": told(REJOIN, "bare, eth0", versions, partial(elastic.killed, hosts))}
    with Hosts(NODES) as hosts, SlurmCluster(hosts, cpus=8) as slurm:
        for row in chosen:
            uneven = ALIKE if row.by_tasks else row.uneven
            for place, iface, slots in (("Slurm, eth0", "eth0", uneven), ("Slurm, ib0", "ib0", ALIKE)):
                run = partial(runs.under_slurm, row, slurm, iface, slots)
                results[row.name][place] = told(row, place, versions, run)
    if not words:
        PAGE.write_text(page.text([*chosen, REJOIN], versions, results))
    return int(any(why for tries in results.values() for why in tries.values()))


def told(row: Row, place: str, versions: dict[str, str], run: Callable[[], str]) -> str:
    """Run one try, and say on stderr how it went."""
    if not versions[row.name]:
        return "not installed"
    began = time.monotonic()
    why = run()
    sys.stderr.write(f"{row.name}, {place}: {why or 'trained'} ({time.monotonic() - began:.0f} s)\n")
    return why


def version_of(row: Row) -> str:
    """Return the version that is tried, "" where it is not installed."""
    try:
        if row.package:
            return version(row.package)
        shown = subprocess.run(row.version.split(), capture_output=True, text=True, check=True).stdout
    except (PackageNotFoundError, FileNotFoundError, subprocess.CalledProcessError):
        return ""
    return next((word for word in shown.split() if word[0].isdigit()), "")


if __name__ == "__main__":
    given = sys.argv[1:]
    sys.exit(networks.main(*given[1:]) if given[:1] == ["networks"] else main(*given))
