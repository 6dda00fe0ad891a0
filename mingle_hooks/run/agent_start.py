"""The program that a scheduler starts on a host: the warden, which forks the supervisor.

::

    python -I mingle_hooks/run/agent_start.py [--host NAME] [--local N]
        [--environ FILE | --stdin] [--keep PREFIX]…

A program is compiled anew each time, so there is little in it.
"""

from __future__ import annotations

import os
import sys

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def main() -> None:
    """Run, and end without tearing the interpreter down."""
    home = os.path.dirname(PACKAGE)
    places = [place.endswith("-packages") for place in sys.path]
    # Behind the standard library, and before another mingle that is installed.
    sys.path.insert(places.index(True) if True in places else len(places), home)
    from mingle_hooks.run import agent

    os._exit(agent.run_warden(sys.argv[1:]))


if __name__ == "__main__":
    main()
