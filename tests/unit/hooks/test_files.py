"""Where a path leads below a root, and what is written there; headers, manifests and what a site says."""

import json
import os
import signal
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mingle_hooks.errors import PlaceError
from mingle_hooks.hooks import files
from mingle_hooks.hooks.files import Entry, Found, Header, Site
from mingle_hooks.settings import load

OURS = "/etc/mingle/hooks/slurm/prolog"
SHARED = "/etc/slurm/prolog.d/10-mingle"


@pytest.mark.parametrize(
    ("path", "place", "followed"),
    [
        ("/a/./b//c", "/a/b/c", None), ("/../a/../../b", "/b", None), ("/out", "/out", "/x/y"),
        ("/out/", "/out", "/x/y"), ("/out/f", "/x/y/f", None), ("/d/up/f", "/e/f", None), ("/d/up", "/d/up", "/e"),
        ("/far/f", "/f", None), ("/40", "/40", "/end"),
    ],
)  # fmt: skip
def test_no_link_leads_out_of_a_root(tmp_path: Path, path: str, place: str, followed: str | None) -> None:
    """The last part stays a link unless it is followed; the kernel follows forty links, and so do we."""
    (tmp_path / "d").mkdir()
    links = {"out": "/x/y", "d/up": "../e", "far": "../../..", "1": "end"}
    links |= {f"{number}": f"{number - 1}" for number in range(2, 42)}
    for link, leads in links.items():
        (tmp_path / link).symlink_to(leads)
    assert files.inside_root(str(tmp_path), path) == f"{tmp_path}{place}"
    assert files.below_root(str(tmp_path), path) == f"{tmp_path}{followed or place}"
    with pytest.raises(PlaceError, match=f"a loop: {tmp_path}/41"):
        files.below_root(str(tmp_path), "/41")


def test_all_files_are_renamed_while_no_signal_ends_this_or_none_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They replace what a power cut left, in directories that users can enter, and the lock is gone afterwards."""
    rename, seen = os.rename, []
    blocked = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
    monkeypatch.setattr(files, "sync_directory", lambda _path: None)

    def renames(old: str, new: str) -> None:
        seen.append((new, signal.pthread_sigmask(signal.SIG_BLOCK, ()) & blocked))
        rename(old, new) if len(seen) < 4 else os.fsync(1 << 30)

    monkeypatch.setattr(os, "rename", renames)
    paths = [f"{tmp_path}/a/b/{number}" for number in range(2)]
    old, new = ([(path, Found(data, 0o600, os.geteuid())) for path in paths] for data in (b"old", b"new"))
    (tmp_path / "a").mkdir()
    before = os.umask(0o077)
    try:
        with files.directory_locks(str(tmp_path), ["/a/b", OURS]):
            assert os.readlink(tmp_path / "a/.mingle-hooks.lock") == os.uname().nodename
            files.put_files(old)
    finally:
        os.umask(before)
    Path(files.unfinished_files(paths[0])).write_text("half")
    with (
        pytest.raises(PlaceError, match=f"a place to write; saw {paths[1]}: "),
        files.directory_locks(str(tmp_path), []),
    ):
        files.put_files(new)
    assert seen == [(path, blocked) for path in paths * 2]
    fill = files._write
    monkeypatch.setattr(files, "_write", lambda path, its: fill(path, its) if path[-1] == "0" else os.fsync(1 << 30))
    with pytest.raises(PlaceError, match=f"a place to write; saw {paths[1]}: "):  # for which there is no room
        files.put_files(old)
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()) & blocked
    assert [Path(path).read_bytes() for path in paths] == [b"new", b"old"]
    assert stat.S_IMODE((tmp_path / "a/b").stat().st_mode) == 0o755
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["0", "1", "a", "b"]


def test_nodes_that_share_a_directory_remove_a_stale_lock_one_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When a node removes the lock, it may be another node's new one by then. The second lock can be stale, too."""
    unlink, waits, inside, most = os.unlink, iter(range(1, 99)), [], []
    lock, second = (tmp_path / f".mingle-hooks.lock{end}" for end in ("", ".left"))

    def slow(path: str, **how: int) -> None:
        time.sleep(0.05 * next(waits) if path == str(lock) else 0)
        unlink(path, **how)

    def install(_: int) -> None:
        with files.directory_locks(str(tmp_path), ["/hook"]):
            inside.append(1)
            time.sleep(0.1)
            most.append(len(inside))
            inside.pop()

    for link in (lock, second):
        link.symlink_to("crashed")
        os.utime(link, (0, 0), follow_symlinks=False)
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("", threading.current_thread().name, "", "", "")))
    monkeypatch.setattr(os, "unlink", slow)
    with ThreadPoolExecutor(4) as nodes:
        assert [*nodes.map(install, range(4))] == [None] * 4
    assert (most, os.listdir(tmp_path)) == ([1] * 4, [])


def test_a_hook_s_header_says_what_made_it_and_whether_it_is_whole() -> None:
    """The header is in the first ten lines; another file has none."""
    text = "#!/bin/sh\n" + files.header_lines("slurm", "prolog", "/opt/x") + "\nexit 0\n"
    made = files.with_checksum(text).encode()
    header = Header("slurm", "prolog", files.__version__, "/opt/x", is_whole=True)
    assert files.read_header(made) == header
    assert files.read_header(made.replace(b"exit 0", b"exit 1")) == header._replace(is_whole=False)
    assert "Runs afterwards" not in files.header_lines("slurm", "prolog", "")
    assert files.read_header(b"\n" * 5 + made) == header._replace(is_whole=False)  # line 10 is the last
    for other in (b"exit 0\n", b"# Made by: mingle hooks render slurm (mingle-hooks 1).\n", b"\n" * 9 + made):
        assert files.read_header(other) is None


def test_a_manifest_is_written_and_read_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node's has the copies; the one beside a shared hook has the node's name and counts more."""
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "n1", "", "", "")))
    ours = Entry("slurm", "prolog", OURS, "0" * 64, 0o755)
    shared = Entry("slurm", "prolog", SHARED, "1" * 64, 0o755, "/opt/x", "/kept/x", "2" * 64)
    root, manifest = str(tmp_path), files.manifest_of({OURS: ours, SHARED: shared})
    assert manifest.beside == {"/etc/slurm/prolog.d/.mingle-hooks.json"}
    row = {"scheduler": "slurm", "name": "prolog", "path": OURS, "sha256": "0" * 64, "mode": 493, "chain": ""}
    row |= {"kept": "", "kept_sha256": "", "is_users": False, "stub": ""}
    other = row | {"path": SHARED, "sha256": "1" * 64, "chain": "/opt/x"}
    kept = other | {"kept": "/kept/x", "kept_sha256": "2" * 64}
    own, beside = (json.loads(found.data) for _, found in manifest.files(""))
    assert own == {"version": 1, "files": [row, kept]}
    assert beside == {"version": 1, "node": "n1", "files": [other]}
    assert files.read_manifest(root) == files.Manifest()
    files.put_files([(root + path, found) for path, found in manifest.files("")])
    assert files.read_manifest(root) == manifest
    assert (manifest.of("slurm"), manifest.of("pbs")) == ((ours, shared), ())
    assert [files.other_node(root, path) for path in (SHARED, OURS)] == ["", ""]
    newer = shared._replace(sha256="3" * 64, kept="", kept_sha256="")
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "n2", "", "", "")))
    files.put_files([(root + path, found) for path, found in files.manifest_of({SHARED: newer}).files("")[1:]])
    assert files.read_manifest(root).entries[SHARED] == shared._replace(sha256="3" * 64)
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "n1", "", "", "")))
    assert files.other_node(root, SHARED) == "n2"
    bad = ({"mode": "7"}, {"stub": 1}, {"kept": []}, {"path": "/a\0"})
    bad += tuple({name: path} for name in ("path", "kept") for path in ("etc/shadow", "/etc/../shadow", 7))
    for spoilt in ([], [{"path": OURS}], *([row | its] for its in bad)):
        (tmp_path / files.MANIFEST_PATH[1:]).write_text(json.dumps({"files": spoilt}))
        assert files.node_manifest(root) == files.Manifest(is_rebuilt=bool(spoilt))


def test_hooks_take_interfaces_by_name_alone(tmp_path: Path) -> None:
    """No script can look for a network's address."""
    file = tmp_path / "mingle.toml"
    file.write_text('iface = "ib0,10.0.0.0/8,fd00::/8,bond0.1"\nhost_suffix = "-ib"\n[hooks]\nobserve = true\n')
    site = files.read_site(load({}, {}, system_file=str(file)))
    assert site == Site(interfaces=("ib0", "bond0.1"), host_suffix="-ib", observe=True)
