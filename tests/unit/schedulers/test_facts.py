"""Variables of a scheduler, and the switches above a node as Slurm and the metadata services of clouds name them."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

import pytest

from mingle_hooks.errors import FactsError
from mingle_hooks.rendezvous.messages import LONGEST_TOPOLOGY
from mingle_hooks.schedulers import facts
from mingle_hooks.schedulers.facts import Variables

# Variables of a scheduler: which one is taken, and which is as good as none.


def test_the_first_that_is_set_to_something_is_taken_and_remembered() -> None:
    """Shells can hardly tell a variable that is set to nothing from one that is not set."""
    read = Variables({"EMPTY": "", "SECOND": "7", "THIRD": "8"})
    assert read.number("nodes", "MISSING", "EMPTY", "SECOND", "THIRD") == 7
    assert read.sources == {"nodes": "SECOND"}
    assert read.number("rank", "MISSING", "EMPTY") is None


@pytest.mark.parametrize(("secret", "seen"), [({}, "a b"), ({"secret": True}, "something else")])
def test_a_bad_value_is_shown_unless_it_is_secret(secret: dict[str, bool], seen: str) -> None:
    read = Variables({"NAME": "a b"})
    with pytest.raises(FactsError, match=seen) as found:
        read.text("job_id", "NAME", pattern="[a-z]+", **secret)
    assert ("a b" in str(found.value)) is not bool(secret)


def test_numbers_and_texts_are_read_up_to_their_bounds() -> None:
    """A value that is one too many is an error that names its variable."""
    read = Variables(
        {"A": "-12", "B": "12", "TEXT": "x" * 255, "LONG": "x" * 256, "HOST": "n_1", "ADDRESS": "fe80::1%3"}
    )
    assert (read.number("nodes", "B", least=12, most=12), read.digits("step", "B", longest=2)) == (12, "12")
    assert (read.digits("step", "A", longest=2, signed=True), read.raw("a", "C", "B")) == ("-12", "12")
    assert (read.text("job_id", "TEXT", pattern="x+"), read.host("host", "HOST")) == ("x" * 255, "n_1")
    assert read.host("leader_hosts", "ADDRESS", address=True) == "fe80::1%3"
    for reads in (
        lambda: read.number("nodes", "B", least=13), lambda: read.number("nodes", "B", most=11),
        lambda: read.digits("step", "B", longest=1), lambda: read.digits("step", "A", longest=2),
        lambda: read.text("job_id", "LONG", pattern="x+"), lambda: read.host("host", "ADDRESS"),
    ):  # fmt: skip
        with pytest.raises(FactsError, match=r"^expected (B|A|LONG|ADDRESS) with "):
            reads()


@pytest.mark.parametrize(
    ("fields", "expected", "seen", "remedy"),
    [
        ({"nodes": 0}, "1 to 65536 nodes", "0 (x)", "--nodes N"),
        ({"nodes": 65_537, "sources": {"nodes": "N"}}, "1 to 65536 nodes", "65537 (N)", "--nodes N"),
        ({"node_rank": 2, "nodes": 2}, "a node rank of 0 to 1", "2 (x)", "--rank R"),
        ({"node_rank": -1}, "a node rank of 0 or more", "-1 (x)", "--rank R"),
        ({"task_rank": 2, "task_count": 2}, "a task rank of 0 to 1", "2 (x)", "--scope node"),
        ({"local_rank": 1, "local_count": 1}, "a local rank of 0 to 0", "1 (x)", "--scope node"),
        ({"slot": 1, "local_count": 1}, "a slot of 0 to 0", "1 (x)", "--scope node"),
    ],
)
def test_facts_that_contradict_each_other_are_refused(
    fields: dict[str, Any], expected: str, seen: str, remedy: str
) -> None:
    with pytest.raises(FactsError) as caught:
        facts.JobFacts("x", **fields)
    assert (caught.value.expected, caught.value.seen, caught.value.remedy) == (expected, seen, remedy)
    with pytest.raises(FactsError):
        facts.JobFacts("x")._replace(**fields)


def test_facts_are_alike_whatever_their_sources_and_may_be_of_one_node() -> None:
    """Of a job's facts those of this process stay; what may be a secret is in no text."""
    found = facts.JobFacts(
        "x", "7", "s", 1, 2, 1, ("a", "b"), ("a",), 3, 4, 1, 2, nodes_of_job=3, tasks_per_node=(2, 2), is_batch=True,
        cookie="secret", sources={"nodes": "N"},
    )  # fmt: skip
    alone = facts.JobFacts("x", "7", "s", 1, 1, 0, (), (), 1, 2, 1, 2, tasks_per_node=(2,), cookie="secret")
    assert found.by_itself() == alone
    assert facts.JobFacts("x", nodes=2).by_itself() == facts.JobFacts("x", nodes=1, node_rank=0)
    other = found._replace(sources={})
    assert (found == other, hash(found) == hash(other), found == alone, found == tuple(found)) == (
        True,
        True,
        False,
        False,
    )
    assert "cookie" not in repr(found)
    assert repr(facts.JobFacts("x", "7")).startswith(
        "JobFacts(scheduler='x', job_id='7', step='', restarts=0, nodes=None"
    )
    assert facts.of_slots("x", "7", {"a": 2, "b": 1}, {}) == facts.JobFacts(
        "x", "7", nodes=2, hosts=("a", "b"), leader_hosts=("a",), task_count=3, tasks_per_node=(2, 1)
    )
    assert facts.of_slots("x", "7", {}, {}) == facts.JobFacts("x", "7")


# The switches above a node, as Slurm and the metadata services of clouds name them.


def slurm(address: str, pattern: str) -> str:
    """Return the switches from Slurm's variables."""
    environ = {"SLURM_TOPOLOGY_ADDR": address, "SLURM_TOPOLOGY_ADDR_PATTERN": pattern}
    return facts.switches_above("topology", environ)


@pytest.mark.parametrize(
    ("address", "pattern", "switches"),
    [
        ("spine.leaf1.node2", "switch.switch.node", "spine/leaf1"),
        ("s[1-2].leaf1.node2", "switch.switch.node", "s[1-2]/leaf1"),
        *((f"b1.{name}", "block.node", "b1") for name in ("node1", "node1.cluster.example")),
        *((name, "node", "") for name in ("node1", "node1.cluster.example")),
        ("", "", ""),
        ("node1", "switch.node", ""),
    ],
)
def test_slurms_switches_are_before_the_nodes_name(address: str, pattern: str, switches: str) -> None:
    """A tree and blocks; without a plugin there are none."""
    assert slurm(address, pattern) == switches


def test_a_long_or_odd_name_is_replaced_by_its_hash() -> None:
    """What a member tells is bounded, and the same for the same switch."""
    long = ".".join("ab/\n"[number % 4] * 300 for number in range(20))
    switches = slurm(f"{long}.node1", ".".join(["switch"] * 20 + ["node"]))
    assert len(switches) <= LONGEST_TOPOLOGY
    assert switches.isprintable()
    assert len(set(switches.split("/"))) == 4
    assert slurm(f"{'a' * 24}.{'a' * 25}.n", "s.s.n").split("/") == ["a" * 24, sha256(b"a" * 25).hexdigest()[:16]]
    assert slurm(".".join("abcdefghijn"), ".".join("s" * 10 + "n")) == "a/b/c/d/e/f/g/h"
    assert switches == slurm(f"{long}.node2", ".".join(["switch"] * 20 + ["node"]))


def test_the_schedulers_order_needs_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default costs nothing."""
    monkeypatch.setattr(facts, "METADATA", ("", 0))
    environ = {"SLURM_TOPOLOGY_ADDR": "a.b", "SLURM_TOPOLOGY_ADDR_PATTERN": "s.node"}
    assert facts.switches_above("scheduler", environ) == ""


@contextmanager
def serving(
    monkeypatch: pytest.MonkeyPatch, *parts: bytes, wait: threading.Event | None = None
) -> Iterator[list[bytes]]:
    """Answer one request with these bytes on an address that stands in for the service's; yield what was asked."""
    requests: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setattr(facts, "METADATA", server.getsockname())

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                requests.append(connection.recv(4096))
                for part in parts:
                    connection.sendall(part)
                if wait is not None and not wait.wait(10):
                    requests.append(b"and waited")

        thread = threading.Thread(target=serve)
        thread.start()
        yield requests
        thread.join()


def ok(body: object) -> bytes:
    """Return a plain answer."""
    return b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n" + json.dumps(body).encode()


GOOGLE = {"cluster": "c1", "block": "3e3056e23cf91a5cb4a8621b6a52c100", "subBlock": "s1", "host": "h"}
ORACLE = {
    "customerHPCIslandId": "ocid1.hpcisland.oc1.iad." + "a" * 60,
    "customerHostId": "ocid1.computebaremetalhost.oc1.iad." + "b" * 60,
    "customerLocalBlock": "ocid1.computelocalblock.oc1.iad." + "c" * 60,
    "customerNetworkBlock": "ocid1.computenetworkblock.oc1.iad." + "d" * 60,
}
GET_GOOGLE = b"GET /computeMetadata/v1/instance/attributes/physical_host_topology HTTP/1.0\r\n"


@pytest.mark.parametrize(
    ("order", "body", "get", "header"),
    [
        ("gcp", GOOGLE, GET_GOOGLE, b"\r\nMetadata-Flavor: Google\r\n"),
        ("oci", ORACLE, b"GET /opc/v2/host/rdmaTopologyData HTTP/1.0\r\n", b"\r\nAuthorization: Bearer Oracle\r\n"),
    ],
)
def test_a_clouds_service_names_three_levels(
    monkeypatch: pytest.MonkeyPatch, order: str, body: dict[str, str], get: bytes, header: bytes
) -> None:
    """With the header without which it names none, in pieces, long names too; no proxy's variable matters."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with serving(monkeypatch, ok(body)[:90], ok(body)[90:]) as requests:
        switches = facts.switches_above(order, {}).split("/")
    assert len(switches) == 3
    assert order == "oci" or switches[::2] == ["c1", "s1"]
    assert requests[0].startswith(get)
    assert header in requests[0]


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.0 404 Not Found\r\n\r\n{}",
        b"HTTP/1.0 302 Found\r\nLocation: http://example.com\r\n\r\n" + b'{"cluster":"c"}',
        b"HTTP/1.0 200 OK\r\n\r\nnot JSON",
        b"HTTP/1.0 200 OK\r\n\r\n[1]",
        ok({"cluster": 1}),
        ok({"block": "b"}),
        b"HTTP/1.0 200 OK\r\n\r\n" + b" " * 20_000 + b'{"cluster":"c"}',
    ],
)
def test_any_other_answer_is_none(monkeypatch: pytest.MonkeyPatch, answer: bytes) -> None:
    """It is followed nowhere, and read no further than it is long."""
    with serving(monkeypatch, answer):
        assert facts.switches_above("gcp", {}) == ""


def test_who_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that is slow, or drips, costs no more than one that is not there."""
    monkeypatch.setattr(facts, "WITHIN_S", 0.05)
    end = threading.Event()
    with serving(monkeypatch, b"HTTP/1.0 200 OK\r\n", wait=end) as requests:
        assert facts.switches_above("gcp", {}) == ""
        end.set()
    assert len(requests) == 1
