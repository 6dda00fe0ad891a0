"""The examples for platforms: what each starts forms one world, and the manifests for Kubernetes."""

import re
import shlex
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from cluster.host import Host
from cluster.hosts import Hosts
from cluster.paths import BIN
from light import TRAIN
from support.executables import executable
from support.needs import need, only_with

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
KEY = "00112233445566778899aabbccddeeff" * 2
PORT = "23456"
# One process, which says the ranks that the real torchrun would give to it where every node has one.
TORCHRUN = f"""#!/bin/sh
export RANK="$PET_NODE_RANK" WORLD_SIZE="$PET_NNODES" MASTER_ADDR="$PET_MASTER_ADDR"
shift
exec python3 {TRAIN} "$@"
"""


def torchrun(place: Path) -> str:
    """Put a stand-in for torchrun into a directory, and return a PATH that begins with it."""
    return f"{executable(place / 'bin' / 'torchrun', TORCHRUN).parent}:{BIN}:/usr/bin:/bin"


def documents(name: str) -> list[dict[str, Any]]:
    """Return the objects of a manifest."""
    import yaml

    return list(yaml.safe_load_all((EXAMPLES / "kubernetes" / name).read_text()))


def submitted(host: Host, example: str, program: str, *arguments: str) -> list[str]:
    """Run a script that submits, with a stand-in for the platform's program; return the words that this one gets."""
    host.write(f"/run/{program}", '#!/bin/sh\nprintf "%s\\0" "$@"\n', mode=0o755)
    line = f"PATH=/run:$PATH sh {EXAMPLES / example} {shlex.join(arguments)}"
    return host.run(["sh", "-c", line], check=True).stdout.split("\0")[:-1]


def value(argv: list[str], option: str) -> str:
    """Return the word after an option."""
    return argv[argv.index(option) + 1]


def mounted(host: Host, path: str, mode: int) -> None:
    """Mount a Secret as kubelet does: each key is a link into a directory that another link names."""
    place, name = path.rsplit("/", 1)
    host.write(f"{place}/..2026_11_22/{name}", f"{KEY}\n", mode=mode)
    for link, target in (("..data", "..2026_11_22"), (name, f"..data/{name}")):
        found = host.outside(f"{place}/{link}")
        if not found.is_symlink():
            found.symlink_to(target)


def behind_a_service(cluster: Hosts) -> Hosts:
    """Let new connections in to the first host at one port only, and no multicast, as in front of replicas."""
    cluster[0]._add(f"tcp dport != {PORT} tcp flags syn / syn,ack drop")
    cluster.drop_multicast()
    return cluster


def ranks(results: Sequence[CompletedProcess[str]]) -> list[str]:
    """Return the rank and size that each host's training says, in the hosts' order."""
    assert [done.returncode for done in results] == [0] * len(results), results
    return [found for done in results for found in re.findall(r"^rank (\d of \d) begins$", done.stdout, re.MULTILINE)]


OF_FOUR = ["0 of 4", "1 of 4", "2 of 4", "3 of 4"]


def run_pods(
    cluster: Hosts, path: str, spec: dict[str, Any], job: str, pods: list[Host]
) -> list[CompletedProcess[str]]:
    """Mount, name and start pod 0, 1, … of a Job on these hosts as Kubernetes does; return their results."""
    (container,), (volume,) = (spec["template"]["spec"][name] for name in ("containers", "volumes"))
    env = {variable["name"]: variable["value"] for variable in container["env"]}
    names = [f"{job}-{index}" for index in range(len(pods))]
    dns = "".join(f"{pod.addr()} {name}.train\n" for pod, name in zip(pods, names, strict=True))
    for pod, name in zip(pods, names, strict=True):
        pod.write("/etc/hosts", f"127.0.0.1 localhost\n{pod.addr()} {name}\n{dns}")
        pod.run(["hostname", name], check=True)
        mounted(pod, env["MINGLE_KEY_FILE"], volume["secret"]["defaultMode"])

    def environ(host: Host) -> dict[str, str]:
        index = pods.index(host)
        own = {"JOB_COMPLETION_INDEX": str(index), "HOSTNAME": names[index]}
        return {"PATH": path, "KUBERNETES_SERVICE_HOST": "10.0.0.1", **env, **own}

    results = cluster.run_all(container["command"], env=environ)
    return [results[pod.number - 1] for pod in pods]


def test_the_pods_of_a_job_and_of_a_jobset_form_one_world(hosts: Callable[..., Hosts], tmp_path: Path) -> None:
    """Without multicast; and again after a pod was lost, on other hosts, as JobSet makes all of them again."""
    need("yaml")
    four, path = hosts(4, ipv6=False), torchrun(tmp_path)
    four.drop_multicast()
    _, job = documents("job.yaml")
    assert ranks(run_pods(four, path, job["spec"], "train", list(four))) == OF_FOUR
    (jobset,) = documents("jobset.yaml")
    (jobs,) = jobset["spec"]["replicatedJobs"]
    for lost in (0, 1):
        order = [*list(four)[lost:], *list(four)[:lost]]
        results = run_pods(four, path, jobs["template"]["spec"], "train-workers-0", order)
        assert ranks(results) == OF_FOUR
        assert all(f"\nAT={order[0].addr()}\n" in done.stdout for done in results)


def run_replicas(
    cluster: Hosts, argv: list[str], *, last: dict[str, str] | None = None, **given: str
) -> list[CompletedProcess[str]]:
    """Run a command on all, as a platform that tells each its rank, all of them this, and the last one also `last`."""

    def env(host: Host) -> dict[str, str]:
        more = last if last and host.number == len(cluster) else {}
        return {"MASTER_ADDR": "node1", "MASTER_PORT": PORT, **given, "RANK": str(host.number - 1), **more}

    return cluster.run_all(argv, env=env, user="alice")


def test_the_workers_of_vessl_form_one_world(hosts: Callable[..., Hosts], tmp_path: Path) -> None:
    """And where VESSL's number of processes is wrong, or its port is missing, none of them starts."""
    four = behind_a_service(hosts(4, ipv6=False))
    argv = submitted(four[0], "vessl/submit.sh", "vessl", "exp7")
    secret, key = value(argv, "--secret").split("=")
    given = {secret: key, "NUM_NODES": value(argv, "--worker-count"), "NUM_TRAINERS": "1", "PATH": torchrun(tmp_path)}
    command = ["sh", "-c", value(argv, "--command")]
    assert ranks(run_replicas(four, command, **given)) == OF_FOUR
    results = run_replicas(four, command, **given, WORLD_SIZE="8")
    refused(results, 76, "expected WORLD_SIZE=8, as exported; saw 4 slots on all members")
    refused(run_replicas(four, command, **given, MASTER_PORT=""), 64, "saw '' (--master)")


def test_the_replicas_of_toolkit_form_one_world(hosts: Callable[..., Hosts], tmp_path: Path) -> None:
    """With two processes each; and where Toolkit tells one of them another number of replicas, none starts."""
    four = behind_a_service(hosts(4, ipv6=False))
    four[0].write("/home/alice/.config/mingle/key", KEY, mode=0o600, user="alice")
    argv = submitted(four[0], "toolkit/submit.sh", "eai", "exp7")
    given = {"MINGLE_ID": "exp7", "GPUS_PER_NODE": "2", "WORLD_SIZE": value(argv, "--replicas")}
    assert {"MINGLE_ID=exp7", "GPUS_PER_NODE=8"} <= set(argv)
    given["PATH"] = torchrun(tmp_path)
    command = argv[argv.index("--") + 1 :]
    assert ranks(run_replicas(four, command, **given)) == OF_FOUR
    results = run_replicas(four, command, last={"WORLD_SIZE": "5"}, **given)
    refused(results, 76, "expected the same number of nodes from every member")


def refused(results: Sequence[CompletedProcess[str]], code: int, reason: str) -> None:
    """Check that no host's training began, and that each says why."""
    assert [(done.returncode, done.stdout, reason in done.stderr) for done in results] == [(code, "", True)] * 4, (
        results
    )


def test_the_line_for_plain_machines_forms_one_world(hosts: Callable[..., Hosts], tmp_path: Path) -> None:
    """By multicast, and by MINGLE_MASTER without it."""
    four, path = hosts(4), torchrun(tmp_path)
    four[0].write("/home/alice/.config/mingle/key", KEY, mode=0o600, user="alice")
    line = ["sh", EXAMPLES / "ssh" / "train.sh"]
    for env in ({}, {"MINGLE_MASTER": "node1"}):
        results = four.run_all(line, env={"PATH": path, **env}, user="alice")
        assert sorted(ranks(results)) == OF_FOUR
        four.drop_multicast()


@only_with("shellcheck")
def test_the_scripts_are_sound(tmp_path: Path) -> None:
    """For sh."""
    scripts = [*EXAMPLES.glob("*/submit.sh"), EXAMPLES / "ssh" / "train.sh"]
    assert len(scripts) == 3
    subprocess.run(["shellcheck", "--shell=sh", *scripts], check=True, cwd=tmp_path)


@only_with("yaml")
@pytest.mark.parametrize("name", ["job.yaml", "jobset.yaml"])
def test_what_belongs_together_is_the_same(name: str) -> None:
    """The counts, pod 0's name, and the place of the key, which nobody else can read."""
    *services, last = documents(name)
    job = last["metadata"]["name"]
    if last["kind"] == "Job":
        (service,) = services
        assert (service["spec"]["clusterIP"], service["spec"]["selector"]) == ("None", {"job-name": job})
        spec, leader = last["spec"], f"{job}-0.{service['metadata']['name']}"
        assert spec["template"]["spec"]["subdomain"] == service["metadata"]["name"]
    else:
        (jobs,) = last["spec"]["replicatedJobs"]
        spec, leader = jobs["template"]["spec"], f"{job}-{jobs['name']}-0-0.{job}"
    assert (spec["completionMode"], spec["backoffLimit"]) == ("Indexed", 0)
    assert spec["parallelism"] == spec["completions"]
    (container,), (volume,) = (spec["template"]["spec"][name] for name in ("containers", "volumes"))
    (mount,) = container["volumeMounts"]
    assert container["command"] == ["mingle", "exec", "torchrun", "train.py"]
    assert {variable["name"]: variable["value"] for variable in container["env"]} == {
        "MINGLE_NODES": str(spec["completions"]),
        "MINGLE_MASTER": leader,
        "MINGLE_KEY_FILE": f"{mount['mountPath']}/key",
    }
    assert mount["name"] == volume["name"]
    assert volume["secret"]["defaultMode"] == 0o400
    made = f"create secret generic {volume['secret']['secretName']} --from-file=key="
    assert made in (EXAMPLES / "kubernetes" / name).read_text()
