"""`python -m mingle_hooks` is `mingle`."""

from mingle_hooks.cli.main import main

if __name__ == "__main__":
    main()
