"""The packages, made once for all tests of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from building import ROOT, build, once
from needs import need

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make sdist, wheel and mingle.pyz."""
    need("hatchling")
    return once(tmp_path_factory, "dist", lambda place: build(ROOT, place))
