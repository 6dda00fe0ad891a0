"""The program that a scheduler starts on a host for `mingle check`, as supervise/node/start.py for `mingle run`."""

import os
import sys

PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def main() -> None:
    """Run, and end without tearing the interpreter down: a name service that hangs may hold a thread."""
    sys.path.append(os.path.dirname(PACKAGE))  # behind the standard library's
    from mingle_hooks.check.node import program

    os._exit(program.run(sys.argv[1:]))


if __name__ == "__main__":
    main()
