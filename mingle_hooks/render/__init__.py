"""Job description to job script. Called as a function, `mingle_hooks.render(job)`, it is render.function.render."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Room(ModuleType):
    """A package that is a function too: users know `render` as one, and a package takes the name from any other."""

    def __call__(self, *args: Any, **kwargs: Any) -> str:
        from mingle_hooks.render.function import render

        return render(*args, **kwargs)


sys.modules[__name__].__class__ = _Room
