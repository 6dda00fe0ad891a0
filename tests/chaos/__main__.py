"""`make chaos HOSTS=3`: schedules on real hosts from a seed on; one that breaks a rule is shown whole."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from multiprocessing.queues import Queue
from pathlib import Path
from subprocess import SubprocessError
from typing import NamedTuple

from cluster import hosts as cluster_hosts, slurm as cluster_slurm
from cluster.paths import PROJECT

from chaos.rules import violations
from chaos.schedules import schedule
from chaos.slot import Slot

TOLD_EVERY = 100
# A slot whose Slurm is unwell is made anew, so often for one schedule.
MOST_TRIES = 3


class Played(NamedTuple):
    """What became of one schedule: its end in a word or two, its faults that happened, and what it broke."""

    seed: int
    end: str
    faults: tuple[str, ...]
    broken: list[str]
    shown: str


def main() -> int:
    """Return 1 where a schedule broke a rule."""
    parser = argparse.ArgumentParser(prog="chaos")
    parser.add_argument("--hosts", type=int, default=3)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--schedules", type=int, default=2000)
    parser.add_argument("--jobs", type=int, default=4 * (os.cpu_count() or 1), help="sets of hosts; they mostly wait")
    parser.add_argument("--most", type=int, default=5, help="stop after so many violations")
    options = parser.parse_args()
    if lacks := cluster_hosts.missing() + cluster_slurm.missing():
        sys.stderr.write(f"no hosts on this machine for want of {', '.join(lacks)}\n")
        return 69
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # the hosts end with the processes
    began, ends, faults, bad = time.monotonic(), Counter[str](), Counter[str](), 0
    seeds = range(options.first, options.first + options.schedules)
    print(
        f"seeds {seeds[0]} to {seeds[-1]} on {options.hosts} hosts, {min(options.jobs, len(seeds))} at a time",
        flush=True,
    )
    (PROJECT / "build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=PROJECT / "build") as folder:
        Path(folder).chmod(0o755)
        for done, its in enumerate(played(seeds, Path(folder), options.hosts, options.jobs), 1):
            ends[its.end] += 1
            faults.update(its.faults)
            if its.broken or len(seeds) == 1:
                print("\n".join(["", *(f"VIOLATION: {line}" for line in its.broken), its.shown]), flush=True)
            if its.broken:
                bad += 1
                print(f"to run it alone: make chaos HOSTS={options.hosts} SEED={its.seed} SCHEDULES=1", flush=True)
            if len(seeds) == 1 or done % TOLD_EVERY == 0 or done == len(seeds) or bad >= options.most:
                print(_tally(ends, faults, bad, time.monotonic() - began), flush=True)
            if bad >= options.most:
                break
    return int(bad > 0)


def played(seeds: Sequence[int], folder: Path, nodes: int, jobs: int) -> Iterator[Played]:
    """Play schedules on so many sets of hosts, and yield what became of each as it ends."""
    context = multiprocessing.get_context("fork")
    todo: Queue[int | None] = context.Queue()
    results: Queue[Played] = context.Queue()
    count = min(jobs, len(seeds))
    for seed in [*seeds, *[None] * count]:
        todo.put(seed)
    workers = [context.Process(target=_work, args=(todo, results, folder / str(n), nodes)) for n in range(count)]
    for worker in workers:
        worker.start()
    is_done = False
    try:
        for _ in seeds:
            yield results.get()
        is_done = True
    finally:
        for worker in workers:
            if not is_done:
                worker.terminate()  # its hosts end with it
            worker.join()


def _work(todo: Queue[int | None], results: Queue[Played], place: Path, nodes: int) -> None:
    """Play schedules until there are no more; hosts or a Slurm that are unwell are made anew."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    seed, tries = todo.get(), 0
    while seed is not None:
        try:
            with Slot(place, nodes) as slot:
                while seed is not None:
                    its = _one(slot, seed, nodes)
                    results.put(its)
                    seed, tries = todo.get(), 0
                    if its.broken:
                        break  # what it left is not to spoil the next one
        except (OSError, AssertionError, SubprocessError) as error:
            tries += 1
            if tries == MOST_TRIES:
                assert seed is not None
                results.put(Played(seed, "not played", (), [f"no hosts: {error}"], str(schedule(seed, nodes))))
                seed, tries = todo.get(), 0


def _one(slot: Slot, seed: int, nodes: int) -> Played:
    its = schedule(seed, nodes)
    outcome = slot.play(its)
    found = violations(its, outcome)
    trained = any(trained.job == "first" for trained in outcome.trained)
    statuses = sorted({process.status or 0 for process in outcome.processes if process.job == "first"} - {0, 137})
    end = "formed" if trained else "refused with " + " and ".join(map(str, statuses)) if statuses else "killed"
    return Played(seed, end, tuple(hit.fault.kind for hit in outcome.hits), found, f"{its}\n{outcome}")


def _tally(ends: Counter[str], faults: Counter[str], bad: int, took_s: float) -> str:
    done = sum(ends.values())
    lines = [f"{done} schedules in {took_s:.0f} s ({took_s / done:.2f} s each): {bad} broke a rule"]
    lines += [
        "  " + ", ".join(f"{count} {name}" for name, count in what.most_common()) for what in (ends, faults) if what
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
