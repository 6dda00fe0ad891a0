"""Starts the probe on all places of a job, as `mingle run` starts its supervisors, and waits for them.

    starter_driver.py DIRECTORY [--hosts LIST] [--per-task] [--only HOST,HOST]

The environment is this process's, with MINGLE_RUN_KEY for a secret.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from mingle_hooks.net.addresses import hostname
from mingle_hooks.run import starters
from mingle_hooks.schedulers.detect import detect

PROBE = str(Path(__file__).with_name("starter_probe.py"))


def option(name: str) -> str | None:
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else None


def main() -> int:
    environ, out = dict(os.environ), sys.argv[1]
    facts, named = detect(environ, hostname()), option("--hosts")
    starter, job = starters.find(facts, environ, named, is_per_task="--per-task" in sys.argv)
    only = option("--only")
    hosts = tuple(only.split(",")) if only else job.hosts
    file = starters.write_environ(environ, starters.directories(environ)) if starter.needs_file else None
    program = (sys.executable, "-I", PROBE, out)
    os.write(1, f"{' '.join([starter.name, *hosts])}\n".encode())
    try:
        made = starters.agent_launches(starter, job, hosts, program, environ, file)
        started = [
            subprocess.Popen(
                launch.argv,
                env=environ,
                stdin=subprocess.DEVNULL if launch.stdin is None else subprocess.PIPE,
                start_new_session=True,
            )
            for launch in made
        ]
        for process, launch in zip(started, made, strict=True):
            if process.stdin is not None:
                process.stdin.write(launch.stdin or b"")
                process.stdin.close()
        return max(process.wait() for process in started)
    finally:
        if file is not None:
            starters.remove_environ(file)


if __name__ == "__main__":
    sys.exit(main())
