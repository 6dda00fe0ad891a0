"""`make frameworks`: try every framework on three hosts, bare and under Slurm, and write docs/frameworks.md.

`make frameworks ARGS=jax` tries those whose names hold a word, and writes nothing. Before all of them, each name is
looked for where it is read. ARGS=networks tries torch on all networks instead (networks.py).

The hosts know each other's names in three ways (cluster/names.py). On bare hosts each row is tried with all of them
over both networks, under Slurm with each of them over one.
"""

import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from cluster import hosts as cluster_hosts, names as cluster_names, slurm as cluster_slurm
from cluster.hosts import Hosts
from cluster.names import RESOLVABLE
from cluster.slurm import SlurmCluster

from frameworks import networks, page, runs
from frameworks.page import Place
from frameworks.reads import unread
from frameworks.rows import ALIKE, NODES, REJOIN, ROWS, Row

PAGE = Path(__file__).parents[2] / "docs" / "frameworks.md"
AT_ONCE = 3


def main(*words: str) -> int:
    """Try the rows, write the page, and return 0 only where every try trained."""
    if lacks := cluster_hosts.missing() + cluster_slurm.missing():
        sys.stderr.write(f"no frameworks tried, for want of {', '.join(lacks)}\n")
        return 69
    if lines := [] if words else unread():
        sys.stderr.write("".join(f"{line}\n" for line in lines))
        return 1
    chosen = [row for row in ROWS if not words or any(word.lower() in row.name.lower() for word in words)]
    versions = {row.name: version_of(row) for row in (*chosen, REJOIN)}
    results: dict[str, dict[Place, str]] = {row.name: {} for row in (*chosen, REJOIN)}
    on_bare = [partial(on_bare_hosts, names) for names in cluster_names.NAMES]
    # Much of a try is waiting, for Ray's end above all: several at once, each on hosts of its own.
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for tried in [pool.submit(its, chosen, versions, results) for its in (under_slurm, *on_bare)]:
            tried.result()
    if not words:
        PAGE.write_text(page.text([*chosen, REJOIN], versions, results))
    rows = {row.name: row for row in (*chosen, REJOIN)}
    return int(any(page.is_news(rows[name], place, why) for name in results for place, why in results[name].items()))


def on_bare_hosts(
    names: str, chosen: list[Row], versions: dict[str, str], results: dict[str, dict[Place, str]]
) -> None:
    """Try the rows on three hosts over each network."""
    with Hosts(NODES) as hosts:
        runs.serve_ssh(hosts)
        cluster_names.lay(hosts, names)
        for row in chosen:
            # Slots are uneven on one network where names resolve, and the other way round under Slurm.
            for iface, slots in (("eth0", ALIKE), ("ib0", row.uneven if names == RESOLVABLE else ALIKE)):
                place = Place("bare", names, iface)
                run = partial(runs.on_hosts, row, hosts, iface, slots)
                results[row.name][place] = attempt(row, place, versions, run)
        if chosen == list(ROWS):
            place = Place("bare", names, "eth0")
            results[REJOIN.name][place] = attempt(REJOIN, place, versions, partial(runs.with_one_killed, hosts))


def under_slurm(chosen: list[Row], versions: dict[str, str], results: dict[str, dict[Place, str]]) -> None:
    """Try the rows under Slurm, which has the hosts' addresses, with each way of names over one network."""
    with Hosts(NODES) as hosts, SlurmCluster(hosts, cpus=8, by_address=True) as slurm:
        for names, iface in zip(cluster_names.NAMES, ("eth0", "ib0", "eth0"), strict=True):
            cluster_names.lay(hosts, names)
            for row in chosen:
                slots = row.uneven if names == RESOLVABLE and not row.by_tasks else ALIKE
                run = partial(runs.under_slurm, row, slurm, iface, slots)
                place = Place("Slurm", names, iface)
                results[row.name][place] = attempt(row, place, versions, run)


def attempt(row: Row, place: Place, versions: dict[str, str], run: Callable[[], str]) -> str:
    """Run one try, and say on stderr how it went."""
    if not versions[row.name]:
        return "not installed"
    began = time.monotonic()
    why = run()
    sys.stderr.write(f"{row.name}, {', '.join(place)}: {why or 'trained'} ({time.monotonic() - began:.0f} s)\n")
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
