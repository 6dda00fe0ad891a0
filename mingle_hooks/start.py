"""The program that a scheduler or ssh starts on a host: a run's agent, a check's probe, or a run's final sweep.

::

    python -I mingle_hooks/start.py agent|probe [--host NAME] [--local N] [--environ FILE | --stdin] [--keep PREFIX]…
    python -I mingle_hooks/start.py sweep RUN_ID [--except PID]…

Python compiles a script on each start, so this one is short.
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the program, and exit without finalizing the interpreter: a hanging name look-up may hold a thread."""
    home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    places = [place.endswith("-packages") for place in sys.path]
    # Behind the standard library, and before another mingle that is installed.
    sys.path.insert(places.index(True) if True in places else len(places), home)
    program, *arguments = sys.argv[1:]
    if program == "agent":
        from mingle_hooks.run import agent

        os._exit(agent.run_warden(arguments))
    if program == "probe":
        from mingle_hooks.check import probes

        os._exit(probes.run_probe(arguments))
    from mingle_hooks.run import processes

    os._exit(processes.run_sweep(arguments))


if __name__ == "__main__":
    main()
