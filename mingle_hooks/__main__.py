"""`mingle`, also as `python -m mingle_hooks`."""

from __future__ import annotations

from mingle_hooks.cli.main import main

if __name__ == "__main__":
    main()
