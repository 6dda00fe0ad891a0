"""The program that a scheduler starts on a host for `mingle check`, as run/agent_start.py for `mingle run`."""

from __future__ import annotations

import os
import sys

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def main() -> None:
    """Run, and end without tearing the interpreter down: a name service that hangs may hold a thread."""
    home = os.path.dirname(PACKAGE)
    places = [place.endswith("-packages") for place in sys.path]
    # Behind the standard library, and before another mingle that is installed.
    sys.path.insert(places.index(True) if True in places else len(places), home)
    from mingle_hooks.check import probes

    os._exit(probes.run_probe(sys.argv[1:]))


if __name__ == "__main__":
    main()
