"""Slurm's Prolog and Epilog, and PBS' and Torque's scripts, as root on a host of their own."""

import hashlib
import itertools
import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from cluster.host import Host
from cluster.hosts import Hosts
from cluster.waiting import until
from support.hooks import (
    HOOKS,
    JOB,
    SHELLS,
    SITES,
    key_of,
    recorded,
    run_hook,
    run_hooks,
    shell,
    started_at,
    with_hooks,
)
from support.needs import skip_for_want_of
from support.recorded import environ

from mingle_hooks.hooks.files import render_hook as render


@pytest.fixture
def host(hosts: Callable[..., Hosts]) -> Host:
    """Give a host with a /run of its own, the site's key and every hook of a plain site."""
    return with_hooks(hosts(1)[0])


def _slurms(cluster: str, name: str) -> dict[str, str]:
    return {name: value for name, value in environ(cluster, name).items() if name not in {"PWD", "SHLVL", "_"}}


def test_recorded_jobs_come_and_go(host: Host) -> None:
    """With every recorded environment the Prolog makes one directory, and the Epilog removes it, also twice."""
    for path in recorded("slurm-*/prolog.*"):
        env = _slurms(path.parent.name, path.name)
        run_hook(host, "slurm/prolog", env=env)
        job = env.get("SLURM_HET_JOB_ID", env["SLURM_JOB_ID"])
        key = host.outside(f"/run/mingle/{job}/key").read_text()
        assert key == key_of(job, env["SLURM_JOB_UID"], env["SLURM_JOB_RESTART_COUNT"]) + "\n", path
        after = _slurms(path.parent.name, path.name.replace("prolog", "epilog"))
        for count in ("-", "0"):  # of restarts, which it does not need
            run_hook(host, "slurm/epilog", env={**after, "SLURM_JOB_RESTART_COUNT": count})
            assert list(host.outside("/run/mingle").iterdir()) == [], path


@pytest.mark.parametrize("start", [{}, {"SLURM_JOB_START_TIME": "1795177549"}], ids=["22.05", "26.05"])
def test_a_prolog_that_runs_twice_keeps_what_is_there(host: Host, start: dict[str, str]) -> None:
    """What running processes have put there survives a second Prolog of the same start of the job, and only that."""
    env, answer = {**JOB, **start}, host.outside("/run/mingle/7/answer")

    def kept(**others: str) -> bool:
        host.write("/run/mingle/7/answer", "x")
        run_hook(host, "slurm/prolog", env={**env, **others})
        return answer.exists()

    run_hook(host, "slurm/prolog", env=env)
    assert kept()
    assert not kept(SLURM_JOB_RESTART_COUNT="1")
    assert host.outside("/run/mingle/7/key").read_text() == key_of("7", restarts="1") + "\n"
    run_hook(host, "slurm/prolog", env=env)
    # Another job of the same id and user, after its controller was installed anew and an Epilog was lost.
    assert not kept(SLURM_JOB_START_TIME="1795199999")
    run_hook(host, "slurm/prolog", env=env)
    host.run(["touch", "-d", "10 minutes ago", "/run/mingle/7.stamp"], check=True)
    assert kept(SLURM_HET_JOB_ID="7")
    assert kept() is bool(start)


@pytest.mark.parametrize("parts", [("", ""), ("7", "8")], ids=["twice", "parts of a heterogeneous job"])
def test_prologs_of_one_job_at_once_make_one_directory(host: Host, parts: tuple[str, str]) -> None:
    """Seen: each dropped what the other had made, and the job had neither directory nor key."""
    place, argv = host.outside("/run/mingle/7"), ["env", "-i", *map("=".join, JOB.items())]
    for _ in range(8):
        both = [[f"SLURM_JOB_ID={part}", "SLURM_HET_JOB_ID=7"] if part else [] for part in parts]
        running = [host.popen([*argv, *more, "/etc/mingle/hooks/slurm/prolog"], cwd="/") for more in both]
        assert [(*each.communicate(timeout=60), each.returncode) for each in running] == [("", "", 0)] * 2
        assert (place / "key").read_text() == key_of("7") + "\n"
        assert Path(f"/proc/{host.pid}/mountinfo").read_text().count(" /run/mingle/7 ") == 1
        run_hook(host, "slurm/epilog")
        assert list(place.parent.iterdir()) == []


BAD_IDS = [
    "", "0x7", "07", "-7", "..", "7/../../etc", "$(touch /run/owned)", "7;touch /run/owned", "7 8", "7\n8", "9" * 11,
]  # fmt: skip


def test_a_hostile_number_or_id_makes_nothing(host: Host) -> None:
    """An id, user or count that is none ends the hook before it touches anything."""
    before = host.files("/run")
    names = ("SLURM_JOB_ID", "SLURM_JOB_UID", "SLURM_JOB_RESTART_COUNT", "SLURM_HET_JOB_ID")
    slurms = (
        (script, (), {**JOB, name: bad})
        for name in names
        for bad in BAD_IDS
        if bad or name in {"SLURM_JOB_ID", "SLURM_JOB_UID"}
        for script in ("slurm/prolog", "slurm/epilog")
        if "COUNT" not in name or script == "slurm/prolog"
    )
    clusters = (
        ("slurm/prolog", (), {**JOB, "SLURM_CLUSTER_NAME": bad}) for bad in ("a|b", "a b", "$(touch /run/owned)")
    )
    classic = (
        (script, arguments, {})
        for bad in ("", "..", "../x", "1/2", "x", "1;id", "1 2", "$(id)", "1..2", "-1")
        for script in ("torque/prologue", "torque/epilogue", "pbs/prologue", "pbs/epilogue")
        for arguments in ((bad, "alice", "alice"), ("5.ctl", bad or "nobody-here", "alice"))
    )
    run_hooks(host, (*slurms, *clusters, *classic), "[ ! -e /run/mingle ] && [ ! -e /run/owned ]")
    assert host.files("/run") == before


def test_another_user_can_neither_read_nor_plant_a_key(host: Host) -> None:
    """Bob, on the same node, gets at nothing of alice's job, nor at the place of one to come."""
    run_hook(host, "slurm/prolog")
    tries = ("cat /run/mingle/7/key", "ls /run/mingle/7", "echo x >/run/mingle/7/key", "mkdir /run/mingle/8",
             "ln -s /tmp /run/mingle/8", "mv /run/mingle/7 /run/mingle/8", "rm -rf /run/mingle/7",
             "cat /run/mingle/7.stamp", "cat /etc/mingle/key", "ln -f /etc/hostname /run/mingle/8.stamp",
             "ln -sf /etc/hostname /run/mingle/7/key", "mkfifo /run/mingle/.old.7.1")  # fmt: skip
    for attempt in tries:
        assert host.run(["sh", "-c", attempt], user="bob").returncode != 0, attempt
    assert host.outside("/run/mingle/7/key").read_text() == key_of("7") + "\n"


# User of a process, what alice records of it, and whether it ends: with another start time the pid is another one.
RECORDS = {
    ("alice", "{pid} {start}\n"): True, ("alice", "x y\n\n1 1\n{pid} {start}\n"): True, ("alice", "{pid} 1\n"): False,
    ("alice", "1 1\n" * 64 + "{pid} {start}\n"): False,
    ("alice", "{pid}\n"): False, ("root", "{pid} {start}\n"): False, ("bob", "{pid} {start}\n"): False,
}  # fmt: skip


@pytest.mark.parametrize("hidepid", ["0", "2"])
def test_the_epilog_ends_no_process_of_another_user(host: Host, hidepid: str) -> None:
    """It ends only the user's own processes that the record names exactly, also where /proc shows no others."""
    host.run(["mount", "-t", "proc", "-o", f"hidepid={hidepid}", "proc", "/proc"], check=True)
    for (user, record), ends in RECORDS.items():
        run_hook(host, "slurm/prolog")
        process = host.popen(["sh", "-c", "echo; exec sleep 600"], user=user)
        try:
            assert process.stdout is not None
            process.stdout.readline()  # before, it may still be root's
            start = started_at(host, process.pid)
            host.write("/run/mingle/7/processes", record.format(pid=process.pid, start=start), user="alice")
            run_hook(host, "slurm/epilog")
            if ends:
                assert process.wait(60) != 0
            assert (process.poll() is None) is not ends, (user, record)
        finally:
            process.kill()
            process.communicate()


def test_a_hook_that_slurmd_ends_drains_no_node(host: Host) -> None:
    """Slurm up to 22.05 does so when it is reconfigured. A skipped program of the site's own still drains the node."""
    host.write("/etc/mingle/hooks/slurm/job", "#!/bin/sh\n: >/run/began; exec sleep 600\n", mode=0o755)
    began = host.outside("/run/began")
    for name, status in (("prolog", 0), ("prolog", 143), ("epilog", 0), ("epilog", 143)):
        process = host.popen([f"/etc/mingle/hooks/slurm/{name}"])
        until(began.exists)
        began.unlink()
        os.killpg(process.pid, signal.SIGTERM)
        process.communicate(timeout=60)
        assert process.returncode == status
        host.write(f"/etc/mingle/{name}.d/site", "#!/bin/sh\n", mode=0o755)


BREAKABLE = ("stat", "mkdir", "chown", "mv", "sha256sum", "rm", "logger", "timeout", "cat", "mount", "umount")
BROKEN = {
    "fails": ("#!/bin/sh\nexit 3\n", 0o755),
    "hangs": ("#!/bin/sh\nexec sleep 600\n", 0o755),
    "is missing": ("#!/nonexistent\n", 0o755),
    "cannot be run": ("", 0o644),
}


def test_a_tool_that_is_broken_is_no_failure(host: Host) -> None:
    """Whichever program is broken, the hooks end with status 0, and the user gets a whole directory or none."""
    host.run(["cp", "/bin/mount", "/bin/umount", "/run/"], check=True)
    place = host.outside("/run/mingle/7")
    for tool, (how, (text, mode)) in itertools.product(BREAKABLE, BROKEN.items()):
        if how == "hangs" and tool not in {"stat", "logger"}:
            continue
        where = host.run(["sh", "-c", f"command -v {tool}"], check=True).stdout.strip()
        host.write("/run/broken", text, mode=mode)
        host.run(["/run/mount", "--bind", "/run/broken", where], check=True)
        run_hook(host, "slurm/prolog")
        # Without `timeout` or `cat` nobody waits, and slurmd may end the hook half-way: root's, until the next hook.
        assert not place.exists() or place.stat().st_uid == 61001 or tool in {"timeout", "cat"}, (tool, how)
        if place.exists() and place.stat().st_uid == 61001:
            assert place.stat().st_mode & 0o777 == 0o700
            assert (place / "key").exists() is (tool != "sha256sum")
        assert tool not in {"logger", "mount", "umount"} or (place / "key").read_text() == key_of("7") + "\n"
        run_hook(host, "slurm/epilog")
        host.run(["/run/umount", where], check=True)
        run_hook(host, "slurm/epilog")
        assert not place.exists(), (tool, how)


@pytest.mark.parametrize("script", ["slurm/prolog", "torque/prologue", "pbs/prologue"])
def test_the_kill_switch_stops_what_adds_and_nothing_that_removes(host: Host, script: str) -> None:
    """Nothing is made; what was made is still removed when the job ends."""
    arguments = () if script.startswith("slurm") else ("7", "alice", "alice")
    host.write("/etc/mingle/disabled", "")
    run_hook(host, script, *arguments)
    assert not host.outside("/run/mingle").exists()
    host.run(["rm", "/etc/mingle/disabled"], check=True)
    run_hook(host, script, *arguments)
    place = host.outside("/run/mingle/7")
    assert (place.stat().st_uid, (place / "key").exists()) == (61001, script != "pbs/prologue")
    host.write("/etc/mingle/disabled", "")
    run_hook(host, script.replace("prolog", "epilog"), *arguments)
    assert list(host.outside("/run/mingle").iterdir()) == []


@pytest.mark.parametrize("script", ["slurm/prolog", "torque/prologue", "pbs/prologue"])
def test_a_daemon_in_another_language_changes_nothing(host: Host, script: str) -> None:
    """Where its translations are there, coreutils call a directory by its German name."""
    spoken = {"LANG": "C.UTF-8", "LANGUAGE": "de"}
    if host.run(["stat", "-c", "%F", "/run"], env=spoken, check=True).stdout == "directory\n":
        skip_for_want_of(["German translations of coreutils"])
    arguments = () if script.startswith("slurm") else ("7", "alice", "alice")
    env = {**(JOB if script.startswith("slurm") else {}), **spoken}
    run_hook(host, script, *arguments, env=env)
    assert host.outside("/run/mingle/7").stat().st_uid == 61001
    run_hook(host, script.replace("prolog", "epilog"), *arguments, env=env)
    assert list(host.outside("/run/mingle").iterdir()) == []


@pytest.mark.parametrize("kind", SITES)
def test_every_hook_is_readable_and_clean(tmp_path: Path, kind: str) -> None:
    """Short lines, a header that tells the command, a checksum that holds, the same text twice, and shellcheck."""
    scripts: dict[tuple[str, str], Path] = {}
    for found in HOOKS:
        text = render(found, *SITES[kind])
        assert text == render(found, *SITES[kind])
        assert max(map(len, text.splitlines())) <= 130
        assert f"Made by: mingle hooks render {found.scheduler} {found.name} " in text
        line = next(line for line in text.splitlines(keepends=True) if "sha256 of the other lines: " in line)
        assert line.split()[-1] == hashlib.sha256(text.replace(line, "").encode()).hexdigest()
        if not text.startswith("#!/bin/sh\n"):
            continue
        for forbidden in ("scontrol", "squeue", "sinfo", "python", "curl", "scp"):
            assert not re.search(rf"^[^#]*\b{forbidden}\b", text, re.MULTILINE)
        # Of scripts that differ in their names only, one is enough.
        path = scripts.setdefault((found.template, found.scheduler), tmp_path / f"{found.scheduler}-{found.name}")
        path.write_text(text)
    for name in SHELLS:
        for path in scripts.values():
            subprocess.run([*shell(name), "-n", path], check=True)
    done = subprocess.run(
        ["shellcheck", "--enable=all", "--shell=sh", *scripts.values()], capture_output=True, text=True, check=False,
        env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8"},
    )  # fmt: skip
    assert done.stdout == ""


ARGUMENTS = ("12[3].ctl", "alice", "alice")
PLACE = "/run/mingle/12[3].ctl"
HUNG = ("pbs/prologue", "torque/prologue", "pbs/epilogue", "torque/epilogue.parallel")
GONE_S = 60.0  # what hangs does so until it is let go
# A file system that comes back lets the program go on, and its caller with it. Deaf to what can be ignored.
HANGS = """#!/bin/sh
trap '' TERM HUP INT
touch /run/began
while [ ! -e /run/back ]; do sleep 0.1; done
exec /run/{tool}.own "$@"
"""


@pytest.mark.parametrize("tool", ["id", "stat"])
def test_nothing_goes_on_after_a_hang(hosts: Callable[..., Hosts], tool: str) -> None:
    """With a program that hangs a script ends well, nothing of it is left, and nothing is made or removed later."""
    some = hosts(len(HUNG))
    with_hooks(some[0])  # in /etc, which all share: once, before any is run
    running = [_started(host, script, tool) for host, script in zip(some, HUNG, strict=True)]
    for host, script, process in zip(some, HUNG, running, strict=True):
        out, err = process.communicate(timeout=GONE_S)
        assert (process.returncode, out, err) == (0, "", ""), script
        until(lambda host=host: not host.processes(), f"{script} and what it left", GONE_S)
        assert host.outside("/run/began").exists(), script
        host.outside("/run/back").touch()
        assert host.outside(PLACE).exists() is ("epilogue" in script), script


def _started(host: Host, script: str, tool: str) -> subprocess.Popen[str]:
    if "epilogue" in script:
        host.run(["env", "-i", "/etc/mingle/hooks/torque/prologue", *ARGUMENTS], check=True)
    assert host.outside(PLACE).exists() is ("epilogue" in script)
    where = host.run(["sh", "-c", f"command -v {tool}"], check=True).stdout.strip()
    host.run(["cp", where, f"/run/{tool}.own"], check=True)
    host.write("/run/hangs", HANGS.format(tool=tool), mode=0o755)
    host.run(["mount", "--bind", "/run/hangs", where], check=True)
    return host.popen(["env", "-i", f"/etc/mingle/hooks/{script}", *ARGUMENTS], cwd="/")
