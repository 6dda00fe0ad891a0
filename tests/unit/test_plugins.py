"""Rows of other packages: found by their entry points, checked when they are used, and to blame by name."""

import sys
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest

from mingle_hooks import plugins
from mingle_hooks.errors import FactsError, PlaceError, UsageError
from mingle_hooks.plugins import FRAMEWORKS, LAUNCHERS, SCHEDULERS


class Row(NamedTuple):
    """A row of some table: data and a function."""

    name: str
    double: Any


def _of_ours(_given: object) -> None:
    raise PlaceError("a", "b", "c")


MODULE = {"good": Row("good", lambda given: given * 2), "ours": Row("ours", _of_ours), "wrong": ("wrong", None)}
POINTS = "".join(f"{name} = own_rows:{name}\n" for name in MODULE) + "absent = no_such_module:absent\n"
POINTS = f"[mingle.frameworks]\n{POINTS}[mingle.launchers]\nzero = own_rows:good"


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a directory that is all that packages are found in, and a process that has not looked for any yet."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(plugins, "_found", {})
    monkeypatch.setattr(plugins, "_loaded", {})
    module = type(sys)("own_rows")
    vars(module).update(MODULE)
    monkeypatch.setitem(sys.modules, "own_rows", module)
    return tmp_path


def package(place: Path, name: str = "rows-2.dist-info", points: str = POINTS) -> None:
    """Install a package with these entry points."""
    (place / name).mkdir(parents=True)
    (place / name / "METADATA").write_text("Metadata-Version: 2.1\nName: rows\nVersion: 2\n")
    (place / name / "entry_points.txt").write_text(points)


def found(name: str, returns: plugins.Returns) -> Row:
    """Return the framework of this name."""
    row = plugins.find(FRAMEWORKS, name, Row, returns)
    assert row is not None
    return row


def test_a_row_is_loaded_once_and_may_return_what_nobody_checks(path: Path) -> None:
    """An error of mingle's own goes through as it is."""
    package(path)
    names = [plugins.names(group) for group in (FRAMEWORKS, LAUNCHERS, SCHEDULERS)]
    assert names == [("absent", "good", "ours", "wrong"), ("zero",), ()]
    good = found("good", {})
    assert (good.name, good.double("x" * 40), found("good", {}) is good) == ("good", "x" * 80, True)
    assert (plugins.loaded(FRAMEWORKS), plugins.loaded(LAUNCHERS)) == ([good], [])
    assert plugins.find(FRAMEWORKS, "other", Row, {}) is None
    with pytest.raises(PlaceError):
        found("ours", {}).double(1)


@pytest.mark.parametrize(
    ("name", "given", "seen"),
    [
        ("absent", "", "No module named 'no_such_module'"),
        ("wrong", "", "own_rows:wrong is no Row"),
        ("good", None, "double: TypeError: unsupported operand type(s) for *: 'NoneType' and 'int'"),
        ("good", "x" * 40, f"double returned '{'x' * 58}…, which is not a short text"),
        ("good", "abcd", None),
    ],
)
def test_a_broken_row_is_its_packages_fault(path: Path, name: str, given: object, seen: str | None) -> None:
    package(path)
    error = None
    try:
        assert found(name, {"double": ("a short text", lambda text: len(text) < 9)}).double(given) == "abcdabcd"
    except UsageError as caught:
        error = caught.expected, caught.seen, caught.remedy
    expected, remedy = f"a working plugin {name} in mingle.frameworks", "another version of rows, or pip uninstall rows"
    assert error == (None if seen is None else (expected, f"{seen} (package rows)", remedy))


def test_packages_that_cannot_be_read_are_the_groups_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error comes every time."""
    package(path, points="[mingle.schedulers]\n")
    monkeypatch.setattr(metadata, "entry_points", lambda **_how: (path / "none").read_text())
    for _ in range(2):
        with pytest.raises(FactsError, match="entry points can be read; saw No such file or direct"):
            plugins.names(SCHEDULERS)


@pytest.mark.parametrize(
    ("place", "packages", "asks"),
    [
        *(("", [name], True) for name in ("rows-2.dist-info", "rows-2.egg-info", "other.egg")),
        *(
            ("", ["other.dist-info", "rows-2.dist-info"], True),
            ("below", ["rows-2.dist-info"], True),
            ("zip", [], True),
        ),
        *(("", [name], False) for name in ("other.dist-info", "rows-2.data")),
    ],
)
def test_the_slow_search_begins_only_where_a_package_may_have_a_row(
    path: Path, monkeypatch: pytest.MonkeyPatch, place: str, packages: list[str], *, asks: bool
) -> None:
    """The package may be in the working directory, behind a missing directory, in a zip file or in an egg."""
    for name in packages:
        package(path / place, name, "[other]\n" if name.startswith("other") else POINTS)
    if place == "zip":
        (path / "zip").touch()
    monkeypatch.chdir(path / place if place == "below" else "/")
    monkeypatch.setattr(sys, "path", [str(path / "no"), "" if place == "below" else str(path / place)])
    with mock.patch.object(metadata, "entry_points", return_value=[]) as search:
        assert [plugins.names(FRAMEWORKS) for _ in range(2)] == [(), ()]
    assert search.mock_calls == [mock.call(group=FRAMEWORKS)] * asks
