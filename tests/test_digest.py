"""SHA-256 and HMAC as the library's, whatever they are made of here."""

from __future__ import annotations

import hashlib
import hmac
import subprocess
import sys

from hypothesis import example, given
from hypothesis import strategies as st

from mingle_hooks import digest


@given(key=st.binary(max_size=200), message=st.binary(max_size=300), times=st.sampled_from([1, 200]))
@example(key=b"k" * 64, message=b"m", times=1)
@example(key=b"k" * 65, message=b"m", times=1)
def test_it_is_the_librarys_hmac(key: bytes, message: bytes, times: int) -> None:
    """Short and long keys and messages, and one key for several messages."""
    one = digest.Hmac(key)
    assert one.of(message * times) == one.of(message * times) == hmac.digest(key, message * times, "sha256")
    assert digest.sha256(message).digest() == hashlib.sha256(message).digest()


def test_openssl_is_not_loaded() -> None:
    """It would take a tenth of a member's start."""
    script = "import sys, mingle_hooks.digest as d; d.Hmac(b'k').of(b'm'); print('_hashlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
