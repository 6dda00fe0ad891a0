"""The packages, made once for all tests of them."""

from pathlib import Path

import pytest
from building import ROOT, ZIP, build, build_system, once
from needs import need


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make sdist, wheel, mingle.pyz and the offline bundle."""
    need("hatchling")
    return once(tmp_path_factory, "dist", lambda place: build(ROOT, place))


@pytest.fixture(scope="session")
def system(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the packages of distributions."""
    return once(tmp_path_factory, "system", lambda place: build_system(place, made / ZIP))
