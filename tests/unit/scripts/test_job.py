"""Job descriptions: options, TOML files, totals, times and sizes, and what is refused."""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from mingle_hooks.errors import UsageError
from mingle_hooks.scripts.job import Gpus, as_hms, mebibytes_of, seconds_of
from mingle_hooks.scripts.script import describe, render_script as render

SPEC = 'command = ["train.py", "--lr", "1e-3"]\nnodes = 2\ntime = "1-12"\nmodule = ["cuda/12.4", "gcc"]\n'


def test_options_win_over_the_file(tmp_path: Path) -> None:
    """An option, or a command, takes the place of the file's; the source of each is known."""
    spec = tmp_path / "job.toml"
    spec.write_text(SPEC)
    job = describe({"nodes": "3", "module": ["gcc"], "time": None}, ["other.py"], spec=str(spec))
    assert (job.nodes, job.module, job.command, job.time) == (3, ("gcc",), ("other.py",), 36 * 3600)
    assert [job.source(name) for name in ("nodes", "time", "qos")] == ["--nodes", str(spec), "default"]


def test_a_directory_is_a_path() -> None:
    """A bare name could be an option or a shorthand of `cd`, or be looked up in CDPATH."""
    wanted = {"-": "./-", "work": "./work", "./a": "./a", "../a": "../a", "/a": "/a", "~": "./~"}
    assert {given: describe({"chdir": given}, ["true"]).chdir for given in wanted} == wanted


def test_groups_are_written_with_a_plus() -> None:
    """A+B makes two groups of nodes; a single value holds for both; processes follow the GPUs."""
    job = describe({"nodes": "1+2", "gpus-per-node": "8+v100:4", "mem": "64G"}, ["train.py"])
    assert [(g.nodes, g.gpus, g.ntasks, g.mem) for g in job.groups] == [
        (1, Gpus(8), 8, 65_536),
        (2, Gpus(4, "v100"), 4, 65_536),
    ]
    assert job.nodes == 3


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("train.py", "train"), ("'a/b c.py'", "b_c"), ("./9", "job9"), ("srun /x/été.sh", "job_t__sh"),
        ("x" * 40, "x" * 15), ("torchrun --nproc-per-node 2 src/train.py", "train"), ("srun ./run", "run"),
        ("python -m torch.distributed.run -m pkg.train", "pkg_train"), ("python3 -u train.py x", "train"),
    ],
)  # fmt: skip
def test_a_job_without_a_name_has_its_scripts(command: str, name: str) -> None:
    """Not the launcher's, which says nothing; the default name is one that every scheduler takes."""
    assert describe({}, shlex.split(command)).job_name == name


@pytest.mark.parametrize(
    ("options", "warning"),
    [
        ({}, ("USR1", 120)), ({"time": "10"}, ("USR1", 120)), ({"time": "1"}, ("USR1", 30)),
        ({"time": "1s"}, ("USR1", 1)), ({"time": "1", "signal": "SIGTERM@59"}, ("TERM", 59)),
        ({"signal": "B:USR2"}, ("USR2", 60)), ({"time": "1", "signal": "USR1"}, ("USR1", 30)),
        ({"time": "10", "signal": "TERM"}, ("TERM", 60)),
    ],
)  # fmt: skip
def test_the_warning_comes_after_the_start(options: dict[str, object], warning: tuple[str, int]) -> None:
    """Two minutes before the time limit, or as told; half-way where the job is shorter."""
    assert describe(options, ["train.py"]).signal == warning


# Values that would be changed on their way, on any scheduler.
REFUSED = {
    "array": ["1-"], "bind": ["/a,/b", "", "\x7f"], "chdir": ["", "\x7f"], "container": ["", "\x01"],
    "directive": ["", "a\nb", "a\\", "\x1b"], "for": ["", "-x", "jax torch", "jäx", "a\nb", "$x"],
    "env": ["A=\x7f", "=1", "é=1", "A\nB=1", "UID=3", "BASHOPTS=x", "MINGLE_KEY=x", "LOCAL_RANK=1", "GROUP_RANK=1"],
    "gpus-per-node": ["a b:4"], "job-name": ["x" * 5000], "launcher": ["-x", "tor chrun", "torchrun\n", "../x"],
    "max-restarts": ["1\n", "१", "1 2"], "mem": ["१", "$x"], "module": ["", "\x7f"], "output": ["a\0b"],
    "nodes": ["१", "99999999", "+".join("1" * 200)], "setup": ["", "a\nb", "#SBATCH -n 9", " # x", "\x1b"],
    "time": ["1\n2", "$x"], "signal": ["", "USR1@x", "USR1\n@3", "USR1@0", "é"],
}  # fmt: skip


@pytest.mark.parametrize("field", REFUSED)
def test_a_value_that_cannot_be_is_refused_by_name(field: str) -> None:
    """The error names the option."""
    many = field in ("bind", "module", "setup", "env", "directive", "for")
    for value in REFUSED[field]:
        with pytest.raises(UsageError, match=f"--{field}"):
            render("slurm", describe({"container": "x.sif", field: [value] if many else value}, ["true"]))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nods = 2", "nods in .*nodes, which is the nearest"), ("time = ", "a TOML file"), ("env = 3", "env in "),
        ("command = [1]", "a training command"), ('command = "train.py --lr 1"', "a list of words"),
        ("env = {A = true}", "env in "),
        *[(f"command = {words}", "command|MODULE") for words in ("[]", '[""]', '["-x"]', '["-m"]', '["a\\u0000b"]')],
    ],
)  # fmt: skip
def test_a_file_or_a_command_that_cannot_be_is_refused(tmp_path: Path, text: str, expected: str) -> None:
    """The error names the key and the file; a command is a script, a program or a module."""
    spec = tmp_path / "job.toml"
    spec.write_text(text)
    with pytest.raises(UsageError, match=expected):
        describe({}, spec=str(spec))
    spec.unlink()
    with pytest.raises(UsageError, match=f"--spec file; saw {spec}: No such file"):
        describe({}, spec=str(spec))


@pytest.mark.parametrize(
    ("said", "same"),
    [
        ({"ntasks": "8"}, {"ntasks-per-node": "8"}), ({"gres": "gpu"}, {"gpus-per-node": "1"}),
        ({"ntasks": "8", "ntasks-per-node": "2"}, {"nodes": "4", "ntasks-per-node": "2"}),
        ({"nodes": "2", "gpus": "a100:8"}, {"nodes": "2", "gpus-per-node": "a100:4"}),
        ({"gpus": "16", "gres": "gpu:8"}, {"nodes": "2", "gpus-per-node": "8"}),
        ({"gres": "gpu:a100"}, {"gpus-per-node": "a100:1"}), ({"gres": "gres/gpu:2"}, {"gpus-per-node": "2"}),
        ({"nodes": "1+2", "gres": "gpu:4+gpu:v100:2"}, {"nodes": "1+2", "gpus-per-node": "4+v100:2"}),
        ({"nodes": "1+2", "ntasks": "6", "gres": "gpu:2"}, {"nodes": "1+2", "ntasks-per-node": "2", "gres": "gpu:2"}),
        ({"nodes": "2", "ntasks": "8", "ntasks-per-node": "4"}, {"nodes": "2", "ntasks-per-node": "4"}),
        ({"nodes": "2", "ntasks": "4", "gpus": "16"}, {"nodes": "2", "ntasks-per-node": "2", "gpus-per-node": "8"}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("scheduler", ["slurm", "pbs", "torque"])
def test_a_total_is_shared_by_the_nodes(scheduler: str, said: dict[str, Any], same: dict[str, Any]) -> None:
    """The script is the one of the values for each node, for every scheduler."""
    assert render(scheduler, describe(said, ["x.py"])) == render(scheduler, describe(same, ["x.py"]))


@pytest.mark.parametrize(
    ("options", "named", "remedy"),
    [
        ({"time": "1", "signal": "USR1@60"}, "--signal after the start", "--signal USR1"),
        ({"nodes": "1+1", "mem": "1G+2G+3G"}, "with 1 or 3 values", ""),
        ({"env": ["UID=3"]}, "--env", "-- env UID=… python3 train.py"),
        ({"launcher": "torchrum"}, "torchrum", "--launcher torchrun"),
        ({"nodes": "2", "ntasks": "7"}, "--ntasks 7", "--ntasks 6 or 8"),
        ({"nodes": "4", "ntasks": "3"}, "--ntasks 3", "--ntasks 4"),
        ({"ntasks": "7", "ntasks-per-node": "2"}, "--ntasks 7", "--ntasks 6 or 8"),
        ({"nodes": "2", "ntasks": "8", "ntasks-per-node": "2"}, "--ntasks 4, as", "leaving --ntasks out"),
        ({"gres": "gpu:4", "gpus-per-node": "2"}, "--gres", "leaving one"),
        ({"ntasks": "1000000"}, "--ntasks", "more --nodes"), ({"ntasks": "x"}, "--ntasks", "1"),
        ({"gres": "gpu:4,shard:2"}, "--gres", "gpu:4"), ({"gres": "lustre:1"}, "--gres", "--directive"),
        ({"gres": "gpu:"}, "--gres", ""), ({"gpus": "a100:4,v100:4"}, "--gpus", "4 or a100:4"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_with_what_works(options: dict[str, Any], named: str, remedy: str) -> None:
    """The error names the option, and a value that works, such as a total that comes out even."""
    with pytest.raises(UsageError) as refused:
        describe(options, ["x.py"])
    assert named in str(refused.value)
    assert remedy in refused.value.remedy


DAY = 86_400


@pytest.mark.parametrize(
    ("read", "wanted"),
    [
        (seconds_of, {"90": 5400, 90: 5400, "5:00": 300, "1:30:00": 5400, "1-12": DAY + 43_200, "1-12:30": DAY + 45_000,
                      "2-01:02:03": 2 * DAY + 3723, "100:00:00": 360_000, "90s": 90, "30m": 1800, "1h30m": 5400,
                      "1.5h": 5400, "2d": 2 * DAY, "1D 2H": DAY + 7200, "0.5s": 1}),
        (mebibytes_of, {"4096": 4096, 4096: 4096, "16G": 16_384, "16gb": 16_384, "16 GiB": 16_384, "1.5T": 1_572_864,
                        "512k": 1, "100MB": 100, "0": 0, 0: 0}),
    ],
)  # fmt: skip
def test_a_time_or_a_size_is_read_in_each_spelling(read: Callable[[object], int], wanted: dict[object, int]) -> None:
    """As sbatch has it, or with units: seconds, and MiB, rounded up."""
    assert {text: read(text) for text in wanted} == wanted


@pytest.mark.parametrize(
    ("read", "text"),
    [
        *((seconds_of, text) for text in ("", "0", "-5", "1:2:3:4", "1-2-3", "h", "1.2.3h", "five", "1e3", "99999-00")),
        *((seconds_of, value) for value in (True, None, "٣")),
        *((mebibytes_of, value) for value in ("", "-0", "-1G", "16X", "G", "1e9", "16 G B", None, 1.5)),
    ],
)
def test_what_is_no_time_or_size_is_refused(read: Callable[[object], int], text: object) -> None:
    """Anything else is an error that shows spellings."""
    with pytest.raises(UsageError, match=r"a duration.*1:30:00|a size.*16G"):
        read(text)


@given(st.integers(1, 3650 * DAY))
def test_a_written_time_is_the_same_when_read(duration: int) -> None:
    """HH:MM:SS, as every scheduler gets it, is the time that it was."""
    assert seconds_of(as_hms(duration)) == duration
