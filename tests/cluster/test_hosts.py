from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from needs import only_with

from cluster import holder
from cluster.host import INTERRUPTIBLE, is_ending
from cluster.hosts import Hosts
from cluster.paths import is_open, outermost, reachable

if TYPE_CHECKING:
    from collections.abc import Callable

WITH_IPV6 = only_with("IPv6")
# Joins a group on one interface, says that it listens, and prints how many datagrams come in `seconds`.
LISTEN = """
import socket, struct, sys, time
group, iface, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
index = socket.if_nametoindex(iface)
if ":" in group:
    s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    s.bind(("::", 5000))
    join = socket.inet_pton(socket.AF_INET6, group) + struct.pack("@I", index)
    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, join)
else:
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(("", 5000))
    join = struct.pack("=4s4si", socket.inet_aton(group), bytes(4), index)
    s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, join)
print("listening", flush=True)
count, end = 0, time.monotonic() + seconds
while (left := end - time.monotonic()) > 0:
    s.settimeout(left)
    try:
        if s.recv(100) == b"end":
            break
    except TimeoutError:
        break
    count += 1
print(count)
"""
# Sends `count` datagrams to a group, and then "end" often enough that one gets through.
SEND = """
import socket, struct, sys, time
group, iface, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
index = socket.if_nametoindex(iface)
if ":" in group:
    s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
else:
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, struct.pack("=4s4si", bytes(4), bytes(4), index))
for _ in range(count):
    s.sendto(b"hello", (group, 5000))
    time.sleep(0.0005)
for _ in range(20):
    s.sendto(b"end", (group, 5000))
"""
CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=1)"


def heard(hosts: Hosts, *, group: str = "239.255.1.2", iface: str = "eth0", count: int = 1, wait_s: float = 10) -> int:
    """Return how many of `count` datagrams from the first host reach the second one."""
    listener = hosts[1].popen([sys.executable, "-c", LISTEN, group, iface, str(wait_s)])
    assert listener.stdout is not None
    assert listener.stdout.readline() == "listening\n"
    hosts[0].run([sys.executable, "-c", SEND, group, iface, str(count)], check=True)
    out, err = listener.communicate(timeout=wait_s + 10)
    assert err == ""
    return int(out)


def wait_until(is_so: Callable[[], bool]) -> None:
    """Wait for something that comes soon; fail when it does not come within 20 s."""
    deadline = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@WITH_IPV6
def test_each_host_sees_its_own_name_interfaces_and_addresses(hosts: Callable[..., Hosts]) -> None:
    """A host's name, /sys/class/net and addresses are its own."""
    four = hosts(4)
    script = "hostname; cat /etc/hostname; echo $(ls /sys/class/net); ip -oneline address show scope global"
    for number, done in enumerate(four.run_all(["sh", "-c", script]), 1):
        name, file, interfaces, *addresses = done.stdout.splitlines()
        assert (name, file, interfaces) == (f"node{number}", f"node{number}", "eth0 ib0 lo")
        assert [line.split()[1:4:2] for line in addresses] == [
            ["eth0", f"10.77.0.{number}/24"],
            ["eth0", f"fd77::{number}/64"],
            ["ib0", f"10.78.0.{number}/24"],
            ["ib0", f"fd78::{number}/64"],
        ]


@pytest.mark.parametrize("iface", ["eth0", "ib0"])
@pytest.mark.parametrize("ipv6", [False, pytest.param(True, marks=WITH_IPV6)])
def test_hosts_reach_each_other_over_both_networks(hosts: Callable[..., Hosts], iface: str, *, ipv6: bool) -> None:
    """A connection between two hosts works over each network and family."""
    two = hosts(2)
    family = "AF_INET6" if ipv6 else "AF_INET"
    where = f"('{two[0].addr(iface, ipv6=ipv6)}', 5000), family=socket.{family}"
    listen = f"import socket; s = socket.create_server({where})"
    server = two[0].popen([sys.executable, "-c", f"{listen}; print('up', flush=True); s.accept()"])
    assert server.stdout is not None
    assert server.stdout.readline() == "up\n"
    two[1].run([sys.executable, "-c", CONNECT, two[0].addr(iface, ipv6=ipv6), "5000"], check=True)
    assert server.wait(10) == 0


@pytest.mark.parametrize("iface", ["eth0", "ib0"])
@pytest.mark.parametrize("group", ["239.255.1.2", pytest.param("ff15::1234", marks=WITH_IPV6)])
def test_multicast_reaches_the_other_hosts(hosts: Callable[..., Hosts], group: str, iface: str) -> None:
    """A datagram to a group comes to a host that joined it on that interface."""
    assert heard(hosts(2), group=group, iface=iface) == 1


@pytest.mark.parametrize("group", ["239.255.1.2", pytest.param("ff15::1234", marks=WITH_IPV6)])
def test_dropped_multicast_comes_again_when_the_firewall_is_cleared(hosts: Callable[..., Hosts], group: str) -> None:
    """drop_multicast stops datagrams to groups and nothing else, until clear_firewall."""
    two = hosts(2)
    two.drop_multicast()
    assert heard(two, group=group, wait_s=0.5) == 0
    refused = two[0].run([sys.executable, "-c", CONNECT, two[1].addr(ipv6=":" in group), "5001"])
    assert "ConnectionRefusedError" in refused.stderr  # so packets go there and back
    two.clear_firewall()
    assert heard(two, group=group) == 1


def test_lossy_networks_lose_about_the_asked_fraction(hosts: Callable[..., Hosts]) -> None:
    """Of 1,000 datagrams between two hosts with 30 % loss, 600 to 800 arrive: seven standard deviations."""
    two = hosts(2)
    two.lose(0.3)
    assert 600 < heard(two, count=1000) < 800


def test_a_lossy_host_loses_what_it_sends_silently(hosts: Callable[..., Hosts]) -> None:
    """What a host with 30 % loss sends is lost on the way, with no error for the sender."""
    two = hosts(2)
    two[0].lose(0.3)
    assert 600 < heard(two, count=1000) < 800


def test_cut_hosts_do_not_reach_each_other_but_others(hosts: Callable[..., Hosts]) -> None:
    """After a cut the two hosts hear nothing of each other, and the third hears both."""
    three = hosts(3)
    three.cut(three[0], three[1])

    def knock(one: int, other: int) -> str:
        done = three[one].run([sys.executable, "-c", CONNECT, three[other].addr("ib0"), "5001"])
        return done.stderr.splitlines()[-1].partition(":")[0]

    assert [knock(0, 1), knock(1, 0)] == ["TimeoutError", "TimeoutError"]
    assert [knock(0, 2), knock(2, 1)] == ["ConnectionRefusedError", "ConnectionRefusedError"]


def test_a_blocked_port_is_silent_and_the_next_one_refuses(hosts: Callable[..., Hosts]) -> None:
    """block_port drops what comes to that port, and nothing else."""
    two = hosts(2)
    two[1].block_port(5001)
    knock = [sys.executable, "-c", CONNECT, two[1].addr()]
    assert "TimeoutError" in two[0].run([*knock, "5001"]).stderr
    assert "ConnectionRefusedError" in two[0].run([*knock, "5002"]).stderr


def test_hosts_without_ipv4_have_no_ipv4_address_at_all(hosts: Callable[..., Hosts]) -> None:
    """With ipv4=False there is none even on loopback, and IPv6 works."""
    two = hosts(2, ipv4=False)
    assert two[0].run(["ip", "-4", "address"], check=True).stdout == ""
    assert heard(two, group="ff15::1") == 1


def test_alice_is_not_root_and_runs_this_python_and_mingle(hosts: Callable[..., Hosts], alice: str) -> None:
    """A user who is not root has a home that all hosts share, and reaches Python and the project."""
    two = hosts(2)
    done = two[0].run(["sh", "-c", "id -u; pwd; echo hi >here; command -v python"], user=alice)
    assert done.stdout.splitlines() == ["61001", "/home/alice", str(Path(sys.executable).with_name("python"))]
    assert two[1].run(["cat", "/home/alice/here"]).stdout == "hi\n"
    imported = two[1].run([sys.executable, "-c", "import mingle_hooks, click; print('ok')"], user=alice)
    assert (imported.stdout, imported.stderr) == ("ok\n", "")


ADDED = ["alice:x:61001:61001:alice:/home/alice:/bin/bash", "bob:x:61002:61002:bob:/home/bob:/bin/bash"]


@pytest.mark.parametrize(
    ("its", "kept"),
    [
        ("root:x:0:0::/root:/bin/sh\n", "root:x:0:0::/root:/bin/sh\n"),
        ("root:x:0:0::/root:/bin/sh", "root:x:0:0::/root:/bin/sh\n"),
        ("alice:x:1000:1000:Alice:/home/alice:/bin/zsh\nalices:x:1001:1001:::\n", "alices:x:1001:1001:::\n"),
        ("carol:x:61002:61002::/home/carol:/bin/sh\ndan:x:610021:61002::/:/\n", "dan:x:610021:61002::/:/\n"),
        ("# a comment\n\n+\n", "# a comment\n\n+\n"),
    ],
    ids=["nobody", "no newline", "its name", "its number", "other lines"],
)
def test_a_hosts_user_takes_the_place_of_whoever_has_the_name_or_number(its: str, kept: str) -> None:
    assert holder.with_entries(its, ADDED) == kept + "".join(f"{line}\n" for line in ADDED)


def test_a_hosts_user_is_in_no_group_of_the_machines_user_of_that_name() -> None:
    """Else its groups would be others on other machines, and some open doors."""
    its = "sudo:x:27:alice\ndocker:x:999:carol,bob,alices\nalice:x:1000:\nlab:x:61001:carol\nx:x:5:\n"
    added = ["alice:x:61001:", "bob:x:61002:"]
    assert holder.with_entries(its, added) == (
        "sudo:x:27:\ndocker:x:999:carol,alices\nx:x:5:\nalice:x:61001:\nbob:x:61002:\n"
    )


IDENTITY = """
from cluster.hosts import Hosts
with Hosts(1) as one:
    for name in ("alice", "bob"):
        print(one[0].run(["sh", "-c", "id; id -nu"], user=name, check=True).stdout, end="")
"""


def test_the_hosts_users_are_theirs_on_a_machine_that_has_them_too(hosts: Callable[..., Hosts], tmp_path: Path) -> None:
    """With another alice, who is in a group, and with somebody who has bob's number."""
    hosts(1)
    with_alice = Path("/etc/passwd").read_text() + "alice:x:1234:1234::/home/alice:/bin/sh\ncarol:x:61002:61002:::\n"
    (tmp_path / "passwd").write_text(with_alice)
    (tmp_path / "group").write_text(Path("/etc/group").read_text() + "alice:x:1234:\nlab:x:61003:alice,bob\n")
    script = 'mount --bind "$0/passwd" /etc/passwd && mount --bind "$0/group" /etc/group && exec "$@"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, tmp_path, sys.executable, "-c", IDENTITY],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=Path(__file__).parents[1],
    )
    assert done.stdout.splitlines() == [
        "uid=61001(alice) gid=61001(alice) groups=61001(alice)",
        "alice",
        "uid=61002(bob) gid=61002(bob) groups=61002(bob)",
        "bob",
    ], done.stderr


def test_a_home_in_which_the_checkout_lies_is_the_users_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "alice" / "checkout").mkdir(parents=True)
    holder.make_homes({"alice": os.geteuid(), "bob": os.geteuid()}, str(tmp_path))
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == ["alice", "alice/checkout", "bob"]


# Gives /etc anew in a namespace of its own, prints all that is there as octets, and what a file has that was written.
ETC = """
import os, pathlib, sys
sys.path.insert(0, sys.argv[1])
import holder
if sys.argv[2] == "copy":
    def overlay(*_): raise OSError
    holder.overlay = overlay
holder.unshare(holder.CLONE_NEWNS)
with open("/etc/passwd") as passwd: before = passwd.read()
names = sorted(os.listdir("/etc"))
holder.own_etc({"etc_entries": {"passwd": ["x:x:61009:61009:::"]}, "etc_replaced": {"hosts": "127.0.0.1 here"}}, "tag")
after = pathlib.Path("/etc/passwd").read_text()
print(sorted({*os.listdir("/etc"), "hosts"}) == sorted({*names, "hosts"}), after == before + "x:x:61009:61009:::\\n")
print(pathlib.Path("/etc/hosts").read_text(), [*pathlib.Path("/etc/slurm").rglob("*")])
"""


@pytest.mark.parametrize("how", ["overlay", "copy"])
def test_etc_is_as_the_machines_where_its_kernel_has_no_overlays_too(hosts: Callable[..., Hosts], how: str) -> None:
    """With the hosts' users and files in it, and without the machine's Slurm; the machine's own stays as it was."""
    hosts(1)  # skips where there can be none
    before = Path("/etc/passwd").read_text()
    done = subprocess.run(
        [sys.executable, "-c", ETC, str(Path(holder.__file__).parent), how], capture_output=True, text=True, check=True
    )
    assert done.stdout == "True True\n127.0.0.1 here []\n"
    assert Path("/etc/passwd").read_text() == before


def test_temporary_directories_are_each_hosts_own_and_etc_is_shared(
    hosts: Callable[..., Hosts], tmp_path: Path
) -> None:
    """Temporary directories differ between hosts, /etc and tmp_path do not; the machine's stay clean."""
    two = hosts(2)
    two[0].run(
        ["sh", "-c", "for d in /tmp /run /dev/shm /etc /root; do echo x >$d/mingle-was-here; done"],
        check=True,
    )
    assert two[0].files() == {"/tmp/mingle-was-here", "/run/mingle-was-here", "/dev/shm/mingle-was-here"}
    assert two[1].files() == set()
    assert two[1].run(["cat", "/etc/mingle-was-here"]).stdout == "x\n"
    assert not Path("/etc/mingle-was-here").exists()
    two[1].run(["sh", "-c", 'echo y >"$0"', str(tmp_path / "y")], user="alice", check=True)
    assert (tmp_path / "y").read_text() == "y\n"


def test_the_developers_environment_does_not_reach_a_host(
    hosts: Callable[..., Hosts], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command sees a clean environment and what the test gives it."""
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    seen = hosts(1)[0].run(["env"], env={"MINGLE_X": "1"}).stdout
    assert "SLURM" not in seen
    assert "MINGLE_X=1\n" in seen


def test_results_come_in_host_order_whatever_the_delays(hosts: Callable[..., Hosts]) -> None:
    """run_all gives each host its words and environment, and returns the results in host order."""
    three = hosts(3)
    done = three.run_all(
        lambda host: ["sh", "-c", f"echo {host.name} $X"],
        env=lambda host: {"X": host.addr()},
        delays=[0.2, 0.1, 0],
    )
    assert [d.stdout for d in done] == [f"node{i} 10.77.0.{i}\n" for i in (1, 2, 3)]


def test_a_command_that_hangs_is_killed_with_its_group(hosts: Callable[..., Hosts]) -> None:
    """A timeout kills the command and its children, and tells what it wrote."""
    one = hosts(1)
    with pytest.raises(subprocess.TimeoutExpired) as slow:
        one[0].run(["sh", "-c", "echo begun; sleep 1000 & wait"], timeout=0.5)
    assert slow.value.output == "begun\n"
    wait_until(lambda: one.processes() == {})


def test_a_process_that_is_ending_is_left_out(hosts: Callable[..., Hosts]) -> None:
    """Of a process that the kernel is taking away there may be mounts and no line: it does not run any more."""
    one = hosts(1)
    process = one[0].popen(["sleep", "1000"])
    wait_until(lambda: list(one.processes()) == [process.pid])
    assert not is_ending(process.pid)
    process.kill()
    wait_until(lambda: is_ending(process.pid))  # It is a zombie until it is waited for.
    process.wait()
    assert is_ending(process.pid)
    assert one.processes() == {}


def test_signals_reach_the_command_itself(hosts: Callable[..., Hosts]) -> None:
    """A process that popen returns is the command: it takes signals, and its status is its own."""
    script = "trap 'echo caught; exit 7' TERM; echo up; while :; do sleep 0.01; done"
    process = hosts(1)[0].popen(["sh", "-c", script])
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=10)
    assert (out, process.returncode) == ("caught\n", 7)


def test_sixteen_hosts_stand_side_by_side_with_others(hosts: Callable[..., Hosts]) -> None:
    """Two sets with the same addresses do not see each other."""
    many, two = hosts(16), hosts(2)
    assert [d.stdout for d in many.run_all(["hostname"])] == [f"node{i}\n" for i in range(1, 17)]
    many[1].popen(["sleep", "1000"]).kill()
    assert two.processes() == {}
    assert heard(many) == 1


def in_words(text: str) -> set[int]:
    """Return the processes on hosts with this tag."""
    return {pid for pid, tag in holder.tagged().items() if tag == text}


def test_nothing_is_left_after_the_end(hosts: Callable[..., Hosts]) -> None:
    """Leaving the context ends every process, also a daemon that ignores signals, and so all namespaces."""
    hosts(1)  # skips where there can be none
    mounts = Path("/proc/self/mounts").read_text()
    with Hosts(2) as two:
        script = "trap '' HUP TERM INT; setsid sleep 1000 >/dev/null 2>&1 & echo up"
        assert two[0].run(["sh", "-c", script], user="alice").stdout == "up\n"
        two[1].popen(["sleep", "1000"])
        wait_until(lambda: len(in_words(two.tag)) == 5)  # a command enters its host after popen has returned
    assert in_words(two.tag) == set()
    assert Path("/proc/self/mounts").read_text() == mounts


def test_nothing_is_left_after_an_exception(hosts: Callable[..., Hosts]) -> None:
    """An exception inside the context ends the hosts like any other way out of it."""
    hosts(1)
    with pytest.raises(KeyboardInterrupt), Hosts(2) as two:  # noqa: PT012 the context is what is tested
        two[0].popen(["sleep", "1000"])
        raise KeyboardInterrupt
    assert in_words(two.tag) == set()


OWNER = """
import sys, time
from cluster.hosts import Hosts, has_ipv6
hosts = Hosts(2).__enter__()
hosts[0].popen(["sh", "-c", "trap '' HUP TERM INT; setsid sleep 1000 & wait"])
while len(hosts.processes()) < 2:
    time.sleep(0.01)
print(hosts.tag, hosts._holder.pid, flush=True)
time.sleep(1000)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_when_the_owner_is_killed(hosts: Callable[..., Hosts], number: signal.Signals) -> None:
    """The holder ends the hosts when its owner is gone, in whatever way."""
    hosts(1)
    tests = Path(__file__).parents[1]
    argv = [*INTERRUPTIBLE, sys.executable, "-c", OWNER]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=tests) as owner:
        assert owner.stdout is not None
        tag = owner.stdout.readline().split()[0]
        assert len(in_words(tag)) == 5
        owner.send_signal(number)
    wait_until(lambda: in_words(tag) == set())


def test_what_runs_on_a_host_can_be_interrupted_though_the_tests_cannot(hosts: Callable[..., Hosts]) -> None:
    """A shell's `make test &` ignores SIGINT, and a command hands on what it ignores."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        done = hosts(1)[0].run(["grep", "SigIgn", "/proc/self/status"], check=True)
    finally:
        signal.signal(signal.SIGINT, before)
    assert not int(done.stdout.split()[1], 16) & 1 << (signal.SIGINT - 1)


def test_what_a_killed_holder_left_is_ended_by_the_next_hosts(hosts: Callable[..., Hosts]) -> None:
    """With the holder and then the owner killed, the next set of hosts, whosever it is, clears up."""
    hosts(1)
    tests = Path(__file__).parents[1]
    with subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True, cwd=tests) as owner:
        assert owner.stdout is not None
        tag, held = owner.stdout.readline().split()
        Path(f"/proc/{held}/oom_score_adj").read_text()  # it is there
        subprocess.run(["kill", "-KILL", held], check=True)
        owner.kill()
    hosts(1)
    assert in_words(tag) == set()


def test_a_closed_directory_is_covered_so_that_others_reach_what_they_need(tmp_path: Path) -> None:
    """A closed directory above a path is covered; of a closed path the entries are kept."""
    closed = tmp_path / "closed"
    (closed / "open" / "inner").mkdir(parents=True)
    for directory in (tmp_path, *tmp_path.parents):
        if directory.stat().st_uid == os.geteuid() and not is_open(str(directory)):
            directory.chmod(0o755)
    closed.chmod(0o700)
    try:
        assert reachable([str(closed / "open")]) == ([str(closed / "open")], [str(closed)])
        assert reachable([str(closed)]) == ([str(closed / "open")], [str(closed)])
        assert reachable([str(tmp_path)]) == ([str(tmp_path)], [])
    finally:
        closed.chmod(0o755)


def test_paths_below_another_path_are_left_out() -> None:
    """Outermost paths are sorted, each once, and none lies below another."""
    assert outermost(["/b/c", "/a", "/b", "/bc", "/b/c/d", "/a"]) == ["/a", "/b", "/bc"]
