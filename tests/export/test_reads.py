"""Every name that is exported is read somewhere, and it is known where."""

from __future__ import annotations

from frameworks.reads import FOR_USER_CODE, OWN, READS

from mingle_hooks.export.frameworks import FRAMEWORKS


def test_of_every_exported_name_it_is_known_where_it_is_read() -> None:
    """A name that no framework reads is no help, and none of the table is left over."""
    names = {name for row in FRAMEWORKS.values() for name in row.names if not name.startswith(OWN)}
    assert names == {*READS, *FOR_USER_CODE}
