"""Written below."""

ROWS = ()
