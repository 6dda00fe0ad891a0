"""PBS' execjob_launch hook under a stand-in `pbs` module, with every recorded event and every Python there is."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from needs import skip_for_want_of
from rendered import FULL, SITES, recorded

from mingle_hooks.export.variables import own
from mingle_hooks.install import standin
from mingle_hooks.install.site import KILL_SWITCH, Site
from mingle_hooks.install.targets import hook
from mingle_hooks.install.text import render

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
    """Return a recorded event as the stand-in takes it."""
    return standin.event(path.read_text())


def run(
    directory: Path,
    event: dict[str, Any],
    *,
    python: str | None = None,
    site: Site = SITES["plain"][0],
    config: str | None = None,
    state: str = "/nonexistent/mingle",
    switch: str = KILL_SWITCH,
) -> dict[str, Any]:
    """Run the hook on an event and return what the stand-in saw."""
    text = render(hook("pbs", "launch"), site, state_directory=state, kill_switch=switch)
    (directory / "mingle.py").write_text(text)
    (directory / "mingle.json").write_text(render(hook("pbs", "config"), site) if config is None else config)
    (directory / "event.json").write_text(json.dumps({"config": str(directory / "mingle.json"), **event}))
    argv = [
        python or sys.executable,
        "-c",
        standin.PROGRAM,
        directory / "mingle.py",
        directory / "event.json",
    ]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False, env={"PATH": "/usr/bin:/bin"})
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["ended"] == ["accept"]
    return found


def python(name: str) -> str:
    """Return an interpreter or skip loudly."""
    found = PYTHONS[name]
    skip_for_want_of([] if found else [name])
    return str(found)


@pytest.mark.parametrize("name", PYTHONS)
@pytest.mark.parametrize("path", LAUNCHES, ids=lambda path: path.name)
def test_every_recorded_task_gets_its_nodes_place(tmp_path: Path, path: Path, name: str) -> None:
    """The job script and every task on every host get the same, but for the rank of the node."""
    event = event_of(path)
    added = run(tmp_path, event, python=python(name))["added"]
    hosts = list(dict.fromkeys(re.findall(r"([a-z0-9]+):\d+/", event["job"]["exec_host2"])))
    assert added["NNODES"] == added["PET_NNODES"] == str(len(hosts))
    assert added["NODE_RANK"] == added["PET_NODE_RANK"] == event["env"]["PBS_NODENUM"]
    assert hosts[int(added["NODE_RANK"])] == path.name.split(".")[-2]
    assert added["MASTER_ADDR"] == ("node1" if len(hosts) > 1 else "127.0.0.1")
    assert 20_000 <= int(added["MASTER_PORT"]) < 25_000
    assert not added.keys() & {"RANK", "LOCAL_RANK", "WORLD_SIZE"}


@pytest.mark.parametrize("path", OTHERS, ids=lambda path: path.name)
def test_other_events_are_accepted(tmp_path: Path, path: Path) -> None:
    """A site that gives the hook another event, which has no environment, loses no job."""
    run(tmp_path, event_of(path))


def test_all_tasks_of_a_job_agree(tmp_path: Path) -> None:
    """One address and one port for all recorded tasks of each job and run."""
    worlds: dict[str, set[tuple[str, ...]]] = {}
    for path in LAUNCHES:
        added = run(tmp_path, event_of(path))["added"]
        world = tuple(added[name] for name in ("MASTER_ADDR", "MASTER_PORT", "NNODES"))
        worlds.setdefault(path.name.split(".ctl.")[0], set()).add(world)
    assert {len(found) for found in worlds.values()} == {1}
    ports = {next(iter(found))[1] for found in worlds.values()}
    assert len(ports) == len(worlds)


def test_a_rerun_has_another_name(tmp_path: Path) -> None:
    """The second run of job 3 is told from the first."""
    ids = {run(tmp_path, event_of(path))["added"]["MINGLE_ID"] for path in LAUNCHES if ".3.ctl." in path.name}
    assert ids == {"3.ctl", "3.ctl.r1"}


def test_running_it_twice_changes_nothing(tmp_path: Path) -> None:
    """The hook is idempotent."""
    event = event_of(LAUNCHES[0])
    first = run(tmp_path, event)["added"]
    assert run(tmp_path, {**event, "env": {**event["env"], **first}})["added"] == {}


def test_what_the_user_set_stays(tmp_path: Path) -> None:
    """Nothing of the user's is overridden, and torchrun is given the user's address."""
    event = event_of(LAUNCHES[0])
    event["env"] |= {"MASTER_ADDR": "mine", "NODE_RANK": "7"}
    added = run(tmp_path, event)["added"]
    assert not added.keys() & {"MASTER_ADDR", "NODE_RANK"}
    assert added["PET_MASTER_ADDR"] == "mine"
    assert added["MINGLE_ID"] == event["job"]["id"]
    event["env"]["PET_NNODES"] = "9"
    assert not [name for name in run(tmp_path, event)["added"] if name.startswith("PET_")]


OWN = [{}, {"MASTER_ADDR": "10.77.0.2", "MASTER_PORT": "4242"}, {"MASTER_ADDR": "10.77.0.2", "PET_NNODES": "9"}]


@pytest.mark.parametrize("users", OWN, ids=["nothing", "address and port", "half of torchrun's"])
def test_mingle_env_tells_the_hooks_from_the_users(tmp_path: Path, users: dict[str, str]) -> None:
    """What is left without what an earlier mingle exported is what the user had before the hook."""
    event = event_of(LAUNCHES[0])
    event["env"] |= users
    added = run(tmp_path, event)["added"]
    assert {"MINGLE_ID", "NNODES"} < added.keys()
    assert own(event["env"] | added) == event["env"]


def test_mingle_env_works_beside_the_hook_with_the_users_address(tmp_path: Path) -> None:
    """The world has the user's address and its own size, and nothing of the hook's is left."""
    nodefile = tmp_path / "nodes"
    nodefile.write_text("node1\n" * 3)
    event = event_of(next(path for path in LAUNCHES if ".1.ctl." in path.name))
    event["env"] |= {"MASTER_ADDR": "127.0.0.2", "MASTER_PORT": "4242", "PBS_NODEFILE": str(nodefile)}
    given = event["env"] | run(tmp_path, event)["added"]
    assert given["PET_MASTER_ADDR"] == "127.0.0.2"
    mingle = [sys.executable, "-m", "mingle_hooks", "env", "--shell", "json"]
    env = {**given, "HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    done = subprocess.run(mingle, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["MASTER_ADDR"], found["MASTER_PORT"]) == ("127.0.0.2", "4242")
    assert (found["NNODES"], found["WORLD_SIZE"]) == ("1", "3")
    assert (found["PET_MASTER_ADDR"], found["PET_NNODES"], found["PET_NPROC_PER_NODE"]) == ("127.0.0.2", "1", "3")


def test_what_mingle_env_exported_is_still_known_as_its_own(tmp_path: Path) -> None:
    """`mingle env`, then `qsub -V`: names without values stay listed, and nothing that is no name does."""
    event = event_of(LAUNCHES[0])
    listed = "MASTER_ADDR WORLD_SIZE WORLD_SIZE x $(id) a=b * MINGLE_EXPORTS"
    event["env"] |= {"MASTER_ADDR": "10.0.0.1", "WORLD_SIZE": "9", "MINGLE_EXPORTS": listed}
    added = run(tmp_path, event)["added"]
    names = [word for word in added["MINGLE_EXPORTS"].split() if "=" not in word]
    assert {"MASTER_ADDR", "WORLD_SIZE", "NODE_RANK"} < set(names)
    assert len(names) == len(set(names))
    assert not {"x", "$(id)", "a", "*"} & set(names)
    assert "MASTER_ADDR" not in added
    assert not {"MASTER_ADDR", "WORLD_SIZE"} & own(event["env"] | added).keys()


def test_what_an_earlier_jobs_hook_exported_is_brought_up_to_date_or_stays_known(tmp_path: Path) -> None:
    """`qsub -V` in a job: the hook cannot unset what it does not set now, so `mingle env` must know of it."""
    first, second = (event_of(path) for path in (LAUNCHES[0], next(p for p in LAUNCHES if ".3.ctl." in p.name)))
    old = run(tmp_path, first, site=Site(interfaces=("lo",)))["added"]
    before = {**second["env"]}
    second["env"] |= old | {"GLOO_SOCKET_IFNAME": "mine"}
    given = second["env"] | run(tmp_path, second)["added"]
    assert given["MINGLE_ID"] == second["job"]["id"] != old["MINGLE_ID"]
    assert given["NCCL_SOCKET_IFNAME"] == "=lo"
    assert own(given) == before | {"GLOO_SOCKET_IFNAME": "mine"}


def test_gpus_of_the_vnode_set_torchruns_processes(tmp_path: Path) -> None:
    """The GPUs of this host's chunks are added up."""
    event = event_of(next(path for path in LAUNCHES if "0.ctl.node2" in path.name))
    event["job"]["exec_vnode"] = "(node1:ncpus=2:ngpus=4)+(node2:ncpus=2:ngpus=2+node2:ngpus=1)+(node3:ncpus=2)"
    assert run(tmp_path, event)["added"]["PET_NPROC_PER_NODE"] == "3"


@pytest.mark.parametrize(("visible", "count"), [("0\\,3", "2"), ("0," * 63 + "0", "64"), ("0," * 99, "64")])
def test_no_more_than_64_gpus_are_torchrun_s(tmp_path: Path, visible: str, count: str) -> None:
    """What the user exported may be anything: torchrun would start a process for each comma."""
    event = event_of(LAUNCHES[0])
    event["env"]["CUDA_VISIBLE_DEVICES"] = visible
    assert run(tmp_path, event)["added"]["PET_NPROC_PER_NODE"] == count


def test_the_sites_settings_are_kept(tmp_path: Path) -> None:
    """Suffix, queue and host of a canary and opt-in come from the configuration file."""
    event = event_of(next(path for path in LAUNCHES if "0.ctl.node2" in path.name))
    site = Site(host_suffix="-ib", interfaces=("lo",), partitions=("workq",), hosts=("node1",))
    added = run(tmp_path, event, site=site)["added"]
    assert (added["MASTER_ADDR"], added["GLOO_SOCKET_IFNAME"]) == ("node1-ib", "lo")
    for other in (Site(partitions=("q",)), Site(hosts=("node2",)), FULL, Site(observe=True)):
        assert run(tmp_path, event, site=other)["added"] == {}
    event["env"]["MINGLE_HOOKS"] = "on"
    assert run(tmp_path, event, site=Site(opt_in="mingle"))["added"]


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
@pytest.mark.parametrize("how", SPOILT)
def test_spoilt_facts_are_accepted(tmp_path: Path, how: str, name: str) -> None:
    """Whatever PBS or the user gives, the hook accepts, and adds nothing that it doubts."""
    event = event_of(LAUNCHES[0])
    for part, values in SPOILT[how].items():
        event[part] |= values
    found = run(tmp_path, event, python=python(name))
    assert found["added"] == {} or how == "GPUs of text"


@pytest.mark.parametrize("config", ["", "{}", "[", "null", '{"first_port": "x"}', "\x00" * 99, '{"first_port": 1}'])
def test_garbage_settings_are_accepted(tmp_path: Path, config: str) -> None:
    """Settings that are not whole add nothing and say so in the job's log."""
    found = run(tmp_path, event_of(LAUNCHES[0]), config=config)
    assert found["added"] == {}
    assert len(found["log"]) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"first_port": 80}, {"ports": 50_000}, {"host_suffix": "; id"}, {"interfaces": ["../lo"]}, {"queues": "workq"},
        {"opt_in": 0},
    ],
    ids=str,
)  # fmt: skip
def test_a_setting_that_is_none_counts_for_all_of_them(tmp_path: Path, wrong: dict[str, object]) -> None:
    """Half of a site's settings would be a world that the site does not want."""
    whole = json.loads(render(hook("pbs", "config"), Site()))
    found = run(tmp_path, event_of(LAUNCHES[0]), config=json.dumps(whole | wrong))
    assert (found["added"], len(found["log"])) == ({}, 1)


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
    "no settings file": "pbs.hook_config_filename = None",
    "an environment that raises": "def bad(*a): raise MemoryError\nevent.env.__class__.__iter__ = bad",
    "an alarm": "def bad(*a): raise KeyboardInterrupt\npbs.logjobmsg = bad\nevent.env.__class__.__iter__ = bad",
}


@pytest.mark.parametrize("how", SPOILS)
def test_any_exception_still_accepts(tmp_path: Path, how: str) -> None:
    """Whatever is raised inside, the job goes on."""
    assert run(tmp_path, {**event_of(LAUNCHES[0]), "spoil": SPOILS[how]})["added"] == {}
