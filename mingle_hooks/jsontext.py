"""JSON without importing `json`, most of which repeats in Python what CPython does in C.

CPython's scanner and encoder are in `_json`. Where there is none, or it wants other arguments, `json` itself is used.
"""

from __future__ import annotations

from mingle_hooks.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    dumps: Callable[[object], str]
    _scan: Callable[[str, int], tuple[Any, int]]

__all__ = ["dumps", "loads"]

_BLANKS = " \t\n\r"


def _refused(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


class _Rules:
    """What a scanner reads from the decoder that it belongs to."""

    strict = True
    object_hook = object_pairs_hook = None
    parse_float, parse_int = float, int
    parse_constant = staticmethod(_refused)


try:
    import _json

    _scan = _json.make_scanner(_Rules)  # type: ignore[arg-type]
    # Nothing of ours holds itself, so nobody looks for circles; no other types, no indentation, no infinite numbers.
    _chunks = _json.make_encoder(None, _refused, _json.encode_basestring_ascii, None, ":", ",", *[False] * 3)

    def dumps(value: object) -> str:
        """Return compact ASCII JSON; ValueError or TypeError for what has none."""
        return "".join(_chunks(value, 0))

except (ImportError, AttributeError, TypeError):
    import json

    _scan = json.JSONDecoder(parse_constant=_refused).scan_once  # type: ignore[attr-defined]

    def dumps(value: object) -> str:
        """Return compact ASCII JSON; ValueError or TypeError for what has none."""
        return json.dumps(value, separators=(",", ":"), allow_nan=False)


def loads(payload: bytes) -> Any:
    """Return what a JSON text in UTF-8 holds; ValueError or RecursionError for anything else."""
    text = payload.decode().strip(_BLANKS)
    try:
        value, end = _scan(text, 0)
    except (StopIteration, SystemError):  # the latter where C looks for the error of a `json` that is not loaded
        raise ValueError("not JSON") from None
    if end != len(text):
        raise ValueError("more than one JSON value")
    return value
