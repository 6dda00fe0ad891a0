"""What a leader answers is read strictly: it ends up in shells, files and frameworks of every member."""

from __future__ import annotations

from typing import Any

import pytest

from mingle_hooks.rendezvous import messages as answer
from mingle_hooks.rendezvous.wire import WireError

ROWS: list[list[Any]] = [[0, "node1", "10.0.0.1", 2], [1, "_n2.site", "fd00::2", 4]]
ANSWER: dict[str, Any] = {
    "epoch": 1,
    "nodes": 2,
    "size": 6,
    "addr": "10.0.0.1",
    "port": 23_000,
    "digest": "0123456789abcdef",
    "rank": 1,
    "offset": 2,
    "own": "10.0.0.2",
    "roster": ROWS,
}


def changed(place: int, row: int, value: object) -> list[list[Any]]:
    """Return the roster with another value in a row."""
    return [[*its[:place], value, *its[place + 1 :]] if rank == row else its for rank, its in enumerate(ROWS)]


def test_an_answer_is_read_as_it_is() -> None:
    """And what does not belong there is left out."""
    assert answer.parse_answer({**ANSWER, "more": "$(reboot)"}) == ANSWER
    assert "roster" not in answer.parse_answer({name: value for name, value in ANSWER.items() if name != "roster"})


@pytest.mark.parametrize(
    "host", ["a;b", "$(reboot)", "`id`", "a b", "-oProxyCommand=x", ".a", "", "a\nb", "a" * 254, 7]
)
@pytest.mark.parametrize("row", [0, 1])
def test_a_roster_s_host_is_a_host_s_name(row: int, host: object) -> None:
    """It becomes a word of a hostfile, and of `ssh` for some launchers."""
    with pytest.raises(WireError, match=r"roster|host"):
        answer.parse_answer({**ANSWER, "roster": changed(1, row, host)})


@pytest.mark.parametrize(
    "rows",
    [
        [],
        ROWS[:1],
        [*ROWS, [2, "node3", "10.0.0.3", 1]],
        [ROWS[1], ROWS[0]],
        [ROWS[0], ROWS[0]],
        [ROWS[0], ROWS[1][:3]],
        [ROWS[0], [*ROWS[1], 1]],
        changed(2, 1, "node2"),
        changed(3, 1, 0),
        changed(0, 1, "1"),
        {"0": ROWS[0], "1": ROWS[1]},
        "0123456789abcdef",
        None,
    ],
)
def test_a_roster_has_a_row_for_each_node(rows: object) -> None:
    """In rank order, each with a rank, a host, an address and slots."""
    with pytest.raises(WireError):
        answer.parse_answer({**ANSWER, "roster": rows})


@pytest.mark.parametrize(
    "change",
    [
        *({"addr": addr} for addr in ("a;b", "$(id)", "a b", "-x", "", "a" * 254, 7, None)),
        *({"nodes": nodes} for nodes in (0, 65_537, True, "2")),
        *({"size": size} for size in (1, 2 * 4096 + 1, 6.0)),
        *({"rank": rank} for rank in (-1, 2, "1")),
        *({"offset": offset} for offset in (-1, 6)),
        *({"port": port} for port in (0, 65_536)),
        *({"epoch": epoch} for epoch in (0, 2**31 + 1)),
        *({"digest": digest} for digest in ("0123", "x" * 16)),
        {"own": "node2"},
    ],
    ids=str,
)
def test_what_is_no_part_of_an_answer_is_refused(change: dict[str, Any]) -> None:
    """Each number within the bounds that the others set for it."""
    with pytest.raises(WireError):
        answer.parse_answer({**ANSWER, **change})
