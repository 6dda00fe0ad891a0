"""NCCL's files as NCCL 2.30 reads them, and its list of interfaces."""

from __future__ import annotations

import os
import pwd
from typing import TYPE_CHECKING

import pytest

from mingle_hooks.net.addresses import NcclSetting, is_nccl_interface, nccl_ifname, nccl_settings

if TYPE_CHECKING:
    from pathlib import Path

HOME = pwd.getpwuid(os.getuid()).pw_dir


def site(root: Path, text: str) -> str:
    """Write /etc/nccl.conf below this root."""
    (root / "etc").mkdir(exist_ok=True)
    (root / "etc/nccl.conf").write_text(text)
    return str(root / "etc/nccl.conf")


def own(root: Path, text: str) -> dict[str, str]:
    """Write a user's file, and return the environment that names it."""
    (root / "own.conf").write_text(text)
    return {"NCCL_CONF_FILE": str(root / "own.conf")}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("NCCL_X=1\n", "1"),
        ("NCCL_X=1", "1"),
        ("# a comment\nNCCL_X=1\n", "1"),
        ("NCCL_X=\n", ""),
        ("NCCL_X=a=b # c \n", "a=b # c "),
        ("NCCL_X=1\r\n", "1\r"),
        ("NCCL_X=1\nNCCL_X=2\n", "1"),
        ("NCCL_X=" + "a" * 2000 + "\n", "a" * 1023),
        ("#NCCL_X=1\n", None),
        (" NCCL_X=1\n", None),
        ("NCCL_X =1\n", None),
        ("export NCCL_X=1\n", None),
        ("NCCL_X\n", None),
        ("", None),
    ],
)
def test_a_line_is_taken_as_nccl_takes_it(text: str, value: str | None, tmp_path: Path) -> None:
    """Nothing is stripped, and of two lines the first counts."""
    site(tmp_path, text)
    found = nccl_settings({"NCCL_CONF_FILE": "/nowhere"}, str(tmp_path)).get("NCCL_X")
    assert (found.value if found else None) == value


def test_the_users_file_comes_before_the_sites_and_the_environment_before_both(tmp_path: Path) -> None:
    """setenv(3) without overwriting, in this order; an empty variable is one too."""
    path = site(tmp_path, "NCCL_A=site\nNCCL_B=site\nNCCL_C=site\nNCCL_D=site\n")
    environ = {**own(tmp_path, "NCCL_A=own\nNCCL_B=own\n"), "NCCL_A": "mine", "NCCL_D": ""}
    assert nccl_settings(environ, str(tmp_path)) == {
        "NCCL_B": NcclSetting("own", environ["NCCL_CONF_FILE"]),
        "NCCL_C": NcclSetting("site", path),
    }


def test_the_home_is_that_of_the_account_whatever_home_says(tmp_path: Path) -> None:
    """NCCL asks getpwuid(3); and not at all where NCCL_CONF_FILE names another file."""
    (tmp_path / ".nccl.conf").write_text("NCCL_X=1\n")
    if str(tmp_path) != HOME:
        assert "NCCL_X" not in nccl_settings({"HOME": str(tmp_path)}, str(tmp_path))


def test_without_files_nothing_is_set(tmp_path: Path) -> None:
    """A file that cannot be read is none, and one that is no text is read all the same."""
    environ = {"NCCL_CONF_FILE": str(tmp_path)}
    assert nccl_settings(environ, str(tmp_path)) == {}
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/nccl.conf").write_bytes(b"\xff\0=\xfe\nNCCL_X=1\n")
    assert nccl_settings(environ, str(tmp_path))["NCCL_X"].value == "1"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("eth", ["eth0", "eth1", "eth10"]),
        ("eth1", ["eth1", "eth10"]),
        ("=eth1", ["eth1"]),
        ("=eth1,ib0", ["eth1", "ib0"]),
        ("eth1:1,ib", ["eth1", "eth10", "ib0"]),
        ("^eth", ["ib0"]),
        ("^=eth1", ["eth0", "eth10", "ib0"]),
        ("^docker,lo", ["eth0", "eth1", "eth10", "ib0"]),
        (",ib0,", ["ib0"]),
        ("bond0", []),
    ],
)
def test_a_list_of_interfaces_is_nccls(text: str, names: list[str]) -> None:
    """Beginnings of names, `=` for whole ones, `^` for all others."""
    assert [name for name in ("eth0", "eth1", "eth10", "ib0") if is_nccl_interface(text, name)] == names


def test_what_nccl_is_told_comes_from_the_environment_or_a_file(tmp_path: Path) -> None:
    """One character is nothing to NCCL; an empty variable hides the file."""
    path = site(tmp_path, "NCCL_SOCKET_IFNAME=eth0\n")
    none = {"NCCL_CONF_FILE": "/nowhere"}
    assert nccl_ifname(none, str(tmp_path)) == NcclSetting("eth0", path)
    assert nccl_ifname({**none, "NCCL_SOCKET_IFNAME": "ib"}, str(tmp_path)) == NcclSetting("ib", "the environment")
    assert nccl_ifname({**none, "NCCL_SOCKET_IFNAME": ""}, str(tmp_path)) is None
    assert nccl_ifname({**none, "NCCL_SOCKET_IFNAME": "e"}, str(tmp_path)) is None
    assert nccl_ifname(none, str(tmp_path / "other")) is None


@pytest.mark.parametrize("name", ["pipe", "none", "", "a\0b", "large"])
def test_a_file_that_is_none_says_nothing_and_nobody_waits_for_it(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_text("NCCL_X=1\n" + "#" * (1 << 17))
    assert "NCCL_X" not in nccl_settings({"NCCL_CONF_FILE": str(tmp_path / "x")[:-1] + name}, str(tmp_path))
