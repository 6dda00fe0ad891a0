"""The process that holds a set of hosts: it makes their namespaces, waits, and ends all that runs in them.

It is started by `cluster.hosts` as a program of its own, with a plan (as `marshal` writes it) on standard input. It
answers with the hosts' process ids (JSON, one line) and then waits for the end of its input, which comes when
its owner closes the hosts and also when its owner is killed. All files are on tmpfs within the namespaces and
nothing has a name outside them, so that nothing can be left behind once the processes are gone.
"""

from __future__ import annotations

# Hundreds of holders start in a run of all tests: json, pathlib and contextlib would more than double what one costs.
import ctypes
import marshal
import os
import select
import signal
import sys
import time

TYPE_CHECKING = False  # typing itself takes a tenth of the holder's start
if TYPE_CHECKING:
    from typing import Any

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWNET = 0x00020000, 0x04000000, 0x40000000
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
PR_SET_PDEATHSIG = 1
# How often the holder looks whether its owner lives, for an owner whose forked children keep its pipe open.
LOOK_FOR_OWNER_S = 1.0
# Every killed process is gone well within this; one that hangs in the kernel must not hang the holder too.
END_WITHIN_S = 20.0
# A process's id counts in its namespace: another one's hosts, as those of `make mutants`, are no business of ours.
TAG = f"mingle-hosts-{os.stat('/proc/self/ns/pid').st_ino}"
FOR_EVERYBODY = ("/tmp", "/var/tmp", "/dev/shm")

libc = ctypes.CDLL(None, use_errno=True)


def check(result: int, what: str) -> None:
    """Raise OSError when a call of the C library failed."""
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)


def mount(source: str, target: str, kind: str | None, flags: int = 0, options: str | None = None) -> None:
    """Mount a file system, or bind a path to another."""
    texts = [None if t is None else t.encode() for t in (source, target, kind, options)]
    check(libc.mount(texts[0], texts[1], texts[2], ctypes.c_ulong(flags), texts[3]), f"mount {target}")


def unshare(flags: int) -> None:
    """Give this process namespaces of its own, and mounts that no other namespace hears of."""
    check(libc.unshare(flags), "unshare")
    mount("none", "/", None, MS_REC | MS_PRIVATE)


def read(path: str, errors: str = "strict") -> str:
    """Return a file's text."""
    with open(path, errors=errors) as file:
        return file.read()


def write(path: str, text: str, errors: str = "strict") -> None:
    """Write a file."""
    with open(path, "w", errors=errors) as file:
        file.write(text)


def started(pid: int) -> str:
    """Return when a process started, in ticks since the boot; with its pid, that names it for ever."""
    return read(f"/proc/{pid}/stat").rpartition(")")[2].split()[19]


def tag_of(owner: int) -> str:
    """Return the first part of the tags of all hosts that a process owns."""
    return f"{TAG}:{owner}:{started(owner)}"


def tagged(of: dict[int, str] | None = None) -> dict[int, str]:
    """Return the tag of every process on this machine that runs on some host, its zombies left out.

    A host's file systems carry the tag as their source, so it stands in its processes' mountinfo and no
    process can lose it. It is long, and the same for all that have their mounts in common; but one that has
    another root may see less. What is known `of` processes, "" where it is none, need not be read.
    """
    found = {}
    known: dict[str, str] = {}
    for pid, tag in (of or {}).items():
        if os.path.exists(f"/proc/{pid}/ns/mnt"):  # else it has ended
            known[os.readlink(f"/proc/{pid}/ns/mnt")] = tag
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            namespace = os.readlink(f"/proc/{name}/ns/mnt")
            if namespace not in known:
                with open(f"/proc/{name}/mountinfo", "rb", buffering=0) as file:
                    mounts = file.read()
                start = mounts.rfind(f" {TAG}:".encode())  # the last one is the innermost
                if start < 0 and os.readlink(f"/proc/{name}/root") != "/":
                    continue
                known[namespace] = mounts[start + 1 :].split(maxsplit=1)[0].decode() if start >= 0 else ""
        except OSError:
            continue  # It has ended meanwhile, or is a zombie and has no mounts any more.
        if known[namespace]:
            found[int(name)] = known[namespace]
    return found


def end(tag: str) -> None:
    """Kill every process on the hosts with this tag except this one, until there is none."""
    deadline = time.monotonic() + END_WITHIN_S
    while members := [pid for pid, other in tagged().items() if other == tag and pid != os.getpid()]:
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes {members} of {tag} outlived SIGKILL")
        for pid in members:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        reap()
        time.sleep(0.005)


def reap() -> None:
    """Collect the children that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def reap_dead_owners() -> None:
    """End what the hosts of dead test processes left behind: nothing, unless a holder was killed too."""
    for tag in set(tagged().values()):
        _, owner, start, _ = tag.split(":")
        try:
            is_dead = started(int(owner)) != start
        except FileNotFoundError:
            is_dead = True
        if is_dead:
            end(tag)


def cover(directories: list[str], keep: list[str], tag: str) -> None:
    """Mount an empty tmpfs over each directory, in which only the paths to keep appear again."""
    inside = {p: os.open(p, os.O_PATH) for p in keep if any(p.startswith(d + "/") for d in directories)}
    for directory in directories:
        mode = "1777" if directory in FOR_EVERYBODY else "755"
        mount(tag, directory, "tmpfs", 0, f"mode={mode}")
    for path, descriptor in inside.items():
        source = f"/proc/self/fd/{descriptor}"
        if os.path.isdir(source):
            os.makedirs(path, exist_ok=True)
        else:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            open(path, "a").close()
        mount(source, path, None, MS_BIND | MS_REC)
        os.close(descriptor)


def with_entries(text: str, added: list[str]) -> str:
    """Return a passwd or group file with these entries, and none that has the name or the number of one of them.

    The first entry found is the one that counts, and a user of the machine's may have the name of a host's: its
    groups are not the host's user's either.
    """
    names, numbers = {line.split(":")[0] for line in added}, {line.split(":")[2] for line in added}
    kept = []
    for line in text.splitlines():
        fields = line.split(":")
        if fields[0] in names or numbers.intersection(fields[2:3]):
            continue
        if len(fields) == 4:  # a group with its members; an entry of passwd has seven
            fields[3] = ",".join(name for name in fields[3].split(",") if name not in names)
        kept.append(":".join(fields))
    return "".join(f"{line}\n" for line in [*kept, *added])


def overlay(place: str, lower: str, tag: str) -> None:
    """Show a directory at a place on an empty tmpfs, which from then on takes what is written there."""
    layers = {"upperdir": f"{place}/upper", "workdir": f"{place}/work"}
    for layer in layers.values():
        os.mkdir(layer, 0o755)
    try:
        mount(tag, place, "overlay", 0, ",".join([f"lowerdir={lower}", *(f"{n}={p}" for n, p in layers.items())]))
    except OSError:
        for layer in layers.values():
            os.rmdir(layer)
        raise


def own_etc(plan: dict[str, Any], tag: str) -> None:
    """Give all hosts an /etc of their own, as this machine's is, with the plan's users, groups and files."""
    etc = "/etc"
    descriptor = os.open(etc, os.O_PATH)
    machines = f"/proc/self/fd/{descriptor}"
    mount(tag, etc, "tmpfs", 0, "mode=755")
    try:
        overlay(etc, machines, tag)
    except OSError:  # This kernel has no overlays, or allows none here: a copy of some thousand files.
        import subprocess

        subprocess.run(["cp", "-a", f"{machines}/.", etc], check=True, pass_fds=[descriptor])
    os.close(descriptor)
    # The tests' Slurm is configured by the tests alone: a gres.conf or plugstack.conf of the machine's would count.
    for directory, names, files in os.walk(f"{etc}/slurm", topdown=False):
        for name in files:
            os.unlink(f"{directory}/{name}")
        for name in names:
            path = f"{directory}/{name}"
            os.unlink(path) if os.path.islink(path) else os.rmdir(path)
    for name, added in plan["etc_entries"].items():
        text = read(f"{etc}/{name}", "surrogateescape")
        write(f"{etc}/{name}", with_entries(text, added), "surrogateescape")
    for name, text in plan["etc_replaced"].items():
        # resolv.conf may be a link to somewhere that the hosts do not have.
        if os.path.lexists(f"{etc}/{name}"):
            os.unlink(f"{etc}/{name}")
        write(f"{etc}/{name}", text)


def make_homes(users: dict[str, int], homes: str) -> None:
    """Make each user's home, shared by all hosts."""
    for name, uid in users.items():
        home = f"{homes}/{name}"
        # It is there where the machine's user of that name has Python or this checkout in it; as a mount it is theirs.
        if os.path.ismount(home) or not os.path.isdir(home):
            os.mkdir(home, 0o755)
        os.chown(home, uid, uid)


def own_kernel_files() -> None:
    """Show this network namespace's interfaces in /sys, with the control groups that Slurm looks for."""
    groups = os.open("/sys/fs/cgroup", os.O_PATH)
    mount("sysfs", "/sys", "sysfs")
    mount(f"/proc/self/fd/{groups}", "/sys/fs/cgroup", None, MS_BIND | MS_REC)
    os.close(groups)
    # An address must work at once: no search for a double, and no routers are there to be asked.
    for name, value in (("accept_dad", "0"), ("dad_transmits", "0"), ("router_solicitations", "0")):
        for scope in ("all", "default"):
            path = f"/proc/sys/net/ipv6/conf/{scope}/{name}"
            if os.path.exists(path):
                write(path, value)


def become_host(name: str, plan: dict[str, Any], tag: str) -> None:
    """Turn this process into one host: its own name, network, mounts and temporary directories."""
    check(libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL), "prctl")
    unshare(CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWNET)
    check(libc.sethostname(name.encode(), len(name.encode())), "sethostname")
    own_kernel_files()
    cover(plan["own"], plan["keep"], tag)
    for path, text in (("/etc/hostname", f"{name}\n"), ("/etc/hosts", plan["etc_replaced"]["hosts"])):
        mine = f"/run/{os.path.basename(path)}"
        write(mine, text)
        mount(mine, path, None, MS_BIND)


def fork_host(name: str, plan: dict[str, Any], tag: str) -> int:
    """Start the process that holds one host, and return its id once the host is ready."""
    ready, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(ready)
        become_host(name, plan, tag)
        os.write(writing, b"y")
        for descriptor in (0, 1, writing):
            os.close(descriptor)
        while True:
            signal.pause()
    os.close(writing)
    is_ready = os.read(ready, 1)
    os.close(ready)
    if not is_ready:
        raise ChildProcessError(f"host {name} did not start; its own message stands above")
    return pid


def hold(plan: dict[str, Any]) -> None:
    """Make the hosts, tell their process ids, and end everything when the owner is gone."""
    owner, tag = os.getppid(), plan["tag"]
    unshare(CLONE_NEWNS | CLONE_NEWNET)
    cover(plan["shared"], plan["keep"], tag)
    own_etc(plan, tag)
    make_homes(plan["users"], "/home")
    try:
        pids = [fork_host(name, plan, tag) for name in plan["names"]]
        sys.stdout.write(f"{pids}\n")
        sys.stdout.flush()
        while os.getppid() == owner and not select.select([0], [], [], LOOK_FOR_OWNER_S)[0]:
            reap()
    finally:
        end(tag)


def main() -> None:
    """Hold the hosts of the plan on standard input."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # Only the end of the owner ends the hosts, and that is certain.
    hold(marshal.load(sys.stdin.buffer))  # noqa: S302 -- from its owner
