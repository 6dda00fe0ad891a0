"""Run `mingle` with these arguments, and end it without a word before its Nth change below a directory.

    python power_cut.py DIRECTORY N ARGUMENT...

Its status is then CUT. The interpreter's audit events come before each change, so nothing has to be patched.
"""

from __future__ import annotations

import os
import sys

CUT = 99
CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.chown", "os.link", "os.symlink"}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


def main() -> None:
    """Count down to the cut."""
    directory, left, arguments = sys.argv[1], int(sys.argv[2]), sys.argv[3:]

    def look(event: str, details: tuple[object, ...]) -> None:
        nonlocal left
        changes = event in CHANGES or (event == "open" and isinstance(details[2], int) and details[2] & WRITES)
        # A descriptor is one of a file that was opened below the directory: nothing else is changed by one.
        if changes and (isinstance(details[0], int) or str(details[0]).startswith(directory)):
            left -= 1
            if left < 0:
                os._exit(CUT)

    from mingle_hooks.cli.main import main as mingle  # noqa: PLC0415 -- before the counting begins

    sys.addaudithook(look)
    sys.argv = ["mingle", *arguments]
    mingle()


if __name__ == "__main__":
    main()
