"""Numbers, names, ranges and JSON are read the same way everywhere."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mingle_hooks import values
from mingle_hooks.errors import MingleError
from mingle_hooks.hooks.files import Site
from mingle_hooks.hooks.verify import preview_job
from mingle_hooks.schedulers import pbs
from mingle_hooks.schedulers.facts import Variables, check_host
from mingle_hooks.scripts import job
from mingle_hooks.values import nearest

# What has one home: whoever reads a host's name, a number or a duration reads it as everybody else does.


HOSTS: dict[str, Callable[[str], object]] = {
    "host list": check_host,
    "scheduler's variable": lambda name: Variables({"HOST": name}).host("host", "HOST"),
    "MASTER_ADDR": lambda name: Variables({"MASTER_ADDR": name}).host("host", "MASTER_ADDR", address=True),
    "settings": values.hosts,
    "--master": values.endpoint,
}


def is_read(read: Callable[[Any], object], value: object) -> bool:
    """Tell whether a value is taken."""
    try:
        read(value)
    except MingleError:
        return False
    return True


@pytest.mark.parametrize("name", ["n1", "_n1", "N-1.site", "1n", "a" * 253])
@pytest.mark.parametrize("wrong", ["-n1", ".n1", "n 1", "n$1", "n\tm", "a" * 254, "\u00e9"])
def test_a_hosts_name_is_one_everywhere(name: str, wrong: str) -> None:
    """An underscore in front too, as Windows' machines and some sites have it; a dash could become an option."""
    assert [place for place, read in HOSTS.items() if not is_read(read, name) or is_read(read, wrong)] == []


def test_the_task_prolog_reads_a_hosts_name_as_we_do() -> None:
    """It is a script, and no grammar of Python's reaches it."""
    assert "export MASTER_ADDR=_n1" in preview_job(Site(), "_n1")
    assert preview_job(Site(), "-n1") == preview_job(Site(), ".n1") == ()


@pytest.mark.parametrize(("text", "expected"), [("1h30m", 5400), ("2d", 172_800), ("1.5h", 5400), ("90s", 90)])
def test_a_duration_with_units_is_the_same_for_settings_and_job_scripts(text: str, expected: int) -> None:
    """Without a unit, settings mean seconds, and job scripts mean minutes as sbatch does."""
    assert values.seconds(text) == job.seconds_of(text) == expected


@pytest.mark.parametrize("text", ["7", " 7 ", "+7", "7.0", "\u0667", "7_0", "", "99999999999"])
def test_a_whole_number_is_one_everywhere(text: str) -> None:
    """A number has a few decimal digits of ASCII."""
    assert is_read(values.nodes, text) == is_read(job.count_field, text) == (text.strip(" ") == "7")


def test_a_whole_number_is_no_truth_value_and_within_its_bounds() -> None:
    taken = [value for value in (0, 1, values.MOST_NODES, values.MOST_NODES + 1, 2.0) if is_read(values.nodes, value)]
    assert (taken, is_read(values.nodes, value=True)) == ([1, values.MOST_NODES], False)


def test_a_range_of_nodes_holds_a_number_of_them() -> None:
    """Torchrun reads it so; a text that is no range holds nothing."""
    held = ["2", "1:4", "2:2", "1:2", "1:1000000000"]
    others = ["1", "3", "1:", "3:4", "1:1", "1:1000000001", "2:3:4", "x", ":2", ""]
    assert [text for text in held + others if values.holds(text, 2)] == held


@pytest.mark.parametrize("line", ["PBS_HOME=/opt/x", "PBS_HOME = /opt/x ", "PBS_HOME='/opt/x'", '  PBS_HOME="/opt/x"'])
def test_the_home_of_pbs_is_read_however_pbs_conf_is_written(tmp_path: Path, line: str) -> None:
    (tmp_path / "pbs.conf").write_text(f"PBS_SERVER=ctl\n{line}\n")
    assert pbs.home(str(tmp_path / "pbs.conf")) == "/opt/x"


# JSON that two readers could take for different things is refused.


def test_json_is_compact_ascii_and_read_strictly() -> None:
    value = {"host": "nöde", "ranks": [0, 1], "none": None}
    text = values.to_json(value)
    assert text == '{"host":"n\\u00f6de","ranks":[0,1],"none":null}'
    assert values.from_json(text.encode()) == value
    for text in ("", "NaN", "[Infinity]", "1 2", "{", "\xff", '{"a"}', "[" * 100_000):
        with pytest.raises((ValueError, RecursionError)):
            values.from_json(text.encode("latin-1"))
    for wrong in (float("nan"), float("inf"), {1, 2}, b"octets"):
        with pytest.raises((ValueError, TypeError)):
            values.to_json(wrong)


# A mistyped word leads to the one that was meant.


@pytest.mark.parametrize(
    ("word", "known", "meant"),
    [
        ("evn", ("env", "exec", "key"), "env"),
        ("EXEC", ("env", "exec", "key"), "exec"),
        ("MINGLE_TIMEOT", ("MINGLE_ID", "MINGLE_TIMEOUT"), "MINGLE_TIMEOUT"),
        ("process", ("node", "task"), "task"),
        ("process", ("torchrun", "process"), "process"),
        ("all", ("gpus", "tasks", "cpus"), "gpus"),
        ("pytorch", ("ray", "torchrun"), "torchrun"),
        ("powershell", ("sh", "csh", "fish"), "sh"),
        (7, ("a", "b"), "a"),
    ],
)
def test_the_nearest_is_the_one_that_is_meant(word: object, known: tuple[str, ...], meant: str) -> None:
    """It is the nearest by its letters, by its meaning, or else the first."""
    assert nearest(word, known) == meant
