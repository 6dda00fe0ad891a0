"""Who probes whom."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import pytest

from mingle_hooks.check import rules as blame
from mingle_hooks.check import session as rounds


@pytest.mark.parametrize("count", [2, 3, 4, 16, 33, 64])
def test_each_pair_meets_once_and_nobody_is_in_two_probes_at_once(count: int) -> None:
    """Each begins about as often as not."""
    made = rounds.probe_rounds(count)
    pairs = [tuple(sorted(pair)) for its in made for pair in its]
    assert sorted(pairs) == sorted(combinations(range(count), 2))
    assert all(max(Counter(host for pair in its for host in pair).values()) == 1 for its in made)
    begun = Counter(one for its in made for one, _ in its)
    assert all(abs(begun[host] - (count - 1) / 2) <= 1 for host in range(count))


@pytest.mark.parametrize("count", [65, 256, 1000, 4096])
def test_of_many_each_meets_eight_and_all_hang_together(count: int) -> None:
    """Any two are a few steps apart, so that a network in two parts shows."""
    made = rounds.probe_rounds(count)
    pairs = {tuple(sorted(pair)) for its in made for pair in its}
    degrees = Counter(host for pair in pairs for host in pair)
    assert set(degrees.values()) == {8} == {rounds.other_hosts(count)}
    near: dict[int, set[int]] = {}
    for one, other in pairs:
        near.setdefault(one, set()).add(other)
        near.setdefault(other, set()).add(one)
    reached, edge = {0}, {0}
    while edge:
        edge = {other for host in edge for other in near[host]} - reached
        reached |= edge
    assert len(reached) == count


@pytest.mark.parametrize("count", [2, 3, 4, 5, 16, 17])
def test_each_sends_to_two_others_and_receives_from_two_one_at_a_time(count: int) -> None:
    """So that a slow host is told from its neighbours."""
    made = rounds.transfer_rounds(count)
    pairs = [pair for its in made for pair in its]
    assert len(set(pairs)) == len(pairs)
    assert (
        set(Counter(a for a, _ in pairs).values()) == set(Counter(b for _, b in pairs).values()) == {min(2, count - 1)}
    )
    assert all(max(Counter(host for pair in its for host in pair).values()) == 1 for its in made)


def ways(*pairs: str) -> set[tuple[str, str]]:
    return {(pair[0], pair[1]) for pair in pairs}


def test_blame_takes_the_fewest_causes() -> None:
    """A host and a pair beside it; a pair alone; what two hosts have with everybody."""
    tested = [(a, b) for a in "abcdef" for b in "abcdef" if a != b]
    into_a = {(b, "a") for b in "bcdef"}
    found = blame.find_causes(into_a | ways("cd", "dc"), tested)
    assert [(its.direction, its.hosts) for its in found] == [("in", ("a",)), ("pair", ("c", "d"))]
    assert [(its.direction, its.hosts) for its in blame.find_causes(ways("ef"), tested)] == [("way", ("e", "f"))]
    two = {way for way in tested if "a" in way or "f" in way}
    assert [(its.direction, its.hosts) for its in blame.find_causes(two, tested)] == [
        ("both", ("a",)),
        ("both", ("f",)),
    ]
    assert [its.direction for its in blame.find_causes(tested, tested)] == ["all"]
    assert blame.find_causes((), tested) == ()
    three = [(a, b) for a in "abc" for b in "abc" if a != b]
    assert [(its.direction, its.hosts) for its in blame.find_causes(ways("bc", "cb"), three)] == [("pair", ("b", "c"))]
