"""Modules that a table names, loaded when their row is wanted."""

from __future__ import annotations

import sys

from mingle_hooks.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType


def import_module(name: str) -> ModuleType:
    """Return a module by its full name, as importlib.import_module does, which loads a module of its own for it.

    Raises ImportError.
    """
    __import__(name)
    return sys.modules[name]
