from __future__ import annotations

import re
import socket
import subprocess
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from needs import only_with

from mingle_hooks.net.addresses import hostname, is_hostname
from mingle_hooks.net.addresses import machine_id as identity

HOSTNAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}")

PRINT = [sys.executable, "-c", "from mingle_hooks.net.addresses import machine_id as identity; print(identity())"]


def test_processes_on_one_machine_have_the_same_identity() -> None:
    assert subprocess.run(PRINT, check=True, text=True, stdout=subprocess.PIPE).stdout.strip() == identity()


def test_the_identity_is_16_hex_digits() -> None:
    assert len(identity()) == 16
    assert int(identity(), 16) >= 0


@only_with("root", "namespaces")
def test_another_network_namespace_is_another_machine() -> None:
    other = subprocess.run(["unshare", "--net", *PRINT], check=True, text=True, stdout=subprocess.PIPE).stdout.strip()
    assert other != identity()


@given(st.text(alphabet="aZ09_.-$ \n`é²", max_size=6) | st.text(alphabet="a.", min_size=250, max_size=256))
@example("node1")
@example("")
@example("-a")
@example("a\n")
def test_a_hosts_name_is_of_letters_digits_and_little_else(text: str) -> None:
    """As the expression says, which would take longer to compile than all checks."""
    assert is_hostname(text) == bool(HOSTNAME.fullmatch(text))


@given(st.text(alphabet="aZ09_.-$ é²", max_size=6))
@example(socket.gethostname())
@example("")
@example("-a.b")
def test_whatever_a_host_is_called_others_take_its_name(name: str) -> None:
    """What does not belong into a name is an underscore there."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(socket, "gethostname", lambda: name)
        assert hostname() == (re.sub(r"[^A-Za-z0-9_.-]|^[.-]", "_", name) or "unnamed")
        assert is_hostname(hostname())
