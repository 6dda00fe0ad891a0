"""JSON that two readers could take for different things is refused."""

from __future__ import annotations

import pytest

from mingle_hooks import values as jsontext


@pytest.mark.parametrize("text", ["", "NaN", "[Infinity]", "1 2", "{", "\xff", '{"a"}', "[" * 100_000])
def test_what_is_not_json_is_refused(text: str) -> None:
    with pytest.raises((ValueError, RecursionError)):
        jsontext.from_json(text.encode("latin-1"))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, b"octets"])
def test_what_has_no_json_is_refused(value: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        jsontext.to_json(value)


def test_what_is_written_is_compact_ascii_and_reads_back() -> None:
    value = {"host": "nöde", "ranks": [0, 1], "none": None}
    text = jsontext.to_json(value)
    assert text == '{"host":"n\\u00f6de","ranks":[0,1],"none":null}'
    assert jsontext.from_json(text.encode()) == value
