"""`mingle`, also as `python -m mingle_hooks`."""

import gc
import sys

from mingle_hooks.bundles import use

# Subcommand -> what its process loads comes in this bundle.
_BUNDLES = {"env": "member", "exec": "member", "run": "launch"}


def main() -> None:
    """Run the command line of this process."""
    # Loading modules leaves no garbage, and looking for it would take a tenth of the time; a wait turns it on again.
    gc.disable()
    # Python looks for every module beside the program first: there is none, and all nodes share that directory.
    if sys.path[0].endswith("/bin") and not __file__.startswith(sys.path[0]):
        del sys.path[0]
    if (name := _BUNDLES.get(sys.argv[1] if len(sys.argv) > 1 else "")) is not None:
        use(name)
    from mingle_hooks.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
