"""The fields of Kubernetes' objects that the examples use, with their types, as the references document them.

Service: kubernetes.io/docs/reference/kubernetes-api/service-resources/service-v1/
Job: kubernetes.io/docs/reference/kubernetes-api/workload-resources/job-v1/
Pod: kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/
JobSet: jobset.sigs.k8s.io/docs/reference/jobset.v1alpha2/
"""

from __future__ import annotations

import re
from typing import Any

# A type is int, bool, a pattern of a text, [the type of a list's items] or {name: the type of that field}, where a name
# that ends in ! must be there, and "" stands for any name.
TEXT = ".+"
LABEL = "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
METADATA = {"name!": LABEL}
POD = {
    "subdomain": LABEL,
    "restartPolicy": "Never|OnFailure",  # a Job's pods have no other
    "containers!": [
        {
            "name!": LABEL,
            "image": TEXT,
            "command": [TEXT],
            "env": [{"name!": "[A-Za-z_][A-Za-z0-9_]*", "value": TEXT}],
            "resources": {"limits": {"": int}},
            "volumeMounts": [{"name!": LABEL, "mountPath!": "/[^:]*", "readOnly": bool}],
        }
    ],
    "volumes": [{"name!": LABEL, "secret": {"secretName": LABEL, "defaultMode": int}}],
}
JOB_SPEC = {
    "completionMode": "Indexed|NonIndexed",
    "completions": int,
    "parallelism": int,
    "backoffLimit": int,
    "template!": {"spec!": POD},
}
JOBSET_SPEC = {
    "network": {"enableDNSHostnames": bool, "publishNotReadyAddresses": bool},
    "failurePolicy": {"maxRestarts": int, "restartStrategy": "Recreate|BlockingRecreate"},
    "replicatedJobs": [{"name!": LABEL, "replicas": int, "template!": {"spec!": JOB_SPEC}}],
}
SERVICE_SPEC = {"clusterIP": TEXT, "publishNotReadyAddresses": bool, "selector": {"": TEXT}}
OBJECTS = {
    ("v1", "Service"): SERVICE_SPEC,
    ("batch/v1", "Job"): JOB_SPEC,
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): JOBSET_SPEC,
}


def faults(document: dict[str, Any]) -> list[str]:
    """Return what is wrong with an object of a manifest, in words."""
    kind = document.get("apiVersion", ""), document.get("kind", "")
    if kind not in OBJECTS:
        return [f"no such object: {kind}"]
    head = {"apiVersion": TEXT, "kind": TEXT, "metadata!": METADATA, "spec!": OBJECTS[kind]}
    return list(_wrong(document, head, kind[1]))


def _wrong(value: object, its: object, where: str) -> list[str]:
    if isinstance(its, dict):
        return _wrong_fields(value, its, where) if isinstance(value, dict) else [f"{where}: no object"]
    if isinstance(its, list):
        items = enumerate(value) if isinstance(value, list) else []
        wrong = [one for number, item in items for one in _wrong(item, its[0], f"{where}[{number}]")]
        return wrong if isinstance(value, list) and value else [f"{where}: no list"]
    if isinstance(its, str):
        is_it = isinstance(value, str) and re.fullmatch(its, value)
        return [] if is_it else [f"{where}: {value!r} is not {its}"]
    return [] if type(value) is its else [f"{where}: {value!r} is not {its}"]


def _wrong_fields(value: dict[str, Any], fields: dict[str, Any], where: str) -> list[str]:
    named = {name.rstrip("!"): its for name, its in fields.items()}
    missing = [name[:-1] for name in fields if name.endswith("!") and name[:-1] not in value]
    found = [f"{where}.{name}: missing" for name in missing]
    for name, item in value.items():
        its = named.get(name, named.get(""))
        found += [f"{where}.{name}: no such field"] if its is None else _wrong(item, its, f"{where}.{name}")
    return found
