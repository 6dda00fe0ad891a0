"""Every command of docs/ is run as it stands: in a shell of salloc, a batch script, a stand-in, on plain hosts."""

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from cluster.hosts import Hosts, run_each
from cluster.pbs import PbsStandIn
from cluster.slurm import SlurmCluster
from documents import BIN, CASES, KEYED, Block, environ, find, plain_words, says, standins, world, worlds
from forked import Forked
from light import BIN as LIGHT_BIN, TRAIN
from needs import lacking, skip_for_want_of
from support import remote_stand_ins
from support.executables import executable

OWN: dict[str, str] = {name: find(*where).text for name, where in CASES["own"].items()}


def salloc(slurm: SlurmCluster, text: str, *options: str, **how: Any) -> CompletedProcess[str]:
    """Run a block in a shell of salloc, as a user who is not root."""
    return slurm.controller.run(["salloc", *(options or ("-N2",)), "bash", "-c", text], user="alice", **how)


def test_a_line_in_a_shell_of_salloc_makes_one_world(slurm: SlurmCluster, tmp_path: Path) -> None:
    """There is no key yet, and mpirun is the real one."""
    path, lacks = f"{standins(tmp_path)}:/usr/bin:/bin", lacking("mpirun")
    for case in CASES["allocated"]:
        text = find(case["page"], case["mark"]).text.strip() + case.get("then", "")
        if not (lacks and text.startswith("mpirun")):
            done = salloc(slurm, text, *case["options"].split(), cwd=tmp_path, env={"PATH": path})
            assert (done.returncode, worlds(done.stdout)) == (0, world(case["size"])), done
    skip_for_want_of(lacks)


def test_a_batch_script_makes_one_world(slurm: SlurmCluster, tmp_path: Path) -> None:
    """The script as it stands."""
    env = {"PATH": f"{standins(tmp_path)}:/usr/bin:/bin"}
    scripts = [find(case["page"], case["mark"]).text for case in CASES["batch"]]
    how = {"user": "alice", "cwd": str(tmp_path), "env": env}
    jobs = [slurm.submit(script, f"--output={tmp_path}/%j", **how) for script in scripts]
    for job, case in zip(jobs, CASES["batch"], strict=True):
        state, output = slurm.wait(job), (tmp_path / str(job)).read_text()
        assert (state, worlds(output)) == ("COMPLETED", world(case["size"])), output


def test_the_lines_for_a_script_that_starts_torchrun_itself_make_one_world(slurm: SlurmCluster, tmp_path: Path) -> None:
    """The batch script starts a torchrun that meets the others by PET_*."""
    (tmp_path / "train.py").write_text(TRAIN.read_text())
    env = {"PATH": f"{LIGHT_BIN}:{BIN}:/usr/bin:/bin"}
    script, output = OWN["evaluated"], f"--output={tmp_path}/out"
    job = slurm.submit(script, "-N2", "-n2", output, user="alice", cwd=str(tmp_path), env=env)
    state, text = slurm.wait(job), (tmp_path / "out").read_text()
    assert (state, text.count("SIZE=2")) == ("COMPLETED", 2), text


# Block -> a pattern, and all that it finds in what a shell of salloc on two nodes prints.
PRINTED = {
    "places": (r"rank \d of \d", ["rank 0 of 2", "rank 1 of 2"]),  # by a torchrun without torch
    "address": (r"(node \d of 2), rank 0 at 10\.7[78]\.0\.\d:2\d{4}", ["node 0 of 2", "node 1 of 2"]),
    "lightning": (r"local rank .*", ["local rank none of 0/4", "local rank none of 1/4"]),
}


@pytest.mark.parametrize("name", PRINTED)
def test_a_line_shows_each_process_its_place(slurm: SlurmCluster, tmp_path: Path, name: str) -> None:
    """Lightning, which starts the two processes of a node, gets no local rank; `make frameworks` runs it."""
    executable(tmp_path / "python", "#!/bin/sh\necho local rank ${LOCAL_RANK-none} of $NODE_RANK/$WORLD_SIZE\n")
    pattern, expected = PRINTED[name]
    done = salloc(
        slurm, OWN[name], cwd=tmp_path, env={"PATH": f"{tmp_path}:{LIGHT_BIN}:{BIN}:/usr/bin:/bin"}, timeout=120
    )
    assert sorted(re.findall(pattern, done.stdout)) == expected, done


def test_explain_says_what_is_shown(slurm: SlurmCluster, tmp_path: Path) -> None:
    """Each line is looked for by itself, as the two nodes' lines may mix."""
    env = {"PATH": f"{standins(tmp_path)}:/usr/bin:/bin", "MASTER_PORT": "23456"}
    done = salloc(slurm, OWN["explain"], "-N2", "-w", "node1,node2", cwd=tmp_path, env=env)
    shown = [line for line in OWN["explained"].splitlines() if line != "…"]
    assert [line for line in shown if not says(done.stderr, line)] == [], done.stderr


def test_a_missing_mingle_ends_a_script(four: Hosts) -> None:
    """Nothing after the line is run."""
    script = OWN["missing"] + "echo went on"
    done = four[0].run(["bash", "-c", script], env={"PATH": "/usr/bin:/bin"})
    assert (done.returncode, done.stdout) == (1, "")


def test_a_line_with_mingle_template_makes_a_script(forked: Forked) -> None:
    """What qsub and others get is a script that bash can read; tests/system/scripts runs such scripts."""
    for where in CASES["blocks"]["templates"]:
        line, submit = find(*where).text.strip().rsplit(" | ", 1)
        assert submit in ("sbatch", "qsub", "bsub")
        done = forked.run(*(plain_words(line) or ()), env={"PATH": "/usr/bin:/bin"})
        subprocess.run(["bash", "-n"], input=done.stdout, text=True, check=True)
        assert "\n  torchrun train.py\n" in done.stdout


def test_the_recipe_to_leave_is_found_by_lint_and_changed(four: Hosts, tmp_path: Path) -> None:
    """--fix writes what the page shows."""
    (tmp_path / "job.sh").write_text(find("lint.md", "MASTER_PORT=29500").text)
    done = four[0].run(["bash", "-c", OWN["lint"]], cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "job.sh:5: fixed-port: this port is the same in all your jobs" in done.stdout
    assert "+srun mingle exec --for nccl torchrun" in done.stdout
    four[0].run(["mingle", "lint", "--fix", "job.sh"], cwd=tmp_path, check=True)
    assert (tmp_path / "job.sh").read_text() == find("lint.md", "srun mingle exec --for nccl").text


def command(block: Block, start: str) -> str:
    """Return what a scheduler would run on each host: the line without the scheduler's own words."""
    if block.language == "yaml":
        (words,) = re.findall(r"command: (\[.*\])", block.text)
        return shlex.join(json.loads(words))
    line = block.text.strip()
    return line[line.index(start) :].rstrip('"') if start == "mingle exec" else line[line.index(start) :]


def test_a_line_with_the_variables_of_its_scheduler_makes_one_world(
    hosts: Callable[..., Hosts], tmp_path: Path, forked: Forked
) -> None:
    """The schedulers that are not here: their variables are, on as many hosts as the line is for."""
    four, path = hosts(4), f"{standins(tmp_path)}:/usr/bin:/bin"
    for host in four:
        host.run(["bash", "-c", "echo 10.77.0.1 train-0.train train-workers-0-0.train >>/etc/hosts"], check=True)
    for case in CASES["variables_of"]:
        block, size = find(case["page"], case["mark"]), case.get("count", 2)
        line = command(block, case.get("start", "mingle exec")).replace("/scratch/shared", str(tmp_path))
        envs = [{**KEYED, "PATH": path, **environ(case.get("env", ""), i=number, n=size)} for number in range(size)]
        if words := plain_words(line):
            done = forked.run_on([(four[number], words, env) for number, env in enumerate(envs)], cwd=tmp_path)
        else:
            done = run_each([*four][:size], [["bash", "-c", line]] * size, envs, cwd=tmp_path)
        output = "".join(one.stdout for one in done)
        assert worlds(output) == world(size), (line, done)


def pbs_script(path: str) -> str:
    """Return the script of the page, with its comment about PATH followed."""
    script = OWN["pbs_script"]
    assert "# Activate your environment here" in script
    return re.sub(r"# Activate your environment here.*", f"PATH={path}:$PATH", script)


def test_the_pbs_script_trains_and_ends_well_or_with_the_status_of_the_host_that_fails(
    hosts: Callable[..., Hosts], tmp_path: Path
) -> None:
    """A bare `wait` would end with 0; the others are ended by PBS."""
    shutil.copy(TRAIN, tmp_path)
    with PbsStandIn(hosts(4), tmp_path, 4) as pbs:
        job = pbs.submit(pbs_script(f"{LIGHT_BIN}:{BIN}"), cwd=str(tmp_path))
        assert pbs.wait(job, 120) == 0, pbs.output(job)
        assert re.findall(r"SIZE=(\d)", pbs.output(job)) == ["4"] * 4
        standins(tmp_path)
        (tmp_path / "bin" / "torchrun").write_text("#!/bin/bash\n[ $NODE_RANK != 2 ] || exit 7; exec sleep 100\n")
        job = pbs.submit(pbs_script(f"{tmp_path}/bin"), cwd=str(tmp_path))
        assert pbs.wait(job) == 7, pbs.output(job)


@pytest.mark.parametrize(("script", "kind"), [("oar_script", "oar"), ("plain_ssh", "ssh")])
def test_a_loop_over_hosts_makes_one_world_and_tells_of_a_failure(
    hosts: Callable[..., Hosts], tmp_path: Path, script: str, kind: str
) -> None:
    """A stand-in for oarsh and ssh starts a shell on the host with nothing of the caller's environment."""
    oar = remote_stand_ins.Kind("oarsh", [], {"OAR_JOB_ID": "7", "OAR_NODEFILE": "{file}"}, {})
    remote_stand_ins.KINDS |= {"oar": oar, "ssh": remote_stand_ins.Kind("ssh", [], {}, {})}
    four = hosts(4)
    four[0].run(["bash", "-ec", OWN["plain_key"]], user="alice", check=True)
    standins(tmp_path)
    line = f"export PWD\ncd {tmp_path} || exit\n{OWN[script]}"
    with remote_stand_ins.RemoteStandIn(kind, four, tmp_path, 1) as remote:
        status, output = remote.run(line)
    assert (status, worlds(output)) == (0, world(4)), output
    if kind == "oar":
        (again := tmp_path / "again").mkdir()
        again.chmod(0o777)
        torchrun = "#!/bin/bash\n[ $NODE_RANK != 2 ] || exit 7; exec sleep 100\n"
        (standins(again) / "torchrun").write_text(torchrun)
        with remote_stand_ins.RemoteStandIn(kind, four, again, 1) as remote:
            assert remote.run(line)[0] == 7
    assert os.path.exists(tmp_path / "script")
