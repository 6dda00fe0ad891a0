"""What a member may call its host."""

from __future__ import annotations

import re

from hypothesis import example, given
from hypothesis import strategies as st

from mingle_hooks.rendezvous.checkin import is_hostname

HOSTNAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}")


@given(st.text(alphabet="aZ09_.-$ \n`é²", max_size=6) | st.text(alphabet="a.", min_size=250, max_size=256))
@example("node1")
@example("")
@example("-a")
@example("a\n")
def test_a_hosts_name_is_of_letters_digits_and_little_else(text: str) -> None:
    """As the expression says, which would take longer to compile than all checks."""
    assert is_hostname(text) == bool(HOSTNAME.fullmatch(text))
