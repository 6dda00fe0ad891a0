"""An unchanged training script under plain torchrun, on the network that was asked for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from members import KEYED, evaluating, is_on, variables
from needs import only_with

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.hosts import Hosts

TRAIN = Path(__file__).with_name("train.py")


@only_with("torch")
def test_an_unchanged_script_under_plain_torchrun_reduces_over_the_second_network(hosts: Callable[..., Hosts]) -> None:
    """`torchrun train.py` with no flags on two hosts of IPv6 alone, whose first network carries nothing at all."""
    both = hosts(2, ipv4=False)
    for host in both:
        host._add('iifname "eth0" drop')
    options = ("--id", "job", "--nodes", "2", "--for", "torchrun,gloo", "--iface", "ib0")
    results = both.run_all(evaluating(*options, then=f"env\ntorchrun {TRAIN}"), env=KEYED, timeout=200)
    found = [variables(done) for done in results]
    assert sorted(its["RANK"] for its in found) == ["0", "1"]
    assert [(its["SIZE"], its["TOTAL"]) for its in found] == [("2", "3")] * 2
    assert {its["GLOO_SOCKET_IFNAME"] for its in found} == {"ib0"}
    assert len({its["AT"] for its in found}) == 1
    assert is_on(found[0]["AT"], "fd78::/64")
