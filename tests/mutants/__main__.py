"""`make mutants`: put each defect of the table into a copy of the project, and see its tests fail.

python -m mutants                   # all of them, two at a time
python -m mutants hostlist ports    # those whose name or file has one of these words
python -m mutants --list

A row is *caught* when a test fails. One whose tests run out of time is caught only where it says that it hangs, as a
test that hangs tells nobody what is wrong. All tests that are named have to pass first, without any defect. The exit
status is 1 where one *survived*, or where tests cannot be run. Rows whose tests are all skipped, for want of root or of
Slurm, are *skipped*, and counted at the end.
"""

from __future__ import annotations

import argparse
import queue
import shutil
import signal
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from processes import process_of

from mutants import DEFECTS
from mutants.bench import Bench, has_own_network

if TYPE_CHECKING:
    from mutants.bench import Outcome
    from mutants.defect import Defect

# All tests that are named, one after the other, in seconds.
BEFORE_S = 1800.0
# Tests of these groups share more of the machine than its ports, so one row of them runs at a time.
SHARING = {"stand-ins", "packages", "installing"}
_sharing = threading.Lock()


def main() -> int:
    """Return 1 where a defect was not caught."""
    parser = argparse.ArgumentParser(prog="mutants")
    parser.add_argument("words", nargs="*", help="parts of the names or files of the rows to run")
    parser.add_argument("--jobs", type=int, default=2, help="rows that run at the same time")
    parser.add_argument("--from", type=int, default=1, dest="first", help="the number of the first row")
    parser.add_argument("--to", type=int, default=len(DEFECTS), help="the number of the last one")
    parser.add_argument("--list", action="store_true", help="print the rows, and run none")
    parser.add_argument("--at-once", action="store_true", help="do not run the tests without a defect first")
    options = parser.parse_args()
    rows = [
        (number, defect)
        for number, defect in enumerate(DEFECTS, 1)
        if options.first <= number <= options.to and _is_meant(defect, options.words)
    ]
    if options.list:
        print("\n".join(f"{number:3} {defect.file}: {defect.name}" for number, defect in rows))
        return 0
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    place = Path(tempfile.mkdtemp(prefix="mutants."))
    place.chmod(0o755)
    try:
        return _run(rows, place, options.jobs if has_own_network() else 1, at_once=options.at_once)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _is_meant(defect: Defect, words: list[str]) -> bool:
    return not words or any(word in defect.name or word in defect.file for word in words)


def _run(rows: list[tuple[int, Defect]], place: Path, jobs: int, *, at_once: bool) -> int:
    began = time.monotonic()
    made = [Bench(place / str(number)) for number in range(jobs)]
    if not at_once and not _pass_without(rows, made[0]):
        return 1
    benches: queue.SimpleQueue[Bench] = queue.SimpleQueue()
    for bench in made:
        benches.put(bench)
    with ThreadPoolExecutor(jobs) as pool:
        try:
            words = list(pool.map(lambda row: _tried(*row, benches), rows))
        except BaseException:  # Ctrl-C, say
            pool.shutdown(wait=False, cancel_futures=True)
            for bench in made:
                bench.stop()
            raise
    counts = {word: words.count(word) for word in dict.fromkeys(words)}
    told = ", ".join(f"{count} {word}" for word, count in counts.items())
    print(f"{len(rows)} defects in {time.monotonic() - began:.0f} s: {told}")
    return int(not counts.keys() <= {"caught", "skipped"})


def _pass_without(rows: list[tuple[int, Defect]], bench: Bench) -> bool:
    """Tell whether the tests that have to find the defects pass without one."""
    outcome = bench.run([*dict.fromkeys(test for _, defect in rows for test in defect.tests.split())], BEFORE_S)
    print(outcome.output if outcome.word != "passed" else "without a defect all tests pass", flush=True)
    return outcome.word in ("passed", "skipped")


def _tried(number: int, defect: Defect, benches: queue.SimpleQueue[Bench]) -> str:
    shares = not SHARING.isdisjoint(process_of(test) for test in defect.tests.split())
    began = time.monotonic()
    bench = benches.get()
    try:
        with _sharing if shares else nullcontext():
            outcome = bench.tried(defect)
    finally:
        benches.put(bench)
    word = _word(defect, outcome)
    print(f"{number:3} {word:9} {time.monotonic() - began:5.1f} s  {defect.file}: {defect.name}", flush=True)
    if word == "broken":
        print(outcome.output, flush=True)
    return word


def _word(defect: Defect, outcome: Outcome) -> str:
    """Return what became of a defect."""
    if outcome.word == "failed" or (outcome.word == "timed out" and defect.hangs):
        return "caught"
    return {"passed": "survived"}.get(outcome.word, outcome.word)


if __name__ == "__main__":
    sys.exit(main())
