"""The page, the table and JSON: all of it in one file, and hosts' text stays text."""

import base64
import hashlib
import html
import json
import re
from pathlib import Path

import pytest
from support.check_reports import FAST, between, fingerprint, only, report

from mingle_hooks.check.report import Pair, report_page, table_lines

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&{data}"


def inside(page: str, element: str) -> list[str]:
    """Return the text of each script or style of a page."""
    return re.findall(rf"<{element}\b[^>]*>(.*?)</{element}>", page, re.DOTALL)


@pytest.mark.parametrize("count", [1, 4, 70])
def test_the_page_needs_nothing_else(count: int) -> None:
    """No address, no file; a browser is told to run its one script and its one style, and nothing else."""
    page = report_page(report(count))
    assert not re.search(r"<[^>]*\s(src|href|style|onclick|action)\s*=", page)
    (policy,) = re.findall(r'<meta http-equiv="Content-Security-Policy"\s+content="([^"]*)"', page)
    for kind, (text, *_) in (("script", inside(page, "script")[1:]), ("style", inside(page, "style"))):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in html.unescape(policy)
    assert "default-src 'none'" in html.unescape(policy)


def test_text_of_hosts_stays_text_in_the_page() -> None:
    """Their names, their addresses' interfaces, and what they say is wrong."""
    made = report(4, only("node2", faults=(HOSTILE,), addresses=()))
    made = made._replace(hosts=(made.hosts[0]._replace(name=HOSTILE, missing=HOSTILE), *made.hosts[1:]))
    made = made._replace(pairs=(), findings=(made.findings[-1]._replace(text=HOSTILE, hosts=("node2",)),))
    page = report_page(made)
    assert re.findall(r"<(script|img)\b", page) == ["script", "script"]
    assert json.loads(inside(page, "script")[0])["hosts"][0] == HOSTILE
    assert not re.search(r"[<>&]", inside(page, "script")[0])


def test_each_way_is_there_once_with_what_is_known_of_it() -> None:
    """From whom, to whom, network, sent, arrived, microseconds, packet, expected packet, TCP, Mbit/s."""
    made = report(3, pair=between(there=4, mtu=1500))
    data = json.loads(inside(report_page(made), "script")[0])
    assert (data["hosts"], data["networks"][0], data["some"]) == (["node1", "node2", "node3"], FAST, False)
    ways = {(way[0], way[1]): way[3:] for way in data["ways"] if way[2] == 0}
    assert len(ways) == 6
    assert ways[0, 1] == [10, 4, 100, 1500, 4092, "", None]
    assert ways[1, 0] == [10, 10, 100, 1500, 4092, "", None]


def test_the_table_has_a_line_for_each_host_and_a_verdict() -> None:
    """Of many hosts only those that something was found about."""
    text = table_lines(report(4, only("node3", missing="not there")))
    assert text[0].split()[:3] == ["HOST", "STATE", "ADDRESS"]
    assert text[3].split()[:2] == ["node3", "missing"]
    assert "BAD  node3: not there" in text
    assert text[-2:] == ["--exclude=node3", "3 of 4 hosts, 3 pairs on 2 networks in 1.0 s: 1 finding"]
    assert "all is well" in table_lines(report(4))[-1]
    many = table_lines(report(70, only("node3", fingerprint=fingerprint(gpus="1 H100"))))
    assert [line.split()[0] for line in many[:3]] == ["HOST", "node3", "and"]


def test_text_of_a_host_is_shown_in_one_line() -> None:
    """NameLookups and faults are others' text."""
    text = table_lines(report(2, only("node2", faults=("GPU\n\x1b[31m",))))
    assert "BAD  node2: GPU\\n\\x1b[31m" in text


def test_json_holds_all_of_it() -> None:
    """With the exit status, and whom to leave out."""
    made = json.loads(json.dumps(report(4, only("node2", fingerprint=fingerprint(gpus="7 H100"))).to_json()))
    assert (made["status"], made["exclude"], len(made["hosts"]), len(made["pairs"])) == (76, ["node2"], 4, 12)
    assert made["hosts"][0]["addresses"][0]["iface"] == "ib0"


def test_the_table_in_the_documentation_is_one_that_is_made() -> None:
    """Letter by letter, without notes."""

    def change(pair: Pair) -> Pair:
        if pair.network == FAST and pair.other == "node3":
            return pair._replace(there=6)
        return pair._replace(back=7) if pair.network == FAST and pair.one == "node3" else pair

    made = [line for line in table_lines(report(4, pair=change)) if not line.startswith("note ")]
    assert "```text\n" + "\n".join(made) + "\n```\n" in (Path(__file__).parents[3] / "docs/check.md").read_text()
