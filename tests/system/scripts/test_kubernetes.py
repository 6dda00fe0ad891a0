"""The manifests for Kubernetes: an API server would take them, and the pods that it makes of each form one world."""

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import fastjsonschema
import pytest
from cluster.host import Host
from cluster.hosts import Hosts
from support.needs import need, only_with
from support.pods import Pod, pods
from support.torchrun import OF_FOUR, ranks, torchrun

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "kubernetes"
SCHEMAS = json.loads((Path(__file__).resolve().parents[2] / "data/kubernetes/schemas.json").read_text())
KEY = "00112233445566778899aabbccddeeff" * 2
# Which pods come from where: rank 0 is the first.
POD_0 = {
    "job.yaml": "train-0.train",
    "jobset.yaml": "train-workers-0-0.train",
    "launcher-worker.yaml": "train-launcher-0-0.train",
    "trainjob.yaml": "train-node-0-0.train",
}
each = pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.iterdir()))


def documents(name: str) -> list[dict[str, Any]]:
    """Return the objects of a manifest."""
    import yaml

    return list(yaml.safe_load_all((EXAMPLES / name).read_text()))


@only_with("yaml")
@each
def test_every_field_is_in_the_published_schemas(name: str) -> None:
    """With the type that it has there."""
    for thing in documents(name):
        fastjsonschema.validate({"$ref": f"#/definitions/{thing['kind']}", **SCHEMAS}, thing)


def mounted(host: Host, place: str, mode: int) -> None:
    """Mount a Secret as kubelet does: each key is a link into a directory that another link names."""
    host.write(f"{place}/..2026_11_22/key", f"{KEY}\n", mode=mode)
    for link, target in (("..data", "..2026_11_22"), ("key", "..data/key")):
        found = host.outside(f"{place}/{link}")
        if not found.is_symlink():
            found.symlink_to(target)


def run_pods(cluster: Hosts, path: str, made: list[Pod], order: list[Host]) -> list[CompletedProcess[str]]:
    """Mount, name and start each pod on a host, in this order, as Kubernetes does; return their results."""
    dns = "".join(f"{host.addr()} {pod.dns}\n" for pod, host in zip(made, order, strict=True))
    of_host = dict(zip([host.number for host in order], made, strict=True))
    for host in order:
        pod = of_host[host.number]
        host.write("/etc/hosts", f"127.0.0.1 localhost\n{host.addr()} {pod.name}\n{dns}")
        host.run(["hostname", pod.name], check=True)
        mounted(host, pod.mount, pod.mode)
    results = cluster.run_all(
        lambda host: list(of_host[host.number].argv), env=lambda host: {"PATH": path, **of_host[host.number].env}
    )
    return [results[host.number - 1] for host in order]


@each
def test_the_pods_form_one_world(hosts: Callable[..., Hosts], tmp_path: Path, name: str) -> None:
    """Without multicast; and again after a pod was lost, on other hosts, as JobSet makes all of them again."""
    need("yaml")
    four, path, made = hosts(4, ipv6=False), torchrun(tmp_path), pods(documents(name))
    four.drop_multicast()
    for lost in (0, 1):
        order = [*list(four)[lost:], *list(four)[:lost]]
        results = run_pods(four, path, made, order)
        assert ranks(results) == OF_FOUR
        leader = made[0].env.get("PET_MASTER_ADDR", order[0].addr())  # what Trainer gives is kept
        assert all(f"\nAT={leader}\n" in done.stdout for done in results), results


@only_with("yaml")
@each
def test_what_belongs_together_is_the_same(name: str) -> None:
    """The counts, pod 0's name, and the place of the key, which nobody else can read."""
    *others, last = documents(name)
    made = pods([*others, last])
    assert (len(made), made[0].dns) == (4, POD_0[name])
    for pod in made:
        said = {*pod.argv, *pod.env.values()}
        assert {"4", POD_0[name], f"{pod.mount}/key"} <= said
        assert pod.mode == 0o400
        assert {"mingle", "exec"} <= {*" ".join(pod.argv).split()}
        assert " ".join(pod.argv).endswith("torchrun train.py")
    if last["kind"] == "Job":
        (service,) = others
        job = last["metadata"]["name"]
        assert (service["spec"]["clusterIP"], service["spec"]["selector"]) == ("None", {"job-name": job})
        assert last["spec"]["template"]["spec"]["subdomain"] == service["metadata"]["name"]
    text = (EXAMPLES / name).read_text()
    assert text.count("backoffLimit: 0\n") == text.count("completionMode: Indexed\n") == 1 + ("launcher" in name)
    assert text.count("secretName: train-key\n") == 1
    assert "create secret generic train-key --from-file=key=" in text
    assert f"kubectl apply -f {name}\n" in text
