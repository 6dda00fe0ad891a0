"""A leader's file in a shared directory: read strictly, and gone in the end."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from gathering import ATTEMPT, OTHER, SECRET, Clock

from mingle_hooks.errors import PlaceError
from mingle_hooks.rendezvous.backend import Advertisement, Context
from mingle_hooks.rendezvous.connection import Loop
from mingle_hooks.rendezvous.discovery import MOST_FILES, DirectoryBackend
from mingle_hooks.rendezvous.discovery import directory_backend as backend

if TYPE_CHECKING:
    from pathlib import Path

    from mingle_hooks.rendezvous.connection import Endpoint
    from mingle_hooks.rendezvous.wire import Secret

NOTICE = Advertisement(b"L" * 16, 5, ("10.0.0.1", "fd00::1"), (20_001, 20_002))
LEADS = {(a, p) for a in NOTICE.addresses for p in NOTICE.ports}


class Place:
    """A directory, one member's backend for it, and what came of that."""

    def __init__(self, directory: Path, secret: Secret = SECRET) -> None:
        self.found: list[Endpoint] = []
        self.rejected: list[str] = []
        self.notes: list[str] = []
        context = Context(
            Loop(Clock()),
            ATTEMPT,
            secret,
            self.found.append,
            self.rejected.append,
            self.notes.append,
            directory=str(directory),
        )
        opened = backend(context)
        assert isinstance(opened, DirectoryBackend)
        self.backend, self.loop = opened, context.loop

    def look(self) -> set[tuple[str, int]]:
        """Look once, and return the leads."""
        self.backend.search(wanted=True)
        self.backend.search(wanted=False)
        return {(endpoint.address, endpoint.port) for endpoint in self.found}

    def close(self) -> None:
        """End it."""
        self.backend.close()
        self.loop.__exit__(None, None, None)


def test_what_one_announces_another_finds_and_nothing_stays(tmp_path: Path) -> None:
    """The file is private, whole from the first moment, and removed."""
    leader, member = Place(tmp_path), Place(tmp_path)
    leader.backend.announce(NOTICE)
    assert member.look() == LEADS
    assert leader.look() == set()
    assert [os.stat(tmp_path / name).st_mode & 0o777 for name in os.listdir(tmp_path)] == [0o600]
    leader.backend.announce(None)
    assert os.listdir(tmp_path) == []
    leader.backend.announce(NOTICE)
    leader.close()
    member.close()
    assert os.listdir(tmp_path) == []
    assert leader.notes + member.notes + leader.rejected + member.rejected == []


def test_a_leader_with_another_key_is_reported_once_and_not_dialled(tmp_path: Path) -> None:
    """Its file cannot be ours."""
    leader, member = Place(tmp_path, OTHER), Place(tmp_path)
    leader.backend.announce(NOTICE)
    assert member.look() == member.look() == set()
    assert len(member.rejected) == 1
    assert len(member.rejected[0]) <= 64
    leader.close()
    member.close()


@pytest.mark.parametrize("what", ["empty", "garbage", "huge", "link", "fifo", "directory", "other's words", "device"])
def test_whatever_lies_there_under_a_leaders_name_is_not_believed(tmp_path: Path, what: str) -> None:
    """And it neither blocks nor breaks the search."""
    leader, member = Place(tmp_path), Place(tmp_path)
    leader.backend.announce(NOTICE)
    (name,) = os.listdir(tmp_path)
    path, words = tmp_path / name, (tmp_path / name).read_bytes()
    path.unlink()
    if what == "empty":
        path.touch()
    elif what == "garbage":
        path.write_bytes(bytes(range(256)))
    elif what == "huge":
        path.write_bytes(words + bytes(10_000_000))
    elif what == "link":
        (tmp_path / "elsewhere").write_bytes(words)
        path.symlink_to(tmp_path / "elsewhere")
    elif what == "fifo":
        os.mkfifo(path)
    elif what == "directory":
        path.mkdir()
    elif what == "device":
        path.symlink_to("/dev/zero")
    else:
        path.write_bytes(words.replace(b"20001", b"20009"))
    assert member.look() == set()
    if path.is_dir():
        path.rmdir()
    leader.close()
    member.close()


def test_names_that_others_make_up_cannot_crowd_out_a_leader(tmp_path: Path) -> None:
    """Whoever may write into the directory without the key."""
    tag = ATTEMPT.tag.hex()
    for number in range(2 * MOST_FILES):
        (tmp_path / f"{tag}-{number:032x}-{'0' * 16}.mingle").touch()
    (tmp_path / f"{tag}-.mingle").mkdir()
    (tmp_path / f"{tag}-----.mingle").touch()
    with open(os.path.join(os.fsencode(tmp_path), tag.encode() + b"-\xff\n\x1b[2J.mingle"), "wb"):
        pass
    leader, member = Place(tmp_path), Place(tmp_path)
    leader.backend.announce(NOTICE)
    assert member.look() == LEADS
    assert len(member.rejected) == 1
    leader.close()
    member.close()


def test_a_directory_that_goes_away_meanwhile_is_no_leader_found(tmp_path: Path) -> None:
    """The file server may be away for a moment; the deadline bounds it."""
    shared = tmp_path / "shared"
    shared.mkdir()
    member = Place(shared)
    shared.rmdir()
    assert member.look() == set()
    with pytest.raises(PlaceError, match="No such file"):
        member.backend.announce(NOTICE)
    member.close()


@pytest.mark.parametrize("name", ["missing", "file"])
def test_what_is_no_directory_is_refused_at_once(tmp_path: Path, name: str) -> None:
    """With the path, and what to do."""
    (tmp_path / "file").touch()
    with pytest.raises(PlaceError, match=name):
        Place(tmp_path / name)
