"""What has one home: whoever reads a host's name, a number or a duration reads it as everybody else does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mingle_hooks import values
from mingle_hooks.errors import MingleError, UsageError
from mingle_hooks.hooks.files import Site
from mingle_hooks.hooks.pbs import plan_pbs as plan
from mingle_hooks.hooks.plan import Where
from mingle_hooks.hooks.verify import preview_job as preview
from mingle_hooks.schedulers import hostlist, pbs
from mingle_hooks.schedulers.facts import Variables
from mingle_hooks.scripts import fields
from mingle_hooks.scripts import fields as quantities

HOSTS: dict[str, Callable[[str], object]] = {
    "host list": hostlist.check_host,
    "scheduler's variable": lambda name: Variables({"HOST": name}).host("host", "HOST"),
    "MASTER_ADDR": lambda name: Variables({"MASTER_ADDR": name}).host("host", "MASTER_ADDR", address=True),
    "settings": values.hosts,
    "--master": values.endpoint,
    "hooks": lambda name: Site(hosts=(name,)),
}


def is_read(read: Callable[[str], object], text: str) -> bool:
    """Tell whether a text is taken."""
    try:
        read(text)
    except MingleError:
        return False
    return True


@pytest.mark.parametrize("name", ["n1", "_n1", "N-1.site", "1n", "a" * 253])
def test_a_hosts_name_is_one_everywhere(name: str) -> None:
    """An underscore in front too, as Windows' machines and some sites have it."""
    assert [place for place, read in HOSTS.items() if not is_read(read, name)] == []


@pytest.mark.parametrize("name", ["-n1", ".n1", "n 1", "n$1", "n\tm", "a" * 254, "\u00e9"])
def test_what_is_no_hosts_name_is_none_anywhere(name: str) -> None:
    """A dash in front could become an option."""
    assert [place for place, read in HOSTS.items() if is_read(read, name)] == []


def test_the_task_prolog_reads_a_hosts_name_as_we_do() -> None:
    """It is a script, and no grammar of Python's reaches it."""
    assert "export MASTER_ADDR=_n1" in preview(Site(), "_n1")
    assert preview(Site(), "-n1") == preview(Site(), ".n1") == ()


@pytest.mark.parametrize(("text", "expected"), [("1h30m", 5400), ("2d", 172_800), ("1.5h", 5400), ("90s", 90)])
def test_a_duration_with_units_is_the_same_for_settings_and_job_scripts(text: str, expected: int) -> None:
    """Without a unit it is seconds for the one and minutes, as in sbatch, for the other."""
    assert values.seconds(text) == quantities.seconds_of(text) == expected


@pytest.mark.parametrize("text", ["7", " 7 ", "+7", "7.0", "\u0667", "7_0", "", "99999999999"])
def test_a_whole_number_is_one_everywhere(text: str) -> None:
    """In decimal digits of ASCII, few enough to be counted."""
    assert is_read(values.nodes, text) == is_read(fields.count_field, text)


@pytest.mark.parametrize("line", ["PBS_HOME=/opt/x", "PBS_HOME = /opt/x ", "PBS_HOME='/opt/x'", '  PBS_HOME="/opt/x"'])
def test_the_home_of_pbs_is_the_same_for_a_task_and_for_the_hooks(tmp_path: Path, line: str) -> None:
    """However pbs.conf is written."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "opt/x/mom_priv").mkdir(parents=True)
    (tmp_path / "etc/pbs.conf").write_text(f"PBS_SERVER=ctl\n{line}\n")
    assert pbs.home(str(tmp_path / "etc/pbs.conf")) == "/opt/x"
    paths = [file.entry.path for file in plan(Site(), Where(str(tmp_path))).files]
    assert "/opt/x/mom_priv/prologue" in paths


@pytest.mark.parametrize(
    ("text", "expected"), [("1024-65535", range(1024, 65_536)), (" 2000-2000 ", range(2000, 2001))]
)
def test_a_port_range_includes_both_ends(text: str, expected: range) -> None:
    assert values.ports(text) == expected


@pytest.mark.parametrize(
    "text", ["", "2000", "2001-2000", "1023-2000", "2000-65536", "-1-5", "a-b", "2000-2001-2002", "٢٠٠٠-٢٠٠١"]
)
def test_other_text_is_no_port_range(text: str) -> None:
    with pytest.raises(UsageError, match="1024 <= A <= B <= 65535"):
        values.ports(text)
