"""What other tests rely on: the faults of test hosts are real, nothing is left behind, and every skip is counted."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from cluster import holder
from cluster.hosts import Hosts
from cluster.paths import PROJECT
from cluster.slurm import SlurmCluster
from cluster.waiting import until

TESTS = PROJECT / "tests"
# Joins a group, says that it listens, and prints how many datagrams come until "end", at most in `seconds`.
LISTEN = """
import socket, struct, sys
group, seconds = sys.argv[1], float(sys.argv[2])
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("", 5000))
s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, struct.pack("=4s4si", socket.inet_aton(group), bytes(4), 0))
s.settimeout(seconds)
print("listening", flush=True)
count = 0
try:
    while s.recv(100) != b"end":
        count += 1
except TimeoutError:
    pass
print(count)
"""
SEND = """
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for word, count in ((b"hello", int(sys.argv[2])), (b"end", 20)):
    for _ in range(count):
        s.sendto(word, (sys.argv[1], 5000))
        time.sleep(0.0005)
"""
CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=1)"


def received(hosts: Hosts, count: int = 1, wait_s: float = 10) -> int:
    """Return how many of `count` multicast datagrams from the first host reach the second one."""
    group = "239.255.1.2"
    for host in hosts:
        host.run(["ip", "route", "replace", "239.0.0.0/8", "dev", "eth0"])
    listener = hosts[1].popen([sys.executable, "-c", LISTEN, group, str(wait_s)])
    assert listener.stdout is not None
    assert listener.stdout.readline() == "listening\n"
    hosts[0].run([sys.executable, "-c", SEND, group, str(count)], check=True)
    return int(listener.communicate(timeout=wait_s + 10)[0])


def connect(hosts: Hosts, one: int, other: int) -> str:
    """Return the error of a connection to a port where nobody listens."""
    done = hosts[one].run([sys.executable, "-c", CONNECT, hosts[other].addr(), "5001"])
    return done.stderr.splitlines()[-1].partition(":")[0]


def test_the_faults_of_hosts_are_real_and_end_when_the_firewall_is_cleared(hosts: Callable[..., Hosts]) -> None:
    """A test with a fault that is none would pass. Of 1,000 datagrams 600 to 800 arrive: seven standard deviations."""
    three, refused = hosts(3), "ConnectionRefusedError"
    three.drop_multicast()
    assert (received(three, wait_s=0.5), connect(three, 0, 1)) == (0, refused)
    for lossy in (three, three[0]):
        three.clear_firewall()
        lossy.lose(0.3)
        assert 600 < received(three, 1000) < 800
    three.clear_firewall()
    three[0].unplug()
    assert [connect(three, *ends) for ends in ((0, 1), (1, 0), (2, 1))] == ["TimeoutError"] * 2 + [refused]
    three.clear_firewall()
    assert received(three) == 1


OWNER = """
import time
from cluster.hosts import Hosts
hosts = Hosts(2).__enter__()
hosts[0].popen(["sh", "-c", "trap '' HUP TERM INT; setsid sleep 1000 & wait"])
while len(hosts.processes()) < 2:
    time.sleep(0.01)
print(hosts.tag, flush=True)
time.sleep(1000)
"""


def test_no_process_is_left_when_the_owner_of_hosts_is_killed(hosts: Callable[..., Hosts]) -> None:
    """A process that ignores signals ends too."""
    hosts(1)  # skips where there can be none
    argv = [sys.executable, "-c", OWNER]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=TESTS) as owner:
        assert owner.stdout is not None
        tag = owner.stdout.readline().strip()
        owner.kill()
    until(lambda: tag not in holder.tagged().values())


def test_make_cluster_runs_what_comes_on_a_pipe(slurm: SlurmCluster) -> None:
    """It runs as alice on the first host, returns her shell's status and leaves nothing behind."""
    assert slurm.sinfo()
    argv = [sys.executable, "-m", "cluster"]
    with subprocess.Popen(argv, stdin=-1, stdout=-1, stderr=-1, text=True, cwd=TESTS) as process:
        out, err = process.communicate("srun -N4 hostname | sort\nid -un\nls\nexit 3\n", timeout=120)
    assert out.split() == ["node1", "node2", "node3", "node4", "alice", "train.py"]
    assert process.returncode == 3
    assert "You are alice on node1" in err
    assert [tag for tag in holder.tagged().values() if tag.split(":")[1] == str(process.pid)] == []
    unknown = subprocess.run([*argv, "mallory"], capture_output=True, text=True, check=False, cwd=TESTS)
    assert (unknown.returncode, "'mallory'" in unknown.stderr) == (64, True)


RUN = """
import os, socket, subprocess, threading
import needs, pytest
def test_thread(): threading.Timer(3, print).start()
def test_process(): os.posix_spawn('/bin/sleep', ['sleep', '3'], {})
def test_socket(): globals()['s'] = socket.socket()
def test_nothing(): pass
def test_skipped(): needs.need('sh', 'a-moon')
@needs.only_with('a-moon')
def test_skipped_too(): pass
runs = []
@pytest.mark.flaky(reruns=1)
def test_late():
    runs.append(1)
    assert len(runs) == 2, 'too late'
def test_interrupted():
    for name in ('INT', 'HUP', 'QUIT'):
        assert subprocess.run(['sh', '-c', f'kill -{name} $$; echo on'], stdout=-1).stdout == b''
"""


def test_what_is_left_behind_fails_a_test_and_the_end_of_a_run_names_skips_and_second_runs(tmp_path: Path) -> None:
    """The end names what is lacking and what failed. Programs of a run in the background can be interrupted as well.

    `nohup make test &` ignores signals, and hands on what it ignores.
    """
    (tmp_path / "test_it.py").write_text(RUN)
    argv = ["env", "--ignore-signal=INT,HUP,QUIT", sys.executable, "-m", "pytest", "-q"]
    argv += ["-c", str(PROJECT / "pyproject.toml"), "--rootdir", str(tmp_path), "-p", "no:cacheprovider"]
    argv += ["-p", "no:randomly", "-p", "no:hypothesispytest", "-p", "conftest", "test_it.py"]
    env = os.environ | {"PYTHONPATH": f"{TESTS}:{TESTS}/support"}
    done = subprocess.run(argv, stdout=-1, text=True, check=False, cwd=tmp_path, env=env)
    for kind in ("left threads behind", "left child processes behind", "left sockets open"):
        assert f"AssertionError: the test {kind}: " in done.stdout
    assert "SKIPPED FOR WANT OF: a-moon (2 tests)" in done.stdout
    assert "RUN AGAIN: test_it.py::test_late" in done.stdout
    assert "AssertionError: too late" in done.stdout
    assert "\n6 passed, 2 skipped, 3 errors, 1 rerun in " in done.stdout


def test_only_needs_skips_tests() -> None:
    """Any other skip would not be counted at the end of a run."""
    skips = ("pytest.skip(", "mark.skip", "importorskip(", ".skipTest(", "unittest.skip")
    texts = {
        path: path.read_text()
        for path in TESTS.rglob("*.py")
        if path not in (TESTS / "support/needs.py", Path(__file__))
    }
    assert [path for path, text in texts.items() if any(way in text for way in skips)] == []
