"""Mingle Hooks: the same rank 0, address and port on every node of a job.

`join`, `world`, `variables`, `render` and the errors are imported on first use: see docs/api.md.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mingle_hooks.api import join as join, variables as variables, world as world
    from mingle_hooks.errors import (
        ConflictError as ConflictError,
        FactsError as FactsError,
        LimitError as LimitError,
        MingleError as MingleError,
        MissingError as MissingError,
        NetworkError as NetworkError,
        NotExecutableError as NotExecutableError,
        NotFoundError as NotFoundError,
        PlaceError as PlaceError,
        SecretError as SecretError,
        SettingsError as SettingsError,
        UsageError as UsageError,
    )
    from mingle_hooks.rendezvous.messages import (
        Assignment as Assignment,
        Member as Member,
        View as View,
        World as World,
    )
    from mingle_hooks.scripts.script import render as render

__version__ = "1.0.0"

# Module -> its public names. Not __all__: `import *` would import every module.
_PUBLIC = {
    "mingle_hooks.api": "join variables world",
    "mingle_hooks.errors": "MingleError UsageError FactsError MissingError NetworkError LimitError PlaceError"
    " ConflictError SecretError SettingsError NotExecutableError NotFoundError",
    "mingle_hooks.scripts.script": "render",
    "mingle_hooks.rendezvous.messages": "World Assignment Member View",
}
_MODULE_OF = {name: module for module, names in _PUBLIC.items() for name in names.split()}


def __getattr__(name: str) -> object:
    """Import and return a public name. Raises AttributeError."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    """Return the imported names and those that can be imported."""
    return sorted([*globals(), *_MODULE_OF])
