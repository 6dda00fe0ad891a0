"""`python -m mingle_hooks` is `mingle`; run as a file, this is the program that a scheduler or ssh starts on a host.

::

    python -I mingle_hooks/__main__.py agent|probe [--host NAME] [--local N] [--environ FILE | --stdin] [--keep A,B]
    python -I mingle_hooks/__main__.py sweep RUN_ID RUNNER [STARTER]…

These are a run's agent, a check's probe and a run's final sweep. Python compiles a script on each start, so this one
is short.
"""

from __future__ import annotations

import gc
import os
import sys


def start() -> None:
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
        gc.disable()  # it ends soon, and looking for its garbage would be a tenth of its work
        from mingle_hooks.check import probes

        os._exit(probes.run_probe(arguments))
    from mingle_hooks.run import processes

    os._exit(processes.run_sweep(arguments))


if __name__ == "__main__":
    if __package__:
        from mingle_hooks.cli.main import main

        main()
    else:
        start()
