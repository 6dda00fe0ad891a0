"""The hooks on a real OpenPBS."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster.host import Host
from cluster.paths import BIN
from cluster.real_pbs import RealPbs

PLACE = "/run/pbs/mom_priv/hooks"
MINGLE_HOOKS = ["mingle", "hooks"]
BACKUP = "/etc/mingle/hooks/qmgr-hooks.before"
SHOW = "/home/alice/show.py"
OWN = "/root/own.py"
OWN_TEXT = "import pbs\npbs.event().accept()\n"
SHOW_TEXT = """
import json, os
names = ["MASTER_ADDR", "MASTER_PORT", "NNODES", "NODE_RANK", "RANK", "WORLD_SIZE", "LOCAL_RANK", "MINGLE_ID"]
names += sorted(n for n in os.environ if n.startswith("PET_"))
line = json.dumps({"HOST": os.uname().nodename, **{n: os.environ.get(n) for n in names}})
# Not to standard output: pbs_demux copies 256 octets at a time, and so cuts the lines of one task by another's.
with open("/home/alice/shown." + os.environ["PBS_JOBID"], "a") as file:
    file.write(line + "\\n")
"""
TWO_HOSTS = "#PBS -l select=2:ncpus=2:mpiprocs=2\n#PBS -l place=scatter\n"
ITS_KEY = 'cd /run/mingle/$PBS_JOBID && stat -c "%n %U %a" . key && cat key'
# With values that PBS writes into one comma-separated text between pbs_mom and the hook.
KEPT = {
    "COMMA": "a,b,,c",
    "BACKSLASH": "a\\b\\\\c",
    "EQUALS": "a=b,C=d",
    "TEXT": " é 漢 $HOME `id` ; ",
    "LINES": "a\nb",
    "EMPTY": "",
}
# The job script, a task for each line of the node file, and one on each host.
EVERYWHERE = f"""#!/bin/bash
{TWO_HOSTS}
python3 {SHOW}
pbsdsh -- python3 {SHOW}
for host in node1 node2; do pbs_tmrsh $host python3 {SHOW}; done
"""


def commands(pbs: RealPbs, *words: str) -> list[str]:
    """Run mingle hooks on the server's host, and return the qmgr commands that it prints."""
    done = pbs.controller.run([*MINGLE_HOOKS, *words], check=True)
    return [line for line in done.stdout.splitlines() if "qmgr -c" in line]


def carry_out(pbs: RealPbs, lines: list[str]) -> None:
    """Run commands as an admin would, all of them or none."""
    text = "\n".join(["set -e", f"PATH=$PATH:{pbs.exec}/bin", *lines])
    pbs.controller.run(["sh", "-c", text], check=True)


def hooks(pbs: RealPbs) -> str:
    """Return all hooks as qmgr commands; without any, qmgr ends with 1 and prints nothing."""
    return pbs.run("bin/qmgr", "-c", "print hook").stdout


def wait_for_copies(pbs: RealPbs, name: str, *, there: bool) -> None:
    """Wait until the hook has come to all hosts, or is gone from them: pbs_server copies it when it finds time."""

    def has(host: Host) -> bool:
        control = host.outside(f"{PLACE}/{name}.HK")
        is_on = control.exists() and "enabled=false" not in control.read_text()
        return is_on and host.outside(f"{PLACE}/{name}.PY").exists()

    pbs.until(lambda: all(has(host) == there for host in pbs.hosts), f"copies of the hook {name}")


def install(pbs: RealPbs) -> None:
    """Install the hooks and wait until every host has them."""
    carry_out(pbs, commands(pbs, "install", "pbs", "--yes"))
    wait_for_copies(pbs, "mingle", there=True)


def uninstall(pbs: RealPbs) -> None:
    """Take the hooks away again."""
    carry_out(pbs, commands(pbs, "uninstall", "pbs", "--dry-run"))
    pbs.controller.run([*MINGLE_HOOKS, "uninstall", "pbs", "--yes"], check=True)
    wait_for_copies(pbs, "mingle", there=False)


# All that these tests, and what they install, put on a host.
PUT = f"/etc/mingle /run/pbs/mom_priv/prologue /run/pbs/mom_priv/epilogue {SHOW} /home/alice/shown.* {OWN}"
PUT += " /run/pbs/mom_priv/prologue.before-mingle /run/pbs/mom_priv/epilogue.before-mingle"
PUT += " /home/alice/inner /run/mingle /run/elsewhere /run/own-prologue"


@pytest.fixture
def swept(real_pbs: RealPbs) -> Iterator[RealPbs]:
    """Give the shared PBS, and take every hook away afterwards, whatever came of the test."""
    yield real_pbs
    unwell = real_pbs.unwell()  # before settle mends it
    real_pbs.settle()
    for name in re.findall(r"^create hook (\S+)$", hooks(real_pbs), re.MULTILINE):
        real_pbs.qmgr(f"set hook {name} enabled=false")
        real_pbs.qmgr(f"delete hook {name}")
        wait_for_copies(real_pbs, name, there=False)
    for host in real_pbs.hosts:
        host.run(["sh", "-c", f"rm -rf {PUT}"], check=True)
    assert not unwell


def seen_by(pbs: RealPbs, job: str) -> list[dict[str, str | None]]:
    """Return what a job's script and its tasks saw so far, in their order."""
    file = pbs.controller.outside(f"/home/alice/shown.{job}")
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def shown(pbs: RealPbs, job: str) -> list[dict[str, str | None]]:
    """Wait for a job's end and return what its script and its tasks saw."""
    assert pbs.wait(job) == 0, pbs.output(job)
    return seen_by(pbs, job)


def test_the_script_and_every_task_get_the_same(swept: RealPbs) -> None:
    """A job that never heard of the project has an address, a port and torchrun's options, the same everywhere.

    What `qsub -v` brings along is the same with the hook and without it (qsub itself doubles backslashes).
    """
    swept.controller.write(SHOW, SHOW_TEXT.replace("names += ", f"names += {list(KEPT)!r} + "))
    jobs = []
    for prepare in (lambda _: None, install):
        prepare(swept)
        jobs.append(shown(swept, swept.submit(EVERYWHERE, "-v", ",".join(KEPT), cwd="/home/alice", env=KEPT)))
    bare, seen = jobs
    assert len(bare) == len(seen) == 1 + 4 + 2
    kept = [sorted((its["HOST"], *map(its.get, KEPT)) for its in job) for job in jobs]
    assert kept[0] == kept[1]
    assert bare[0]["COMMA"] == KEPT["COMMA"]
    assert not [name for its in bare for name in its if name.startswith("PET_")]
    assert not [name for name in seen[0] if name.startswith("PET_")]
    assert seen[0]["NODE_RANK"] is None
    for each in seen[1:]:
        assert each["NODE_RANK"] == each["PET_NODE_RANK"] == str(["node1", "node2"].index(str(each["HOST"])))
        assert (each["PET_MASTER_ADDR"], each["PET_MASTER_PORT"]) == (each["MASTER_ADDR"], each["MASTER_PORT"])
    assert {(each["MASTER_ADDR"], each["NNODES"], each["RANK"]) for each in seen} == {("node1", "2", None)}
    assert {each["HOST"] for each in seen} == {"node1", "node2"}
    for name in ("MASTER_PORT", "MINGLE_ID"):
        assert len({each[name] for each in seen}) == 1, name


def test_mingle_env_makes_one_world_of_a_hooked_job(swept: RealPbs, tmp_path: Path) -> None:
    """What the hook worked out is replaced by the world that formed, and the user's own address is kept.

    Every host of the job has its key, which root made before the first task from the site's, and loses it with the job.
    """
    swept.controller.write(SHOW, SHOW_TEXT)
    for host in swept.hosts:
        host.write("/etc/mingle/key", "0123456789abcdef" * 4 + "\n", mode=0o400)
    install(swept)
    task = tmp_path / "task"
    task.write_text(f'PATH={BIN}:$PATH\nv=$(mingle env --scope node) || exit\neval "$v"\npython3 {SHOW}\n')
    each = "for host in node1 node2; do pbs_tmrsh $host "
    script = f"#!/bin/bash\n{TWO_HOSTS}\n{each}bash {task} & done; wait\n{each}sh -c '{ITS_KEY}'; done"
    for own in ({}, {"MASTER_ADDR": "10.77.0.1", "MASTER_PORT": "4242"}):
        options = ("-v", ",".join(f"{name}={value}" for name, value in own.items())) if own else ()
        job = swept.submit(script, *options, cwd="/home/alice")
        seen = sorted(shown(swept, job), key=lambda its: str(its["HOST"]))
        hosts = [("node1", "0", "2"), ("node2", "1", "2")]
        assert [(its["HOST"], its["NODE_RANK"], its["NNODES"]) for its in seen] == hosts
        assert len({(its["MASTER_ADDR"], its["MASTER_PORT"]) for its in seen}) == 1
        assert {name: seen[0][name] for name in own} == own
        assert str(seen[0]["MASTER_ADDR"]).startswith("10.")  # found by asking, or the user's, not a host's name
        assert {its["WORLD_SIZE"] for its in seen} == {"4"}
        for its in seen:
            assert (its["PET_MASTER_ADDR"], its["PET_MASTER_PORT"]) == (its["MASTER_ADDR"], its["MASTER_PORT"])
            assert (its["PET_NNODES"], its["PET_NODE_RANK"]) == ("2", its["NODE_RANK"])  # the hook's was 1:2
        lines = swept.output(job).splitlines()
        assert (lines[:3], lines[:2]) == (lines[3:], [". alice 700", "key alice 400"])
        assert re.fullmatch("[0-9a-f]{64}", lines[2])
    places = [host.outside("/run/mingle") for host in [*swept.hosts][:2]]
    swept.until(lambda: all(os.listdir(place) == [".lock"] for place in places), "the end of the directories")


def test_installing_twice_changes_nothing_and_uninstalling_restores(swept: RealPbs) -> None:
    """A site's own hook and prologue are there afterwards as they were before."""
    host = swept.controller
    prologue = "#!/bin/sh\ntouch /run/own-prologue\n"
    host.write("/run/pbs/mom_priv/prologue", prologue, mode=0o700)
    host.write(OWN, OWN_TEXT)
    swept.qmgr("create hook own event=queuejob")
    swept.qmgr(f"import hook own application/x-python default {OWN}")
    before = hooks(swept)
    install(swept)
    once = hooks(swept)
    backup = host.outside(BACKUP)
    assert backup.read_text() == before
    install(swept)
    assert hooks(swept) == once
    assert backup.read_text() == before
    job = swept.submit("#!/bin/sh\nls -d /run/mingle/*; ls /run/own-prologue", cwd="/home/alice")
    assert swept.wait(job) == 0
    assert swept.output(job).split() == [f"/run/mingle/{job}", "/run/own-prologue"]
    uninstall(swept)
    assert hooks(swept) == before
    assert host.outside("/run/pbs/mom_priv/prologue").read_text() == prologue
    assert not host.outside("/run/pbs/mom_priv/epilogue").exists()
