"""A world that cannot form fails on every member, says why, and leaves nothing behind."""

import re
import signal
from collections.abc import Mapping
from pathlib import Path

import pytest
from cluster.hosts import Hosts
from cluster.waiting import until
from forked import Forked
from support.members import KEYED, OTHER_KEY, ended, evaluating, failed, members, one_world

# How the hosts' addresses begin.
AT = r"(?:10\.7[78]\.0\.|fd7[78]::)"
THERE = "arrives here, but ours does not arrive there"
OR_BACK = r"arrives here, but ours does not arrive there, or its TCP connections do not arrive here"


@pytest.mark.parametrize(
    ("deaf", "count", "says"),
    [
        (0, 2, {0: None, 1: rf"multicast from {AT}1 {THERE}"}),
        (
            2,
            3,
            {0: rf"on node1: multicast from {AT}3(, {AT}3)? {OR_BACK}", 1: rf"on node1: multicast from {AT}3", 2: None},
        ),
    ],
    ids=["rank 0 hears nobody", "one of three hears nobody"],
)
def test_multicast_that_goes_one_way_is_named_with_its_direction(
    four: Hosts, deaf: int, count: int, says: Mapping[int, str | None]
) -> None:
    """By each member that receives it; the others cannot know."""
    some = list(four)[:count]
    some[deaf].drop_multicast()
    options = ("--id", "job", "--nodes", str(count), "--via", "multicast", "--timeout", "6")
    late = ["sh", "-c", 'sleep 1; exec "$@"', "sh"]  # who hears nobody asks twice at its start, and then every 30 s

    def argv(rank: int) -> list[str]:
        return [*(late if rank == deaf else []), *evaluating(*options, "--rank", str(rank))]

    results = members(some, argv)
    for rank, says_it in says.items():
        failed(results[rank], 69)
        assert re.search(says_it or "missing|no answer", results[rank].stderr), results[rank].stderr
        assert ("multicast from" in results[rank].stderr) is (says_it is not None)


@pytest.mark.parametrize(("ranked", "missing"), [(False, "1 more"), (True, "rank 3")], ids=["no ranks", "ranks"])
def test_a_member_that_never_comes_fails_all_others_at_the_deadline(
    four: Hosts, tmp_path: Path, missing: str, *, ranked: bool
) -> None:
    """`set -e` stops every script, stderr names what is missing, and nothing is left on the hosts."""
    options = ("--id", "job", "--nodes", "4", "--timeout", "2", "--directory", str(tmp_path))
    results = members(
        list(four)[:3],
        lambda number: evaluating(*options, *(["--rank", str(number)] if ranked else []), then="echo went on"),
    )
    for done in results:
        said = failed(done, 69)
        assert f"3, missing {missing}" in said, said
    assert list(tmp_path.iterdir()) == []


RANKED = "--rank 0;--rank 1;--rank 2"
# name -> what each member adds to `--nodes 3`, what each exports, and what all of them say. Each sits on the next
# host; the fourth comes late, when the others have met.
CONFLICTS = {
    "one rank twice": ("--rank 0;--rank 1;--rank 1;--rank 2", ";;;", "rank 1 claimed by;node2 (;node3 ("),
    "two leaders": ("--rank 0;--rank 0;--rank 1", ";;", "two leaders;node1;node2"),
    "another N": (f"{RANKED} --nodes 4", ";;", "4 from node3 (;same number of nodes"),
    "another N, elected": (";;--nodes 4", ";;", "same number of nodes;node3"),
    "another port": (
        *(RANKED, "MASTER_PORT=23001;MASTER_PORT=23001;MASTER_PORT=23002"),
        "same MASTER_PORT;23001 on node1;23002 on node3 (",
    ),
    "an address on one only": (RANKED, ";;MASTER_ADDR=node1", "same MASTER_ADDR;node1 on node3 ("),
    "a size that does not fit": (RANKED, "WORLD_SIZE=7;WORLD_SIZE=7;WORLD_SIZE=7", "WORLD_SIZE=7;3 slots"),
}


def test_members_that_contradict_each_other_all_fail_and_name_the_values_and_members(
    four: Hosts, forked: Forked
) -> None:
    """All contradictions at once, each a world of its own on the same hosts; the late member is told too."""
    members_of_all = [
        (name, number, words.split(), dict(pair.split("=") for pair in exports.split()))
        for name, (adds, exported, _) in CONFLICTS.items()
        for number, (words, exports) in enumerate(zip(adds.split(";"), exported.split(";"), strict=True))
    ]
    results = forked.run_on(
        [
            (four[number], ["exec", "--id", name, "--nodes", "3", "--timeout", "30", *words, "true"], KEYED | exports)
            for name, number, words, exports in members_of_all
        ],
        delays=[1.5 if number == 3 else 0.0 for _, number, *_ in members_of_all],
    )
    for (name, *_), done in zip(members_of_all, results, strict=True):
        said = failed(done, 76)
        assert not [part for part in CONFLICTS[name][2].split(";") if part not in said], (name, said)


def test_a_run_that_failed_does_not_spoil_the_next_one(four: Hosts) -> None:
    """Its rank 0 is still there to inform late members; a younger member goes on to its own run's leader."""
    three = list(four)[:3]
    options = ("--id", "job", "--nodes", "3", "--timeout", "20", "--via", "master", "--master", "node1")

    def asks(rank: int) -> list[str]:
        return evaluating(*options, "--rank", str(rank))

    # As there may be a member of rank 2, rank 0 stays to tell it.
    leader, *others = [three[number].popen(asks(rank), env=KEYED) for number, rank in enumerate((0, 1, 1))]
    for done in map(ended, others):
        assert "rank 1 claimed by" in failed(done, 76)
    # All look on the first host, where there is only the old one at first.
    second = members(three, asks, delays=[1, 0, 0])
    assert "rank 1 claimed by" in failed(ended(leader), 76)
    one_world(second)


def test_a_member_with_another_key_is_refused_and_the_others_name_its_address(four: Hosts) -> None:
    """It exits with 77, they with 69, for without it they are three of four."""
    results = members(
        list(four),
        lambda number: evaluating("--id", "job", "--nodes", "4", "--rank", str(number), "--timeout", "8"),
        env=lambda number: OTHER_KEY if number == 3 else KEYED,
    )
    for done in results[:3]:
        said = failed(done, 69)
        assert len(re.findall(rf"{AT}4(?: \(node4\))?, which uses this id with another key", said)) == 1, said
        *before, last = said.splitlines()
        assert len(before) <= 2, said  # that a member was refused, and which is awaited; nothing after the deadline
        assert re.fullmatch(rf".*; saw 3, missing rank 3, and another key at {AT}4(, {AT}4)* \(node4\); .*", last)
        assert "--key-file or MINGLE_KEY" in last
        assert "firewall" not in last
    last = failed(results[3], 77).splitlines()[-1]
    assert re.fullmatch(rf".* {AT}1 \(node1\) has for this id; saw another key here \(MINGLE_KEY\); .*", last)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)], ids=["TERM", "INT"])
def test_a_signal_while_waiting_ends_it_at_once_and_cleanly(
    four: Hosts, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    """The exit status is the signal's, the text makes eval fail, and the shared directory is empty again."""
    options = ("--id", "job", "--nodes", "2", "--via", "directory", "--directory", str(tmp_path))
    process = four[0].popen(["mingle", "env", *options], env=KEYED)
    until(lambda: list(tmp_path.glob("*.mingle")))
    process.send_signal(number)
    done = ended(process)
    assert done.returncode == code, done
    assert four[0].run(["bash", "-ec", 'eval "$1"; echo went on', "bash", done.stdout]).stdout == ""
    assert four[0].run(["sh", "-c", 'eval "$1"', "sh", done.stdout]).returncode == code
    assert list(tmp_path.iterdir()) == []
