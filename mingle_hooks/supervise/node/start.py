"""The program that a scheduler starts on a host: the warden, which forks the supervisor.

::

    python -IS mingle_hooks/supervise/node/start.py [--host NAME] [--local N]
        [--environ FILE | --stdin] [--keep PREFIX]…

A program is compiled anew each time, so there is little in it.
"""

import os
import sys

PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def main() -> None:
    """Run, and end without tearing the interpreter down."""
    sys.path.append(os.path.dirname(PACKAGE))  # behind the standard library's
    from mingle_hooks.supervise.node import warden

    os._exit(warden.run(sys.argv[1:]))


if __name__ == "__main__":
    main()
