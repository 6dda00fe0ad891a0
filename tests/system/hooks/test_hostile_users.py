"""Users who try to make root's hooks write, remove, end or wait where they should not."""

import contextlib
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest
from cluster.hosts import Host, Hosts
from support.hooks import JOB, key_of, run_hook, with_hooks, without_mount
from support.recorded import FOLDER

from mingle_hooks.files import toml

HOSTILE: dict[str, dict[str, str]] = toml((FOLDER.parent / "hostile_users.toml").read_bytes())


@pytest.fixture
def host(hosts: Callable[..., Hosts]) -> Host:
    """Give a host with a /run of its own, the site's key and every hook of a plain site."""
    found = with_hooks(hosts(1)[0])
    found.run(["sh", "-c", "mkdir -p /run/lock; chmod 1777 /run/lock"])
    return found


@pytest.fixture
def target(host: Host) -> Callable[[], None]:
    """Put files of root's outside of /run/mingle, and give a check that they are as they were."""
    host.run(
        ["sh", "-c", "mkdir -m 0755 -p /run/target/deep; echo precious | tee /run/target/file /run/target/deep/file"]
    )

    def check() -> None:
        for name in ("file", "deep/file"):
            path = host.outside(f"/run/target/{name}")
            assert (path.read_text(), path.stat().st_uid, path.stat().st_mode & 0o777) == ("precious\n", 0, 0o644)
        assert sorted(path.name for path in host.outside("/run/target").iterdir()) == ["deep", "file"]
        assert host.outside("/run/target/deep").stat().st_uid == 0

    return check


@contextlib.contextmanager
def meanwhile(host: Host, *commands: tuple[str, list[str]]) -> Iterator[list[subprocess.Popen[str]]]:
    """Run commands as users at the same time, and end them."""
    processes = [host.popen(argv, user=user) for user, argv in commands]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def in_job(host: Host, script: str) -> None:
    """Run a shell script as alice in her job's directory."""
    host.run(["sh", "-euc", f"cd /run/mingle/7\n{script}"], user="alice", check=True)


def left(host: Host) -> list[str]:
    """Return what is below /run/mingle."""
    return sorted(path.name for path in host.outside("/run/mingle").iterdir())


@pytest.mark.parametrize("spoil", [None, without_mount], ids=["bounded", "without mount"])
def test_what_is_mounted_on_the_directory_is_not_written_to(
    host: Host, target: Callable[[], None], spoil: Callable[[Host], None] | None
) -> None:
    """A user may mount a file system of his own on his directory, with links in it: root takes it off."""
    host.run(["cp", "/bin/mount", "/run/mount"], check=True)
    if spoil:
        spoil(host)
    run_hook(host, "slurm/prolog")
    assert host.outside("/run/mingle/7").stat().st_mode & 0o7777 == 0o700
    for _ in range(3):
        host.run(["/run/mount", "-t", "tmpfs", "-o", "uid=61001,mode=0700", "none", "/run/mingle/7"], check=True)
    in_job(host, "ln -s /run/target/file key; ln -s /run/target/deep opted-in; ln -s /run/target/new processes")
    run_hook(host, "slurm/prolog", env={**JOB, "SLURM_JOB_RESTART_COUNT": "1"})
    assert host.outside("/run/mingle/7/key").read_text() == key_of("7", restarts="1") + "\n"
    target()
    run_hook(host, "slurm/epilog")
    target()
    assert left(host) == []


def test_a_user_who_fills_the_own_directory_takes_nothing_from_others(host: Host) -> None:
    """With a small tmpfs on /run/mingle, which alice fills with octets and with names, bob's job has its key."""
    host.run(["mount", "--mkdir", "-t", "tmpfs", "-o", "size=1m,nr_inodes=100,mode=0755", "none", "/run/mingle"])
    run_hook(host, "slurm/prolog")
    host.run(["sh", "-c", "cd /run/mingle/7; seq 2000 | xargs touch; rm 1; cat /dev/zero >1"], user="alice")
    assert host.run(["touch", "/run/mingle/7/more"], user="alice").returncode != 0
    run_hook(host, "slurm/prolog", env={**JOB, "SLURM_JOB_ID": "8", "SLURM_JOB_UID": "61002"})
    assert host.outside("/run/mingle/8/key").read_text() == key_of("8", uid="61002") + "\n"
    run_hook(host, "slurm/epilog")
    assert left(host) == ["8", "8.stamp"]


@pytest.mark.parametrize("spoil", [None, without_mount], ids=["bounded", "without mount"])
def test_nothing_is_removed_through_a_mount(
    host: Host, target: Callable[[], None], spoil: Callable[[Host], None] | None
) -> None:
    """What a user, or the site, mounts below a job's directory keeps its files, of the same file system and another."""
    host.run(["cp", "/bin/mount", "/run/mount"], check=True)
    host.run(["sh", "-c", "mkdir /home/other; echo precious >/home/other/file"], check=True)
    if spoil:
        spoil(host)
    run_hook(host, "slurm/prolog")
    in_job(host, "mkdir a a/b")
    for source, to in (("/run/target", "a"), ("/home/other", "a/deep")):
        host.run(["/run/mount", "--bind", source, f"/run/mingle/7/{to}"], check=True)
    for job in ("7", "8"):
        run_hook(host, "slurm/epilog", env={**JOB, "SLURM_JOB_ID": job})
        target()
        assert host.outside("/home/other/file").read_text() == "precious\n"
        assert not host.outside("/run/mingle/7").exists()
    host.run(["sh", "-c", "umount /run/mingle/.old*/a/deep /run/mingle/.old*/a"])
    run_hook(host, "slurm/epilog")
    target()
    assert left(host) == []


# In a directory that is held open, exchanges a directory with a link, thousands of times a second, wherever root
# has moved it; renameat2 with RENAME_EXCHANGE (2) leaves no moment in which there is neither.
RACE_S = 120.0  # 30 rounds take 3 s
SWAP = """
import ctypes, os
libc, turns = ctypes.CDLL(None), 0
while True:
    try:
        place = os.open("/run/mingle/7", os.O_DIRECTORY)
        for name in ("d", "d/e"):
            os.mkdir(name, dir_fd=place)
        for name, to in (("link", "/run/target"), ("d/e/link", "/run/target/deep"), ("processes", "/run/target/file")):
            os.symlink(to, name, dir_fd=place)
        os.unlink("key", dir_fd=place)
        os.symlink("/run/target/file", "key", dir_fd=place)
    except OSError:
        pass
    else:
        for turn in range(20000):
            if libc.renameat2(place, b"d", place, b"link", 2) == 0:
                turns += 1
            elif turn > 5000:
                break
        with open("/run/lock/turns.new", "w") as file:
            file.write(str(turns))
        os.replace("/run/lock/turns.new", "/run/lock/turns")
    finally:
        os.close(place) if "place" in dir() else None
        place = os.open("/", os.O_DIRECTORY)
"""


def test_links_swapped_thousands_of_times_lead_root_nowhere(host: Host, target: Callable[[], None]) -> None:
    """While Prolog and Epilog come and go, their user exchanges a directory for a link all the time."""
    turns, deadline, restarts = host.outside("/run/lock/turns"), time.monotonic() + RACE_S, 0
    with meanwhile(host, ("alice", ["python", "-c", SWAP])):
        while restarts < 30 or not turns.exists() or int(turns.read_text()) < 10_000:
            assert time.monotonic() < deadline, f"the user did not come to his turns in {RACE_S} s"
            run_hook(host, "slurm/prolog", env={**JOB, "SLURM_JOB_RESTART_COUNT": str(restarts)})
            time.sleep(0.02)  # for the user to come to his turns, as a job would
            run_hook(host, "slurm/epilog")
            target()
            restarts += 1
    run_hook(host, "slurm/epilog")
    assert left(host) == []


def test_hard_links_are_undone_and_not_followed(host: Host, target: Callable[[], None]) -> None:
    """Where the kernel lets users link to files of others, a link in the directory gives nothing of root's away."""
    without_mount(host)
    run_hook(host, "slurm/prolog")
    host.run(
        ["sh", "-c", "cd /run/mingle/7; rm key; for n in key processes opted-in x; do ln /run/target/file $n; done"]
    )
    run_hook(host, "slurm/prolog", env={**JOB, "SLURM_JOB_RESTART_COUNT": "1"})
    target()
    host.run(["ln", "/run/target/file", "/run/mingle/7/x"], check=True)
    run_hook(host, "slurm/epilog")
    target()
    assert host.outside("/run/target/file").stat().st_nlink == 1


def test_root_writes_nothing_into_a_directory_that_others_can_write_to(host: Host) -> None:
    """The site, or whoever was there before the first job, may have made it so."""
    for mode, owner in (("0777", "root"), ("1777", "root"), ("0755", "bob")):
        host.run(["install", "-d", "-m", mode, "-o", owner, "/run/mingle"], check=True)
        for name in ("slurm/prolog", "slurm/epilog"):
            run_hook(host, name)
            assert left(host) == []


@pytest.mark.parametrize("spoil", [None, without_mount], ids=["bounded", "without mount"])
def test_whatever_a_user_leaves_is_removed(host: Host, spoil: Callable[[Host], None] | None) -> None:
    """The Epilog is bounded in time; what it has no time for, the next one removes, whosever job that is."""
    if spoil:
        spoil(host)
    for kind, script in HOSTILE["trees"].items():
        run_hook(host, "slurm/prolog")
        host.run(["sh", "-uc", f"cd /run/mingle/7\n{script}"], user="alice")  # until the directory is full
        run_hook(host, "slurm/epilog")
        assert not host.outside("/run/mingle/7").exists(), kind
        for _ in range(20):
            if left(host):
                run_hook(host, "slurm/epilog", env={**JOB, "SLURM_JOB_ID": "8"})
        assert left(host) == [], kind


def test_a_forged_list_of_processes_ends_nobody(host: Host) -> None:
    """Whatever stands in place of the list, the Epilog ends in time, and other processes go on, alice's too."""
    with meanwhile(host, *((user, ["sleep", "600"]) for user in ("root", "alice", "bob"))) as others:
        for kind, script in HOSTILE["lists"].items():
            run_hook(host, "slurm/prolog")
            in_job(host, script)
            run_hook(host, "slurm/epilog")
            assert [other.poll() for other in others] == [None] * 3, kind
            assert left(host) == [], kind
            assert not host.outside("/run/lock/owned").exists(), kind


# Looks for the program that reads the list as alice, and tries to become its master: it is not in the job's cgroup.
TRACE = """
import ctypes, os
libc, own = ctypes.CDLL(None, use_errno=True), {os.getpid(), os.getppid()}
while True:
    for pid in [int(name) for name in os.listdir("/proc") if name.isdigit()]:
        try:
            line = open(f"/proc/{pid}/cmdline").read()
            if "/processes" in line and "ptrace" not in line and pid not in own:
                if f"\\nUid:\\t{os.getuid()}\\t" in open(f"/proc/{pid}/status").read():
                    done = libc.ptrace(16, pid, 0, 0)
                    print("traced" if done == 0 else "refused", flush=True)
                    raise SystemExit
        except OSError:
            pass
"""


def test_what_the_epilog_runs_as_the_user_cannot_be_traced_by_that_user(host: Host) -> None:
    """It is outside of the job, so whoever traced it would outlive the job in it. It takes a second here."""
    host.write("/run/slow", "#!/bin/sh\nsleep 1\n", mode=0o755)
    host.run(["sh", "-c", 'mount --bind /run/slow "$(command -v head)"'], check=True)
    run_hook(host, "slurm/prolog")
    in_job(host, "echo 1 1 >processes")
    with meanwhile(host, ("alice", ["python", "-c", TRACE])) as (tracer,):
        run_hook(host, "slurm/epilog")
        assert tracer.communicate(timeout=20)[0] == "refused\n"
