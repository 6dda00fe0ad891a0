"""`make fuzz`: run targets by coverage, each in a process of its own.

python -m fuzz job_script settings_file --seconds 600 --jobs 2
python -m fuzz --keep                        # and add what covers more to the corpus
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

# An input that takes longer is a finding; so is a process with more memory.
LONGEST_S, MOST_MB = 10, 2048
LONGEST_BYTES = 8192
# Of a target's file in the corpus. What covers most with fewest bytes is kept.
MOST_KEPT_BYTES, LONGEST_KEPT_BYTES = 10_000, 1000
_STATUS = re.compile(r"cov: (\d+) ft: (\d+) corp: (\d+)")
_RUNS = re.compile(r"stat::number_of_executed_units: (\d+)")


def main() -> int:
    """Return 1 where a target has a finding."""
    if sys.argv[1:2] == ["--child"]:
        return _child(sys.argv[2], sys.argv[3:])
    parser = argparse.ArgumentParser(prog="fuzz")
    parser.add_argument("target", nargs="*", help="by default all of them")
    parser.add_argument("--seconds", type=int, default=600, help="for each target")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="targets at a time")
    parser.add_argument("--seed", type=int, default=0, help="by default a new one")
    parser.add_argument("--keep", action="store_true", help="add to tests/fuzz/corpus what covers more")
    options = parser.parse_args()
    from fuzz.targets import TARGETS

    if unknown := set(options.target) - TARGETS.keys():
        parser.error(f"no target {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}")
    seed = options.seed or int(time.time())
    print(f"seed {seed}, {options.seconds} s for each target", flush=True)
    with ThreadPoolExecutor(options.jobs) as pool:
        calls = [
            pool.submit(_run, name, options.seconds, seed, keeps=options.keep) for name in options.target or TARGETS
        ]
        bad = [call.result() for call in calls]
    print(f"{sum(bad)} of {len(bad)} targets with a finding")
    return int(any(bad))


def _run(name: str, seconds: int, seed: int, *, keeps: bool) -> bool:
    """Fuzz one target, print a line, and tell whether there is a finding."""
    from fuzz import corpus
    from fuzz.targets import TARGETS

    with tempfile.TemporaryDirectory(prefix=f"fuzz-{name}-") as made:
        place = Path(made)
        first = [*corpus.kept(name), *corpus.shapes(name)]
        _fill(place / "kept", first)
        (place / "new").mkdir()
        flags = [f"-max_total_time={seconds}", f"-seed={seed}", "-print_final_stats=1"]
        flags += [f"-artifact_prefix={place}/bad-"]
        if words := TARGETS[name].words:  # libFuzzer refuses an empty dictionary
            (place / "words").write_text("".join(f'"{_quoted(word)}"\n' for word in words))
            flags.append(f"-dict={place}/words")
        began = time.monotonic()
        again = place / "again"  # libFuzzer starts itself once more where it merges
        again.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, "-m", "fuzz", "--child", name])} "$0" "$@"\n')
        again.chmod(0o700)
        said = _libfuzzer(again, *flags, f"{place}/new", f"{place}/kept")
        bad = sorted(place.glob("bad-*"))
        (*_, (places, features, inputs)) = [("0", "0", "0"), *_STATUS.findall(said)]
        (*_, runs) = ["0", *re.findall(r"^#(\d+)", said, re.MULTILINE), *_RUNS.findall(said)]
        text = f"{name:14} {runs:>9} runs in {time.monotonic() - began:.0f} s, {places} places, {features} features"
        finding = _finding(said, bad)
        print("\n".join([f"{text}, {inputs} inputs", *finding]), flush=True)
        if keeps:
            _merge(name, place, [*corpus.kept(name), *(path.read_bytes() for path in bad)])
        return bool(finding)


def _fill(folder: Path, inputs: list[bytes]) -> None:
    folder.mkdir()
    for number, data in enumerate(inputs):
        (folder / f"{number:05}").write_bytes(data)


def _quoted(word: str) -> str:
    return "".join(c if c.isalnum() else f"\\x{ord(c):02x}" for c in word if ord(c) < 128)


def _libfuzzer(program: Path, *arguments: str) -> str:
    """Return what libFuzzer and the target's process said."""
    limits = (f"-timeout={LONGEST_S}", f"-rss_limit_mb={MOST_MB}", f"-max_len={LONGEST_BYTES}")
    argv = ["/bin/sh", str(program), *limits, *arguments]  # not by itself: another thread may just have forked
    streams: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = subprocess.run(argv, **streams, text=True, errors="replace", check=False)
    if not done.returncode or "stat::" in done.stdout:
        return str(done.stdout)
    return f"{done.stdout}\nFINDING the process ended with {done.returncode}\n"


def _finding(said: str, bad: list[Path]) -> list[str]:
    """Return the lines about a finding, if there is one."""
    from fuzz import corpus

    if not bad and "FINDING" not in said:
        return []
    at = said.find("Uncaught Python exception")
    lines = [line for line in said[max(at, 0) :].splitlines() if not line.startswith("INFO: ")]
    inputs = [f"{path.name}: {corpus.escaped(path.read_bytes())}" for path in bad]
    return [f"  {line}" for line in (*inputs, *(lines[-20:] if at < 0 else lines[:40]))]


def _merge(name: str, place: Path, first: list[bytes]) -> None:
    """Keep all that is kept, and of the new inputs the shortest that cover more, as many as there is room for."""
    from fuzz import corpus

    (place / "merged").mkdir()
    _libfuzzer(place / "again", "-set_cover_merge=1", f"{place}/merged", f"{place}/kept", f"{place}/new")
    found = sorted((path.read_bytes() for path in (place / "merged").iterdir()), key=len)
    room = MOST_KEPT_BYTES - sum(map(len, map(corpus.escaped, first)))
    for data in found:
        if data not in first and len(data) <= LONGEST_KEPT_BYTES and len(corpus.escaped(data)) < room:
            first.append(data)
            room -= len(corpus.escaped(data)) + 1
    print(f"{name:14} keeps {corpus.keep(name, first)} inputs", flush=True)


def _child(name: str, flags: list[str]) -> int:
    """Become the fuzzer of one target; the first of its flags is its own path."""
    import atheris  # type: ignore[import-not-found, import-untyped, unused-ignore]  # by the extra `fuzz` only

    with atheris.instrument_imports(include=["mingle_hooks", "tomllib", "tomli"]):
        from fuzz.targets import TARGETS

    atheris.Setup(flags, TARGETS[name].call)
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
