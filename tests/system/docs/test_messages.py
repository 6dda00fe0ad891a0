"""Every message that docs/ shows is what mingle says, letter by letter but for an ellipsis."""

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import needs
import pytest
from cluster.host import Host
from cluster.hosts import Hosts
from cluster.slurm import SlurmCluster
from documents import BIN, CASES, DOCS, KEYED, TROUBLE, environ, find, plain_words, says, shown, standins
from forked import Forked

Case = dict[str, Any]

NODES = ("-N2", "-w", "node1,node2")
IN_SLURM = {"shell": ("salloc", *NODES), "step": ("srun", *NODES), "tasks": ("srun", *NODES, "--ntasks-per-node=2")}
KEY = "0123456789abcdef" * 4
# These are shown on the page of messages too, which brings them about.
ALSO_SHOWN = {
    ("slurm", "expected to start torchrun on every node of the job"),
    ("slurm", "expected one task on each node; saw 2 (slurm)"),
}
# So many at once on hosts of four CPUs, and on hosts where most of them wait for a deadline.
AT_ONCE, WAITING_AT_ONCE = 4, 8


def block(case: Case) -> str:
    """Return the text that a page shows."""
    return find(case.get("page", TROUBLE), case["mark"]).text


def lacking(case: Case, output: str) -> list[str]:
    """Return what a block shows and the output does not say."""
    return [f"{line}\nis not in:\n{output}" for line in block(case).splitlines() if not says(output, line)]


def said_in_slurm(slurm: SlurmCluster, path: str, case: Case, words: tuple[str, ...]) -> str:
    """Return all that one line writes in Slurm."""
    line = case["typed"].replace("REAL_", f"{BIN}/").replace("{key}", KEY)
    typed = ["bash", "-c", line] if words[0] == "salloc" else ["bash", "-c", f"{' '.join(words)} {line}"]
    argv = [*words, *typed] if words[0] == "salloc" else typed
    done = slurm.controller.run(argv, env={"PATH": path, **KEYED, **environ(case.get("env", ""))}, timeout=120)
    return done.stdout + done.stderr


def test_what_is_said_in_slurm(slurm: SlurmCluster, tmp_path: Path) -> None:
    """The lines run in salloc's shell and in steps of two and four tasks, some with the real torch and accelerate."""
    path, lacks_real = f"{standins(tmp_path)}:/usr/bin:/bin", needs.lacking("torch", "accelerate")
    runs = [(case, words) for kind, words in IN_SLURM.items() for case in CASES[kind]]
    runs = [one for one in runs if not (lacks_real and "REAL_" in one[0]["typed"])]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        outputs = pool.map(lambda one: said_in_slurm(slurm, path, *one), runs)
        lacks = [lack for one, output in zip(runs, outputs, strict=True) for lack in lacking(one[0], output)]
    assert not lacks, "\n".join(lacks)
    needs.skip_for_want_of(lacks_real)


class Order(NamedTuple):
    """One case's line on one host; `words` are those of a line that needs no shell."""

    case: int
    host: Host
    line: str
    words: list[str] | None
    env: dict[str, str]


@pytest.fixture
def said_by(hosts: Callable[..., Hosts], tmp_path: Path, forked: Forked) -> Callable[..., list[str]]:
    """Return what runs each case's line on one or two hosts, with {i} as 0 and 1, and returns all that it writes.

    Lines that need no shell are forks, as root, which run first and all at once.
    """
    made, path = hosts(2), f"{standins(tmp_path)}:/usr/bin:/bin"
    (tmp_path / "nodes").write_text("node1\nnode2\n")
    (tmp_path / "slots").write_text("node1\nnode1\nnode2\nnode2\n")
    (tmp_path / "pe").write_text("node1 1 all.q@node1 UNDEFINED\nnode2 1 all.q@node2 UNDEFINED\n")
    files = {"nodefile": f"{tmp_path}/nodes", "slots": f"{tmp_path}/slots", "pe": f"{tmp_path}/pe"}

    def run(cases: list[Case], at_once: int = WAITING_AT_ONCE) -> list[str]:
        orders = []
        for job, case in enumerate(cases, 21):
            for host in [*made][: 1 if case.get("alone") else 2]:
                number = host.number - 1
                line = case["typed"].replace("{i}", str(number)).replace("{key}", KEY)
                env = {"PATH": path, **KEYED, **environ(case.get("env", ""), i=number, job=job, **files)}
                orders.append(Order(job - 21, host, line, plain_words(line), env))
        plain, in_shell = [one for one in orders if one.words], [one for one in orders if not one.words]
        done = forked.run_on([(one.host, one.words, one.env) for one in plain])
        with ThreadPoolExecutor(at_once) as pool:
            done += pool.map(lambda one: one.host.run(["bash", "-c", one.line], env=one.env, user="alice"), in_shell)
        outputs = [""] * len(cases)
        for one, its in zip([*plain, *in_shell], done, strict=True):
            outputs[one.case] += its.stdout + its.stderr
        return outputs

    return run


def test_what_is_said_on_plain_hosts(said_by: Callable[..., list[str]]) -> None:
    """The lines run without a scheduler."""
    outputs = said_by(CASES["hosts"], at_once=1)  # one of them leaves a key that another must not find
    lacks = [lack for case, output in zip(CASES["hosts"], outputs, strict=True) for lack in lacking(case, output)]
    assert not lacks, "\n".join(lacks)


def quotes(page: str) -> set[str]:
    """Return what the list of usual mistakes quotes of mingle's messages."""
    text = (DOCS / "schedulers" / f"{page}.md").read_text()
    _, _, items = text.partition("## Usual mistakes, and what mingle says\n\n")
    cells = [item.partition(": ")[2] for item in items.partition("\n\n")[0].splitlines() if item.startswith("- ")]
    return {quote for cell in cells for quote in re.findall(r"`([^`]+)`", cell) if " " in quote}


def test_what_the_lists_of_mistakes_quote_is_said(said_by: Callable[..., list[str]]) -> None:
    """The lines run on two hosts with the variables of each scheduler."""
    pages = sorted(page.stem for page in (DOCS / "schedulers").iterdir())
    mistakes = {(case["page"], quote) for case in CASES["mistake"] for quote in case["quotes"]}
    assert {(page, quote) for page in pages for quote in quotes(page)} == mistakes | ALSO_SHOWN
    outputs = said_by(CASES["mistake"])
    said = [(quote, out) for case, out in zip(CASES["mistake"], outputs, strict=True) for quote in case["quotes"]]
    lacks = [f"{quote}:\n{output}" for quote, output in said if not re.search(shown(quote), output)]
    assert not lacks, "\n".join(lacks)
    everything = " ".join(block(case) for kind in (*IN_SLURM, "hosts") for case in CASES[kind])
    for _, quote in ALSO_SHOWN:
        assert quote in everything
