"""Ranks that a platform gave, as VESSL's runs, Toolkit's replicas and Kubeflow's training jobs do."""

from __future__ import annotations

from collections.abc import Mapping

from mingle_hooks.schedulers.facts import COUNT_MEMBERS, MOST_NODES, MOST_TASKS, JobFacts, Variables

LOOPBACK = ("localhost", "127.0.0.1", "::1")
# An operator of Kubernetes gives a job's only replica just that.
_POD = "KUBERNETES_SERVICE_HOST"


def facts(environ: Mapping[str, str]) -> JobFacts | None:
    """Return what was given, or None: it takes MASTER_ADDR, and NODE_RANK or RANK.

    What an earlier mingle exported (it left MINGLE_ID) was not given by anybody, nor was a world of one
    on loopback. A RANK without LOCAL_RANK is a replica's, and replicas are members; one with LOCAL_RANK is a
    process's, and the nodes are groups, as torchrun names them. Raises FactsError for a variable that makes no sense.
    """
    named = environ.get("NODE_RANK") or environ.get("RANK")
    address = environ.get("MASTER_ADDR")
    # A world of one on loopback is left over from a trial on one machine, but in a pod.
    is_trial = address in LOOPBACK and environ.get("WORLD_SIZE") == "1" and not environ.get(_POD)
    if environ.get("MINGLE_ID") or not address or not named or is_trial:
        return None
    read = Variables(environ)
    is_task = bool(environ.get("LOCAL_RANK"))
    rank_names, count_names = ["NODE_RANK", "GROUP_RANK"], ["NUM_NODES", "NNODES", "GROUP_WORLD_SIZE"]
    if not is_task and not environ.get("NODE_RANK"):
        rank_names.append("RANK")
        count_names.append("WORLD_SIZE")
    leader = read.host("leader_hosts", "MASTER_ADDR", address=True)
    return JobFacts(
        scheduler="given",
        nodes=read.number("nodes", *count_names, least=1, most=MOST_NODES),
        node_rank=read.number("node_rank", *rank_names, most=MOST_NODES),
        leader_hosts=(leader,) if leader else (),
        task_rank=read.number("task_rank", "RANK") if is_task else None,
        task_count=read.number("task_count", "WORLD_SIZE", least=1) if is_task else None,
        local_rank=read.number("local_rank", "LOCAL_RANK"),
        local_count=read.number("local_count", "LOCAL_WORLD_SIZE", least=1) if is_task else None,
        gpus=read.number("gpus", "GPUS_PER_NODE", most=MOST_TASKS),
        shares_homes=False,
        without_nodes=COUNT_MEMBERS,
        sources=read.sources,
    )
