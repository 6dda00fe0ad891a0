"""A Kubernetes pod, best one of an Indexed Job.

Source: Kubernetes' documentation, "Indexed Job": JOB_COMPLETION_INDEX, and host names JOB-INDEX.
"""

from __future__ import annotations

from collections.abc import Mapping

from mingle_hooks.schedulers.facts import COUNT_MEMBERS, MOST_NODES, JobFacts, Variables


def facts(environ: Mapping[str, str]) -> JobFacts | None:
    """Return what Kubernetes says, or None outside of pods; pods are not told how many they are.

    Raises FactsError for an index that is no number.
    """
    read = Variables(environ)
    if not any(environ.get(name) for name in ("JOB_COMPLETION_INDEX", "KUBERNETES_SERVICE_HOST")):
        return None
    index = read.number("node_rank", "JOB_COMPLETION_INDEX", most=MOST_NODES)
    host = read.text("job_id", "HOSTNAME", pattern="[a-z0-9.-]+") if index is not None else None
    job_id = host.removesuffix(f"-{index}") if host and host.endswith(f"-{index}") else None
    return JobFacts(
        scheduler="kubernetes",
        job_id=job_id or None,
        node_rank=index,
        shares_homes=False,
        without_nodes=COUNT_MEMBERS,
        sources=read.sources,
    )
