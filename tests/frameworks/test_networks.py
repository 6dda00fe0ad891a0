"""An unchanged script on hosts with networks of many kinds, and the table of what `make frameworks` saw of all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cluster.hosts import Hosts
from cluster.layouts import BY_NAME, LAYOUTS
from needs import only_with

from frameworks.networks import ALONE, EACH_TASK, HEAD, PAGE, Trained, busiest, replaced, table, train

# Importing torch takes 1.5 s of a processor, in each process: `make frameworks` tries all of them, torchrun too.
TRIED = "127.0.1.1 for each node's own name, others unknown"


@only_with("torch")
@pytest.mark.parametrize("start", [ALONE, EACH_TASK], ids=["node", "task"])
def test_an_unchanged_script_trains_on_stock_debian_hosts(
    hosts: Callable[..., Hosts], tmp_path: Path, start: str
) -> None:
    """Gloo would take 127.0.1.1 for a host's address; the user says nothing of networks, and no launcher is there."""
    layout = BY_NAME[TRIED]
    trained = train(layout, hosts(len(layout.machines)), tmp_path, (start,))
    assert trained == Trained("", layout.wanted)


def test_each_network_is_in_the_documentation_as_it_was_seen() -> None:
    """With the interface that is wanted there, which is the one that was seen."""
    found = {its.name: Trained("", its.wanted) for its in LAYOUTS}
    assert len(found) == len(LAYOUTS)
    page = PAGE.read_text()
    assert replaced(page, table(LAYOUTS, found)) == page


def test_a_table_takes_the_place_of_the_one_that_stands() -> None:
    """What is before and after it stays; where there is none that is told."""
    page = f"before\n\n{HEAD[0]}\n{HEAD[1]}\n| old | `eth0` |\n\nafter | it\n"
    new = f"{HEAD[0]}\n| new |\n"
    assert replaced(page, new) == f"before\n\n{new}\nafter | it\n"
    with pytest.raises(ValueError, match="no table"):
        replaced("| another | table |\n", new)


def test_what_did_not_train_or_went_another_way_is_told() -> None:
    """By its reason, and by where most went."""
    layout = BY_NAME["1 Gb/s and one RoCE port, by another name on each node"]
    assert Trained("", ("ens1f0np0", "enp9s0")).verdict(layout) == ""
    assert Trained("", ("ens1f0np0", "eno1")).verdict(layout) == (
        "most went over ens1f0np0, eno1, not ens1f0np0, enp9s0"
    )
    assert Trained("1 of 2 trained", ("lo", "lo")).verdict(layout) == "1 of 2 trained"
    assert busiest({"lo": 900, "eth0": 1_000}, {"lo": 950, "eth0": 1_100, "eth1": 60}) == "eth0"
