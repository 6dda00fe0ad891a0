"""A test's processes, by their environment or as this process's children, and this process's open files."""

import gc
import os
from collections.abc import Callable
from pathlib import Path


def running(is_meant: Callable[[bytes], bool]) -> dict[int, str]:
    """Return pid -> command line of each process whose environment is meant."""
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):  # hundreds of times: pathlib would take half of it
        try:
            with open(f"/proc/{name}/environ", "rb", buffering=0) as file:
                environ = file.read()
            if is_meant(environ):
                found[int(name)] = Path(f"/proc/{name}/cmdline").read_text(errors="replace").replace("\0", " ")
        except OSError:
            continue
    return found


def children() -> dict[int, str]:
    """Return pid -> name of this process's children, zombies too."""
    found = {}
    for task in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{task}/children", "rb", buffering=0) as file:  # before and after each test
                pids = file.read().split()
            for pid in map(int, pids):
                found[pid] = Path(f"/proc/{pid}/comm").read_text().strip()
        except (FileNotFoundError, ProcessLookupError):
            continue  # The thread, or its child, has ended meanwhile.
    return found


def open_files() -> int:
    """Return how many files this process has open; what earlier tests left to the garbage collector is none."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))
