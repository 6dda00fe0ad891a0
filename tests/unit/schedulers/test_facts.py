"""Variables of a scheduler, its host lists, node files and counts, and the switches above a node."""

import json
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from needs import need

from mingle_hooks.errors import FactsError
from mingle_hooks.rendezvous.messages import LONGEST_TOPOLOGY
from mingle_hooks.schedulers import facts
from mingle_hooks.schedulers.facts import LONGEST_HOST, LONGEST_TEXT, MOST_NODES, Variables, expand, expand_counts, fold

# Variables of a scheduler: which one is taken, and which is as good as none.


def test_the_first_variable_that_is_not_empty_is_read_up_to_its_bounds() -> None:
    """A value that is one too many is an error that names its variable, and shows the value unless it is secret."""
    read = Variables(
        {"": "", "A": "-12", "B": "12", "TEXT": "x" * 255, "LONG": "x" * 256, "HOST": "n_1", "ADDRESS": "fe80::1%3"}
    )
    assert (read.number("nodes", "MISSING", "", "B", "A"), read.number("rank", "MISSING", "")) == (12, None)
    assert read.sources == {"nodes": "B"}
    found = (
        read.number("nodes", "B", least=12, most=12), read.digits("step", "B", longest=2),
        read.digits("step", "A", longest=2, signed=True), read.text("job_id", "TEXT", pattern="x+"),
        read.host("host", "HOST"), read.host("leader_hosts", "ADDRESS", address=True),
    )  # fmt: skip
    assert found == (12, "12", "-12", "x" * 255, "n_1", "fe80::1%3")
    for reads in (
        lambda: read.number("nodes", "B", least=13), lambda: read.number("nodes", "B", most=11),
        lambda: read.digits("step", "B", longest=1), lambda: read.digits("step", "A", longest=2),
        lambda: read.text("job_id", "LONG", pattern="x+"), lambda: read.host("host", "ADDRESS"),
    ):  # fmt: skip
        with pytest.raises(FactsError, match=r"^expected (B|A|LONG|ADDRESS) with "):
            reads()
    for is_secret, seen in ((False, "'n_1'"), (True, "something else")):
        with pytest.raises(FactsError) as caught:
            read.text("job_id", "HOST", pattern="[a-z]+", secret=is_secret)
        assert caught.value.seen == seen


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
        ({"nodes": 2, "hosts": ("a",), "sources": {"nodes": "N", "hosts": "H"}}, "2 hosts (N)", "1 (H)",
         "the same command with --nodes, or unset the variable that is left over from another job"),
        ({"nodes": 2, "hosts": ("a", "b", "c")}, "2 hosts (x)", "3 (x)",
         "the same command with --nodes, or unset the variable that is left over from another job"),
    ],
)  # fmt: skip
def test_facts_that_contradict_each_other_are_refused(
    fields: dict[str, Any], expected: str, seen: str, remedy: str
) -> None:
    with pytest.raises(FactsError) as caught:
        facts.JobFacts("x", **fields)
    assert (caught.value.expected, caught.value.seen, caught.value.remedy) == (expected, seen, remedy)
    with pytest.raises(FactsError):
        facts.JobFacts("x")._replace(**fields)


def test_facts_may_be_of_one_node() -> None:
    """Of a job's facts those of this process stay; what may be a secret is in no text."""
    found = facts.JobFacts(
        "x", "7", "s", 1, 2, 1, ("a", "b"), ("a",), 3, 4, 1, 2, nodes_of_job=3, tasks_per_node=(2, 2), is_batch=True,
        cookie="secret",
    )  # fmt: skip
    alone = facts.JobFacts("x", "7", "s", 1, 1, 0, (), (), 1, 2, 1, 2, tasks_per_node=(2,), cookie="secret")
    assert found.by_itself() == alone
    assert facts.JobFacts("x", nodes=2).by_itself() == facts.JobFacts("x", nodes=1, node_rank=0)
    assert "secret" not in repr(found)
    assert repr(found).startswith("JobFacts(scheduler='x', job_id='7', step='s', restarts=1, nodes=2")
    assert facts.of_slots("x", "7", {"a": 2, "b": 1}, {}) == facts.JobFacts(
        "x", "7", nodes=2, hosts=("a", "b"), leader_hosts=("a",), task_count=3, tasks_per_node=(2, 1)
    )
    assert facts.of_slots("x", "7", {}, {}) == facts.JobFacts("x", "7")


# The switches above a node, as Slurm and the metadata services of clouds name them.


def slurm(address: str, pattern: str, order: str = "topology") -> str:
    """Return the switches from Slurm's variables."""
    environ = {"SLURM_TOPOLOGY_ADDR": address, "SLURM_TOPOLOGY_ADDR_PATTERN": pattern}
    return facts.switches_above(order, environ)


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
    """A tree and blocks; without a plugin there are none, nor with the scheduler's order."""
    assert (slurm(address, pattern), slurm(address, pattern, "scheduler")) == (switches, "")


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


@contextmanager
def serving(monkeypatch: pytest.MonkeyPatch, *parts: bytes) -> Iterator[list[bytes]]:
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

        thread = threading.Thread(target=serve)
        thread.start()
        yield requests
        thread.join()


def ok(body: object) -> bytes:
    """Return a plain answer."""
    return b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n" + json.dumps(body).encode()


GOOGLE = {"cluster": "c1", "block": "b1", "subBlock": "s1", "host": "h"}
ORACLE = {"customerHPCIslandId": "c1", "customerHostId": "h", "customerLocalBlock": "s1", "customerNetworkBlock": "b1"}
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
    """With the header without which it names none, and in pieces."""
    with serving(monkeypatch, ok(body)[:90], ok(body)[90:]) as requests:
        assert facts.switches_above(order, {}) == "c1/b1/s1"
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
    """The connection waits to be accepted."""
    monkeypatch.setattr(facts, "WITHIN_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setattr(facts, "METADATA", silent.getsockname())
        assert facts.switches_above("gcp", {}) == ""


# Host lists, node files and counts as schedulers write them.

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


COUNTS = {"2": [2], "2(x3),1": [2, 2, 2, 1], "1,2(x2),4": [1, 2, 2, 4], "8(x1)": [8]}


@pytest.mark.parametrize("text", [*LISTS, *COUNTS])
def test_expands_what_slurm_writes(text: str) -> None:
    """Brackets, padding, suffixes, single hosts and separators mean what they mean to Slurm; `2(x3)` is three twos."""
    assert (expand(text) if text in LISTS else expand_counts(text)) == tuple((LISTS | COUNTS)[text])


NO_HOSTS = (
    *("n[1-2", "n1]", "n[1-2]]", "[", "]", "n[[1]]", "n[1[2-3]]", "a[1],b[2", "n[1]][", "n[]", "n[1,]", "n[,1]"),
    *("n[1-]", "n[-1]", "n[1--2]", "n[3-1]", "n[10-9]", "n[1-9],a[2-1]", "n[ 1]", "n[1x2]"),
    *("", " ", ",,,", "-x", "--help", ".x", "n[a-b]", "a+b", "a/b", "a:1", "a;b", "a=b", "(null)"),
    *("n\0", "n\x1b[1]", "n\r", "n\u00a01", "n[\u0663]", "n\u0663", "h\u00f6st", "$(id)", "`id`", "a'b", 'a"b'),
)
TOO_MANY_HOSTS = (
    *("n[0-999999999]", "n[1-" + "9" * 30 + "]", "n[1-65536],m", "n[1-40000],m[1-40000]", "n" + "[0-9]" * 30),
    *("n" + "[0-9]" * 20_000, "n[0-9]" * 20_000, "n[" + "9" * 100_000 + "]", "x" * 1_000_000, "[" * 1_000_000),
    *("[1," * 40_000, "x" * (LONGEST_HOST + 1), "x" * LONGEST_HOST + "[1-2]", "x" * 100_000 + "[1-60000]"),
    "n" + "[1]" * 40_000,
)
NO_COUNTS = (
    *("", ",", "2,", "x", "-1", "2(x", "2(x3", "2(x0)", "2(3)", "2 (x3)", "+2", "\u0662", "$(id)", "2\n"),
    *("2(x)", "12345678", "1(x65537)", "1(x9999999)", "9" * 100_000, "1," * 100_000, "1(x60000),1(x60000)"),
)


@pytest.mark.parametrize(
    ("read", "text"),
    [*((expand, text) for text in (*NO_HOSTS, *TOO_MANY_HOSTS)), *((expand_counts, text) for text in NO_COUNTS)],
    ids=lambda given: f"{given[:12]!r}...{len(given)}" if isinstance(given, str) else given.__name__,
)
def test_refuses_anything_else(read: Callable[[str], object], text: str) -> None:
    """Brackets that do not match, reversed ranges, and, before they are made, more hosts than there can be."""
    with pytest.raises(FactsError):
        read(text)


def test_expands_as_many_hosts_as_it_may() -> None:
    """The largest list that is allowed is complete, and one host more is refused, in a line that fits a terminal."""
    assert len(expand(f"n[1-{MOST_NODES}]")) == MOST_NODES
    assert expand("n[1-3]", most=3) == ("n1", "n2", "n3")
    assert expand("x" * (LONGEST_HOST - 2) + "[01-02]") == ("x" * 251 + "01", "x" * 251 + "02")
    assert expand(f"n[{'9' * 17}8-{'9' * 18}]") == (f"n{'9' * 17}8", f"n{'9' * 18}")
    assert len(expand_counts(f"9999999,1(x{MOST_NODES - 1})")) == MOST_NODES
    for text in ("n[1-4]", "[" * LONGEST_TEXT):
        with pytest.raises(FactsError) as caught:
            expand(text, most=3)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 1000


FOLDED = {
    "node[1-3,7]": ["node7", "node1", "node3", "node2"],
    "node[2-3,7]": ["node2", "node3", "node7", "node7"],
    "n[9-11]": ["n10", "n9", "n11"],
    "n[08-11]": ["n08", "n09", "n10", "n11"],
    "n[1,01]": ["n01", "n1"],
    "rack1n[01-02],rack2n01": ["rack1n02", "rack1n01", "rack2n01"],
    "node[5-6]-ib": ["node5-ib", "node6-ib"],
    "n1,ctl": ["ctl", "n1"],
    f"n1[{'2' * 17}2-{'2' * 17}3]": [f"n1{'2' * 17}3", f"n1{'2' * 18}"],
    "[1-2],1a,a[3,5]b": ["2", "1", "1a", "a5b", "a3b"],
    "": [],
}


@pytest.mark.parametrize("folded", FOLDED)
def test_folds_hosts_for_messages(folded: str) -> None:
    """Runs of numbers are ranges, in numeric order, each host once, padding kept."""
    assert fold(FOLDED[folded]) == folded


# Lists as scontrol 22.05 accepts them: nothing follows an element's last bracket, and newlines are left out, with which
# it gives some hosts several times.
NAME = r"(n|gpu-a|rack|a\.b|n_|x7|node0)"
BRACKET = r"\[(I(,I)?)\]".replace("I", "(0{0,2}[0-9]{1,3}|0{0,3}[0-4]-0{0,3}[5-9])")
ELEMENT = rf"({NAME}|{NAME}({BRACKET}(-|n|\.x|0)?)?{BRACKET})"
GENERATED = st.from_regex(rf"{ELEMENT}((, ?|,,| |\t){ELEMENT}){{0,2}}", fullmatch=True)


@pytest.fixture
def scontrol(tmp_path: Path) -> Expand:
    """Call the real `scontrol show hostnames`, which needs a configuration but no controller."""
    need("scontrol")
    conf = tmp_path / "slurm.conf"
    conf.write_text("ClusterName=x\nSlurmctldHost=localhost\nNodeName=node[1-4] CPUs=1\nPartitionName=p Nodes=ALL\n")

    def hostnames(text: str) -> tuple[str, ...]:
        environ = {**os.environ, "SLURM_CONF": str(conf)}
        command = ["scontrol", "show", "hostnames", text]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True, timeout=60)
        return tuple(done.stdout.split())

    return hostnames


def test_agrees_with_scontrol_on_known_and_folded_lists(scontrol: Expand) -> None:
    """The same hosts in the same order as `scontrol show hostnames` gives, which also reads what `fold` prints."""
    for text, hosts in LISTS.items():
        assert "-ib" in text or scontrol(text) == tuple(hosts)
    hosts = sorted({f"n{number:02d}" for number in range(0, 300, 7)})
    assert sorted(scontrol(fold(hosts))) == hosts


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(GENERATED, min_size=1, max_size=20))
def test_agrees_with_scontrol_on_any_list(scontrol: Expand, texts: list[str]) -> None:
    """Several brackets, padding, and text between brackets; `fold` loses no host and invents none."""
    hosts = expand(",between,".join(texts))  # in one call: each takes 0.1 s
    assert hosts == scontrol(",between,".join(texts))
    assert set(expand(fold(hosts))) == set(hosts)


def written(directory: Path, content: bytes) -> str:
    """Write a node file and return its path."""
    (directory / "nodefile").write_bytes(content)
    return str(directory / "nodefile")


def test_hosts_are_in_the_files_order_with_a_slot_for_each_line_or_the_files_number(tmp_path: Path) -> None:
    """In Grid Engine's a host with slots in two queues has two lines, and fields after the slots do not matter."""
    slots = facts.read_nodefile(written(tmp_path, b"node2\nnode1\nnode2\n\n node1 \r\nnode3"))
    assert list(slots.items()) == [("node2", 2), ("node1", 2), ("node3", 1)]
    path = written(tmp_path, b"n1 4 all.q@n1 UNDEFINED\nn2 2 all.q@n2 <NULL>\nn1 1 other.q@n1 0,1\n")
    assert list(facts.read_pe_hostfile(path).items()) == [("n1", 5), ("n2", 2)]


GARBAGE = (
    *(b"", b"\n \n", b"$(id) 1\n", b"n1;n2 1\n", b"-x 1\n", b"\x00\xff\xfe 1\n", "n\u0663 1\n".encode()),
    *(b"n1\x1b[2J 1\n", b"x" * 254 + b" 1\n", bytes(range(256)) * 9, b"x y z\nx y z\n"),
)
NO_SLOTS = (b"n1\n", b"n1 x q\n", b"n1 -1 q\n", b"n1 0 q\n", b"n1 99999999 q\n", b"n1 \xd9\xa3")
READS = [*((facts.read_nodefile, text) for text in GARBAGE)]
READS += [(facts.read_pe_hostfile, text) for text in (*GARBAGE, *NO_SLOTS)]


@pytest.mark.parametrize(("read", "content"), READS)
def test_refuses_garbage_and_names_the_file(read: Callable[[str], object], content: bytes, tmp_path: Path) -> None:
    """A file that is empty, holds anything but hosts, or for Grid Engine slots that are no number from 1."""
    with pytest.raises(FactsError, match="nodefile"):
        read(written(tmp_path, content))


def test_refuses_what_is_no_readable_file(tmp_path: Path) -> None:
    """A missing file, a directory, a named pipe, a device, an impossible path and a huge file end at once."""
    pipe, huge = tmp_path / "pipe", tmp_path / "huge"
    os.mkfifo(pipe)
    huge.touch()
    os.truncate(huge, 1 << 40)
    for path in (tmp_path / "missing", tmp_path, pipe, "/dev/zero", "nul\0", "", "\ud800", huge):
        with pytest.raises(FactsError, match="bytes" if path is huge else None):
            facts.read_nodefile(str(path))


def test_refuses_too_many_hosts(tmp_path: Path) -> None:
    """One host more than there can be is refused; as many are read."""
    most = b"".join(b"n%d\n" % number for number in range(65_536))
    assert len(facts.read_nodefile(written(tmp_path, most))) == 65_536
    with pytest.raises(FactsError, match="hosts"):
        facts.read_nodefile(written(tmp_path, most + b"other\n"))
