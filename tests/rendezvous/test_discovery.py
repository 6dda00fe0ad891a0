"""A backend that cannot be opened, or fails later, is a reason told at the end, and the others go on."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest
from gathering import ATTEMPT, SECRET

from mingle_hooks.errors import NetworkError
from mingle_hooks.rendezvous.backend import Advertisement, Context
from mingle_hooks.rendezvous.connection import Loop
from mingle_hooks.rendezvous.discovery import BACKENDS, Discovery
from mingle_hooks.settings import BACKENDS as NAMES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NOTICE = Advertisement(b"L" * 16, 5, ("10.0.0.1",), (20_001,))


class Dialer:
    """A member that looks, or announces itself, by some backends; the package of multicast may be broken."""

    def __init__(
        self, *, advertisement: Advertisement | None = None, directory: Path | None = None, hosts: tuple[str, ...] = ()
    ) -> None:
        self.loop, self.notes = Loop(), list[str]()
        context = Context(
            self.loop,
            ATTEMPT,
            SECRET,
            dial=lambda _endpoint: None,
            reject=self.notes.append,
            note=self.notes.append,
            leader_hosts=hosts,
            ports=(20_001,),
            directory=None if directory is None else str(directory),
        )
        self.discovery = Discovery(context, lambda: True, lambda: advertisement, lambda: False)

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        over: list[int] = []
        self.loop.after(seconds, lambda: over.append(1))
        self.loop.run(lambda: bool(over))


def test_each_backend_that_settings_take_has_its_row() -> None:
    """In the same order; settings cannot ask the rows, which are above them."""
    assert tuple(BACKENDS) == NAMES


def multicast_modules() -> list[str]:
    """Name the modules of multicast that are loaded."""
    return [name for name in sys.modules if name.startswith(("multicast_expert", "netifaces"))]


@pytest.fixture(params=["import netifaces_is_missing", "raise OSError('broken')", "1 / 0", "def"])
def broken(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Put a netifaces that cannot be imported before the real one; return what Python says of it."""
    (tmp_path / "netifaces.py").write_text(request.param + "\n")
    before = {name: sys.modules.pop(name) for name in multicast_modules()}
    sys.path.insert(0, str(tmp_path))
    yield {"i": "No module named", "r": "broken", "1": "ZeroDivisionError", "d": "SyntaxError"}[request.param[0]]
    sys.path.remove(str(tmp_path))
    for name in multicast_modules():
        del sys.modules[name]
    sys.modules.update(before)


def test_a_package_that_is_missing_or_broken_is_a_reason_and_other_ways_go_on(broken: str) -> None:
    """The search by name goes on, and the message has both."""
    search = Dialer(hosts=("127.0.0.1",))
    with search.loop:
        search.discovery.open(["hosts", "multicast"])
        search.wait(0.3)
        told = search.discovery.tried()
        search.discovery.close()
    assert told.startswith("hosts: 127.0.0.1 ports 20001; no multicast: ")
    assert broken in told
    assert search.notes == []


def test_where_no_way_can_be_opened_each_reason_is_the_error(broken: str, tmp_path: Path) -> None:
    """71, at once."""
    search = Dialer(directory=tmp_path / "none")
    with search.loop, pytest.raises(NetworkError) as caught:
        search.discovery.open(["directory", "multicast"])
    assert "no directory: " in caught.value.seen
    assert str(tmp_path / "none") in caught.value.seen
    assert "no multicast: " in caught.value.seen
    assert broken in caught.value.seen


def test_a_directory_that_cannot_be_used_is_a_reason_too(tmp_path: Path) -> None:
    """It may be that only this node has not mounted it."""
    search = Dialer(directory=tmp_path / "none", hosts=("127.0.0.1",))
    with search.loop:
        search.discovery.open(["hosts", "directory"])
        told = search.discovery.tried()
        search.discovery.close()
    assert told.startswith("hosts: ")
    assert "no directory: expected a shared directory" in told
    assert str(tmp_path / "none") in told
    assert search.notes == []


def test_a_directory_that_goes_while_it_is_used_leaves_the_other_ways(tmp_path: Path) -> None:
    """A leader that cannot write its file any more is still found by name."""
    place = tmp_path / "shared"
    place.mkdir()
    search = Dialer(advertisement=NOTICE, directory=place, hosts=("127.0.0.1",))
    with search.loop:
        search.discovery.open(["hosts", "directory"])
        (leaf,) = os.listdir(place)
        os.unlink(place / leaf)
        place.rmdir()
        search.discovery.seek()
        told = search.discovery.tried()
        search.discovery.close()
    assert told.startswith("hosts: ")
    assert "no directory: " in told


def test_the_last_way_that_fails_is_an_error(tmp_path: Path) -> None:
    """Nobody could find this leader, and it does not wait for them."""
    place = tmp_path / "shared"
    place.mkdir()
    search = Dialer(advertisement=NOTICE, directory=place)
    with search.loop:
        search.discovery.open(["directory"])
        (leaf,) = os.listdir(place)
        os.unlink(place / leaf)
        place.rmdir()
        with pytest.raises(NetworkError, match="no directory"):
            search.discovery.seek()
        search.discovery.close()


def test_a_directory_that_cannot_be_read_for_a_while_is_a_reason_until_it_can(tmp_path: Path) -> None:
    """A file server that is away comes back, and the way with it."""
    place = tmp_path / "shared"
    place.mkdir()
    search = Dialer(directory=place)
    with search.loop:
        search.discovery.open(["directory"])
        place.rmdir()
        search.discovery.seek()
        gone = search.discovery.tried()
        place.mkdir()
        search.discovery.seek()
        back = search.discovery.tried()
        search.discovery.close()
    assert gone == f"directory: {place}; directory: No such file or directory: {place}"
    assert back == f"directory: {place}"
