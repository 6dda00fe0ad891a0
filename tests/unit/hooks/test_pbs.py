"""PBS' execjob_launch hook under a fake `pbs` module, and the commands for qmgr."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from support.executables import executable
from support.hooks import FULL, PET, SITES, recorded
from support.needs import skip_for_want_of

from mingle_hooks.cli.hooks import hooks
from mingle_hooks.export.variables import own
from mingle_hooks.files import shipped_text
from mingle_hooks.hooks import targets
from mingle_hooks.hooks.files import KILL_SWITCH, Site, render_hook as render
from mingle_hooks.hooks.targets import hook

LAUNCHES = recorded("openpbs-*/hook.execjob_launch.*")
OTHERS = [path for path in recorded("openpbs-*/hook.*") if path not in LAUNCHES]
# Oldest first. 2.7 and 3.5 are what site hooks meet; 3.6 is the oldest that is easy to get today.
PYENV = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
PYTHONS = {
    f"python{version}": next(iter(sorted(map(str, PYENV.glob(f"{version}.*/bin/python")))), None)
    or shutil.which(f"python{version}")
    for version in ("2.7", "3.6", "3.8", "3.11", "3.13")
}
PYTHONS["this"] = sys.executable


def event_of(path: Path) -> dict[str, Any]:
    """Return a recorded event as the fake module takes it."""
    return targets.fake_event(path.read_text())


def run_all(
    directory: Path,
    events: list[dict[str, Any]],
    *,
    python: str | None = None,
    site: Site = SITES["plain"][0],
    state: str = "/nonexistent/mingle",
    switch: str = KILL_SWITCH,
    conf: str = "/etc/nccl.conf",
) -> list[dict[str, Any]]:
    """Run the hook on events, one after the other, and return what the fake module saw of each."""
    text = render(hook("pbs", "launch"), site, state_directory=state, kill_switch=switch)
    (directory / "mingle.py").write_text(text.replace("/etc/nccl.conf", conf))
    paths = [directory / f"event.{number}.json" for number in range(len(events))]
    for path, event in zip(paths, events, strict=True):
        path.write_text(json.dumps(event))
    argv = [python or sys.executable, "-c", shipped_text(targets.FAKE_PBS), directory / "mingle.py", *paths]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False, env={"PATH": "/usr/bin:/bin"})
    assert (done.returncode, done.stderr) == (0, "")
    found: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["ended"] for each in found] == [["accept"]] * len(events)
    return found


def run(directory: Path, event: dict[str, Any], **options: Any) -> dict[str, Any]:
    """Run the hook on one event."""
    return run_all(directory, [event], **options)[0]


def python(name: str) -> str:
    """Return an interpreter or skip loudly."""
    found = PYTHONS[name]
    skip_for_want_of([] if found else [name])
    return str(found)


# Job 0 has three hosts: its script, and the first task beside it.
SCRIPT, TASK = (next(path for path in LAUNCHES if path.name.endswith(f".0.ctl.node1.{number}")) for number in "01")


@pytest.mark.parametrize("name", PYTHONS)
def test_every_recorded_task_gets_its_nodes_place(tmp_path: Path, name: str) -> None:
    """The job script and every task on every host of a job and its run get the same; a rerun has another name.

    A task gets the rank of its host, and one host nothing.
    """
    events, worlds, ports = [event_of(path) for path in LAUNCHES], {}, {}
    for path, event, found in zip(LAUNCHES, events, run_all(tmp_path, events, python=python(name)), strict=True):
        added, (job, count) = found["added"], map(event["job"].get, ("id", "run_count"))
        check_place(path.name.split(".")[-2], event, added)
        world = tuple(map(added.get, ("MINGLE_ID", "MASTER_ADDR", "MASTER_PORT", "NNODES")))
        assert worlds.setdefault((job, count), world) == world
        if added:
            assert ports.setdefault(job, added["MASTER_PORT"]) == added["MASTER_PORT"]
    assert len({*ports.values()}) == len(ports) > 1
    assert (worlds["3.ctl", 1][0], worlds["3.ctl", 2][0]) == ("3.ctl", "3.ctl.r1")


def check_place(host: str, event: dict[str, Any], added: dict[str, str]) -> None:
    """Fail unless what was added is right for a task on that host."""
    hosts = list(dict.fromkeys(re.findall(r"([a-z0-9]+):\d+/", event["job"]["exec_host2"])))
    if len(hosts) == 1:
        assert added == {}
        return
    assert (added["NNODES"], added["MASTER_ADDR"]) == (str(len(hosts)), "node1")
    assert int(added["MASTER_PORT"]) in range(20_000, 25_000)
    assert not added.keys() & {"RANK", "LOCAL_RANK", "WORLD_SIZE"}
    if event["env"]["PBS_TASKNUM"] == "1":
        assert not added.keys() & {"NODE_RANK", *PET}
        return
    assert added["NODE_RANK"] == added["PET_NODE_RANK"] == event["env"]["PBS_NODENUM"]
    assert hosts[int(added["NODE_RANK"])] == host
    assert (added["PET_NNODES"], added["PET_MASTER_PORT"]) == (f"1:{len(hosts)}", added["MASTER_PORT"])


def test_what_the_user_and_pbs_set_stays(tmp_path: Path) -> None:
    """Torchrun is given the user's address. What PBS set is not unset, whatever a user writes into MINGLE_EXPORTS."""
    event = event_of(TASK)
    event["env"]["MINGLE_EXPORTS"] = " ".join(f"{name}={event['env'][name]}" for name in ("PBS_QUEUE", "PBS_O_HOST"))
    event["env"] |= {"MASTER_ADDR": "mine", "NODE_RANK": "7"}
    found = run(tmp_path, event)
    added = found["added"]
    assert (found["gone"], added.keys() & {"MASTER_ADDR", "NODE_RANK"}) == ([], set())
    assert (added["PET_MASTER_ADDR"], added["MINGLE_ID"]) == ("mine", event["job"]["id"])
    event["env"]["PET_NNODES"] = "9"
    assert not [name for name in run(tmp_path, event)["added"] if name.startswith("PET_")]


OWN = [{}, {"MASTER_ADDR": "10.77.0.2", "MASTER_PORT": "4242"}, {"MASTER_ADDR": "10.77.0.2", "PET_NNODES": "9"}]


@pytest.mark.parametrize("users", OWN, ids=["nothing", "address and port", "half of torchrun's"])
def test_mingle_env_distinguishes_the_hooks_from_the_users(tmp_path: Path, users: dict[str, str]) -> None:
    """What is left without what an earlier mingle exported is what the user had before the hook."""
    event = event_of(TASK)
    event["env"] |= users
    added = run(tmp_path, event)["added"]
    assert {"MINGLE_ID", "NNODES"} < added.keys()
    assert own(event["env"] | added) == event["env"]
    again = run(tmp_path, {**event, "env": event["env"] | added})  # running it twice changes nothing
    assert (again["added"], again["gone"]) == ({}, [])


def test_what_mingle_env_exported_is_still_known_as_its_own(tmp_path: Path) -> None:
    """`mingle env`, then `qsub -V`: names without values stay listed, and nothing that is no name does."""
    event = event_of(TASK)
    listed = "MASTER_ADDR WORLD_SIZE WORLD_SIZE x $(id) a=b * MINGLE_EXPORTS"
    event["env"] |= {"MASTER_ADDR": "10.0.0.1", "WORLD_SIZE": "9", "MINGLE_EXPORTS": listed}
    added = run(tmp_path, event)["added"]
    names = [word for word in added["MINGLE_EXPORTS"].split() if "=" not in word]
    assert {"MASTER_ADDR", "WORLD_SIZE", "NODE_RANK"} < set(names)
    assert len(names) == len(set(names))
    assert not {"x", "$(id)", "a", "*"} & set(names)
    assert "MASTER_ADDR" not in added
    assert not {"MASTER_ADDR", "WORLD_SIZE"} & own(event["env"] | added).keys()


@pytest.mark.parametrize("into", [SCRIPT, next(path for path in LAUNCHES if ".1.ctl." in path.name)], ids=["3", "1"])
@pytest.mark.parametrize("switch", ["", "off"])
def test_what_another_jobs_hook_exported_is_renewed_or_unset(tmp_path: Path, into: Path, switch: str) -> None:
    """`qsub -V` in a job brings it along; what was changed since is the user's."""
    old = run(tmp_path, event_of(next(path for path in LAUNCHES if ".2[4].ctl.node2" in path.name)))["added"]
    assert old.keys() >= PET
    new = event_of(into)
    before = {**new["env"], "NODE_RANK": "mine", "MINGLE_HOOKS": switch}
    found = run(tmp_path, {**new, "env": {**old, **before}})
    fresh = run(tmp_path, {**new, "env": before})["added"]
    assert found["added"] == {name: value for name, value in fresh.items() if old.get(name) != value}
    assert set(found["gone"]) == old.keys() - fresh.keys() - {"NODE_RANK"}


@pytest.mark.parametrize(("visible", "count"), [("", "3"), ("0\\,3", "2"), ("0," * 63 + "0", "64"), ("0," * 99, "64")])
def test_gpus_set_torchruns_processes(tmp_path: Path, visible: str, count: str) -> None:
    """Those of this host's chunks are added up; of what the user exported, torchrun would start a process each."""
    event = event_of(next(path for path in LAUNCHES if "0.ctl.node2" in path.name))
    event["job"]["exec_vnode"] = "(node1:ncpus=2:ngpus=4)+(node2:ngpus=2:ncpus=2+node2[1]:ngpus=1)+(node3:ncpus=2)"
    event["env"]["CUDA_VISIBLE_DEVICES"] = visible
    assert run(tmp_path, event)["added"]["PET_NPROC_PER_NODE"] == count


def test_the_sites_settings_are_kept(tmp_path: Path) -> None:
    """The hook follows the suffix, interface, queue, canary host and opt-in of the settings."""
    event = event_of(next(path for path in LAUNCHES if "0.ctl.node2" in path.name))
    site = Site(host_suffix="-ib", interfaces=("lo",), partitions=("workq",), hosts=("node1",))
    added = run(tmp_path, event, site=site)["added"]
    assert (added["MASTER_ADDR"], added["GLOO_SOCKET_IFNAME"]) == ("node1-ib", "lo")
    for other in (Site(partitions=("q",)), Site(hosts=("node2",)), Site(opt_in="mingle"), FULL, Site(observe=True)):
        assert run(tmp_path, event, site=other)["added"] == {}
    event["env"]["MINGLE_HOOKS"] = "on"
    assert run(tmp_path, event, site=Site(opt_in="mingle"))["added"]


def test_an_interface_in_nccls_file_wins(tmp_path: Path) -> None:
    """A variable would silently win; Gloo has no file. A file of the user's is not read."""
    conf = tmp_path / "nccl.conf"
    event = event_of(next(path for path in LAUNCHES if "0.ctl.node2" in path.name))
    for text, is_set in ((None, True), ("#NCCL_SOCKET_IFNAME=eth0\n", True), ("A=1\nNCCL_SOCKET_IFNAME=eth0", False)):
        if text is not None:
            conf.write_text(text)
        added = run(tmp_path, event, site=Site(interfaces=("lo",)), conf=str(conf))["added"]
        assert ("NCCL_SOCKET_IFNAME" in added, added["GLOO_SOCKET_IFNAME"]) == (is_set, "lo")
    event["env"]["NCCL_CONF_FILE"] = "/home/alice/nccl.conf"
    conf.unlink()
    assert "NCCL_SOCKET_IFNAME" not in run(tmp_path, event, site=Site(interfaces=("lo",)), conf=str(conf))["added"]


SPOILT = {
    "no job id": {"job": {"id": None}},
    "a job id of text": {"job": {"id": "../../etc; $(id)"}},
    "no hosts": {"job": {"exec_host2": None, "exec_vnode": None}},
    "hosts of text": {"job": {"exec_host2": "$(id):1/0+-x:2/0"}},
    "no node number": {"env": {"PBS_NODENUM": ""}},
    "a node number of text": {"env": {"PBS_NODENUM": "1\n2"}},
    "a node number too high": {"env": {"PBS_NODENUM": "3"}},
    "a run count of text": {"job": {"run_count": "x"}},
    "GPUs of text": {"job": {"exec_vnode": "(node1:ngpus=1e9)"}},
}


@pytest.mark.parametrize("name", ["python2.7", "python3.6", "this"])
def test_spoilt_facts_are_accepted(tmp_path: Path, name: str) -> None:
    """Whatever PBS or the user gives, the hook accepts, and adds nothing that it doubts."""
    events = [event_of(TASK) for _ in SPOILT]
    for event, parts in zip(events, SPOILT.values(), strict=True):
        for part, values in parts.items():
            event[part] |= values
    run_all(tmp_path, [event_of(path) for path in OTHERS])  # a site may give the hook events without an environment
    found = dict(zip(SPOILT, run_all(tmp_path, events, python=python(name)), strict=True))
    assert [how for how, its in found.items() if its["added"]] == ["GPUs of text"]


ONCE = """
count = []
def once():
    count.append(1)
    if len(count) == 1:
        raise RuntimeError
    return event
pbs.event = once
"""
SPOILS = {
    "an event that raises once": ONCE,
    "a log that raises": "def bad(*a): raise RuntimeError\npbs.logjobmsg = bad\njob.id = None",
    "an environment that raises": "def bad(*a): raise MemoryError\nevent.env.__class__.__iter__ = bad",
    "an alarm": "def bad(*a): raise KeyboardInterrupt\npbs.logjobmsg = bad\nevent.env.__class__.__iter__ = bad",
}


def test_any_exception_still_accepts(tmp_path: Path) -> None:
    """Whatever is raised inside, the job goes on."""
    for how, text in SPOILS.items():
        assert run(tmp_path, {**event_of(LAUNCHES[0]), "spoil": text})["added"] == {}, how


# Statuses and words of OpenPBS 23.06.
QMGR = {
    "hooks": 'case "$2" in "print hook") echo create hook own ;; "list hook") echo Hook own ;; *) exit 1 ;; esac',
    "no hooks": 'case "$2" in "list hook") exit 0 ;; *) exit 1 ;; esac',
    "mingle is there": "echo create hook mingle",
    "not a manager": 'echo "x is unauthorized to access hooks data" >&2; [ "$2" = "list hook" ]',
    "no server": 'echo "qmgr: cannot connect to server" >&2; exit 3',
    "a server that goes": 'case "$2" in "print hook") echo create hoo; exit 1 ;; *) echo refused >&2; exit 3 ;; esac',
}
# The backup where the command succeeds; None: it is not touched.
WANTED = {"hooks": "create hook own\n", "no hooks": "", "mingle is there": None}


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("state", QMGR)
def test_the_backup_is_whole_or_the_command_fails(tmp_path: Path, state: str, *, older: bool) -> None:
    """It is made anew where mingle's hook is not there yet; what cannot be asked for replaces nothing."""
    done = CliRunner().invoke(hooks, ["install", "pbs", "--yes", "--root", str(tmp_path)], catch_exceptions=False)
    line = next(line for line in done.stdout.splitlines() if "print hook" in line)
    backup = tmp_path / "etc/mingle/hooks/qmgr-hooks.before"
    if older:
        backup.write_text("older\n")
    program = executable(tmp_path / "bin/qmgr", f"#!/bin/sh\n{QMGR[state]}\n")
    env = {"PATH": f"{program.parent}:{os.environ['PATH']}"}
    script = line.replace("/etc/mingle", f"{tmp_path}/etc/mingle")
    status = subprocess.run(["sh", "-ec", script], env=env, capture_output=True, timeout=20, check=False).returncode
    assert (status == 0) is (state in WANTED)
    kept = "older\n" if older else None
    wanted = kept if WANTED.get(state) is None else WANTED[state]
    assert (backup.read_text() if backup.exists() else None) == wanted
