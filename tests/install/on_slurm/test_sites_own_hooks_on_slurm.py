"""Hooks that a site has already: they go on as before beside ours, with their output and their status."""

from __future__ import annotations

import subprocess
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from hooked_slurm import MINGLE_HOOKS, all_idle, installed, uninstalled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.slurm import SlurmCluster

SHOW = ("/bin/sh", "-c", "echo $SLURM_PROCID $MASTER_ADDR ${SITE-none} ${MORE-none}")
LINE = '#!/bin/sh\necho "{} $SLURM_JOB_ID $SLURM_JOB_UID $# $PATH" >>/run/site.{}\nexit {}\n'


@pytest.fixture
def site(slurm: SlurmCluster) -> Iterator[SlurmCluster]:
    """Give the shared Slurm, and take away afterwards what the test installed and wrote."""
    with ExitStack() as last_first:
        for host in slurm.hosts:
            last_first.callback(
                host.run, ["sh", "-c", "rm -rf /run/site.* /etc/slurm/*.d /etc/slurm/site.*"], check=True
            )
        last_first.callback(uninstalled, slurm)  # makes drained nodes work again
        yield slurm


def written(slurm: SlurmCluster, name: str, text: str) -> str:
    """Write a program of the site's own and return its path."""
    slurm.controller.write(f"/etc/slurm/{name}", text, mode=0o755)
    return f"/etc/slurm/{name}"


def test_a_sites_task_prologs_run_after_ours(site: SlurmCluster) -> None:
    """Its TaskProlog and the programs of its task_prolog.d export too, and theirs win."""
    written(site, "task_prolog.d/10-first", "#!/bin/sh\necho export MORE=$MASTER_ADDR.first\n")
    written(site, "task_prolog.d/20-second", "#!/bin/sh\necho export MASTER_ADDR=theirs\necho print from the site\n")
    written(site, "task_prolog.d/README", "not a program\n")
    site.controller.run(["chmod", "0644", "/etc/slurm/task_prolog.d/README"], check=True)
    own = written(site, "site.task", "#!/bin/bash\necho export SITE=site\n")
    lines = installed(site, before=(f"TaskProlog={own}",))
    assert "TaskProlog=/etc/mingle/hooks/slurm/taskprolog-all" in lines
    done = site.srun("-N2", *SHOW, user="alice")
    assert sorted(done.stdout.splitlines()) == [
        "0 theirs site .first", "1 theirs site .first", "from the site", "from the site",
    ]  # fmt: skip
    all_idle(site)


def test_a_task_prolog_of_the_sites_that_fails_cancels_the_task(site: SlurmCluster) -> None:
    """As without ours: its status is Slurm's business."""
    own = written(site, "site.task", "#!/bin/sh\nexit 7\n")
    installed(site, before=(f"TaskProlog={own}",))
    done = site.srun("-N1", *SHOW, user="alice")
    assert (done.returncode != 0, done.stdout) == (True, "")
    all_idle(site)


@pytest.mark.parametrize("way", ["one program", "a directory"])
def test_a_sites_prolog_and_epilog_run_beside_ours(site: SlurmCluster, way: str) -> None:
    """Once a node each, with the environment of Slurm's, after ours or in the same directory."""
    names = ("site.{}", "{}") if way == "one program" else ("{}.d/50-site", "{}.d/*")
    before = []
    for key in ("prolog", "epilog"):
        path = written(site, names[0].format(key), LINE.format(key, key, 0))
        before.append(f"{key}={path if way == 'one program' else '/etc/slurm/' + names[1].format(key)}")
    installed(site, before=tuple(line.capitalize() for line in before))
    done = site.srun("-N4", "/bin/sh", "-c", "echo $SLURM_JOB_ID; ls /run/mingle/$SLURM_JOB_ID/key", user="alice")
    assert done.stdout.count("/key") == 4, done.stderr
    job = done.stdout.split()[0]
    all_idle(site)
    for host in site.hosts:
        for key in ("prolog", "epilog"):
            text = host.outside(f"/run/site.{key}").read_text().split()
            assert text[:4] == [key, job, "61001", "0"]
            assert text.count(key) == 1


def test_a_prolog_of_the_sites_that_fails_drains_as_before(site: SlurmCluster) -> None:
    """A site's health check that takes a bad node out of service still does, with ours before it."""
    text = '#!/bin/sh\n[ "$SLURMD_NODENAME" != node2 ] || exit 3\n'
    installed(site, before=(f"Prolog={written(site, 'site.prolog', text)}",))
    job = site.submit("true", "-N1", "-w", "node2", "-o", "/dev/null", user="alice")
    site.until(lambda: site.sinfo()["node2"].startswith("drain"), "a drained node2")
    site.controller.run(["scancel", job], check=True)
    assert site.srun("-N3", "-x", "node2", *SHOW, user="alice").stdout.count("node1") == 3
    assert {name for name, state in site.sinfo().items() if state.startswith("drain")} == {"node2"}


def test_a_sites_hook_that_is_gone_counts_as_without_ours(site: SlurmCluster) -> None:
    """A Prolog that cannot be run drains the node, a TaskProlog fails the task, and verify tells of both before."""
    host = site.controller
    paths = {key: written(site, f"site.{key}", "#!/bin/sh\n") for key in ("prolog", "task")}
    installed(site, before=(f"Prolog={paths['prolog']}", f"TaskProlog={paths['task']}"))
    assert host.run([*MINGLE_HOOKS, "verify", "slurm"]).returncode == 0
    host.run(["rm", paths["task"]], check=True)
    assert site.srun("-N1", "true", user="alice").returncode != 0
    all_idle(site)
    host.run(["chmod", "0644", paths["prolog"]], check=True)
    said = host.run([*MINGLE_HOOKS, "verify", "slurm"])
    bad = {line.split()[1] for line in said.stdout.splitlines() if line.startswith("BAD")}
    assert (said.returncode, bad) == (1, {f"{path}:" for path in paths.values()})
    job = site.submit("true", "-N1", "-w", "node2", "-o", "/dev/null", user="alice")
    site.until(lambda: site.sinfo()["node2"].startswith("drain"), "a drained node2")
    host.run(["scancel", job], check=True)


def test_uninstalling_before_slurm_reads_its_configuration_drains_nothing(site: SlurmCluster) -> None:
    """Lines taken out without reconfigure: the site's own run on through stubs, which the second time removes."""
    own = written(site, "site.prolog", LINE.format("prolog", "prolog", 0))
    task = written(site, "site.task", "#!/bin/sh\necho export SITE=site\n")
    installed(site, before=(f"Prolog={own}", f"TaskProlog={task}"))
    host = site.controller
    site.conf_lines = []
    site.write_conf()
    done = host.run([*MINGLE_HOOKS, "uninstall", "slurm", "--yes"], check=True)
    kept = {line.split("/")[-1] for line in done.stdout.splitlines() if line.startswith("stub    ")}
    assert kept == {"prolog", "epilog", "taskprolog-all"}
    # Slurm 22.05 takes TaskProlog from the file for each step, and the others from what slurmd read.
    assert site.srun("-N2", "true", user="alice").returncode == 0
    all_idle(site)
    assert host.outside("/run/site.prolog").exists()
    site.reconfigure()
    host.run([*MINGLE_HOOKS, "uninstall", "slurm", "--yes"], check=True)
    assert not host.outside("/etc/mingle/hooks").exists()
    site.srun("-N4", "true", user="alice")
    all_idle(site)


def test_the_controller_is_asked_where_no_file_tells(site: SlurmCluster) -> None:
    """On a configless site, and where slurm.conf lies elsewhere: what the controller runs with counts."""
    installed(site)
    host = site.controller
    host.run(["mv", "/etc/slurm/slurm.conf", "/etc/slurm/elsewhere.conf"], check=True)
    try:
        elsewhere = {"SLURM_CONF": "/etc/slurm/elsewhere.conf"}
        done = host.run([*MINGLE_HOOKS, "uninstall", "slurm", "--yes"], env=elsewhere)
        assert (done.returncode, "Prolog=/etc/mingle/hooks/slurm/prolog" in done.stderr) == (76, True)
        assert host.run([*MINGLE_HOOKS, "verify", "slurm"], env=elsewhere).stdout.endswith("ok\n")
        assert host.run([*MINGLE_HOOKS, "uninstall", "slurm", "--yes"]).returncode == 65
    finally:
        host.run(["mv", "/etc/slurm/elsewhere.conf", "/etc/slurm/slurm.conf"], check=True)


def test_a_rollout_is_checked_before_slurm_conf_names_the_hooks(site: SlurmCluster) -> None:
    """The nodes' reports, as clush prints them, against the nodes that Slurm knows: all of them, and all the same."""
    host = site.controller
    host.write("/etc/mingle/mingle.toml", '[hooks]\nprolog = "none"\nepilog = "none"\ntaskprolog = "none"\n')
    host.run([*MINGLE_HOOKS, "install", "slurm", "--yes"], check=True)
    lines = [f"{each.name}: {each.run([*MINGLE_HOOKS, 'report', 'slurm'], check=True).stdout}" for each in site.hosts]
    check = [*MINGLE_HOOKS, "rollout", "--check"]
    done = host.run(check, input="".join(lines), stdin=subprocess.PIPE)
    assert (done.returncode, done.stdout) == (
        0,
        "ok: all reports from node[1-4] agree; you can name the hooks in slurm.conf\n",
    )
    done = host.run(check, input="".join(lines[:-1]), stdin=subprocess.PIPE)
    assert (done.returncode, done.stdout.startswith("BAD  node4: no report")) == (1, True)
