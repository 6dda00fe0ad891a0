"""Bundles: the modules of one kind of process in one file, so that a start asks its file system for one.

A thousand nodes that start at once ask one shared file system for every module that each loads. A wheel therefore has
them once more, together, as functions that do what the modules do (packaging/bundle.py makes them). Where there is no
bundle, as in a checkout, the modules themselves are loaded.
"""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # type checkers take it for true, by its name
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec
    from types import FunctionType, ModuleType
else:
    from _frozen_importlib import ModuleSpec

    FunctionType = type(lambda: None)  # without `types`, as in mingle_hooks.typed

_PACKAGE = __file__.rpartition("/")[0]


def use(name: str) -> None:
    """Have modules that are imported from now on come from this bundle, where it has them."""
    if f"mingle_hooks.bundle_{name}" in sys.modules:
        return
    try:
        found = __import__(f"mingle_hooks.bundle_{name}", fromlist=["MODULES"])
    except ModuleNotFoundError:  # no wheel's
        return
    sys.meta_path.insert(0, _Bundle(found.MODULES))


def load(name: str) -> None:
    """Load all that a bundle has; nothing where there is none."""
    use(name)
    bundle = sys.modules.get(f"mingle_hooks.bundle_{name}")
    for module in bundle.MODULES if bundle else ():
        __import__(module)


class _Bundle:
    """Finds and loads the modules of one bundle, as the interpreter's own finders do those of a directory."""

    def __init__(self, modules: "dict[str, tuple[Callable[[], None], str, bool]]") -> None:
        self._modules = modules

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> "ModuleSpec | None":
        """Return what is known of a module; None where it is not in this bundle."""
        if name not in self._modules:
            return None
        _, inside, is_package = self._modules[name]
        origin = f"{_PACKAGE}/{inside}"
        spec = ModuleSpec(name, self, origin=origin, is_package=is_package)  # type: ignore[arg-type]
        spec.has_location = True  # so that the module has its file's name
        if is_package:
            # What is in the package's folder and not in the bundle is found there.
            spec.submodule_search_locations = [origin.rpartition("/")[0]]
        return spec

    def create_module(self, _spec: ModuleSpec) -> None:
        """Leave that to the interpreter."""

    def exec_module(self, module: "ModuleType") -> None:
        """Do what the module does, with its own dictionary for what is global there."""
        made, _, _ = self._modules[module.__name__]
        FunctionType(made.__code__, module.__dict__)()
