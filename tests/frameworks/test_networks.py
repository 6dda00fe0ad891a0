"""An unchanged script on hosts with networks of many kinds, and the table of what `make frameworks` saw of all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cluster.hosts import Hosts
from cluster.layouts import BY_NAME, LAYOUTS
from needs import only_with

from frameworks.networks import ALONE, PAGE, Trained, replaced, table, train

# Importing torch takes 1.5 s of a processor, in each process: `make frameworks` tries all of them, torchrun too.
TRIED = "127.0.1.1 for each node's own name, others unknown"


@only_with("torch")
def test_an_unchanged_script_trains_on_stock_debian_hosts(hosts: Callable[..., Hosts], tmp_path: Path) -> None:
    """Gloo would take 127.0.1.1 for a host's address; the user says nothing of networks, and no launcher is there."""
    layout = BY_NAME[TRIED]
    assert train(layout, hosts(len(layout.machines)), tmp_path, (ALONE,)) == Trained("", layout.wanted)


def test_each_network_is_in_the_documentation_as_it_was_seen() -> None:
    """With the interface that is wanted there, which is the one that was seen."""
    found = {its.name: Trained("", its.wanted) for its in LAYOUTS}
    assert len(found) == len(LAYOUTS)
    page = PAGE.read_text()
    assert replaced(page, table(LAYOUTS, found)) == page
