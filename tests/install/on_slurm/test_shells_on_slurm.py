"""What the hooks give to shells that people sit at, and to login shells, on a real Slurm."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hooked_slurm import SHOW, all_idle, installed

if TYPE_CHECKING:
    from cluster.slurm import SlurmCluster

# It stands in for the shell that a person would type in.
SHELL = "/home/alice/shell"


def at_a_terminal(hooked: SlurmCluster, command: str) -> list[dict[str, str | None]]:
    """Run a command as alice at a terminal, with SHELL as her shell, and return what it and its step see."""
    text = f"#!/bin/bash\npython {SHOW}\nsrun --overlap python {SHOW}\n"
    hooked.controller.write(SHELL, text, mode=0o755, user="alice")
    done = hooked.controller.run(["script", "-qec", command, "/dev/null"], user="alice", timeout=60)
    all_idle(hooked)
    lines = [line[line.index("{") :] for line in done.stdout.splitlines() if "{" in line]
    assert lines, done.stdout
    return [json.loads(line) for line in lines]


def unset(seen: dict[str, str | None]) -> bool:
    """Tell whether nothing but Slurm's own is set."""
    return not [name for name, value in seen.items() if value is not None and not name.startswith("SLURM")]


@pytest.mark.parametrize("flags", ["Alloc", "Contain"], ids=["no extern step", "an extern step"])
def test_the_shell_of_salloc_is_a_batch_script(hooked: SlurmCluster, flags: str) -> None:
    """A shell that salloc starts on the first node has no ranks where there are several; its steps have them."""
    options = f'InteractiveStepOptions="--interactive --preserve-env --pty {SHELL}"'
    installed(hooked, "LaunchParameters=use_interactive_step", options, before=(f"PrologFlags={flags}",))
    variables = at_a_terminal(hooked, "salloc -N3")
    shell, steps = variables[0], variables[1:]
    assert (shell["MASTER_ADDR"], shell["NNODES"], shell["NODE_RANK"]) == ("node1", "3", None)
    assert not [name for name in shell if name.startswith("PET_")]
    assert sorted(str(each["PET_NODE_RANK"]) for each in steps) == ["0", "1", "2"]
    assert len({shell["MASTER_PORT"], *(each["MASTER_PORT"] for each in steps)}) == 2


def test_the_shell_of_salloc_on_one_node_is_left_alone(hooked: SlurmCluster) -> None:
    """People try things out there, one process after the other or side by side."""
    options = f'InteractiveStepOptions="--interactive --preserve-env --pty {SHELL}"'
    installed(hooked, "LaunchParameters=use_interactive_step", options)
    assert unset(at_a_terminal(hooked, "salloc -N1")[0])


def test_a_shell_of_srun_is_left_alone(hooked: SlurmCluster) -> None:
    """`srun --pty` runs a step of one task, and so does a step within it."""
    shell, step = at_a_terminal(hooked, f"srun -N1 --pty {SHELL}")
    assert unset(shell)
    assert unset(step)


@pytest.mark.parametrize("first_line", ["#!/bin/bash -l", "#!/bin/sh", "#!/usr/bin/env bash", "#!/usr/bin/env python3"])
def test_a_batch_script_has_them_whatever_runs_it(hooked: SlurmCluster, first_line: str) -> None:
    """A login shell, which reads /etc/profile, and any other interpreter see the variables."""
    text = f"exec(open('{SHOW}').read())" if "python" in first_line else f"python3 {SHOW}"
    job = hooked.submit(f"{first_line}\n{text}\n", "-N2", "-o", "/home/alice/shown", user="alice")
    assert hooked.wait(job) == "COMPLETED"
    seen = json.loads(hooked.controller.outside("/home/alice/shown").read_text())
    assert (seen["MASTER_ADDR"], seen["NNODES"], seen["NODE_RANK"]) == ("node1", "2", None)
