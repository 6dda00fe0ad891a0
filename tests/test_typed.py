"""Named tuples made without `eval`: as the library's, to their users."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections import namedtuple
from typing import Any

import pytest

from mingle_hooks.typed import NamedTuple

Theirs = namedtuple("Theirs", "a b c", defaults=(2, 3))  # noqa: PYI024 - it is what is compared with


class Ours(NamedTuple):
    """Three fields, two with defaults, a method and a property."""

    a: int
    b: int = 2
    c: int = 3

    @property
    def total(self) -> int:
        """The sum."""
        return self.a + self.b + self.c


CALLS: list[tuple[tuple[int, ...], dict[str, int]]] = [
    ((), {}),
    ((1,), {}),
    ((1, 5), {}),
    ((1, 5, 6), {}),
    ((1, 5, 6, 7), {}),
    ((), {"a": 1}),
    ((1,), {"a": 1}),
    ((1,), {"c": 9}),
    ((1,), {"d": 9}),
    ((), {"b": 1}),
]


def made(kind: Any, values: tuple[int, ...], named: dict[str, int]) -> object:  # noqa: ANN401 - a class
    """Return what comes of a call, as values or the kind of error."""
    try:
        record = kind(*values, **named)
    except TypeError:
        return TypeError
    return tuple(record), record._asdict(), (record.a, record.b, record.c)


@pytest.mark.parametrize(("values", "named"), CALLS)
def test_they_are_made_alike(values: tuple[int, ...], named: dict[str, int]) -> None:
    """Positions, names, defaults, and what is refused."""
    assert made(Ours, values, named) == made(Theirs, values, named)


def test_they_are_used_alike() -> None:
    """What the library's can do."""
    ours = Ours(1)
    assert ours == (1, 2, 3) == (*ours,)
    assert (ours.total, ours._fields, Ours.__match_args__, Ours._field_defaults) == (
        6,
        *[("a", "b", "c")] * 2,
        {"b": 2, "c": 3},
    )
    assert ours._replace(b=7) == Ours(1, 7) == Ours._make([1, 7, 3])
    assert repr(ours) == "Ours(a=1, b=2, c=3)"
    assert hash(ours) == hash((1, 2, 3))
    assert type(copy.copy(ours)) is type(pickle.loads(pickle.dumps(ours))) is Ours  # noqa: S301 - our own
    with pytest.raises(AttributeError):
        ours.a = 5  # type: ignore[misc]
    with pytest.raises(AttributeError):
        ours.d = 5  # type: ignore[attr-defined]
    with pytest.raises((TypeError, ValueError)):
        ours._replace(d=5)
    match ours:
        case Ours(1, b):
            assert b == 2


# As on PyPy, which has neither; what its heaps are for are the loop's timers.
WITHOUT_C = """
import sys, _collections
sys.modules["_heapq"] = None
del _collections._tuplegetter
from mingle_hooks.rendezvous.loop import Loop
from mingle_hooks.typed import NamedTuple
class Two(NamedTuple):
    a: int
    b: int = 2
said = []
with Loop() as loop:
    loop.after(0.002, lambda: said.append("second"))
    loop.after(0.001, lambda: said.append("first"))
    loop.run(lambda: len(said) == 2)
print(Two(1).a, Two(1).b, *said)
"""


def test_without_the_c_parts_there_are_named_tuples_and_timers() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_C], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("1 2 first second\n", "")
