"""The examples for platforms: what each starts forms one world."""

import shlex
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from subprocess import CompletedProcess

from cluster.host import Host
from cluster.hosts import Hosts
from support.needs import only_with
from support.torchrun import OF_FOUR, ranks, torchrun

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
KEY = "00112233445566778899aabbccddeeff" * 2
PORT = "23456"


def submitted(host: Host, example: str, program: str, *arguments: str) -> list[str]:
    """Run a script that submits, with a stand-in for the platform's program; return the words that this one gets."""
    host.write(f"/run/{program}", '#!/bin/sh\nprintf "%s\\0" "$@"\n', mode=0o755)
    line = f"PATH=/run:$PATH sh {EXAMPLES / example} {shlex.join(arguments)}"
    return host.run(["sh", "-c", line], check=True).stdout.split("\0")[:-1]


def value(argv: list[str], option: str) -> str:
    """Return the word after an option."""
    return argv[argv.index(option) + 1]


def behind_a_service(cluster: Hosts) -> Hosts:
    """Let new connections in to the first host at one port only, and no multicast, as in front of replicas."""
    cluster[0]._add(f"tcp dport != {PORT} tcp flags syn / syn,ack drop")
    cluster.drop_multicast()
    return cluster


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
