"""Every message that docs/ shows is what mingle says, letter by letter but for an ellipsis."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from subprocess import CompletedProcess
from typing import TypeVar

import messages
import needs
import pytest
from cluster.host import Host
from cluster.hosts import Hosts
from cluster.slurm import SlurmCluster
from documents import BIN, DOCS, KEYED, find, says, shown, standins
from messages import ALSO_SHOWN, IN_SHELL, IN_STEP, IN_TASKS, MISTAKES, ON_HOSTS, Case

Run = TypeVar("Run")

NODES = ("-N2", "-w", "node1,node2")
# So many at once on hosts of four CPUs, and on hosts where most of them wait for a deadline.
AT_ONCE, WAITING_AT_ONCE = 4, 8


def lacking(where: tuple[str, str], output: str) -> list[str]:
    """Return what a block shows and the output does not say."""
    return [f"{line}\nis not in:\n{output}" for line in find(*where).text.splitlines() if not says(output, line)]


def said_in_slurm(slurm: SlurmCluster, path: str, case: Case, words: tuple[str, ...]) -> str:
    """Return all that one line writes in Slurm."""
    line = case.typed.replace("REAL_", f"{BIN}/")
    typed = ["bash", "-c", line] if words[0] == "salloc" else ["bash", "-c", f"{' '.join(words)} {line}"]
    argv = [*words, *typed] if words[0] == "salloc" else typed
    done = slurm.controller.run(argv, env={"PATH": path, **KEYED, **case.env}, timeout=120)
    return done.stdout + done.stderr


def each_once(runs: Sequence[Run], run: Callable[[Run], str], at_once: int) -> list[str]:
    """Return the outputs of what is to be run, in order; what is the same, of which more is shown, is run once."""
    distinct = list({repr(one): one for one in runs}.values())
    with ThreadPoolExecutor(at_once) as pool:
        outputs = dict(zip(map(repr, distinct), pool.map(run, distinct), strict=True))
    return [outputs[repr(one)] for one in runs]


def test_what_is_said_in_slurm(slurm: SlurmCluster, tmp_path: Path) -> None:
    """In salloc's shell, in a step of two tasks, and in one of four; what the real torch and accelerate say, too."""
    path = f"{standins(tmp_path)}:/usr/bin:/bin"
    kinds = (
        (IN_SHELL, ("salloc", *NODES)),
        (IN_STEP, ("srun", *NODES)),
        (IN_TASKS, ("srun", *NODES, "--ntasks-per-node=2")),
    )
    asked = [(where, case, words) for cases, words in kinds for where, case in cases.items()]
    if lacks_real := needs.lacking("torch", "accelerate"):
        asked = [one for one in asked if "REAL_" not in one[1].typed]
    shown_at = [where for where, _, _ in asked]
    runs = [(case, words) for _, case, words in asked]
    outputs = each_once(runs, lambda one: said_in_slurm(slurm, path, *one), AT_ONCE)
    lacks = [lack for where, output in zip(shown_at, outputs, strict=True) for lack in lacking(where, output)]
    assert not lacks, "\n".join(lacks)
    needs.skip_for_want_of(lacks_real)


@pytest.fixture
def two(hosts: Callable[..., Hosts], tmp_path: Path) -> Callable[[Case], str]:
    """Return what runs a line on its hosts, with {i} as 0 and 1, and returns all that it writes."""
    made, path = hosts(2), f"{standins(tmp_path)}:/usr/bin:/bin"
    (tmp_path / "nodes").write_text("node1\nnode2\n")
    (tmp_path / "slots").write_text("node1\nnode1\nnode2\nnode2\n")
    (tmp_path / "pe").write_text("node1 1 all.q@node1 UNDEFINED\nnode2 1 all.q@node2 UNDEFINED\n")
    files = {"NODEFILE": f"{tmp_path}/nodes", "SLOTFILE": f"{tmp_path}/slots", "PE_FILE": f"{tmp_path}/pe"}

    numbers = count(21)

    def run(case: Case) -> str:
        words = {**files, "JOB": str(next(numbers))}

        def env(number: int) -> dict[str, str]:
            told = {name: words.get(value, value).replace("{i}", str(number)) for name, value in case.env.items()}
            return {"PATH": path, **KEYED, **told}

        def on(host: Host) -> CompletedProcess[str]:
            line = case.typed.replace("{i}", str(host.number - 1))
            return host.run(["bash", "-c", line], env=env(host.number - 1), user="alice")

        with ThreadPoolExecutor(2) as pool:
            done = list(pool.map(on, list(made)[: 1 if case.is_alone else 2]))
        return "".join(one.stdout + one.stderr for one in done)

    return run


def test_what_is_said_on_plain_hosts(two: Callable[[Case], str]) -> None:
    """Without a scheduler."""
    lacks = []
    for where, case in ON_HOSTS.items():
        lacks += lacking(where, two(case))
    assert not lacks, "\n".join(lacks)


def quotes(page: str) -> set[str]:
    """Return what the list of usual mistakes quotes of mingle's messages."""
    text = (DOCS / "schedulers" / f"{page}.md").read_text()
    _, _, items = text.partition("## Usual mistakes, and what mingle says\n\n")
    cells = [item.partition(": ")[2] for item in items.partition("\n\n")[0].splitlines() if item.startswith("- ")]
    return {quote for cell in cells for quote in re.findall(r"`([^`]+)`", cell) if " " in quote}


def test_what_the_lists_of_mistakes_quote_is_said(two: Callable[[Case], str]) -> None:
    """With the variables of each scheduler on two hosts; many at once, as most wait for a deadline."""
    pages = sorted(page.stem for page in (DOCS / "schedulers").iterdir())
    assert {(page, quote) for page in pages for quote in quotes(page)} == {*MISTAKES, *ALSO_SHOWN}
    outputs = dict(zip(MISTAKES, each_once([*MISTAKES.values()], two, WAITING_AT_ONCE), strict=True))
    lacks = [f"{where}:\n{output}" for where, output in outputs.items() if not re.search(shown(where[1]), output)]
    assert not lacks, "\n".join(lacks)
    everything = " ".join(find(*where).text for where in messages.SHOWN)
    for _, quote in ALSO_SHOWN:
        assert quote in everything
