"""`mingle` as a supervisor of `mingle run` starts it: of the supervisor's own package, whatever others there are.

`python -m mingle_hooks` would look into the user's directory first, where a random.py may lie.
"""

import os
import sys


def main() -> None:
    """Run the command line of this process."""
    here = os.path.dirname(os.path.abspath(__file__))
    root = os.path.dirname(os.path.dirname(here))
    others = [path for path in sys.path if path != here]
    # Only the package itself is looked up there first: beside it may lie what is named as a module of Python's own.
    sys.path[:] = [root, *others]
    __import__("mingle_hooks")
    sys.path[:] = others if root in others else [*others, root]
    from mingle_hooks.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
