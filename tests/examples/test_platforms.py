"""The examples for platforms: what each starts forms one world, with the ranks that the platform gave."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING, Any

from needs import need, only_with
from platforms import EXAMPLES, KEY, PORT, documents, mounted, only_port, rotated, submitted, torchrun, value

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from subprocess import CompletedProcess

    from cluster.host import Host
    from cluster.hosts import Hosts


def ranks(results: Sequence[CompletedProcess[str]]) -> list[str]:
    """Return the rank and size that each host's training says, in the hosts' order."""
    assert [done.returncode for done in results] == [0] * len(results), results
    return [found for done in results for found in re.findall(r"^rank (\d of \d) begins$", done.stdout, re.MULTILINE)]


def numbered(count: int) -> list[str]:
    """Return what `ranks` are where host N is rank N."""
    return [f"{rank} of {count}" for rank in range(count)]


def places(results: Sequence[CompletedProcess[str]]) -> set[str]:
    """Return where the trainings say that rank 0 is."""
    return {found for done in results for found in re.findall(r"^AT=(.*)$", done.stdout, re.MULTILINE)}


class Kubernetes:
    """What Kubernetes does with a Job of four pods: it mounts, names and starts them."""

    def __init__(self, its: Hosts, path: str, spec: dict[str, Any], job: str, subdomain: str) -> None:
        (self.container,) = spec["template"]["spec"]["containers"]
        (self.volume,) = spec["template"]["spec"]["volumes"]
        self.its, self.path, self.job, self.subdomain = its, path, job, subdomain

    def run(self, pods: list[Host]) -> list[CompletedProcess[str]]:
        """Start pod 0, 1, … on these hosts; return their results in that order."""
        env = {its["name"]: its["value"] for its in self.container["env"]}
        names = [f"{self.job}-{index}" for index in range(len(pods))]
        dns = "".join(f"{pod.addr()} {name}.{self.subdomain}\n" for pod, name in zip(pods, names, strict=True))
        for pod, name in zip(pods, names, strict=True):
            pod.write("/etc/hosts", f"127.0.0.1 localhost\n{pod.addr()} {name}\n{dns}")
            pod.run(["hostname", name], check=True)
            mounted(pod, env["MINGLE_KEY_FILE"], self.volume["secret"]["defaultMode"])
        index = {pod.name: str(number) for number, pod in enumerate(pods)}
        told = {"PATH": self.path, "KUBERNETES_SERVICE_HOST": "10.0.0.1", **env}
        results = self.its.run_all(
            self.container["command"],
            env=lambda host: {
                **told,
                "JOB_COMPLETION_INDEX": index[host.name],
                "HOSTNAME": f"{self.job}-{index[host.name]}",
            },
        )
        by_name = dict(zip((host.name for host in self.its), results, strict=True))
        return [by_name[pod.name] for pod in pods]


def test_the_pods_of_a_job_and_of_a_jobset_form_one_world(hosts: Callable[..., Hosts], tmp_path: Path) -> None:
    """Without multicast; and again after a pod was lost, on other hosts, as JobSet makes all of them again."""
    need("yaml")
    four, path = hosts(4, ipv6=False), torchrun(tmp_path)
    four.drop_multicast()
    _, job = documents("job.yaml")
    assert ranks(Kubernetes(four, path, job["spec"], "train", "train").run(list(four))) == numbered(4)
    (jobset,) = documents("jobset.yaml")
    (jobs,) = jobset["spec"]["replicatedJobs"]
    pods = Kubernetes(four, path, jobs["template"]["spec"], "train-workers-0", "train")
    for lost in (0, 1):
        order = rotated(four, lost)
        results = pods.run(order)
        assert (ranks(results), places(results)) == (numbered(4), {order[0].addr()})


def test_a_key_that_a_pod_cannot_keep_to_itself_is_refused(hosts: Callable[..., Hosts]) -> None:
    """As with fsGroup, which lets the group read it, and where the container is not root's."""
    (one,) = hosts(1)
    for mode, user, says in ((0o440, "root", "with mode 0440"), (0o400, "alice", "Permission denied")):
        key = f"/run/secrets/{user}/key"
        mounted(one, key, mode)
        done = one.run(["mingle", "exec", "--id", "a", "--nodes", "2", "--key-file", key, "true"], user=user)
        assert (done.returncode, says in done.stderr) == (77, True), done


class Replicas:
    """Four replicas of a platform that gives their ranks, behind a Service that lets one port of rank 0 through."""

    def __init__(self, its: Hosts, path: str) -> None:
        self.its, self.path = its, path
        only_port(its[0], PORT)
        its.drop_multicast()

    def run(
        self, words: list[str], told: dict[str, str], *, last: dict[str, str] | None = None
    ) -> list[CompletedProcess[str]]:
        """Start the command on all, as a platform that tells all of them this, and the last one also `last`."""
        every = {"PATH": self.path, "MASTER_ADDR": "node1", "MASTER_PORT": PORT, **told}

        def env(host: Host) -> dict[str, str]:
            more = last if last and host.number == len(self.its) else {}
            return {**every, "RANK": str(host.number - 1), **more}

        return self.its.run_all(words, env=env, user="alice")


def test_the_workers_of_vessl_form_one_world(hosts: Callable[..., Hosts], tmp_path: Path) -> None:
    """And where VESSL's number of processes is wrong, or its port is missing, none of them starts."""
    four = hosts(4, ipv6=False)
    words = submitted(four[0], "vessl/submit.sh", "vessl", "exp7")
    secret, key = value(words, "--secret").split("=")
    told = {secret: key, "NUM_NODES": value(words, "--worker-count"), "NUM_TRAINERS": "1"}
    command = ["sh", "-c", value(words, "--command")]
    vessl = Replicas(four, torchrun(tmp_path))
    assert ranks(vessl.run(command, told)) == numbered(4)
    results = vessl.run(command, {**told, "WORLD_SIZE": "8"})
    refused(results, 76, "expected WORLD_SIZE=8, as exported; saw 4 slots on all members")
    refused(vessl.run(command, {**told, "MASTER_PORT": ""}), 64, "saw '' (--master)")


def test_the_replicas_of_toolkit_form_one_world(hosts: Callable[..., Hosts], tmp_path: Path) -> None:
    """With two processes each; and where Toolkit tells one of them another number of replicas, none starts."""
    four = hosts(4, ipv6=False)
    four[0].write("/home/alice/.config/mingle/key", KEY, mode=0o600, user="alice")
    words = submitted(four[0], "toolkit/submit.sh", "eai", "exp7")
    told = {"MINGLE_ID": "exp7", "GPUS_PER_NODE": "2", "WORLD_SIZE": value(words, "--replicas")}
    assert {"MINGLE_ID=exp7", "GPUS_PER_NODE=8"} <= set(words)
    command = words[words.index("--") + 1 :]
    toolkit = Replicas(four, torchrun(tmp_path))
    assert ranks(toolkit.run(command, told)) == numbered(4)
    results = toolkit.run(command, told, last={"WORLD_SIZE": "5"})
    refused(results, 76, "expected the same number of nodes from every member")


def refused(results: Sequence[CompletedProcess[str]], code: int, says: str) -> None:
    """Check that no host's training began, and that each says why."""
    assert [(done.returncode, done.stdout, says in done.stderr) for done in results] == [(code, "", True)] * 4, results


def test_the_line_for_plain_machines_forms_one_world(hosts: Callable[..., Hosts], tmp_path: Path) -> None:
    """By multicast, and by MINGLE_MASTER without it."""
    four, path = hosts(4), torchrun(tmp_path)
    four[0].write("/home/alice/.config/mingle/key", KEY, mode=0o600, user="alice")
    line = ["sh", EXAMPLES / "ssh" / "train.sh"]
    for env in ({}, {"MINGLE_MASTER": "node1"}):
        results = four.run_all(line, env={"PATH": path, **env}, user="alice")
        assert sorted(ranks(results)) == numbered(4)
        four.drop_multicast()


@only_with("shellcheck")
def test_the_scripts_are_sound(tmp_path: Path) -> None:
    """For sh."""
    scripts = [*EXAMPLES.glob("*/submit.sh"), EXAMPLES / "ssh" / "train.sh"]
    assert len(scripts) == 3
    subprocess.run(["shellcheck", "--shell=sh", *scripts], check=True, cwd=tmp_path)
