#!/bin/sh
# The next version of mingle: the same with another number, which stands in the hooks.
exec python3 -c '
import mingle_hooks
mingle_hooks.__version__ = "99.0"
from mingle_hooks.cli.main import main
main()' "$@"
