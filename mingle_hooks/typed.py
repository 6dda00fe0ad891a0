"""The little of `typing` that is needed at run time, on the way of `mingle env`.

Importing `typing`, and making named tuples with it, takes a tenth of a member's time, on every node of every job.
Type checkers take TYPE_CHECKING for true, by its name, and see the real ones.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False

if TYPE_CHECKING or sys.implementation.name != "cpython":  # PyPy has no _tuplegetter
    from types import MappingProxyType as MappingProxyType
    from typing import Any as Any
    from typing import NamedTuple as NamedTuple
    from typing import Protocol as Protocol
else:
    try:
        from _collections import _tuplegetter
    except ImportError:  # PyPy
        from operator import itemgetter

        def _tuplegetter(place, doc):
            return property(itemgetter(place), doc=doc)

    Any = Protocol = object
    MappingProxyType = type(object.__dict__)  # without `types`, which makes a sample of every type there is

    # What a class body holds besides fields, methods and properties.
    _NOT_MEMBERS = {"__module__", "__qualname__", "__annotations__", "__annotate__", "__firstlineno__", "__slots__"}

    class _Named(tuple):
        """What all named tuples do, as collections.namedtuple's, which compiles a text for each class."""

        __slots__ = ()
        _fields = __match_args__ = ()
        _field_defaults: dict[str, object] = {}

        def __new__(cls, *values, **named):
            if named or len(values) != len(cls._fields):
                values = _completed(cls, values, named)
            return tuple.__new__(cls, values)

        @classmethod
        def _make(cls, values):
            return _Named.__new__(cls, *values)

        def _replace(self, **named):
            return self._make(_completed(type(self), (), {**self._asdict(), **named}))

        def _asdict(self):
            return dict(zip(self._fields, self, strict=True))

        def __repr__(self):
            shown = ", ".join(f"{name}={value!r}" for name, value in self._asdict().items())
            return f"{type(self).__name__}({shown})"

        def __getnewargs__(self):
            return tuple(self)

    def _completed(cls, values, named):
        """Return a value for each field, in order; TypeError where one is missing, unknown or there twice."""
        found = {**cls._field_defaults, **dict(zip(cls._fields, values, strict=False)), **named}
        is_whole = found.keys() == set(cls._fields) and len(values) <= len(cls._fields)
        if not is_whole or not named.keys().isdisjoint(cls._fields[: len(values)]):
            raise TypeError(f"{cls.__name__} takes {', '.join(cls._fields)}; not {len(values)} values and {[*named]}")
        return tuple(found[name] for name in cls._fields)

    class _Maker(type):
        """Turns the body of a class below NamedTuple into a named tuple with that body's fields and methods."""

        def __new__(cls, name, bases, body):
            if not bases:
                return super().__new__(cls, name, bases, body)
            fields = tuple(body["__annotations__"])
            made = {member: body[member] for member in body.keys() - set(fields) - _NOT_MEMBERS}
            made |= {field: _tuplegetter(place, "") for place, field in enumerate(fields)}
            made |= {"__slots__": (), "__module__": body["__module__"], "_fields": fields, "__match_args__": fields}
            made["_field_defaults"] = {field: body[field] for field in fields if field in body}
            return type(name, (_Named,), made)

    class NamedTuple(metaclass=_Maker):
        """As typing.NamedTuple, without a look at the fields' types."""
