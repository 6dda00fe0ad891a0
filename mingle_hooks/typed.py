"""The little of `typing` that is needed at run time, on the way of `mingle env`.

Importing `typing`, and making named tuples with it, takes a tenth of a member's time, on every node of every job.
Type checkers take TYPE_CHECKING for true, by its name, and see the real ones.
"""

from __future__ import annotations

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any as Any
    from typing import NamedTuple as NamedTuple
    from typing import Protocol as Protocol
else:
    from collections import namedtuple

    Any = Protocol = object

    # What a class body holds besides fields, methods and properties.
    _NOT_MEMBERS = {"__module__", "__qualname__", "__annotations__", "__annotate__", "__firstlineno__", "__slots__"}

    class _Maker(type):
        """Turns the body of a class below NamedTuple into a named tuple with that body's fields and methods."""

        def __new__(cls, name, bases, body):
            if not bases:
                return super().__new__(cls, name, bases, body)
            fields = body["__annotations__"]
            defaults = [body[field] for field in fields if field in body]
            made = namedtuple(name, fields, defaults=defaults, module=body["__module__"])
            for member in body.keys() - fields.keys() - _NOT_MEMBERS:
                setattr(made, member, body[member])
            return made

    class NamedTuple(metaclass=_Maker):
        """As typing.NamedTuple, without a look at the fields' types."""
