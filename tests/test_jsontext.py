"""JSON as the library's, whatever it is made of here."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mingle_hooks import jsontext

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
LETTERS = '{}[]":,0123456789.eE+-truefalsn\\u \n\té'
UNLOADED = r"""
from mingle_hooks import jsontext
for text in (b"{", b"[", b'"', b'{"a"', b'{"a":1,}', b"[1 2]", rb'"\x"', b'"\n"', b"-", b""):
    try:
        print("taken", jsontext.loads(text))
    except ValueError:
        continue
"""
FALLBACK = """
import sys
sys.modules["_json"] = None
from mingle_hooks import jsontext
assert "json" in sys.modules
print(jsontext.dumps({"a": [1, None, "\\u00e9"]}), jsontext.loads(b' {"a": [1.5, true]} '))
try:
    jsontext.loads(b"NaN")
except ValueError as error:
    print(error)
"""


@given(VALUES)
def test_it_writes_and_reads_what_the_library_does(value: object) -> None:
    """Compact and ASCII; what is written is read back."""
    text = jsontext.dumps(value)
    assert text == json.dumps(value, separators=(",", ":"))
    assert jsontext.loads(text.encode()) == json.loads(text) == value


@given(
    st.text(alphabet='{}[]":,0123456789.eE+-truefalsn\\u \n\té', max_size=40).map(str.encode) | st.binary(max_size=40)
)
@example(b'{"a": 1} {')
@example(b"[1,]")
@example(b'"\\ud800"')
@example(b"  1 ")
@example(b'"a\nb"')
@example(b"")
@example(b"1" * 5000)
def test_it_refuses_what_the_library_refuses(payload: bytes) -> None:
    """Nothing else than ValueError comes out; and UTF-8 is the one encoding."""
    try:
        expected = json.loads(payload.decode())
    except ValueError:
        with pytest.raises(ValueError):  # noqa: PT011 - its text is the library's
            jsontext.loads(payload)
    else:
        assert repr(jsontext.loads(payload)) == repr(expected)


@pytest.mark.parametrize("payload", [b"NaN", b"[Infinity]", b"-Infinity"])
def test_numbers_that_json_has_not_are_refused(payload: bytes) -> None:
    """The library takes them."""
    with pytest.raises(ValueError, match="is not JSON"):
        jsontext.loads(payload)
    with pytest.raises(ValueError):  # noqa: PT011 - its text is the library's
        jsontext.dumps(float(payload.strip(b"[]").decode()))


def test_deep_nesting_ends_as_an_error() -> None:
    """A hostile peer cannot end the process."""
    with pytest.raises((ValueError, RecursionError)):
        jsontext.loads(b"[" * 1_000_000)


def test_the_library_is_not_loaded() -> None:
    """It would take a millisecond of every member's start."""
    script = "import sys, mingle_hooks.jsontext as j; j.loads(j.dumps([1]).encode()); print('json' in sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_it_refuses_as_well_where_the_library_is_not_loaded() -> None:
    """C then has no error of its own to raise."""
    done = subprocess.run([sys.executable, "-I", "-c", UNLOADED], capture_output=True, text=True, check=True)
    assert done.stdout == ""


def test_without_the_c_parts_the_library_does_it() -> None:
    """PyPy has none, and a later CPython may have others."""
    done = subprocess.run([sys.executable, "-c", FALLBACK], capture_output=True, text=True, check=True)
    assert done.stdout == '{"a":[1,null,"\\u00e9"]} {\'a\': [1.5, True]}\nNaN is not JSON\n'
