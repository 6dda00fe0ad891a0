"""Slurm's TaskProlog under every shell, with what real clusters gave it and with what nobody should."""

import contextlib
import functools
import math
import os
import re
import resource
import signal
import subprocess
import time
from pathlib import Path

import pytest
from support.executables import executable
from support.hooks import FULL, HOOKS, OBSERVE, PET, SHELLS, SITES, exported, recorded, shell, written
from support.needs import only_with
from support.recorded import environ

from mingle_hooks.hooks.files import Chain, Site, render_hook as render
from mingle_hooks.hooks.targets import hook
from mingle_hooks.schedulers.facts import expand

TASKS = recorded("slurm-*/taskprolog.*")
SH = ["/bin/sh"]
# A step of four nodes with two tasks each, as Slurm 22.05 tells it to the task of rank 5.
STEP = {
    "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "3", "SLURM_STEP_NODELIST": "node[1-4]", "SLURM_STEP_NUM_NODES": "4",
    "SLURM_NNODES": "4", "SLURM_STEP_NUM_TASKS": "8", "SLURM_NTASKS": "8", "SLURM_STEP_TASKS_PER_NODE": "2(x4)",
    "SLURM_PROCID": "5", "SLURM_NODEID": "2", "SLURM_LOCALID": "1", "SLURM_DISTRIBUTION": "block",
    "SLURMD_NODENAME": "node3", "SLURM_JOB_PARTITION": "all",
}  # fmt: skip
ONE_EACH = {
    **STEP, "SLURM_STEP_TASKS_PER_NODE": "1(x4)", "SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_PROCID": "2", "SLURM_LOCALID": "0",
}  # fmt: skip
SINGLE = {
    **STEP, "SLURM_STEP_NODELIST": "node2", "SLURM_STEP_NUM_NODES": "1", "SLURM_NNODES": "1", "SLURM_NTASKS": "1",
    "SLURM_STEP_NUM_TASKS": "1", "SLURM_STEP_TASKS_PER_NODE": "1", "SLURM_PROCID": "0", "SLURM_NODEID": "0",
    "SLURM_LOCALID": "0",
}  # fmt: skip
BATCH = {"SLURM_JOB_ID": "77", "SLURM_JOB_NODELIST": "node[1-4]", "SLURM_JOB_NUM_NODES": "4"}
RANKS = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK"}


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the TaskProlog of a site without settings."""
    return written(tmp_path_factory.mktemp("hooks"), "slurm", "taskprolog")


@pytest.mark.parametrize("name", SHELLS)
def test_recorded_tasks_get_their_place(script: Path, name: str) -> None:
    """The variables say what Slurm's say, the same in all tasks of a step, in all shells, and under 22.05 and 26.05."""
    shared = ("MASTER_ADDR", "MASTER_PORT", "NNODES", "WORLD_SIZE", "MINGLE_ID")
    steps: dict[tuple[str, str], set[tuple[str | None, ...]]] = {}
    versions: dict[str, list[dict[str, str]]] = {}
    for path in TASKS:
        env = environ(path.parent.name, path.name)
        found = exported(script, env, shell(name))
        check_place(env, found)
        assert found == as_by_dash(script, path)
        task = path.name.replace(".-5.", ".batch.")
        steps.setdefault((path.parent.name, task.rpartition(".node")[0]), set()).add(tuple(map(found.get, shared)))
        versions.setdefault(task, []).append(found)
    assert {len(worlds) for worlds in steps.values()} == {1}
    assert [task for task, (older, newer) in versions.items() if older != newer] == []
    assert len(versions) == 20


@functools.cache
def as_by_dash(script: Path, path: Path) -> dict[str, str]:
    """Return what is exported with a recorded environment where /bin/sh is dash."""
    return exported(script, environ(path.parent.name, path.name), shell("dash"))


def check_place(env: dict[str, str], found: dict[str, str]) -> None:
    """Fail unless what was exported is right for that task."""
    is_batch = env.get("SLURM_STEP_ID", "-5") == "-5"
    if "SLURM_HET_SIZE" in env or env["SLURM_JOB_NUM_NODES" if is_batch else "SLURM_NTASKS"] == "1":
        assert found == {}
        return
    hosts = expand(env["SLURM_JOB_NODELIST" if is_batch else "SLURM_STEP_NODELIST"])
    assert (found["NNODES"], found["MASTER_ADDR"]) == (str(len(hosts)), hosts[0] if len(hosts) > 1 else "127.0.0.1")
    assert 20_000 <= int(found["MASTER_PORT"]) < 25_000
    assert found.keys() & PET in (set(), PET)
    if is_batch:
        assert not found.keys() & {"NODE_RANK", *RANKS, *PET}
        return
    assert hosts[int(found["NODE_RANK"])] == env["SLURMD_NODENAME"]
    is_one_each = env["SLURM_STEP_NUM_TASKS"] == env["SLURM_STEP_NUM_NODES"]
    wanted = (None, None) if is_one_each else (env["SLURM_PROCID"], env["SLURM_STEP_NUM_TASKS"])
    assert (found.get("RANK"), found.get("WORLD_SIZE")) == wanted
    assert int(found.get("LOCAL_WORLD_SIZE", "1")) == len(env["SLURM_GTIDS"].split(","))


WORLD = "MINGLE_ID=77.3 MASTER_ADDR=node1 MASTER_PORT=23011 NNODES=4 NODE_RANK=2"
# `torchrun --standalone` takes 1:4 too: a range that begins with 1 is whole with one node. The static rendezvous of the
# others takes its end (torch, static_tcp_rendezvous.py: world_size = max_nodes).
TORCHRUN = "PET_NNODES=1:4 PET_NODE_RANK=2 PET_NPROC_PER_NODE={} PET_MASTER_ADDR=node1 PET_MASTER_PORT=23011"
GPUS = {"SLURM_GPUS_ON_NODE": "8"}
# One task on each node may be a launcher: mpirun's orted hands its environment on, and Lightning starts none where
# LOCAL_RANK is. One that is alone gets nothing: a sweep there gives each process its GPU and its port, and a port or a
# number of ours would be one for all.
PLACES = {
    "several tasks on each node": (
        STEP, f"{WORLD} RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 GROUP_RANK=2",
    ),
    "one task on each node": (ONE_EACH, f"{WORLD} {TORCHRUN.format(1)}"),
    "a batch script": (BATCH, "MINGLE_ID=77 MASTER_ADDR=node1 MASTER_PORT=23007 NNODES=4"),
    "several tasks on one node": (
        {**SINGLE, "SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_TASKS_PER_NODE": "4",
         "SLURM_PROCID": "3", "SLURM_LOCALID": "3"},
        f"{WORLD} RANK=3 WORLD_SIZE=4 LOCAL_RANK=3 LOCAL_WORLD_SIZE=4 GROUP_RANK=0".replace("=node1", "=127.0.0.1")
        .replace("NNODES=4 NODE_RANK=2", "NNODES=1 NODE_RANK=0"),
    ),
    "a task that is alone": ({**SINGLE, **GPUS, "CUDA_VISIBLE_DEVICES": "0,1"}, ""),
    "a batch script on one node": (
        {**BATCH, **GPUS, "SLURM_JOB_NODELIST": "node1", "SLURM_JOB_NUM_NODES": "1", "SLURM_NTASKS": "4"}, "",
    ),
    "a node's GPUs": ({**ONE_EACH, **GPUS}, f"{WORLD} {TORCHRUN.format(8)}"),
    **{f"{count} GPUs that the task sees": (
        {**ONE_EACH, **GPUS, "CUDA_VISIBLE_DEVICES": visible}, f"{WORLD} {TORCHRUN.format(count)}",
    ) for visible, count in (("0,3", 2), (",".join(map(str, range(64))), 64), ("0," * 99, 64))},
    "the user's address": (
        {**ONE_EACH, "MASTER_ADDR": "10.0.0.9", "MASTER_PORT": "1234"},
        "MINGLE_ID=77.3 NNODES=4 NODE_RANK=2 "
        + TORCHRUN.format(1).replace("=node1", "=10.0.0.9").replace("=23011", "=1234"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("how", PLACES)
def test_a_task_gets_its_place(script: Path, how: str) -> None:
    """It gets this and nothing else; what the user set is not printed, and the other variables agree with it."""
    env, text = PLACES[how]
    found = exported(script, env, SH)
    found.pop("_MINGLE_HOOKS", None)
    wanted = dict(word.partition("=")[::2] for word in text.split())
    assert found == (wanted and {**wanted, "MINGLE_EXPORTS": " ".join([*wanted, "MINGLE_EXPORTS", text])})


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("rack[1-2]n[01-04]", "rack1n01"), ("node[05-08]-ib", "node05-ib"), ("gpu-a[3],gpu-b[1-2]", "gpu-a3"),
        ("node[1,3-4]", "node1"), ("a,b[1-2]", "a"), ("n[007]", "n007"), ("x.y-z_1", "x.y-z_1"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", SHELLS)
def test_the_first_host_of_a_list(script: Path, text: str, first: str, name: str) -> None:
    """Brackets, padding, suffixes and single hosts are read as `scontrol show hostnames` reads them."""
    env = {**BATCH, "SLURM_JOB_NODELIST": text}
    assert exported(script, env, shell(name))["MASTER_ADDR"] == first == expand(text)[0]


HOST_LISTS_IN_DOUBT = [
    "", "node[1-2", "node1]", "node[]", "node[a-b]", "[", "-n1", "n 1", "$(touch /tmp/owned)", "n;id", "n[1-2]$", "*",
    "é", "n[1]\n", "n[1-$(id)]", "n[1],`id`", "a" * 254, "n" + "[1]" * 30_000,
]  # fmt: skip


DOUBTS: list[dict[str, str]] = [
    *({"SLURM_JOB_ID": job} for job in ("", "0777", "$(id)", "9" * 11)),
    *({"SLURM_STEP_TASKS_PER_NODE": spread} for spread in (
        "2(x3),1", "2(x3)", "2(x4);id", "9999999999(x9999999999)" + ",1" * 99, "2(x2),4,0",
    )),
    {"SLURM_NODEID": "a[$(id)]"}, {"SLURM_NODEID": "4"}, {"SLURM_PROCID": "-1"}, {"SLURM_PROCID": "8"},
    {"SLURM_LOCALID": "2"}, {"SLURM_NNODES": "3"}, {"SLURM_NTASKS": "7"}, {"SLURM_STEP_ID": "x"},
    {"SLURM_DISTRIBUTION": "arbitrary"}, {"SLURM_HET_SIZE": "2"},
    {"MINGLE_EXPORTS": "A=1 " * 3000},  # more than mingle can list
    {"MINGLE_HOOKS": "off"},
]  # fmt: skip


# What the batch script hands on of its node's settings, which are of no use so.
NOT_UNDERSTOOD = [
    "77:", "77:2:on:20000:5000:3091:::.", "77:1:on:20000:5000:3091::", "77:1:on:20000:0:3091:::.", "77:1:on:x:1:1:::.",
    "77:1:on:60000:9000:3091:::.", "77:1:on:1:1:9999999999:::.", "77:1:on:1:1:1:$(id)::.",
    "77:1:on:1:1:1:a\nexport X=y::.", "77:1:else:20000:5000:3091:::.",
]  # fmt: skip


@pytest.mark.parametrize("name", SHELLS)
def test_any_doubt_adds_nothing(script: Path, name: str) -> None:
    """Facts that contradict themselves, or cannot be read, end in no variable at all, on all nodes alike.

    Settings of another job, which sbatch brings along, count for nothing.
    """
    doubts = [{**STEP, **facts} for facts in DOUBTS]
    doubts += [{**BATCH, "SLURM_JOB_NODELIST": text} for text in HOST_LISTS_IN_DOUBT]
    doubts += [{**STEP, "_MINGLE_HOOKS": text} for text in NOT_UNDERSTOOD]
    assert [env for env in doubts if exported(script, env, shell(name))] == []
    other = {**STEP, "_MINGLE_HOOKS": "78:1:off:1:1:1:::."}
    assert exported(script, other, shell(name)) == exported(script, STEP, shell(name))


@pytest.mark.parametrize("name", sorted(PET | RANKS | {"PET_RDZV_BACKEND", "PET_RDZV_ENDPOINT", "PET_STANDALONE"}))
def test_torchruns_variables_and_ranks_are_all_or_none(script: Path, name: str) -> None:
    """One PET_* of the user's, or one rank or size that differs, is enough for none of ours."""
    assert not exported(script, {**(STEP if name in RANKS else ONE_EACH), name: "99"}, SH).keys() & (PET | RANKS)


def test_what_it_exported_itself_is_brought_up_to_date(script: Path) -> None:
    """In a nested step, what the outer TaskProlog exported is replaced, and what no longer holds is unset."""
    outer = exported(script, {**ONE_EACH, "SLURM_STEP_ID": "0"}, SH)
    assert outer.keys() >= PET
    given = {**STEP, "SLURM_STEP_NODELIST": "node[2-5]", **outer}
    done = subprocess.run([*SH, script], env=given, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert lines.index("unset MASTER_ADDR") < lines.index("export MASTER_ADDR=node2")  # Slurm goes by their order
    for name in PET:
        assert f"unset {name}" in lines
        assert not [line for line in lines if line.startswith(f"export {name}=")]


@pytest.mark.parametrize("name", SHELLS)
def test_what_mingle_env_exported_is_still_known_as_its_own(script: Path, name: str) -> None:
    """`mingle env` lists names without values; they stay listed, and nothing that is no name does."""
    listed = "MASTER_ADDR WORLD_SIZE x $(id) a=b * MINGLE_EXPORTS"
    earlier = {"MASTER_ADDR": "10.0.0.1", "WORLD_SIZE": "9", "MINGLE_EXPORTS": listed}
    found = exported(script, {**STEP, **earlier}, shell(name))
    names = [word for word in found["MINGLE_EXPORTS"].split() if "=" not in word]
    assert {"MASTER_ADDR", "WORLD_SIZE", "NODE_RANK"} < set(names)
    assert len(names) == len(set(names))
    assert not {"x", "$(id)", "*"} & set(names)
    assert "MASTER_ADDR" not in found


def test_a_leftover_is_unset_unless_the_user_changed_it(script: Path) -> None:
    """What the hook exported in the batch script must not mislead a step, in which it may add nothing."""
    batch = exported(script, BATCH, SH)
    found = exported(script, {**STEP, **batch, "MASTER_ADDR": "mine"}, SH)
    assert (found["MASTER_PORT"] != batch["MASTER_PORT"], "MASTER_ADDR" in found) == (True, False)
    assert "MASTER_ADDR" not in found["MINGLE_EXPORTS"].split()
    env = {**STEP, **batch, "SLURM_DISTRIBUTION": "arbitrary"}
    done = subprocess.run([*SH, script], env=env, capture_output=True, text=True, check=True)
    assert sorted(done.stdout.split()[1::2]) == sorted(batch.keys() - {"_MINGLE_HOOKS"})
    assert set(done.stdout.split()[::2]) == {"unset"}


@pytest.mark.parametrize("ports", [range(20_000, 25_000), range(20_000, 20_100), range(20_000, 20_001)], ids=len)
def test_the_port_is_of_job_and_step(tmp_path: Path, ports: range) -> None:
    """The range's start + (job id * stride + step id + 1) % its length; a batch script has no step id, and no 1."""
    site = Site(port_range=ports)
    script = written(tmp_path, "slurm", "taskprolog", site)
    for job, step in ((7, 0), (4_294_967_295, 4_294_967_000)):
        env = {**STEP, "SLURM_JOB_ID": str(job), "SLURM_STEP_ID": str(step)}
        slot = (job * site.port_stride + step + 1) % len(ports)
        assert exported(script, env, SH)["MASTER_PORT"] == str(ports[slot])
    batch = {**BATCH, "SLURM_JOB_ID": "7"}
    assert exported(script, batch, SH)["MASTER_PORT"] == str(ports[7 * site.port_stride % len(ports)])


@pytest.mark.parametrize(("length", "steps"), [(5_000, 200), (1_000, 40), (10_000, 400), (9_973, 380)])
def test_steps_and_neighbouring_jobs_differ_in_their_ports(length: int, steps: int) -> None:
    """No two of 10 jobs in a row meet, nor two steps of one, with steps for a twenty-fifth of the range in each."""
    stride = Site(port_range=range(20_000, 20_000 + length)).port_stride
    found = [(job * stride + slot) % length for job in range(70, 80) for slot in range(steps)]
    assert len(set(found)) == len(found)
    assert math.gcd(stride, length) == 1  # all jobs of the length's number have ports of their own


@pytest.mark.parametrize("hosts", ["node[5-8]", "node[1,5-7]"])
@pytest.mark.parametrize("title", ["of another program", "hidden"])
def test_a_batch_script_with_another_jobs_step_gets_nothing(tmp_path: Path, title: str, hosts: str) -> None:
    """Where no title tells a batch script that a step's sbatch gave in: the step's hosts are not the job's."""
    script = written(tmp_path, "slurm", "taskprolog")
    if title == "hidden":  # hidepid=2; else a site's wrapper, or this test
        script.write_text(script.read_text().replace("/proc/${PPID}/cmdline", "/nonexistent"))
    job = {"SLURM_JOB_NODELIST": "node[1-4]", "SLURM_JOB_NUM_NODES": "4", "SLURM_NODEID": "0", "SLURM_PROCID": "0",
           "SLURM_LOCALID": "0"}  # fmt: skip
    assert exported(script, {**ONE_EACH, **job, "SLURM_STEP_NODELIST": hosts}, SH) == {}
    assert exported(script, {**ONE_EACH, **job}, SH)["NODE_RANK"] == "0"
    part = {**STEP, "SLURM_JOB_NODELIST": "node[1-8]", "SLURM_JOB_NUM_NODES": "8"}
    assert exported(script, part, SH)["RANK"] == "5"


def test_the_sites_settings_are_kept(tmp_path: Path) -> None:
    """The hook follows the suffix, interface, partition and canary host of the settings."""
    site = Site(host_suffix="-ib", interfaces=("nosuch0", "lo"), partitions=("all",), hosts=("node1",))
    script = written(tmp_path, "slurm", "taskprolog", site)
    found = exported(script, ONE_EACH, SH)
    assert found["MASTER_ADDR"] == "node1-ib"
    assert (found["NCCL_SOCKET_IFNAME"], found["GLOO_SOCKET_IFNAME"]) == ("=lo", "lo")
    assert exported(script, {**ONE_EACH, "SLURM_JOB_PARTITION": "other"}, SH) == {}
    assert exported(script, {**ONE_EACH, "SLURM_STEP_NODELIST": "node[2-5]"}, SH) == {}


def test_an_interface_in_nccls_file_wins(tmp_path: Path) -> None:
    """A variable would silently win; Gloo has no file."""
    script, conf = written(tmp_path, "slurm", "taskprolog", Site(interfaces=("lo",))), tmp_path / "nccl.conf"
    script.write_text(script.read_text().replace("/etc/nccl.conf", str(conf)))
    for text, more, is_set in (
        (None, {}, True), ("", {"NCCL_CONF_FILE": ""}, True), ("", {"NCCL_CONF_FILE": "/home/alice/x"}, False),
        ("NCCL_SOCKET_IFNAME=eth0\n", {}, False), ("# ours\nNCCL_DEBUG=WARN\nNCCL_SOCKET_IFNAME=eth0", {}, False),
        ("#NCCL_SOCKET_IFNAME=eth0\n NCCL_SOCKET_IFNAME=eth0\nNCCL_SOCKET_IFNAMES=eth0\n", {}, True),
    ):  # fmt: skip
        if text is not None:
            conf.write_text(text)
        found = exported(script, {**ONE_EACH, **more}, SH)
        assert ("NCCL_SOCKET_IFNAME" in found, found["GLOO_SOCKET_IFNAME"]) == (is_set, "lo"), text


# Settings of a node that differ from those of the node where the batch script began.
OTHERS = (
    OBSERVE, FULL, Site(port_range=range(30_000, 31_000)), Site(host_suffix="-ib"), Site(hosts=("node9",)),
    Site(partitions=("none",)), Site(opt_in="please"),
)  # fmt: skip


@pytest.mark.parametrize("name", SHELLS)
def test_a_steps_nodes_follow_the_first_nodes_settings(tmp_path: Path, name: str) -> None:
    """The batch script hands them on, so that all tasks get the same whatever settings their own nodes have."""
    scripts = []
    for number, site in enumerate((Site(), *OTHERS)):
        (tmp_path / str(number)).mkdir()
        scripts.append(written(tmp_path / str(number), "slurm", "taskprolog", site))
    batch = {**BATCH, "SLURM_JOB_PARTITION": "all"}
    for first in scripts:
        handed = exported(first, batch, shell(name))
        assert re.fullmatch(r"77:1:(on|off|observe):\d+:\d+:\d+:[a-z-]*:[a-z0-9,]*:\.", handed["_MINGLE_HOOKS"])
        steps = [exported(script, {**STEP, **handed}, shell(name)) for script in scripts]
        worlds = [{key: each.get(key) for key in ("MASTER_ADDR", "MASTER_PORT", "RANK", "MINGLE_ID")} for each in steps]
        assert worlds == [worlds[0]] * len(steps)
        assert (worlds[0]["RANK"] == "5") == ("MASTER_ADDR" in handed)


@pytest.mark.parametrize("site", [FULL, OBSERVE], ids=["opt-in", "observe"])
def test_where_a_job_has_not_opted_in_and_where_it_observes_it_adds_nothing(tmp_path: Path, site: Site) -> None:
    """The Prolog leaves a mark for jobs whose comment asks; in observe mode the system log hears what would be set."""
    assert exported(written(tmp_path, "slurm", "taskprolog", site), ONE_EACH, SH) == {}


@pytest.mark.parametrize("name", SHELLS)
def test_hostile_values_add_no_line_of_their_own(script: Path, name: str) -> None:
    """A user's text in any variable ends up in no line that Slurm reads."""
    bad = "x\nexport LD_PRELOAD=/tmp/evil.so\nprint `id` $(id)"
    names = [*STEP, "MASTER_ADDR", "MASTER_PORT", "MINGLE_EXPORTS", "RANK", "PET_NNODES", "CUDA_VISIBLE_DEVICES", "IFS"]
    for hostile in [*names, "PS4", "ENV", "SLURM_GPUS_ON_NODE", "SLURM_HET_SIZE"]:
        found = exported(script, {**ONE_EACH, hostile: bad}, shell(name))
        assert "LD_PRELOAD" not in found
        assert not re.search(r"evil|`|\$", " ".join(found.values()))


@only_with("root")
def test_it_runs_no_other_command(script: Path) -> None:
    """It prints the same where no further process may be started."""
    done = subprocess.run(
        ["/bin/sh", "-c", script.read_text()], env=STEP, capture_output=True, text=True, check=True,
        user=65534, group=65534, extra_groups=[], cwd="/",
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NPROC, (0, 0)),
    )  # fmt: skip
    assert "export RANK=5\n" in done.stdout


@pytest.mark.parametrize("to", [">&-", ">/dev/full", ""], ids=["closed", "full", "nobody reads it"])
def test_an_output_that_cannot_be_written_is_no_failure(script: Path, to: str) -> None:
    """Whatever becomes of its output, its status is 0, and it says nothing of it to the task."""
    reader, writer = os.pipe()
    os.close(reader)
    words = ["sh", "-c", f"/bin/sh {script} {to}"]
    try:
        done = subprocess.run(words, env=STEP, stdout=writer, stderr=subprocess.PIPE, check=False)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


def test_long_lists_end_soon(script: Path) -> None:
    """The longest lists that an environment can hold take milliseconds: seen to take 12 s, as its square grew."""
    started = time.monotonic()
    texts = ("n[" + "1," * 60_000 + "2]", "n," * 60_000, "n[1-2]" * 20_000, "x" * 120_000, "]" * 120_000, "[" * 120_000)
    for text in (*texts, "1" * 120_000 + "(x2)"):
        exported(script, {**BATCH, "SLURM_JOB_NODELIST": text}, SH)
        exported(script, {**STEP, "SLURM_STEP_NODELIST": text}, SH)
        exported(script, {**STEP, "SLURM_STEP_TASKS_PER_NODE": text}, SH)
    assert time.monotonic() - started < 10


# The site's own programs, of which None cannot be run and a link leads nowhere; the status, and what they print. `own`
# is what slurm.conf named, `site.d` task_prolog.d, `drop-ins` prolog.d or taskprolog.d.
LINK = "a link"
OWN_PROGRAMS: list[tuple[dict[str, str | None], int, list[str]]] = [
    (
        {"site.d/20": "echo 20", "site.d/10": 'echo "10 $# $SLURM_JOB_ID ${HOME-none}"', "site.d/README": None,
         "drop-ins/20": "echo 21", "drop-ins/10": "echo 11", "drop-ins/.hidden": None, "own": "echo own; exit 3"},
        3, ["10 1 7 none", "20", "11", "21", "own"],
    ),
    ({"site.d/10": "exit 7", "site.d/20": "echo 20", "own": "echo own"}, 7, []),
    ({"drop-ins/10": "echo 11", "drop-ins/15": "exit 9", "own": "echo own"}, 9, ["11"]),
    ({"drop-ins/15": None, "own": "echo own"}, 126, []),
    ({"drop-ins/15": LINK, "own": "echo own"}, 127, []),
    ({"own": None}, 126, []),
    ({}, 127, []),
]  # fmt: skip


@pytest.mark.parametrize("name", SHELLS)
@pytest.mark.parametrize("wrapper", ["taskprolog-all", "prolog"])
def test_the_sites_own_programs_run_after_ours_as_without_it(tmp_path: Path, wrapper: str, name: str) -> None:
    """They run in order, with environment, arguments and status, until one fails, also with the kill switch."""
    for number, (programs, status, lines) in enumerate(OWN_PROGRAMS):
        place = tmp_path / str(number)
        for path, text in {**programs, "taskprolog": "echo ours"}.items():
            file = place / path.replace("drop-ins", f"{wrapper.removesuffix('-all')}.d")
            file.parent.mkdir(parents=True, exist_ok=True)
            if text == LINK:
                file.symlink_to("nothing")
            else:
                file.write_text(f"#!/bin/sh\n{text}\n")
                file.chmod(0o755 if text else 0o644)
        chain = Chain(f"{place}/own", f"{place}/site.d", str(place))
        options = {"place": str(place), "state_directory": f"{place}/state", "kill_switch": f"{place}/disabled"}
        script = executable(place / wrapper, render(hook("slurm", wrapper), Site(), chain, **options))
        for _ in range(2):
            argv = [*shell(name), str(script), "a b"]
            done = subprocess.run(argv, env={"SLURM_JOB_ID": "7"}, capture_output=True, text=True, check=False)
            ours = ["ours"] if wrapper == "taskprolog-all" else []
            assert (done.returncode, done.stdout.splitlines()) == (status, [*ours, *lines]), programs
            (place / "disabled").touch()


SHELL_HOOKS = [each for each in HOOKS if each.template.endswith(".sh.j2") and each.scheduler != "pbs"]
# Of scripts that differ in their names only, one is enough: the last.
SCRIPTS = [*{(each.template, each.scheduler): each for each in SHELL_HOOKS}.values()]


def run_part(argv: list[str], env: dict[str, str]) -> tuple[int, str]:
    """Run a hook and return its status and output; what it leaves in its process group is ended, as slurmd does."""
    process = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        return process.wait(20), process.communicate(timeout=20)[0]
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.parametrize("name", SHELLS)
@pytest.mark.parametrize("each", SCRIPTS, ids=lambda each: f"{each.scheduler}-{each.name}")
def test_a_hook_that_ends_at_any_line_is_no_failure(tmp_path: Path, each: object, name: str) -> None:
    """Cut after any line, a hook has status 0, and a TaskProlog prints nothing or all.

    Under dash that is every line but comments, after which a shell reads what it read before them; under the other
    shells it is every tenth, as each is a process or several.
    """
    hook = next(known for known in SCRIPTS if known is each)
    text = render(hook, *SITES["plain"], state_directory=f"{tmp_path}/state")
    script, lines = tmp_path / "hook", text.splitlines(keepends=True)
    env = {**STEP, "SLURM_JOB_UID": "0"}
    printed = set()
    cuts = [number for number, line in enumerate(lines, 1) if number == 1 or line.split("#", 1)[0].strip()]
    for count in {*(cuts if name == "dash" else range(1, len(lines), 10)), len(lines)}:
        script.write_text("".join(lines[:count]))
        status, output = run_part([*shell(name), str(script), "7.server", "root", "root"], env)
        assert status == 0, (count, lines[count - 1])
        printed.add(output)
    assert len(printed) <= 2, printed
