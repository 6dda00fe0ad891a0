"""The program that the supervisor starts for COMMAND: `mingle`, of the same package as the supervisor's.

`python -m mingle_hooks` would look into the user's directory first, where a random.py may lie.
"""

import os
import sys


def main() -> None:
    """Run the command line of this process."""
    here = os.path.dirname(os.path.abspath(__file__))
    root = os.path.dirname(os.path.dirname(os.path.dirname(here)))
    others = [path for path in sys.path if path != here]
    # This package, whatever others there are; all else from where it is always found.
    sys.path[:] = [root, *others]
    from mingle_hooks.cli import main as cli

    sys.path[:] = others if root in others else [*others, root]
    cli.main()


if __name__ == "__main__":
    main()
