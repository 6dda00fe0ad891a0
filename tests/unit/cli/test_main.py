"""A command line becomes a call, and an error one line and a code, which only one of a step's tasks prints."""

import io
import os
import stat
from types import SimpleNamespace
from unittest import mock

import pytest

from mingle_hooks.cli import main
from mingle_hooks.errors import ConflictError, MissingError, UsageError

ERROR = {
    "usage": UsageError("a", "b", "c"),
    "rank 0": ConflictError("a", "b", "c"),
    "printed": MissingError("a", "b", "c"),
}
ERROR["usage"].is_about_arguments = ERROR["rank 0"].repeats_rank_0 = ERROR["printed"].is_printed = True
TASK = {"SLURM_STEP_ID": "0", "SLURM_LOCALID": "1", "SLURM_PROCID": "1"}


@pytest.mark.parametrize(
    ("kind", "changes", "parent", "is_printed"),
    [
        ("usage", {}, "slurmstepd\n", False),
        ("usage", {"_": "/usr/bin/srun"}, "slurmstepd\n", False),
        ("usage", {"_": "/bin/bash"}, "slurmstepd\n", True),
        ("usage", {}, "bash\n", True),
        ("usage", {}, "", True),  # /proc hides it
        *(("usage", {name: None}, "slurmstepd\n", True) for name in TASK),
        *(("usage", {name: "0"}, "slurmstepd\n", True) for name in ("SLURM_PROCID", "SLURM_HET_SIZE")),
        *(("rank 0", {name: None}, "bash\n", name != "SLURM_PROCID") for name in TASK),
        *((kind, {"file": "yes"}, "slurmstepd\n", True) for kind in ("usage", "rank 0")),
        ("other", {}, "slurmstepd\n", True),
        ("printed", dict.fromkeys(TASK), "bash\n", False),
    ],
)
def test_one_of_many_processes_prints_what_all_have_to_say(
    monkeypatch: pytest.MonkeyPatch,
    kind: str, changes: dict[str, str | None], parent: str, *, is_printed: bool,
) -> None:  # fmt: skip
    """Task 0, if srun has started all with the same arguments and shows what they print; or rank 0."""
    error = ERROR.get(kind) or UsageError("a", "b", "c")
    said: list[str] = []
    monkeypatch.setattr(main, "write_stderr", said.append)
    monkeypatch.setattr(os, "environ", {name: its for name, its in {**TASK, **changes}.items() if its is not None})
    mode = stat.S_IFREG if "file" in changes else stat.S_IFIFO
    its, real = SimpleNamespace(st_mode=mode), os.fstat
    monkeypatch.setattr(os, "fstat", lambda number: its if number == 2 else real(number))
    opened = {f"/proc/{os.getppid()}/comm": io.StringIO(parent)} if parent else {}
    monkeypatch.setattr(main, "open", lambda path: opened.get(path) or os.stat("/no/such/file"), raising=False)
    monkeypatch.setattr(main, "_run", mock.Mock(side_effect=error))
    assert main.run(["exec"]) == error.exit_code
    assert said == ["mingle: expected a; saw b; try c\n"] * is_printed
