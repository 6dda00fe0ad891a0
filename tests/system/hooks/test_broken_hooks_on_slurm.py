"""No node is ever drained and no job lost by a hook: on a real Slurm, with all kinds of things broken."""

import contextlib
import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest
from cluster.host import Host
from cluster.slurm import SlurmCluster
from hooked_slurm import SHOW, nothing_left, shown
from support.recorded import FOLDER

from mingle_hooks.files import toml


class Breakage(NamedTuple):
    """Shell texts that break and mend one host, as root, and what of it hangs in between: see breakages.toml."""

    how: str = ":"
    mend: str = ":"
    hangs: str = ""  # the place of a file system
    deaf: bool = False  # a system log


FUNCTIONS = (FOLDER.parent / "breakages.sh").read_text()
ROUNDS: dict[str, dict[str, dict[str, Any]]] = toml((FOLDER.parent / "breakages.toml").read_bytes())
# A system log that is there, whose queue is full, and that reads nothing.
DEAF_LOG = """
import os, signal, socket
log = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
log.bind("/dev/log")
os.chmod("/dev/log", 0o666)
sent = 1
while sent:  # one socket's own buffer may be full before the log's queue is
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
        one.setblocking(False)
        sent = 0
        try:
            while one.sendto(b"x", "/dev/log"):
                sent += 1
        except BlockingIOError:
            pass
print("ready", flush=True)
signal.pause()
"""
# A file system that never answers, as one on a network whose server is gone: whoever touches it waits for ever.
HUNG_MOUNT = """
import ctypes, os, signal, stat, sys
place, fuse, libc = sys.argv[1], os.open("/dev/fuse", os.O_RDWR), ctypes.CDLL(None, use_errno=True)
options = f"fd={fuse},rootmode={stat.S_IFMT(os.stat(place).st_mode):o},user_id=0,group_id=0,allow_other"
if libc.mount(b"hung", place.encode(), b"fuse", 0, options.encode()):
    raise OSError(ctypes.get_errno(), "mount", place)
print("ready", flush=True)
signal.pause()
"""


KEY = "/etc/mingle/key"
VERIFY = ("mingle", "hooks", "verify", "slurm")
WORD = "please"  # by which a job opts in


@contextlib.contextmanager
def broken(host: Host, what: Breakage) -> Iterator[None]:
    """Break a host, and mend it whatever happens."""
    with contextlib.ExitStack() as mending:
        mending.callback(host.run, ["rm", "-rf", "/run/mingle", "/run/elsewhere"], check=True)
        mending.callback(host.run, ["sh", "-euc", FUNCTIONS + what.mend], check=True)
        host.run(["sh", "-euc", FUNCTIONS + what.how], check=True)
        if what.hangs or what.deaf:
            daemon = host.popen(["python", "-c", DEAF_LOG if what.deaf else HUNG_MOUNT, what.hangs])
            mending.callback(daemon.communicate)
            mending.callback(daemon.kill)
            assert daemon.stdout.readline() == "ready\n"
        yield


# Names come from files first and then from a name server that swallows every question: users' names too, through
# Hesiod (a part of the C library), as they do from LDAP at sites. A program that looks up a user "61001" asks it.
LOST_NAMES = {
    "/etc/resolv.conf": "nameserver 10.77.0.99\noptions timeout:30 attempts:5\n",
    "/etc/nsswitch.conf": "passwd: files hesiod\ngroup: files\nhosts: files dns\n",
    "/etc/hesiod.conf": "lhs=.ns\nrhs=.example.org\n",
}
COUNT = """
table inet names {
  counter asked { }
  chain out { type filter hook output priority 0; th dport 53 counter name asked; }
}
"""
# Dropped by the firewall, a question would fail at once. So it goes out to a machine that is not there.
NOBODY = ["ip", "neighbour", "replace", "10.77.0.99", "lladdr", "02:00:00:00:00:99", "dev", "eth0"]


@pytest.mark.parametrize("which", ROUNDS)
def test_no_node_is_drained_and_no_job_lost_when_broken(hooked: SlurmCluster, which: str) -> None:
    """Whatever is broken, on each host something else, jobs run, and all nodes are idle afterwards."""
    with ExitStack() as stack:
        for host, what in zip(hooked.hosts, ROUNDS[which].values(), strict=False):
            stack.enter_context(broken(host, Breakage(**what)))
        comment = f"--comment={WORD}"
        job = hooked.submit(f"srun python {SHOW}", "-N4", "-n4", comment, "-o", "/dev/null", user="alice")
        done = hooked.srun("-N4", "--ntasks-per-node=2", comment, "python", SHOW, user="alice")
        assert len(shown(done)) == 8
        assert hooked.wait(job) == "COMPLETED"
        hooked.wait_idle()
        assert not any(list(host.outside("/run/elsewhere").glob("*")) for host in hooked.hosts)


def test_a_key_that_hangs_is_named_in_the_log_and_by_every_command(hooked: SlurmCluster) -> None:
    """The log line is whole, as the documented alerts need it; commands end by their deadline and have the path."""
    host, log = hooked.hosts[1], hooked.hosts[1].outside("/run/log")
    host.write("/run/logger", "#!/bin/sh\nexec cat >>/run/log\n", mode=0o755)
    with ExitStack() as stack:
        host.run(["mount", "--bind", "/run/logger", "/usr/bin/logger"], check=True)
        stack.callback(host.run, ["umount", "/usr/bin/logger"], check=True)
        stack.enter_context(broken(host, Breakage(**ROUNDS["what hangs"]["the site's key"])))
        assert len(shown(hooked.srun("-N2", "python", SHOW, user="alice"))) == 2
        hooked.until(lambda: log.exists() and log.read_text().endswith("\n"), "a log line")
        line = log.read_text().splitlines()[0]
        hangs = r'job=\d+ uid=\d+ restart=0 result=nothing node=node2 status=124 note="no answer within 5 s from .*{}"'
        assert re.fullmatch(hangs.format(KEY), line), line
        for more in ((), ("--quiet",)):
            done = host.run([*VERIFY, *more, "--timeout", "1"])
            assert (done.returncode, done.stdout.split()[:2]) == (1, ["BAD", f"{KEY}:"])
        for command in (["install", "slurm", "--yes"], ["doctor"]):
            done = host.run(["mingle", "hooks", *command])
            assert (done.returncode, f"saw {KEY}, which does not answer within 10 s" in done.stderr) == (73, True)
    hooked.wait_idle()


@pytest.fixture
def nameless(hooked: SlurmCluster) -> Iterator[SlurmCluster]:
    """Give the hooked Slurm on hosts whose name service hangs, and whose questions are counted."""
    host = hooked.controller
    with ExitStack() as last_first:
        for each in hooked.hosts:
            hooked.hosts.nft(each.pid, COUNT)
            last_first.callback(hooked.hosts.nft, each.pid, "delete table inet names")
            each.run(NOBODY, check=True)
            last_first.callback(each.run, [*NOBODY[:2], "delete", *NOBODY[3:]], check=True)
        for path, text in LOST_NAMES.items():
            file = host.outside(path)
            last_first.callback(host.write, path, file.read_text() if file.exists() else "")
            host.write(path, text)
        yield hooked


def asked(host: Host) -> int:
    """Return how many packets have left a host for a name server."""
    done = host.run(["nft", "-j", "list", "counter", "inet", "names", "asked"], check=True)
    return int(next(each["counter"]["packets"] for each in json.loads(done.stdout)["nftables"] if "counter" in each))


def test_no_hook_uses_the_name_service(nameless: SlurmCluster) -> None:
    """From the first Prolog to the last Epilog no host asks a name server anything, neither for hosts nor for users."""
    show = "echo x >/run/mingle/$SLURM_JOB_ID/mine; echo 1 1 >/run/mingle/$SLURM_JOB_ID/processes; echo $MASTER_ADDR"
    done = nameless.srun("-N4", "/bin/sh", "-c", show, user="alice")
    assert done.stdout.split() == ["node1"] * 4, done.stderr
    nothing_left(nameless)
    assert [asked(host) for host in nameless.hosts] == [0] * 4
    for name in ("hosts", "passwd"):
        assert nameless.controller.run(["timeout", "1", "getent", name, "not-there"]).returncode == 124
    assert asked(nameless.controller) > 0
