"""The lines of slurm.conf that concern hooks, in every way in which Slurm takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mingle_hooks.errors import FactsError
from mingle_hooks.hooks import slurm
from mingle_hooks.hooks import slurm as slurmd
from mingle_hooks.hooks.files import Site
from mingle_hooks.hooks.plan import Where
from mingle_hooks.hooks.slurm import SlurmConf
from mingle_hooks.hooks.slurm import find_slurm_conf as find

if TYPE_CHECKING:
    from pathlib import Path


def conf(root: Path, text: str, name: str = "slurm.conf") -> SlurmConf:
    """Write slurm.conf, or a file beside it, below root, and return what is read of slurm.conf."""
    (root / "etc/slurm").mkdir(parents=True, exist_ok=True)
    (root / "etc/slurm" / name).write_text(text)
    found = find(str(root), "/etc/slurm/slurm.conf")
    assert found is not None
    return found


@pytest.mark.parametrize("value", ["/opt/prolog", '"/opt/prolog"', "'/opt/prolog'", '"/opt/prolog" # ours'])
def test_quotes_around_a_value_are_not_its_own(tmp_path: Path, value: str) -> None:
    """Slurm takes them off, and a hook of the site's that is chained has no quotes in its path."""
    assert conf(tmp_path, f"Prolog={value}\n").all("Prolog") == ("/opt/prolog",)


def test_of_a_key_that_is_repeated_the_last_value_counts(tmp_path: Path) -> None:
    """As for Slurm, also where the other one is in a file that is included; all of them are told."""
    conf(tmp_path, "x=1\n")
    (tmp_path / "etc/slurm/more.conf").write_text("TaskProlog=/opt/b\n")
    found = conf(tmp_path, "TaskProlog=/opt/a\nInclude more.conf\ntaskprolog = /opt/c\n")
    assert (found.one("TaskProlog"), found.all("TaskProlog")) == ("/opt/c", ("/opt/a", "/opt/b", "/opt/c"))
    assert conf(tmp_path, "TaskProlog=/opt/c\nInclude more.conf\n").one("TaskProlog") == "/opt/b"


def test_a_line_that_goes_on_is_one(tmp_path: Path) -> None:
    """A backslash at its end joins it with the next; one before a # keeps that from being a comment."""
    found = conf(tmp_path, "PrologFlags=Alloc,\\\nX11\nProlog=/opt/a\\#b # c\n#Epilog=/opt/c\n")
    assert found.one("PrologFlags").replace(" ", "") == "Alloc,X11"
    assert (found.one("Prolog"), found.one("Epilog")) == ("/opt/a\\#b", "")


def test_files_that_include_each_other_have_an_end(tmp_path: Path) -> None:
    """Nobody waits for an admin's mistake."""
    assert set(conf(tmp_path, "Prolog=/opt/a\nInclude slurm.conf\n").all("Prolog")) == {"/opt/a"}


@pytest.mark.parametrize("flags", ["Alloc", "alloc,Serial", "Contain", "X11"])
def test_flags_that_imply_alloc_suffice(tmp_path: Path, flags: str) -> None:
    """Slurm itself then runs the Prolog on all nodes before the first step (slurm.conf(5))."""
    conf(tmp_path, f"PrologFlags={flags}\n")
    line = slurm.plan_slurm(Site(), Where(str(tmp_path))).lines[-1]
    assert (line.text, line.is_there) == (f"PrologFlags={flags}", True)
    conf(tmp_path, "PrologFlags=Serial\n")
    line = slurm.plan_slurm(Site(), Where(str(tmp_path))).lines[-1]
    assert (line.text, line.is_there) == ("PrologFlags=Serial,Alloc", False)


def test_a_cluster_s_own_file_is_included(tmp_path: Path) -> None:
    """%c is the cluster's name, as far as it has been said; no other % means anything."""
    (tmp_path / "etc/slurm").mkdir(parents=True)
    (tmp_path / "etc/slurm/one.conf").write_text("Prolog=/opt/a\n")
    assert conf(tmp_path, "ClusterName=one\ninclude %c.conf\n").one("Prolog") == "/opt/a"
    for text in ("include %c.conf\nClusterName=one\n", "ClusterName=one\ninclude %h.conf\n"):
        with pytest.raises(FactsError, match="ClusterName="):
            conf(tmp_path, text)


def test_slurm_conf_of_the_environment_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On this host alone: an image is another one's. What was typed comes before it."""
    (tmp_path / "own.conf").write_text("Prolog=/opt/own\n")
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "own.conf"))
    found = find("")
    assert (found and found.one("Prolog")) == "/opt/own"
    assert find(str(tmp_path)) is None
    assert conf(tmp_path, "Prolog=/opt/image\n").one("Prolog") == "/opt/image"
    typed = find("", str(tmp_path / "etc/slurm/slurm.conf"))
    assert (typed and typed.one("Prolog")) == "/opt/image"


@pytest.mark.parametrize(
    ("options", "place"),
    [("", "etc/slurm"), ("--conf-server ctl:6817", "run/slurm/conf"), ("-D -f /srv/slurm.conf", "srv")],
)
def test_the_file_is_the_one_that_slurmd_reads(tmp_path: Path, options: str, place: str) -> None:
    """A configless slurmd reads no file of the node's own, though one may lie there still."""
    for directory in ("etc/slurm", "run/slurm/conf", "srv"):
        (tmp_path / directory).mkdir(parents=True)
        (tmp_path / directory / "slurm.conf").write_text(f"Prolog=/opt/{directory}\n")
    (tmp_path / "etc/default").mkdir()
    (tmp_path / "etc/default/slurmd").write_text(f'# options\nSLURMD_OPTIONS="{options}"\n')
    found = find(str(tmp_path))
    assert (found and found.one("Prolog")) == f"/opt/{place}"
    (tmp_path / "run/slurm/conf/slurm.conf").unlink()
    if "conf-server" in options:
        assert find(str(tmp_path)) is None


def test_a_slurmd_that_runs_is_asked_for_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On this host alone, and before what its unit would give it; an image's slurmd does not run."""
    (tmp_path / "own.conf").write_text("Prolog=/opt/own\n")
    (tmp_path / "comm").write_text("slurmd\n")
    (tmp_path / "cmdline").write_text(f"/usr/sbin/slurmd\0-D\0-f\0{tmp_path}/own.conf\0")
    monkeypatch.setattr(slurmd.glob, "glob", lambda _: [f"{tmp_path}/comm"])
    found = find("")
    assert (found and found.one("Prolog")) == "/opt/own"
    assert find(str(tmp_path)) is None
