"""What tests need of the machine that they run on. Only here is a test skipped, so that each skip is counted."""

import os
import shutil
import sys
from collections.abc import Callable
from importlib.util import find_spec

import pytest
from cluster.hosts import has_ipv6, makes_namespaces

# A skip whose reason begins so is counted in the block at the end of the run.
FOR_WANT_OF = "for want of "
PACKAGES = {
    *("accelerate", "cyclonedx", "distributed", "hatchling", "jax", "lightning", "material", "mkdocs", "pynvml"),
    *("ray", "torch", "yaml"),
}
CONDITIONS: dict[str, Callable[[], bool]] = {
    "IPv6": has_ipv6,
    "Linux": lambda: sys.platform == "linux",
    "namespaces": makes_namespaces,
    "root": lambda: os.geteuid() == 0,
}


def has(name: str) -> bool:
    """Tell whether this machine has a condition, a Python package or, by any other name, a command."""
    if name in CONDITIONS:
        return CONDITIONS[name]()
    if name in PACKAGES:
        return find_spec(name) is not None
    return shutil.which(name) is not None


def lacking(*names: str) -> list[str]:
    """Return those of the names that this machine does not have."""
    return [name for name in names if not has(name)]


def need(*names: str) -> None:
    """Skip the test that is running unless this machine has all of these."""
    skip_for_want_of(lacking(*names))


def only_with(*names: str) -> pytest.MarkDecorator:
    """Mark a test, or a module as its `pytestmark`, to be skipped unless this machine has all of these."""
    lacks = lacking(*names)
    return pytest.mark.skipif(bool(lacks), reason=FOR_WANT_OF + ", ".join(lacks))


def skip_for_want_of(lacks: list[str]) -> None:
    """Skip the test that is running when anything is lacking, whatever has found that."""
    if lacks:
        pytest.skip(FOR_WANT_OF + ", ".join(lacks))
