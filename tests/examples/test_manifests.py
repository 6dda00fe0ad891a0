"""The manifests for Kubernetes: fields and types are the documented ones, and what belongs together is the same."""

from __future__ import annotations

from typing import Any

import pytest
from fields import faults
from needs import only_with
from platforms import EXAMPLES

pytestmark = only_with("yaml")

MANIFESTS = ["job.yaml", "jobset.yaml"]
WRONG = {
    "a number as a variable's value": ("job.yaml", 'value: "4"', "value: 4"),
    "a mode as text": ("job.yaml", "0400", '"0400"'),
    "a field that is not there": ("job.yaml", "  backoffLimit:", "  backOffLimit:"),
    "a field that must be there": ("jobset.yaml", "- name: workers\n      ", "- "),
    "a value that is none": ("jobset.yaml", "BlockingRecreate", "Blocking"),
    "an object that is none": ("jobset.yaml", "v1alpha2", "v1"),
    "no list": ("jobset.yaml", "[mingle, exec, torchrun, train.py]", "mingle exec torchrun train.py"),
}


def text(name: str) -> str:
    """Return a manifest."""
    return (EXAMPLES / "kubernetes" / name).read_text()


def loaded(manifest: str) -> list[dict[str, Any]]:
    """Return its objects."""
    import yaml

    return list(yaml.safe_load_all(manifest))


def spec_and_leader(name: str) -> tuple[dict[str, Any], str]:
    """Return the Job's spec and the name by which the pods reach pod 0."""
    *services, last = loaded(text(name))
    job = last["metadata"]["name"]
    if last["kind"] == "Job":
        (service,) = services
        assert service["spec"]["clusterIP"] == "None"
        assert service["spec"]["selector"] == {"job-name": job}
        subdomain = last["spec"]["template"]["spec"]["subdomain"]
        assert subdomain == service["metadata"]["name"]
        return last["spec"], f"{job}-0.{subdomain}"
    (jobs,) = last["spec"]["replicatedJobs"]
    return jobs["template"]["spec"], f"{job}-{jobs['name']}-0-0.{job}"


@pytest.mark.parametrize("name", MANIFESTS)
def test_every_field_is_a_documented_one(name: str) -> None:
    """Of its type."""
    assert [faults(document) for document in loaded(text(name))] == [[]] * len(loaded(text(name)))


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG)
def test_a_usual_mistake_in_a_manifest_is_found(case: tuple[str, str, str]) -> None:
    """One each."""
    name, right, wrong = case
    assert right in text(name)
    found = [one for document in loaded(text(name).replace(right, wrong, 1)) for one in faults(document)]
    assert len(found) == 1, found


@pytest.mark.parametrize("name", MANIFESTS)
def test_what_belongs_together_is_the_same(name: str) -> None:
    """The counts, pod 0's name, and the place of the key, which nobody else can read."""
    spec, leader = spec_and_leader(name)
    assert (spec["completionMode"], spec["backoffLimit"]) == ("Indexed", 0)
    assert spec["parallelism"] == spec["completions"]
    pod = spec["template"]["spec"]
    (container,), (volume,) = pod["containers"], pod["volumes"]
    (mount,) = container["volumeMounts"]
    assert container["command"] == ["mingle", "exec", "torchrun", "train.py"]
    assert {its["name"]: its["value"] for its in container["env"]} == {
        "MINGLE_NODES": str(spec["completions"]),
        "MINGLE_MASTER": leader,
        "MINGLE_KEY_FILE": f"{mount['mountPath']}/key",
    }
    assert mount["name"] == volume["name"]
    assert volume["secret"]["defaultMode"] == 0o400
    assert f"create secret generic {volume['secret']['secretName']} --from-file=key=" in text(name)
