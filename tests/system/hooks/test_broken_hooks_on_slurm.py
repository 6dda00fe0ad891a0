"""No node is ever drained and no job lost by a hook: on a real Slurm, with all kinds of things broken."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

import pytest
from cluster.host import Host
from cluster.paths import PROJECT
from cluster.slurm import SlurmCluster
from hooked_slurm import SHOW, all_idle, nothing_left, shown


class Breakage(NamedTuple):
    """Shell texts that break and mend one host, as root, and a Python text that runs there in between."""

    how: str = ":"
    mend: str = ":"
    daemon: str = ""  # it has written a line when it is ready
    argument: str = ""  # of the daemon


# A new /run with nothing but Slurm's and munge's own directories, whose failure would not be the hooks'.
NEW_RUN = """
new=/var/tmp/run; mkdir $new; mount -t tmpfs -o mode=0755,{options} none $new
for name in slurm munge; do mkdir $new/$name; mount --bind /run/$name $new/$name; done
{then}
mount --rbind $new /run
if (echo x >/run/proof) 2>/dev/null; then echo "/run can be written" >&2; exit 1; fi
"""
OLD_RUN = "umount -Rl /run; umount -Rl /var/tmp/run; rmdir /var/tmp/run\n"

# A tmpfs of the host's own with no byte left, and with all of them again. Where a process of the host removes a file
# while it is filled, or memory is short for a moment, there is room again: so it is filled until a write fails.
# The kernel refuses a size below what is in use.
FILL = """
mount -o remount,size=$(($(df -k --output=used {0} | tail -1) + 64))k {0}
for try in 1 2 3 4 5; do
  seen="$(dd if=/dev/zero bs=4k 2>&1 >>{0}/filler)" || :
  if ! (echo x >{0}/proof) 2>/dev/null; then try=full; break; fi
done
if [ $try != full ]; then echo "{0} can be written: $seen; $(df -k {0}; ls -ls {0})" >&2; exit 1; fi
"""
EMPTY = "rm -f {0}/filler {0}/proof; mount -o remount,size=50% {0}\n"
SMALL = ("/tmp", "/var/tmp", "/dev/shm")
# "bind" makes it this host's affair: without it, the machine's own root file system would be read-only.
FLAGS = "for place in / /etc /tmp /dev/shm /var/tmp; do mount -o remount,bind,{} $place; done\n"

# /dev with what programs need, to be changed for this host alone.
NEW_DEV = """
new=/run/dev; mkdir $new; mount -t tmpfs -o mode=0755 none $new
for name in null zero full random urandom tty ptmx fd stdin stdout stderr; do cp -a /dev/$name $new; done
mkdir $new/pts $new/shm; mount --bind /dev/pts $new/pts; mount --rbind $new /dev
"""
OLD_DEV = "umount -Rl /dev; umount -Rl /run/dev; rmdir /run/dev\n"
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


def mounted(place: str, options: str, then: str = ":") -> Breakage:
    """Return a small file system over a directory of root's."""
    how = f"mkdir -p -m 0755 {place}; mount -t tmpfs -o mode=0755,{options} none {place}; {then}"
    return Breakage(how, f"umount {place}")


def hung(place: str, make: str) -> Breakage:
    """Return a file system that never answers, over what `make` makes."""
    return Breakage(make, f"umount {place}", HUNG_MOUNT, place)


# The hosts share /etc. These come over this host's own copy of what the hooks have there.
OWN_FILES = "mkdir /var/tmp/mingle; cp -a /etc/mingle/. /var/tmp/mingle; mount --bind /var/tmp/mingle /etc/mingle\n"
SHARED_FILES = "umount /etc/mingle; rm -rf /var/tmp/mingle\n"
KEY = "/etc/mingle/key"
SETTINGS = "/etc/mingle/mingle.toml"
VERIFY = ("mingle", "hooks", "verify", "slurm")
# The Prolog then makes a file more; the jobs' comments ask for it.
WORD = "please"
OPT_IN = f"{OWN_FILES} printf '[hooks]\\nopt_in = \"{WORD}\"\\n' >{SETTINGS}; mingle hooks install slurm --yes >&2\n"


def in_etc(how: str) -> Breakage:
    """Return a breakage of what lies in /etc/mingle."""
    return Breakage(OWN_FILES + how, SHARED_FILES)


def opted_in(what: Breakage, more: str = ":") -> Breakage:
    """Return the same where the site's jobs have to opt in, with more that is broken in /etc/mingle."""
    return what._replace(how=f"{OPT_IN}{more}\n{what.how}", mend=f"{what.mend}\n{SHARED_FILES}")


NO_FILE = mounted("/run/mingle", "size=4k,nr_inodes=2")
NO_BYTE = mounted("/run/mingle", "size=4k", "echo >/run/mingle/filler")
NO_INODE = Breakage(NEW_RUN.format(options="nr_inodes=3", then=":"), OLD_RUN)
FULL_DISK = Breakage(
    NEW_RUN.format(options="size=1m", then="dd if=/dev/zero of=$new/filler bs=4k 2>/dev/null || :")
    + "".join(map(FILL.format, SMALL)),
    "".join(map(EMPTY.format, SMALL)) + OLD_RUN,
)
READ_ONLY_DISK = Breakage(
    NEW_RUN.format(options="size=1m", then="mount -o remount,ro $new") + FLAGS.format("ro"),
    FLAGS.format("rw") + OLD_RUN,
)
# In rounds: each breakage on a host of its own, all of a round at the same time, so that they also wait together.
ROUNDS = {
    "the site's key": {
        "none": in_etc(f"rm -f {KEY}"),
        "one that others read": in_etc(f"chmod 0644 {KEY}"),
        "a directory": in_etc(f"rm -f {KEY}; mkdir {KEY}"),
        "garbage": in_etc(f"printf '\\000$(reboot)\\n' >{KEY}"),
    },
    "/run/mingle": {
        "a link": Breakage("rm -rf /run/mingle; mkdir -p /run/elsewhere; ln -s elsewhere /run/mingle"),
        "a file": Breakage("rm -rf /run/mingle; touch /run/mingle"),
        "for all to write": Breakage("mkdir -p /run/mingle; chmod 1777 /run/mingle"),
        "read-only": mounted("/run/mingle", "ro"),
    },
    "no room": {
        "for a file": opted_in(NO_FILE),
        "for the opt-in's file": opted_in(NO_FILE, f"rm -f {KEY}"),
        "for a byte": opted_in(NO_BYTE),
        "for a byte, and no opt-in": NO_BYTE,
    },
    "the disk": {
        "full": opted_in(FULL_DISK),
        "no inode left": opted_in(NO_INODE),
        "no inode left, and no opt-in": NO_INODE,
        "read-only": READ_ONLY_DISK,
    },
    "the kill switch": {
        "can only be read, as all there": in_etc("mount -o remount,bind,ro /etc/mingle"),
        "is there": in_etc("touch /etc/mingle/disabled"),
        "a FIFO": in_etc("mkfifo /etc/mingle/disabled"),
        "a link to nowhere": in_etc("ln -s nowhere /etc/mingle/disabled"),
    },
    "what hangs": {
        "a key that is a FIFO": in_etc(f"rm -f {KEY}; mkfifo -m 0400 {KEY}"),
        "the site's key": hung(KEY, ":"),
        "/run/mingle": hung("/run/mingle", "mkdir -p -m 0755 /run/mingle"),
        "the system log": Breakage(NEW_DEV, OLD_DEV, DEAF_LOG),
    },
}


@contextlib.contextmanager
def broken(host: Host, what: Breakage) -> Iterator[None]:
    """Break a host, and mend it whatever happens."""
    with contextlib.ExitStack() as mending:
        mending.callback(host.run, ["rm", "-rf", "/run/mingle", "/run/elsewhere"], check=True)
        mending.callback(host.run, ["sh", "-euc", what.mend], check=True)
        host.run(["sh", "-euc", what.how], check=True)
        if what.daemon:
            daemon = host.popen(["python", "-c", what.daemon, what.argument])
            mending.callback(ended, daemon)
            if daemon.stdout.readline() != "ready\n":
                daemon.kill()
                raise AssertionError(daemon.communicate())
        yield


def ended(daemon: subprocess.Popen[str]) -> None:
    """End a process, and wait for its end."""
    daemon.kill()
    daemon.communicate()


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
            stack.enter_context(broken(host, what))
        comment = f"--comment={WORD}"
        job = hooked.submit(f"srun python {SHOW}", "-N4", "-n4", comment, "-o", "/dev/null", user="alice")
        done = hooked.srun("-N4", "--ntasks-per-node=2", comment, "python", SHOW, user="alice")
        assert len(shown(done)) == 8
        assert hooked.wait(job) == "COMPLETED"
        all_idle(hooked)
        assert not any(list(host.outside("/run/elsewhere").glob("*")) for host in hooked.hosts)


def test_a_key_that_hangs_is_named_in_the_log_and_by_verify(hooked: SlurmCluster) -> None:
    """The log line is whole, as the documented alerts need it; verify ends by its deadline and has the path."""
    host, log = hooked.hosts[1], hooked.hosts[1].outside("/run/log")
    host.write("/run/logger", "#!/bin/sh\nexec cat >>/run/log\n", mode=0o755)
    with ExitStack() as stack:
        host.run(["mount", "--bind", "/run/logger", "/usr/bin/logger"], check=True)
        stack.callback(host.run, ["umount", "/usr/bin/logger"], check=True)
        stack.enter_context(broken(host, hung(KEY, ":")))
        assert len(shown(hooked.srun("-N2", "python", SHOW, user="alice"))) == 2
        hooked.until(lambda: log.exists() and log.read_text().endswith("\n"), "a log line")
        line = log.read_text().splitlines()[0]
        hangs = r'job=\d+ uid=\d+ restart=0 result=nothing node=node2 status=124 note="no answer within 5 s from .*{}"'
        assert re.fullmatch(hangs.format(KEY), line), line
        for more in ((), ("--quiet",)):
            done = host.run([*VERIFY, *more, "--timeout", "1"])
            assert (done.returncode, done.stdout.split()[:2]) == (1, ["BAD", f"{KEY}:"])
    all_idle(hooked)


def test_without_python_and_mingle_jobs_get_the_same(hooked: SlurmCluster) -> None:
    """The hooks need /bin/sh and nothing of what installed them: here every Python and the project are hidden."""
    programs = hooked.controller.run(["sh", "-c", "ls -d /usr/bin/python3* /usr/bin/mingle /usr/local/bin/mingle"])
    # Not sys.base_prefix, which is all of /usr where the Python is Debian's.
    hidden = [*programs.stdout.split(), sys.prefix, sysconfig.get_path("stdlib"), str(PROJECT)]
    hide = "[ -d {0} ] && mount -t tmpfs none {0} || mount --bind /dev/null {0}"
    with ExitStack() as last_first:
        for host in hooked.hosts:
            for path in hidden:
                host.run(["/bin/sh", "-c", hide.format(path)], check=True)
                last_first.callback(host.run, ["/bin/sh", "-c", f"umount {path}"], check=True)
        assert hooked.controller.run(["/bin/sh", "-c", "python3 -c pass || mingle --version"]).returncode != 0
        show = "echo $MASTER_ADDR $NODE_RANK $PET_NODE_RANK; cat /run/mingle/$SLURM_JOB_ID/key"
        done = hooked.srun("-N4", "/bin/sh", "-c", show, user="alice")
        lines = done.stdout.splitlines()
        assert sorted(line for line in lines if " " in line) == [f"node1 {i} {i}" for i in range(4)]
        assert len(lines) == 8
        all_idle(hooked)


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
