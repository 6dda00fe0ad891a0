"""The page, the table and JSON: all of it in one file, and hosts' text stays text."""

import base64
import hashlib
import html
import json
import re
from pathlib import Path

import fastjsonschema
import pytest
from support.check_reports import FAST, between, fingerprint, only, report

from mingle_hooks import __version__
from mingle_hooks.check import report as reports
from mingle_hooks.check.report import Flow, Host, Pair, report_page, table_lines
from mingle_hooks.cli.template import check_schema

WHEN = "2026-11-26 15:06:44 +0000"
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&{data}"


def inside(page: str, element: str) -> list[str]:
    """Return the text of each script or style of a page."""
    return re.findall(rf"<{element}\b[^>]*>(.*?)</{element}>", page, re.DOTALL)


@pytest.mark.parametrize("count", [1, 70])
def test_the_page_needs_nothing_else(count: int) -> None:
    """It names no address and no file, and a browser may run only its one script and its one style."""
    page = report_page(report(count), None, WHEN)
    assert not re.search(r"<[^>]*\s(src|href|style|onclick|action)\s*=", page)
    (policy,) = re.findall(r'<meta http-equiv="Content-Security-Policy"\s+content="([^"]*)"', page)
    for kind, (text, *_) in (("script", inside(page, "script")[1:]), ("style", inside(page, "style"))):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in html.unescape(policy)
    assert "default-src 'none'" in html.unescape(policy)


def test_text_of_hosts_stays_text_in_the_page() -> None:
    """Names, interfaces and faults of hosts are escaped."""
    made = report(4, only("node2", faults=(HOSTILE,), addresses=()))
    made = made._replace(hosts=(made.hosts[0]._replace(name=HOSTILE, missing=HOSTILE), *made.hosts[1:]))
    made = made._replace(pairs=(), findings=(made.findings[-1]._replace(text=HOSTILE, hosts=("node2",)),))
    page = report_page(made, HOSTILE, WHEN)
    assert re.findall(r"<(script|img)\b", page) == ["script", "script"]
    assert json.loads(inside(page, "script")[0])["hosts"][0] == HOSTILE
    assert not re.search(r"[<>&]", inside(page, "script")[0])


def test_the_page_says_when_for_whom_and_by_which_version() -> None:
    """Each finding has its remedy, and can be filtered by who can do something."""
    page = report_page(report(4, only("node3", missing="not there")), "4711", WHEN)
    for text in (WHEN, "4711", f"mingle {__version__}", "4: node[1-4]", "--exclude=node3", "node3: not there"):
        assert f">{text}<" in page or f"</b> {text}" in page
    assert re.search(r'<li class="bad user"><b>missing</b> .*<p>user: .*</p></li>', page)


def test_long_lists_are_short_in_the_page() -> None:
    """Only the ends of a list of hosts are shown; the last of many findings are folded."""
    made = report(80, lambda its: its._replace(name=f"a{its.name[4:]}b{its.name[4:]}"))
    assert "</b> a1b1 … a80b80: 172.17.0.1 is on each node, " in report_page(made, None, WHEN)
    made = report(80, lambda its: its._replace(missing="off") if int(its.name[4:]) <= 20 else its)
    assert f"<summary>and {len(made.findings) - 16} more</summary>" in report_page(made, None, WHEN)


@pytest.mark.parametrize(
    ("name", "count", "folded"),
    [
        ("node{0}", 8, []),
        ("node{0}", 40, ["37 node[1-3,7-40]"]),
        ("r{1}-n{0}", 42, ["6 r0-n[1-3,7-9]", *(f"10 r{n}-n[{n}0-{n}9]" for n in (1, 2, 3)), "3 r4-n[40-42]"]),
        ("n{0}-ib0", 40, ["37 n1-ib0 … n40-ib0"]),
    ],
)
def test_rows_of_many_hosts_that_are_alike_are_one(name: str, count: int, folded: list[str]) -> None:
    """They are grouped by rack where names tell it; hosts with findings come first."""

    def change(its: Host) -> Host:
        number = int(its.name.removeprefix("node"))
        return its._replace(
            name=name.format(number, number // 10),
            missing="off" if number == 5 else None,
            gpus=7 if number == 4 else 8,
            faults=("GPU 0 has fallen off the bus",) if number == 6 else (),
        )

    page = report_page(report(count, change), None, WHEN)
    heads = re.findall(r'<tr class="all (?:ok|bad)">.*\n <b>(\d+)</b> (.*?)</label>', page)
    assert [" ".join(head) for head in heads] == folded
    states = re.findall(r'<tr class="(\w+)"><td>', page)
    assert (states[:2], len(states)) == (["missing", "bad"], count)


def test_the_page_of_many_hosts_is_small() -> None:
    """For 1,024 hosts it has less than 300 KB."""
    small, large = (len(report_page(report(count), None, WHEN).encode()) for count in (80, 144))
    assert large + (large - small) / 64 * 880 < 300_000


def test_text_of_a_host_is_shown_in_one_line() -> None:
    text = table_lines(report(2, only("node2", faults=("GPU\n\x1b[31m",))))
    assert "BAD  node2: GPU\\n\\x1b[31m" in text


def test_json_holds_all_of_it() -> None:
    """It has the exit status, whom to leave out, and how sure each finding is and who can do something."""
    made = json.loads(json.dumps(report(4, only("node2", fingerprint=fingerprint(gpus="7 H100"))).to_json()))
    assert (made["status"], made["exclude"], len(made["hosts"]), len(made["pairs"])) == (76, ["node2"], 4, 12)
    assert made["hosts"][0]["addresses"][0]["iface"] == "ib0"
    assert [(its["confidence"], its["who"]) for its in made["findings"]] == [
        ("certain", ["admin"]),
        ("certain", ["user"]),
    ]


def test_the_schema_is_that_of_the_json() -> None:
    """It accepts all that a report may have, and nothing else."""
    check = fastjsonschema.compile(check_schema())
    flow = Flow("node1", "node2", FAST, None)
    made = json.loads(json.dumps(report(4, only("node2", missing="off"))._replace(flows=(flow,)).to_json()))
    check(made)
    for wrong in ({"status": "0"}, {"findings": [{**made["findings"][0], "confidence": "sure"}]}, {"hosts": [{}]}):
        with pytest.raises(fastjsonschema.JsonSchemaException):
            check({**made, **wrong})


def test_what_is_not_certain_says_so() -> None:
    """The table and the page show it."""
    made = report(4, pair=between("node1", "node3", there=0, back=0, open_there="timed out", open_back="timed out"))
    text = f"node1 and node3: do not reach each other on {FAST} (possible)"
    assert f"BAD  {text}" in table_lines(made)
    assert text in report_page(made, None, WHEN)


def test_the_table_in_the_documentation_is_one_that_is_made() -> None:
    """It is the same letter by letter, without notes."""

    def change(pair: Pair) -> Pair:
        if pair.network == FAST and pair.other == "node3":
            return pair._replace(there=6)
        return pair._replace(back=7) if pair.network == FAST and pair.one == "node3" else pair

    made = [line for line in table_lines(report(4, pair=change)) if not line.startswith("note ")]
    assert "```text\n" + "\n".join(made) + "\n```\n" in (Path(__file__).parents[3] / "docs/check.md").read_text()


def test_the_table_and_what_the_page_draws_letter_by_letter() -> None:
    """One of the transfers brought nothing, and a host is missing."""

    def change(pair: Pair) -> Pair:
        return pair._replace(rtt_us=1234, there=3) if pair.other == "node2" else pair

    flows = Flow("node1", "node2", FAST, 999), Flow("node2", "node1", FAST, 1000), Flow("node1", "node4", FAST, None)
    made = report(4, only("node3", missing="not there"), pair=change)._replace(flows=flows)
    assert table_lines(made)[:7] == [
        "HOST   STATE    ADDRESS    IFACE  MTU   RTT      LOST  GPUS  SHM     TMP     SENDS       RECEIVES",
        "node1  BAD      10.78.0.1  ib0    4092  1.23 ms  18 %  8     98 GiB  49 GiB  999 Mbit/s  1.0 Gbit/s",
        "node2  BAD      10.78.0.2  ib0    4092  1.23 ms  18 %  8     98 GiB  49 GiB  1.0 Gbit/s  999 Mbit/s",
        "node3  missing  10.78.0.3  ib0    4092  -        -     8     98 GiB  49 GiB  -           -",
        "node4  ok       10.78.0.4  ib0    4092  0.10 ms  0 %   8     98 GiB  49 GiB  -           0 Mbit/s",
        "",
        "BAD  node3: not there",
    ]
    assert table_lines(made)[-2:] == [
        "2 of 4 hosts seem to be at fault, more than a quarter: suspect what they share, and leave none out (--force)",
        "3 of 4 hosts, 3 pairs on 2 networks in 1.0 s: 3 findings",
    ]
    assert reports._page_data(made, {"node1": "a", "node2": "a", "node3": "b", "node4": "b"}) == {
        "hosts": ["node1", "node2", "node3", "node4"],
        "racks": [2, 2],
        "findings": [[2], [0, 1], [0, 1], [0, 1, 3]],
        "mtus": [[4092, 4092, False, 4092], [1500, 1500, False, 1500]],
        "kinds": [(10, there, 10, 10, mtu, "", "", "", "") for mtu in (4092, 1500) for there in (3, 10)],
        "pairs": [[(0, 1, a, 1234, 3, b, 100), (1, 3, b, 100)] for a, b in ((0, 1), (2, 3))],
        "flows": [(0, 1, 0, 999), (1, 0, 0, 1000), (0, 3, 0, None)],
        "some": False,
    }


def test_a_column_of_many_hosts_is_one_cell() -> None:
    """It shows the least and the greatest amount, or all of them as short as possible."""
    for cells, text in (
        (("1.0 GiB", "900 MiB", "-"), "900 MiB … 1.0 GiB"),
        (("2 %", "10 %", "0 %"), "0 % … 10 %"),
        (("0.10 ms", "0.10 ms"), "0.10 ms"),
        (("-", "-"), "-"),
        (("1500", "9 %"), "1500,9 %"),
        (tuple(f"a{number}b{number}" for number in range(1, 8)), "a1b1 … a7b7"),
    ):
        assert reports._in_one(cells) == text


def test_racks_are_told_by_names_of_hosts_if_each_has_four() -> None:
    eight = [f"gpu-r1{rack}-n{number}" for rack in (1, 2) for number in range(1, 5)]
    assert reports._racks(eight) == {name: name[:7] for name in eight}
    for names in (eight[:7], ["n1", "n2", "n3", "n4"]):
        assert reports._racks(names) == dict.fromkeys(names, "")
    made = [(f"r1-n{number}.x1", "r1") for number in range(5)] + [(f"r2-n{number}.x1", "r2") for number in range(5)]
    assert reports._racks([name for name, _ in made]) == dict(made)


def test_of_many_findings_the_first_are_shown_and_of_many_hosts_those_with_any() -> None:
    made = report(40, lambda its: its._replace(missing="off") if int(its.name[4:]) <= 33 else its)
    assert f"and {len(made.findings) - 32} more (--json)" in table_lines(made)
    some, few = (table_lines(report(count, only("node3", faults=("bad",)))) for count in (65, 64))
    assert ([line.split()[0] for line in some[:3]], some[2]) == (
        ["HOST", "node3", "and"],
        "and 64 hosts without findings",
    )
    assert [line.split()[0] for line in few[:65]] == ["HOST", *(f"node{number}" for number in range(1, 65))]


def test_small_amounts() -> None:
    assert [reports.speed_text(mbits) for mbits in (999.4, 1000, 0)] == ["999 Mbit/s", "1.0 Gbit/s", "0 Mbit/s"]
    assert [reports._space_text(free) for free in (1024, 1023, None)] == ["1 GiB", "1023 MiB", None]
