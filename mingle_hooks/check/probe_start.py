"""The program that a scheduler starts on a host for `mingle check`, as run/agent_start.py for `mingle run`."""

from __future__ import annotations

import os
import sys

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def main() -> None:
    """Run, and end without tearing the interpreter down: a name service that hangs may hold a thread."""
    sys.path.append(os.path.dirname(PACKAGE))  # behind the standard library's
    from mingle_hooks.check import probe

    os._exit(probe.run_probe(sys.argv[1:]))


if __name__ == "__main__":
    main()
