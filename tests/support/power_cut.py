"""Run `mingle` again and again, and end it without a word before its Nth change below a directory.

Each line of the input is a JSON array: the directory, N and the arguments. The answer is a line with the status,
which is CUT after a cut. Each run is a fork of this process, which has loaded all that `mingle hooks` needs.

The interpreter's audit events come before each change, so nothing has to be patched.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys

CUT = 99
RUN_S = 60  # far more than a command takes; the signal then ends it
CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.chown", "os.link", "os.symlink"}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


def run(directory: str, left: int, arguments: list[str]) -> None:
    """Become `mingle`, and count down to the cut."""

    def look(event: str, details: tuple[object, ...]) -> None:
        nonlocal left
        changes = event in CHANGES or (event == "open" and isinstance(details[2], int) and details[2] & WRITES)
        # A descriptor is one of a file that was opened below the directory: nothing else is changed by one.
        if changes and (isinstance(details[0], int) or str(details[0]).startswith(directory)):
            left -= 1
            if left < 0:
                os._exit(CUT)

    from mingle_hooks.cli.main import main as mingle  # pytest, too, reads this file, for CUT

    signal.alarm(RUN_S)
    os.dup2(2, 1)  # the answers are on 1
    sys.addaudithook(look)
    sys.argv = ["mingle", *arguments]
    mingle()


def main() -> None:
    """Answer every line."""
    import mingle_hooks.cli.commands
    import mingle_hooks.cli.hooks  # noqa: F401 -- every fork then has it
    from mingle_hooks.hooks.files import Site, render_hook
    from mingle_hooks.hooks.targets import TARGETS

    for target in TARGETS.values():
        for hook in target.hooks.values():
            render_hook(hook, Site())  # and has read the templates

    gc.disable()  # as mingle itself does
    gc.freeze()
    for line in sys.stdin:
        directory, left, *arguments = json.loads(line)
        child = os.fork()
        if child == 0:
            run(directory, left, arguments)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)  # noqa: T201 -- the answer


if __name__ == "__main__":
    main()
