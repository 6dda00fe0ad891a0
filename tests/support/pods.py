"""The pods that Kubernetes makes of a manifest: their names, and what the kubelet gives to each.

Written from Kubernetes' documentation ("Job", "Service", "Define Environment Variables"), JobSet's ("Concepts") and the
source of Kubeflow Trainer 2.3 (pkg/runtime/framework/plugins/torch/torch.go).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Object = Mapping[str, Any]
# In a pod whose cluster has its API server there, and where the namespace has a Service named mingle-demo of port 80.
# A headless Service has no variables.
OF_SERVICES = {
    f"{name}{suffix}": value
    for name, address, port in (("KUBERNETES", "10.96.0.1", "443"), ("MINGLE_DEMO", "10.96.7.7", "80"))
    for suffix, value in {
        "_SERVICE_HOST": address,
        "_SERVICE_PORT": port,
        "_PORT": f"tcp://{address}:{port}",
        f"_PORT_{port}_TCP_ADDR": address,
    }.items()
}


@dataclass(frozen=True)
class Pod:
    """One pod: its host name, the names that lead to it, its only container's argv and environment, and its Secret."""

    name: str
    dns: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    mount: str  # where its only volume is
    mode: int  # of the Secret's files


def pods(objects: Sequence[Object]) -> list[Pod]:
    """Return the pods of a manifest's last object, those of its first Job first."""
    last = objects[-1]
    jobs = {"Job": _of_job, "JobSet": _of_jobset, "TrainJob": _of_trainjob}[last["kind"]]
    return [pod for name, subdomain, spec in jobs(objects) for pod in _of_spec(name, subdomain, spec)]


def _of_job(objects: Sequence[Object]) -> Iterator[tuple[str, str, Object]]:
    *_, job = objects
    yield job["metadata"]["name"], job["spec"]["template"]["spec"]["subdomain"], job["spec"]


def _of_jobset(objects: Sequence[Object]) -> Iterator[tuple[str, str, Object]]:
    *_, jobset = objects
    name = jobset["metadata"]["name"]
    for jobs in jobset["spec"]["replicatedJobs"]:
        for index in range(jobs.get("replicas", 1)):
            yield f"{name}-{jobs['name']}-{index}", name, jobs["template"]["spec"]


def _of_trainjob(objects: Sequence[Object]) -> Iterator[tuple[str, str, Object]]:
    runtime, trainjob = objects
    name, trainer = trainjob["metadata"]["name"], trainjob["spec"]["trainer"]
    assert trainjob["spec"]["runtimeRef"] == {"apiGroup": "trainer.kubeflow.org", "kind": runtime["kind"],
                                              "name": runtime["metadata"]["name"]}  # fmt: skip
    (jobs,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    assert jobs["template"]["metadata"]["labels"] == {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    spec = jobs["template"]["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    assert (jobs["name"], container["name"], runtime["spec"]["mlPolicy"]["torch"]) == ("node", "node", {})
    assert "nvidia.com/gpu" in trainer["resourcesPerNode"]["limits"]  # else "auto" is a number of processors
    nodes = trainer["numNodes"]
    torch = {
        "PET_NNODES": str(nodes),
        "PET_NPROC_PER_NODE": "auto",
        "PET_MASTER_ADDR": f"{name}-node-0-0.{name}",
        "PET_MASTER_PORT": "29500",
    }
    env = [*container["env"], *trainer.get("env", ()), *({"name": key, "value": text} for key, text in torch.items())]
    env.append({"name": "PET_NODE_RANK", "valueFrom": {"fieldRef": {"fieldPath": _INDEX}}})
    given = {key: trainer[key] for key in ("image", "command", "args") if key in trainer}
    pod = {**spec["template"]["spec"], "containers": [{**container, **given, "env": env}]}
    yield f"{name}-node-0", name, {**spec, "completions": nodes, "parallelism": nodes, "template": {"spec": pod}}


_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"


def _of_spec(job: str, subdomain: str, spec: Object) -> Iterator[Pod]:
    """Yield the pods of one Indexed Job."""
    assert spec["completionMode"] == "Indexed"
    (container,), (volume,) = (spec["template"]["spec"][name] for name in ("containers", "volumes"))
    (mount,) = container["volumeMounts"]
    assert mount["name"] == volume["name"]
    for index in range(spec["completions"]):
        own = {"HOSTNAME": f"{job}-{index}", "JOB_COMPLETION_INDEX": str(index)}
        env = {**OF_SERVICES, **own, **{its["name"]: _value(its, index) for its in container["env"]}}
        argv = tuple(_expanded(word, env) for word in (*container["command"], *container.get("args", ())))
        dns = f"{job}-{index}.{subdomain}"
        yield Pod(f"{job}-{index}", dns, argv, env, mount["mountPath"], volume["secret"]["defaultMode"])


def _value(variable: Object, index: int) -> str:
    if "value" in variable:
        return str(variable["value"])
    assert variable["valueFrom"] == {"fieldRef": {"fieldPath": _INDEX}}
    return str(index)


def _expanded(word: str, env: Mapping[str, str]) -> str:
    """Return a word of a command with $(NAME) replaced, as the kubelet does; an unknown one stays."""
    return re.sub(r"\$\((\w+)\)", lambda found: env.get(found[1], found[0]), word)
