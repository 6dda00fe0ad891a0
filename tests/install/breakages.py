"""What can be wrong on a cluster's hosts: how to break it, and how to mend it again."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.slurm import SlurmCluster


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

# A tmpfs of the host's own with no byte left, and with all of them again.
FILL = """
mount -o remount,size=1m {0}; dd if=/dev/zero of={0}/filler bs=4k 2>/dev/null || :
if (echo x >{0}/proof) 2>/dev/null; then echo "{0} can be written" >&2; exit 1; fi
"""
EMPTY = "rm -f {0}/filler {0}/proof; mount -o remount,size=50% {0}\n"
SMALL = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 -- of the test hosts
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


KEY = "/etc/mingle/key"
BREAKAGES = {
    "no site key": Breakage(f"rm -f {KEY}"),
    "a site key that others read": Breakage(f"chmod 0644 {KEY}"),
    "a site key that is a directory": Breakage(f"rm -rf {KEY}; mkdir {KEY}"),
    "a site key of garbage": Breakage(f"printf '\\000$(reboot)\\n' >{KEY}"),
    "a site key that is a FIFO": Breakage(f"rm -f {KEY}; mkfifo -m 0400 {KEY}"),
    "a site key on a file system that hangs": hung(KEY, ":"),
    "garbage settings": Breakage("printf '[[[ \\000 $(reboot)' >/etc/mingle/mingle.toml"),
    "settings that are a FIFO": Breakage("rm -f /etc/mingle/mingle.toml; mkfifo /etc/mingle/mingle.toml"),
    "the kill switch": Breakage("touch /etc/mingle/disabled"),
    "a kill switch that is a FIFO": Breakage("rm -f /etc/mingle/disabled; mkfifo /etc/mingle/disabled"),
    "/run/mingle is a link": Breakage("rm -rf /run/mingle; mkdir -p /run/elsewhere; ln -s elsewhere /run/mingle"),
    "/run/mingle is a file": Breakage("rm -rf /run/mingle; touch /run/mingle"),
    "/run/mingle is for all to write": Breakage("mkdir -p /run/mingle; chmod 1777 /run/mingle"),
    "/run/mingle is read-only": mounted("/run/mingle", "ro"),
    "/run/mingle has no room for a file": mounted("/run/mingle", "size=4k,nr_inodes=2"),
    "/run/mingle has no room for a byte": mounted("/run/mingle", "size=4k", "echo >/run/mingle/filler"),
    "/run/mingle hangs": hung("/run/mingle", "mkdir -p -m 0755 /run/mingle"),
    "a full disk": Breakage(
        NEW_RUN.format(options="size=1m", then="dd if=/dev/zero of=$new/filler bs=4k 2>/dev/null || :")
        + "".join(map(FILL.format, SMALL)),
        "".join(map(EMPTY.format, SMALL)) + OLD_RUN,
    ),
    "a disk with no inode left": Breakage(NEW_RUN.format(options="nr_inodes=3", then=":"), OLD_RUN),
    "a read-only disk": Breakage(
        NEW_RUN.format(options="size=1m", then="mount -o remount,ro $new") + FLAGS.format("ro"),
        FLAGS.format("rw") + OLD_RUN,
    ),
    "the hooks' own files are read-only": Breakage(
        "mount --bind /etc/mingle /etc/mingle; mount -o remount,bind,ro /etc/mingle", "umount /etc/mingle"
    ),
    "a system log that hangs": Breakage(NEW_DEV, OLD_DEV, DEAF_LOG),
}


@contextlib.contextmanager
def broken(slurm: SlurmCluster, what: Breakage) -> Iterator[None]:
    """Break every host, and mend it whatever happens."""
    daemons = []
    try:
        for host in slurm.hosts:
            host.run(["sh", "-euc", what.how], check=True)
            if what.daemon:
                daemons.append(host.popen(["python", "-c", what.daemon, what.argument]))
                assert daemons[-1].stdout.readline() == "ready\n", daemons[-1].communicate()
        yield
    finally:
        for daemon in daemons:
            daemon.kill()
            daemon.communicate()
        for host in slurm.hosts:
            host.run(["sh", "-euc", what.mend], check=True)
            host.run(["rm", "-rf", "/run/mingle", "/run/elsewhere"], check=True)
        host.run(["sh", "-c", f"cd /etc/mingle && rm -rf {KEY} mingle.toml disabled"], check=True)
