from __future__ import annotations

import os
import random
import subprocess
from typing import TYPE_CHECKING

import pytest
from needs import need

from mingle_hooks.errors import FactsError
from mingle_hooks.schedulers.facts import MOST_NODES
from mingle_hooks.schedulers.hostlist import LONGEST_HOST, LONGEST_TEXT, expand, fold
from mingle_hooks.schedulers.hostlist import check_host as check

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Expand = Callable[[str], tuple[str, ...]]

LISTS = {
    "node1": ["node1"],
    "node[1-3,7]": ["node1", "node2", "node3", "node7"],
    "node[1,3-4]": ["node1", "node3", "node4"],
    "rack[1-2]n[01-02]": ["rack1n01", "rack1n02", "rack2n01", "rack2n02"],
    "node[05-07]-ib": ["node05-ib", "node06-ib", "node07-ib"],
    "gpu-a[3],gpu-b[1-2]": ["gpu-a3", "gpu-b1", "gpu-b2"],
    "n[08-11]": ["n08", "n09", "n10", "n11"],
    "n[9-011]": ["n9", "n10", "n11"],
    "n[001,2]": ["n001", "n2"],
    "n[5,3,3]": ["n5", "n3", "n3"],
    "[1-3]": ["1", "2", "3"],
    "  a\t,, b,\n": ["a", "b"],
    "tux[1-2][1-2][1-2]": [f"tux{n}" for n in (111, 112, 211, 212, 121, 122, 221, 222)],
    "r[1-2]n[3-4]c[5-6]": [f"r{r}n{n}c{c}" for n in (3, 4) for r in (1, 2) for c in (5, 6)],
    "host_1.example.com": ["host_1.example.com"],
}


@pytest.mark.parametrize("text", LISTS)
def test_expands_what_slurm_writes(text: str) -> None:
    """Brackets, padding, suffixes, single hosts and separators mean what they mean to Slurm."""
    assert expand(text) == tuple(LISTS[text])


@pytest.mark.parametrize(
    "text",
    [
        *("n[1-2", "n1]", "n[1-2]]", "[", "]", "n[[1]]", "n[1[2-3]]", "a[1],b[2", "n[1]]["),
        *(
            "n[]",
            "n[1,]",
            "n[,1]",
            "n[1-]",
            "n[-1]",
            "n[1--2]",
            "n[3-1]",
            "n[10-9]",
            "n[1-9],a[3-1]",
            "n[ 1]",
            "n[1x2]",
        ),
        *("", " ", ",,,", "-x", "--help", ".x", "n[a-b]", "a+b", "a/b", "a:1", "a;b", "a=b", "(null)"),
        *(
            "n\0",
            "n\x1b[1]",
            "n\r",
            "n\u00a01",
            "n[\u0663]",
            "n\u0663",
            "h\u00f6st",
            "$(id)",
            "`id`",
            "a'b",
            'a"b',
        ),
    ],
)
def test_refuses_what_names_no_hosts(text: str) -> None:
    """Brackets that do not match, empty or reversed ranges and other characters are errors of the facts."""
    with pytest.raises(FactsError):
        expand(text)


@pytest.mark.parametrize(
    "text",
    [
        "n[0-999999999]",
        "n[1-" + "9" * 30 + "]",
        "n[1-65536],m",
        "n[1-40000],m[1-40000]",
        "n" + "[0-9]" * 30,
        "n" + "[0-9]" * 20_000,
        "n[0-9]" * 20_000,
        "n[" + "9" * 100_000 + "]",
        "x" * 1_000_000,
        "[" * 1_000_000,
        "[1," * 40_000,
        "x" * (LONGEST_HOST + 1),
        "x" * LONGEST_HOST + "[1-2]",
        "x" * 100_000 + "[1-60000]",
        "n" + "[1]" * 40_000,
    ],
    ids=lambda text: f"{text[:12]}...{len(text)}",
)
def test_refuses_more_hosts_than_there_can_be_before_it_makes_them(text: str) -> None:
    """A billion hosts, ranges beyond all machines and megabytes of text are refused."""
    with pytest.raises(FactsError):
        expand(text)


def test_expands_as_many_hosts_as_it_may() -> None:
    """The largest list that is allowed is complete, and one host more is refused."""
    assert len(expand(f"n[1-{MOST_NODES}]")) == MOST_NODES
    assert expand("n[1-3]", most=3) == ("n1", "n2", "n3")
    with pytest.raises(FactsError):
        expand("n[1-4]", most=3)


def test_says_what_is_wrong_in_one_line_without_repeating_all_of_it() -> None:
    """The message for a megabyte of text fits a terminal."""
    with pytest.raises(FactsError) as caught:
        expand("[" * LONGEST_TEXT)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_a_checked_host_is_returned_as_it_is() -> None:
    """`check` lets host names through and nothing else."""
    assert check("node1-ib.example.com") == "node1-ib.example.com"
    with pytest.raises(FactsError):
        check("node1;id")


FOLDED = {
    "node[1-3,7]": ["node7", "node1", "node3", "node2"],
    "node[2-3,7]": ["node2", "node3", "node7", "node7"],
    "n[9-11]": ["n10", "n9", "n11"],
    "n[08-11]": ["n08", "n09", "n10", "n11"],
    "n[1,01]": ["n01", "n1"],
    "rack1n[01-02],rack2n01": ["rack1n02", "rack1n01", "rack2n01"],
    "node[5-6]-ib": ["node5-ib", "node6-ib"],
    "n1,ctl": ["ctl", "n1"],
    "": [],
}


@pytest.mark.parametrize("folded", FOLDED)
def test_folds_hosts_for_messages(folded: str) -> None:
    """Runs of numbers are ranges, in numeric order, each host once, padding kept."""
    assert fold(FOLDED[folded]) == folded


def _random_list(random_: random.Random) -> str:
    """Return a list as scontrol 22.05 accepts it: there, nothing may follow an element's last bracket."""

    def number() -> str:
        return f"{random_.randrange(130):0{random_.randrange(1, 5)}d}"

    def interval() -> str:
        first = number()
        return first if random_.random() < 0.4 else f"{first}-{int(first) + random_.randrange(5)}"

    def bracket() -> str:
        return f"[{','.join(interval() for _ in range(random_.randrange(1, 3)))}]"

    def element() -> str:
        text = random_.choice(["n", "gpu-a", "rack", "a.b", "n_", "x7", "node0"])
        for _ in range(random_.randrange(3)):
            text += bracket() + random_.choice(["", "-", "n", ".x", "0"])
        return text if text[-1] != "]" and "[" not in text else text + bracket()

    # Newlines are left out: scontrol 22.05 then gives some hosts several times.
    separators = [",", ", ", ",,", " ", "\t"]
    return "".join(element() + random_.choice(separators) for _ in range(random_.randrange(1, 4)))


@pytest.fixture
def scontrol(tmp_path: Path) -> Expand:
    """Call the real `scontrol show hostnames`, which needs a configuration but no controller."""
    need("scontrol")
    configuration = tmp_path / "slurm.conf"
    configuration.write_text(
        "ClusterName=x\nSlurmctldHost=localhost\nNodeName=node[1-4] CPUs=1\nPartitionName=p Nodes=ALL\n"
    )

    def hostnames(text: str) -> tuple[str, ...]:
        environ = {**os.environ, "SLURM_CONF": str(configuration)}
        command = ["scontrol", "show", "hostnames", text]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True, timeout=60)
        return tuple(done.stdout.split())

    return hostnames


def test_agrees_with_scontrol_on_generated_lists(scontrol: Expand) -> None:
    """Lists made at random expand to the same hosts in the same order as `scontrol show hostnames` gives."""
    seed = random.SystemRandom().randrange(2**32)
    print("seed", seed)  # noqa: T201 - shown when the test fails
    random_ = random.Random(seed)
    for _ in range(150):
        text = _random_list(random_)
        assert expand(text) == scontrol(text), repr(text)


@pytest.mark.parametrize("text", [text for text in LISTS if "-ib" not in text])
def test_agrees_with_scontrol_on_the_known_lists(scontrol: Expand, text: str) -> None:
    """The expectations of this file are scontrol's own."""
    assert scontrol(text) == tuple(LISTS[text])


def test_scontrol_reads_a_folded_list_back(scontrol: Expand) -> None:
    """What `fold` prints can be given to Slurm's commands."""
    hosts = sorted({f"n{number:02d}" for number in range(0, 300, 7)})
    assert sorted(scontrol(fold(hosts))) == hosts


def test_expand_reads_a_folded_list_back() -> None:
    """Folding loses no host and invents none."""
    random_ = random.Random(2)
    for _ in range(200):
        hosts = set(expand(_random_list(random_)))
        assert set(expand(fold(sorted(hosts)))) == hosts
