"""The program that ends a run's processes on a host whose supervisor is silent, or has left some behind.

::

    python -I mingle_hooks/run/sweep_start.py RUN_ID [--except PID]…

They are known by the run's id in their environment, and by their parents. It prints how many there were, and exits
with 0 where none is left. A program is compiled anew each time, so there is little in it.
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command line of this process."""
    home = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    places = [place.endswith("-packages") for place in sys.path]
    # Behind the standard library, and before another mingle that is installed.
    sys.path.insert(places.index(True) if True in places else len(places), home)
    from mingle_hooks.run import processes

    run_id, spared = sys.argv[1], [int(word) for word in sys.argv[2:] if word != "--except"]
    ended, left = processes.sweep_run(run_id, spared)
    said = f"mingle run: {os.uname().nodename}: {ended} processes of run {run_id} ended, {left} left"
    print(said, flush=True)  # noqa: T201 - a program's answer, which PBS puts among the job's output
    os._exit(1 if left else 0)


if __name__ == "__main__":
    main()
