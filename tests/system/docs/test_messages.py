"""Every message that docs/ shows is what mingle says, letter by letter but for an ellipsis."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from subprocess import CompletedProcess

import messages
import needs
import pytest
from cluster.host import Host
from cluster.hosts import Hosts
from cluster.slurm import SlurmCluster
from documents import BIN, DOCS, KEYED, find, says, shown, standins
from messages import ALSO_SHOWN, IN_SHELL, IN_STEP, IN_TASKS, MISTAKES, ON_HOSTS, Case

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


def test_what_is_said_in_slurm(slurm: SlurmCluster, tmp_path: Path) -> None:
    """In salloc's shell, in a step of two tasks, and in one of four; what the real torch and accelerate say, too."""
    path, lacks_real = f"{standins(tmp_path)}:/usr/bin:/bin", needs.lacking("torch", "accelerate")
    kinds = (
        (IN_SHELL, ("salloc", *NODES)),
        (IN_STEP, ("srun", *NODES)),
        (IN_TASKS, ("srun", *NODES, "--ntasks-per-node=2")),
    )
    runs = [(where, case, words) for cases, words in kinds for where, case in cases.items()]
    runs = [one for one in runs if not (lacks_real and "REAL_" in one[1].typed)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        outputs = pool.map(lambda one: said_in_slurm(slurm, path, *one[1:]), runs)
        lacks = [lack for one, output in zip(runs, outputs, strict=True) for lack in lacking(one[0], output)]
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
            variables = {name: words.get(value, value).replace("{i}", str(number)) for name, value in case.env.items()}
            return {"PATH": path, **KEYED, **variables}

        def on(host: Host) -> CompletedProcess[str]:
            line = case.typed.replace("{i}", str(host.number - 1))
            return host.run(["bash", "-c", line], env=env(host.number - 1), user="alice")

        with ThreadPoolExecutor(2) as pool:
            done = list(pool.map(on, list(made)[: 1 if case.is_alone else 2]))
        return "".join(one.stdout + one.stderr for one in done)

    return run


def test_what_is_said_on_plain_hosts(two: Callable[[Case], str]) -> None:
    """Without a scheduler."""
    lacks = [lack for where, case in ON_HOSTS.items() for lack in lacking(where, two(case))]
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
    mistakes = {(page, quote) for page, quoted, _ in MISTAKES for quote in quoted}
    assert {(page, quote) for page in pages for quote in quotes(page)} == mistakes | ALSO_SHOWN
    with ThreadPoolExecutor(WAITING_AT_ONCE) as pool:
        outputs = list(pool.map(two, [case for *_, case in MISTAKES]))
    said = [(page, quote, output) for (page, its, _), output in zip(MISTAKES, outputs, strict=True) for quote in its]
    lacks = [f"{page}: {quote}:\n{output}" for page, quote, output in said if not re.search(shown(quote), output)]
    assert not lacks, "\n".join(lacks)
    everything = " ".join(find(*where).text for where in messages.SHOWN)
    for _, quote in ALSO_SHOWN:
        assert quote in everything
