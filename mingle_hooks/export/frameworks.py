"""The frameworks and the variables that each reads: one row in FRAMEWORKS and one function for each.

`settings` returns name -> value. If a value is unknown it returns no variables, or those that make the framework fail
at once: with half of its variables it may hang (kubeflow/trainer#3277). Only variables that the framework was seen to
read are here; MINGLE_* names are for the user's own command line.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple

from mingle_hooks import plugins
from mingle_hooks.errors import NetworkError, UsageError, printable
from mingle_hooks.export import hostfiles
from mingle_hooks.rendezvous.messages import File, View, endpoint
from mingle_hooks.values import holds, nearest

if TYPE_CHECKING:
    from mingle_hooks.rendezvous.member import MemberSpec

# What a framework may need the caller to find out. roster: World.roster; names: its hosts by names that this node can
# resolve, else by address; iface: Assignment.iface and Assignment.address; hcas: net.devices.active_rdma_ports();
# site: View.site; cpu_only: View.is_cpu_only; memory: the saved answer, for a restarted member, as
# joining.rejoin_or_join() has it.
Need = Literal["roster", "names", "iface", "hcas", "cpu_only", "memory", "site"]


class Framework(NamedTuple):
    """A framework: its variables, all names that it may export, its needs, and its files."""

    settings: Callable[[View], dict[str, str]]
    names: tuple[str, ...]
    needs: tuple[Need, ...] = ()
    files: Callable[[View], tuple[File, ...]] | None = None


# torchrun with static rendezvous: plain `torchrun train.py` on every node, no flags.
#
# Read in torch 2.13: torch/distributed/run.py takes PET_<OPTION> as the default of each option, and reads neither
# MASTER_ADDR nor NODE_RANK. Static rendezvous joins PET_MASTER_ADDR and PET_MASTER_PORT and splits them at the last
# colon, so an IPv6 address stays bare. PET_RDZV_ENDPOINT is left out: it would beat the PET_MASTER_ADDR that a user
# set.
#
# The variables of a batch shell reach every task of the job, so they must hold on every node, and no node rank does.
# There torchrun gets c10d rendezvous, which assigns the ranks. is_host=1 on every node: each opens a store at this
# port, and all of them use the one at the endpoint's address. By default torchrun opens a store only if its host name
# resolves to the endpoint's address, which is no node's on a second network (pytorch#73656). A torchrun that is alone
# waits for the others and ends with 1 after the join timeout.
#
# The first of these torchruns announces its host's full name to the others. If the other nodes cannot resolve it,
# PET_NODE_RANK holds a message instead of a number: torchrun prints it and ends with 2.
#
# `accelerate launch` without machines starts no torchrun if a node has one GPU or none. On CPUs its script takes rank
# 0 without a launcher's rank, and waits half an hour for the others. It reads MVAPICH's variable last (read in
# accelerate 1.15, utils/environment.py), which holds such a message too: it prints it and ends with 1.
NOT_HERE = "none: start torchrun on every node of this job: mingle run torchrun train.py"
NO_RANK = {"MV2_COMM_WORLD_RANK": "none: start it on every node of this job: mingle run accelerate launch train.py"}


def _torchrun(view: View) -> dict[str, str]:
    """Return all variables, the elastic ones if the user's PET_RDZV_BACKEND is not static.

    Raises UsageError for a leftover variable that contradicts the world.
    """
    if (view.user_environ.get("PET_RDZV_BACKEND") or "static") != "static":
        return _torchrun_elastic(view)
    agent = _one_torchrun(view)
    if agent is None:
        return _torchrun_of_every_node(view)
    return agent | {
        "PET_MASTER_ADDR": view.world.master_addr,
        "PET_MASTER_PORT": str(view.world.master_port),
        "PET_RDZV_BACKEND": "static",
        "PET_RDZV_ID": view.world.digest,
    }


def _torchrun_of_every_node(view: View) -> dict[str, str]:
    """Return variables that hold on every node, or those that make a program fail at once.

    Raises UsageError for a leftover variable that contradicts the world.
    """
    batch, nodes = view.batch, view.world.nodes
    if batch is None or nodes is None or (view.user_environ.get("PET_RDZV_BACKEND") or "c10d") != "c10d":
        return NO_RANK | {"PET_NODE_RANK": NOT_HERE}
    _check_leftover(view.user_environ, "PET_NNODES", nodes)
    # The store that all use may start later than this torchrun: connecting to it may take as long.
    configuration = f"is_host=1,join_timeout={batch.timeout_s},read_timeout={batch.timeout_s}"
    found = NO_RANK | {"PET_NNODES": str(nodes)} | _c10d(view, configuration)
    return found | ({"PET_NPROC_PER_NODE": batch.processes} if batch.processes else {})


def _c10d(view: View, configuration: str) -> dict[str, str]:
    """Return the variables of c10d rendezvous."""
    found = {"PET_RDZV_BACKEND": "c10d", "PET_RDZV_ID": view.world.digest, "PET_RDZV_ENDPOINT": view.endpoint}
    return {**found, "PET_RDZV_CONF": configuration}


def _one_torchrun(view: View) -> dict[str, str] | None:
    """Return the number of torchruns, the processes of this one and its rank, or None if they are unknown.

    In task scope each task may start one, with one process: to torchrun each task is a node.
    Raises UsageError for a leftover variable that contradicts the world.
    """
    slots = 1 if view.scope == "task" else view.place.slots
    if view.process is None or view.processes is None or slots is None:
        return None
    _check_leftover(view.user_environ, "PET_NODE_RANK", view.process)
    _check_leftover(view.user_environ, "PET_NNODES", view.processes)
    return {"PET_NNODES": str(view.processes), "PET_NPROC_PER_NODE": str(slots), "PET_NODE_RANK": str(view.process)}


def _check_leftover(user_environ: Mapping[str, str], name: str, world: int | None) -> None:
    """Raise UsageError for a leftover such as PET_NNODES=1, with which torchrun would not join the world.

    With None the world's value is unknown, and none is accepted.
    """
    user_value = user_environ.get(name)
    if user_value and (world is None or not holds(user_value, world)):
        seen = f"{name}={printable(user_value, 60)}, as exported"
        expected = f"no {name} before ranks are known" if world is None else f"{name}={world}, as in the world"
        raise UsageError(expected, seen, f"unset {name}")


def check_leftovers(spec: MemberSpec) -> None:
    """Raise UsageError, before several nodes check in, for a leftover with which torchrun would not join all of them.

    Numbers of nodes and of tasks that are unknown by then are compared once the world has formed.
    """
    if not {"torchrun", "torchrun-elastic"}.intersection(spec.settings.frameworks):
        return
    _check_leftover(spec.user_environ, "PET_STANDALONE", 0)
    is_task = spec.settings.scope == "task"
    if not is_task or spec.facts.task_rank is not None:
        rank = spec.facts.task_rank if is_task else spec.certain_rank
        _check_leftover(spec.user_environ, "PET_NODE_RANK", rank)
    if not is_task and spec.nodes is not None:
        _check_leftover(spec.user_environ, "PET_NNODES", spec.nodes)


# torchrun with c10d rendezvous, for --max-restarts and a changing number of nodes.
#
# is_host says which node hosts the store: by default torchrun compares host names, and on a second network no node
# recognises itself (pytorch#73656). PET_LOCAL_ADDR keeps it from announcing its full host name, which need not
# resolve. c10d assigns its own node ranks, which may differ from mingle's, so PET_NODE_RANK, which only static
# rendezvous reads, does no harm.
#
# A restarted node joins the next round. Its workers need their own store, which TORCH_DISABLE_SHARE_RDZV_TCP_STORE
# gives them: the agents' store still counts the workers of the last round.
# torchrun's own default is 0, with which one lost node ends the job; a higher number hides a script that always fails.
MAX_RESTARTS = 3


def _torchrun_elastic(view: View) -> dict[str, str]:
    """Return all variables. Raises UsageError for a leftover variable that contradicts the world."""
    restarts = {"PET_MAX_RESTARTS": str(MAX_RESTARTS), "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    agent = _one_torchrun(view)
    if agent is None:
        found = _torchrun_of_every_node(view)
        return found | restarts if "PET_RDZV_ID" in found else found
    found = agent | _c10d(view, f"is_host={1 if view.process == 0 else 0}") | restarts
    return found | ({"PET_LOCAL_ADDR": view.place.address} if view.place.address else {})


# A node without any accelerator: accelerate trains each process alone there unless it is set to use the CPU.
#
# Read in accelerate 1.15, state.py: without a known device it silently treats the processes of a world as separate.
def _cpu(view: View) -> dict[str, str]:
    """Return the switch if there is no accelerator."""
    return {"ACCELERATE_USE_CPU": "true"} if view.is_cpu_only else {}


# accelerate launch, which takes its machines from options or a file only, never from the environment.
#
# Read in accelerate 1.15, commands/launch.py and utils/launch.py. Use it as `accelerate launch --config_file
# "$MINGLE_ACCELERATE_CONFIG" train.py`. A script started once per task needs no file: accelerate reads RANK,
# LOCAL_RANK and WORLD_SIZE. MULTI_GPU stands for torchrun, on CPUs too: MULTI_CPU would start one process on each
# node.
def _accelerate_files(view: View) -> tuple[File, ...]:
    """Return this node's config file. Valid JSON is valid YAML, so the file is JSON."""
    if view.place.node_rank is None or view.place.slots is None or view.world.nodes is None:
        return ()
    kind = {"compute_environment": "LOCAL_MACHINE", "distributed_type": "MULTI_GPU"}
    config = {**kind, **accelerate_machines(view), "rdzv_backend": "static", "same_network": True}
    return (File("accelerate.yaml", json.dumps(config, indent=2) + "\n", ("MINGLE_ACCELERATE_CONFIG",)),)


def accelerate_machines(view: View) -> dict[str, object]:
    """Return accelerate's settings for this node's place in the world, by the names of its file and options."""
    return {
        "num_machines": view.world.nodes,
        # accelerate divides this by num_machines, to get this node's processes, and that is its only use.
        "num_processes": (view.world.nodes or 1) * (view.place.slots or 1),
        "machine_rank": view.place.node_rank,
        "main_process_ip": view.world.master_addr,
        "main_process_port": view.world.master_port,
    }


# A member that is one process with ranks, marked by TORCHELASTIC_RUN_ID as torchrun marks its workers.
#
# Lightning 2.6 (plugins/environments/torchelastic.py) then takes RANK and WORLD_SIZE as they are, under Slurm too,
# and refuses `devices` that do not fit. With LOCAL_RANK alone it would wait for processes that never start.
def _process(view: View) -> dict[str, str]:
    """Return the world's id if this process has a rank, and accelerate's switch if there is no accelerator."""
    return ({"TORCHELASTIC_RUN_ID": view.world.digest} if view.place.rank is not None else {}) | _cpu(view)


# Lightning, which needs only MASTER_ADDR, MASTER_PORT and NODE_RANK if it starts processes itself.
#
# Read in lightning 2.6, fabric/plugins/environments/: it starts the node's processes unless LOCAL_RANK is set, so
# node scope never exports that one. Under Slurm it takes the tasks of srun for its processes, and refuses one task
# for several devices, unless the job has the name of an interactive one.
def _lightning(view: View) -> dict[str, str]:
    """Return what keeps Lightning from Slurm's tasks, or the variables of a process."""
    if view.scope == "node" and "SLURM_JOB_ID" in view.user_environ:
        return {"SLURM_JOB_NAME": "interactive"}
    return _process(view._replace(is_cpu_only=False))


# The deepspeed launcher: `deepspeed --hostfile "$MINGLE_HOSTFILE" --master_addr "$MASTER_ADDR" train.py`.
#
# Read in deepspeed 0.19, launcher/runner.py: lines of `host slots=N`, each host once, from --hostfile or
# /job/hostfile and from no variable.
def _hostfile(view: View, *variables: str) -> tuple[File, ...]:
    """Return the hostfile of DeepSpeed and Open MPI, or () without a roster."""
    text = hostfiles.text("mpi", view.world.roster)
    return (File("hostfile", text, ("MINGLE_HOSTFILE", *variables)),) if text else ()


# mpirun: a hostfile for Open MPI, a machine file for MPICH and Intel MPI, each by its own variable too.
#
# Open MPI 4 takes OMPI_MCA_orte_default_hostfile as the default of --hostfile, Open MPI 5, whose launcher is PRRTE,
# PRTE_MCA_prte_default_hostfile (prte-info --all). Hydra, the launcher of MPICH and MVAPICH, takes HYDRA_HOST_FILE as
# its default (its wiki, "Using the Hydra Process Manager"), Intel's takes I_MPI_HYDRA_HOST_FILE (its developer
# reference). OMPI_MCA_btl_tcp_if_include is left out: mpirun hands it to all nodes, and interface names may differ
# between them. So does Hydra with HYDRA_IFACE, which is set only if Hydra's daemons could not resolve this host's
# name.
_OPEN_MPI = ("OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile")
_HYDRA = ("MINGLE_MACHINEFILE", "HYDRA_HOST_FILE", "I_MPI_HYDRA_HOST_FILE")


def _mpi(view: View) -> dict[str, str]:
    """Return what mpirun needs in a step of Slurm; the files have the hosts.

    mpirun starts its daemons by srun, which would wait for the CPUs of this step.
    """
    found = {"SLURM_OVERLAP": "1"} if "SLURM_STEP_ID" in view.user_environ else {}
    return found | ({"HYDRA_IFACE": view.place.iface} if view.place.iface and not view.has_known_name else {})


def _mpi_files(view: View) -> tuple[File, ...]:
    """Return both files, or () without a roster."""
    text = hostfiles.text("mpich", view.world.roster)
    machinefile = (File("machinefile", text, _HYDRA),) if text else ()
    return _hostfile(view, *_OPEN_MPI) + machinefile


# horovodrun, which takes its hosts from an option.
#
# Read in horovod 0.28, runner/common/util/hosts.py: `host:slots` joined by commas. Use it as `horovodrun -np
# "$WORLD_SIZE" -H "$MINGLE_HOSTS" python train.py`.
def _horovod(view: View) -> dict[str, str]:
    """Return the host list, or nothing without a roster."""
    return {"MINGLE_HOSTS": hostfiles.text("horovod", view.world.roster).strip()} if view.world.roster else {}


# JAX: plain `jax.distributed.initialize()` in every process.
#
# Read in jax 0.10, _src/distributed.py and _src/clusters/: it reads the address and the local devices from its own
# variables, but the two numbers only from a cluster that it detects. Without one (neither Slurm nor Open MPI) it gets
# the smallest set of variables by which it detects Open MPI: the mark OMPI_MCA_orte_hnp_uri, in Open MPI's own form,
# holds the coordinator's address. A program that uses MPI beside JAX needs mpirun, and then gets none of these.
# JAX_NUM_PROCESSES and JAX_PROCESS_ID are Kubeflow's names, for user code.
#
# Under Slurm or Open MPI JAX takes one device per process unless JAX_LOCAL_DEVICE_IDS says otherwise, so node scope,
# where one process drives all slots, says so; task scope leaves it to JAX, as LOCAL_RANK is no device where the
# scheduler masks devices.
_JAX_MARK = "OMPI_MCA_orte_hnp_uri"
# JAX detects Slurm if all of these are set (clusters/slurm_cluster.py).
_SLURM_OF_JAX = ("SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID")


def _jax(view: View) -> dict[str, str]:
    """Return the whole set, or nothing."""
    if view.process is None or view.processes is None:
        return {}
    found = {
        "JAX_COORDINATOR_ADDRESS": view.endpoint,
        "JAX_NUM_PROCESSES": str(view.processes),
        "JAX_PROCESS_ID": str(view.process),
    }
    if view.scope == "node" and view.place.slots is not None:
        found["JAX_LOCAL_DEVICE_IDS"] = ",".join(str(device) for device in range(view.place.slots))
    return found | _jax_cluster(view)


def _jax_cluster(view: View) -> dict[str, str]:
    """Return variables by which JAX detects Open MPI, unless it detects a cluster anyway."""
    if _JAX_MARK in view.user_environ or all(name in view.user_environ for name in _SLURM_OF_JAX):
        return {}
    family = "tcp6" if view.endpoint.startswith("[") else "tcp"
    found = {
        _JAX_MARK: f"0.0;{family}://{view.endpoint}",
        "OMPI_COMM_WORLD_SIZE": str(view.processes),
        "OMPI_COMM_WORLD_RANK": str(view.process),
    }
    if view.scope == "task" and view.place.local_rank is not None:
        found["OMPI_COMM_WORLD_LOCAL_RANK"] = str(view.place.local_rank)
    return found


# TensorFlow: TF_CONFIG names every worker's address and port (tf.distribute.cluster_resolver).
LAST_PORT = 65_535


def _tensorflow(view: View) -> dict[str, str]:
    """Return TF_CONFIG, or nothing without a roster; raise NetworkError past the last port.

    A worker listens on the master port; workers that share an address count up from it.
    """
    if view.process is None or not view.world.roster:
        return {}
    task = {"type": "worker", "index": view.process}
    config = {"cluster": {"worker": _workers(view)}, "task": task}
    return {"TF_CONFIG": json.dumps(config, separators=(",", ":"))}


def _workers(view: View) -> list[str]:
    """Return every worker's address and port, in rank order; raise NetworkError past the last port."""
    used: dict[str, int] = {}
    workers = []
    for member in view.world.roster:
        for _ in range(member.slots if view.scope == "task" else 1):
            port = view.world.master_port + used.get(member.address, 0)
            if port > LAST_PORT:
                raise NetworkError(f"a port up to {LAST_PORT} for each worker", f"{port}", "a lower --port-range")
            used[member.address] = used.get(member.address, 0) + 1
            workers.append(endpoint(member.address, port))
    return workers


# Ray: the head is node rank 0, started with `ray start --head --port="$MASTER_PORT"`.
#
# Read in ray 2.60, _private/services.py: RAY_ADDRESS is where ray.init connects.
def _ray(view: View) -> dict[str, str]:
    """Return the head's address, the same on all nodes."""
    return {"RAY_ADDRESS": view.endpoint}


# XGBoost and rabit: the tracker runs beside rank 0, on the port after the master port.
#
# Rabit and dmlc-core read these from the environment. xgboost.collective of 2.1 and later takes the same names as
# arguments, the port as a number: a RabitTracker(host_ip=…, port=…, sortby="task") on rank 0 and a
# CommunicatorContext(dmlc_tracker_uri=…, dmlc_tracker_port=…, dmlc_task_id=…) everywhere. Rank 0 ends with
# `tracker.wait_for()`, as the others still disconnect from the tracker.
#
# The tracker binds without SO_REUSEADDR, so it cannot get the master port, which is reserved for programs that bind
# with it unless --port-hold is off on rank 0; as the others cannot know that, it always gets the next port. That port
# has not been tried: if another program uses it, the tracker reports that and ends.
def _xgboost(view: View) -> dict[str, str]:
    """Return the whole set, or nothing."""
    if view.process is None or view.processes is None:
        return {}
    port = view.world.master_port
    return {
        "DMLC_TRACKER_URI": view.world.master_addr,
        "DMLC_TRACKER_PORT": str(port + 1 if port < LAST_PORT else port - 1),
        "DMLC_TASK_ID": str(view.process),
        "DMLC_NUM_WORKER": str(view.processes),
    }


# MLX's ring: MLX_RANK, and in MLX_HOSTFILE every process's address and port.
#
# Read in mlx 0.32, "Distributed Communication": a JSON list with a list of `address:port` for each rank.
def _mlx(view: View) -> dict[str, str]:
    """Return this process's rank, or nothing without a roster."""
    return {} if view.process is None or not view.world.roster else {"MLX_RANK": str(view.process)}


def _mlx_files(view: View) -> tuple[File, ...]:
    """Return the hostfile, or nothing without a roster."""
    if not _mlx(view):
        return ()
    return (File("mlx.json", json.dumps([[where] for where in _workers(view)]) + "\n", ("MLX_HOSTFILE",)),)


# ms-swift: `swift sft …` on every node, which starts torchrun itself.
#
# Read in ms-swift 4.6, swift/cli/main.py: it hands NNODES, NODE_RANK, MASTER_ADDR, MASTER_PORT and NPROC_PER_NODE on.
def _swift(view: View) -> dict[str, str]:
    """Return the number of processes on this node."""
    return {} if view.place.slots is None else {"NPROC_PER_NODE": str(view.place.slots)}


# LLaMA-Factory: `llamafactory-cli train …` on every node, which starts torchrun itself, with one GPU only when
# forced.
#
# Read in LLaMA-Factory 0.9.5, src/llamafactory/launcher.py: else each node would train alone. It hands NNODES,
# NODE_RANK, MASTER_ADDR, MASTER_PORT and NPROC_PER_NODE on.
def _llamafactory(view: View) -> dict[str, str]:
    """Return the switch for torchrun, and the number of processes on this node."""
    return {"FORCE_TORCHRUN": "1", **found} if (found := _swift(view)) else {}


# Composer: `composer train.py` on every node.
#
# Read in Composer 0.32, composer/cli/launcher.py: it reads WORLD_SIZE, LOCAL_WORLD_SIZE, NODE_RANK, MASTER_ADDR and
# MASTER_PORT, and refuses nodes with different numbers of processes unless BASE_RANK gives this node's first rank.
def _composer(view: View) -> dict[str, str]:
    """Return the first rank of this node."""
    return {"BASE_RANK": str(view.place.rank_offset)} if view.place.rank_offset is not None else {}


# vLLM and SGLang: the address by which the other nodes reach this one's processes.
#
# Read in vLLM, vllm/envs.py. The rest are options: `vllm serve … --nnodes "$NNODES" --node-rank "$NODE_RANK"
# --master-addr "$MASTER_ADDR" --master-port "$MASTER_PORT"`.
#
# Read in SGLang, srt/utils/network.py. The rest are options: `python -m sglang.launch_server … --nnodes "$NNODES"
# --node-rank "$NODE_RANK" --dist-init-addr "$MASTER_ADDR:$MASTER_PORT"`.
def _own_address(name: str) -> Callable[[View], dict[str, str]]:
    """Return a function that returns this node's address on the world's network as this variable."""
    return lambda view: {name: view.place.address} if view.place.address else {}


# NCCL's bootstrap network: which interface, and which of its addresses.
#
# NCCL and the site choose the RDMA devices: docs/networks.md says why.


def _nccl(view: View) -> dict[str, str]:
    """Return this node's interface; `=` makes it exact, without it eth1 would match eth10 too.

    The family is that of the world's address, so it is left out if the user or the site names the interface.
    """
    iface, address = view.place.iface, view.place.address
    if not iface or not address:
        return {}
    exact = f"={iface}"
    if "NCCL_SOCKET_IFNAME" in view.site or (view.user_environ.get("NCCL_SOCKET_IFNAME") or exact) != exact:
        return {"NCCL_SOCKET_IFNAME": exact}
    return {"NCCL_SOCKET_IFNAME": exact, "NCCL_SOCKET_FAMILY": "AF_INET6" if ":" in address else "AF_INET"}


# Gloo and TensorPipe, torch's networks for CPUs and RPC: one bare name; a `^` or `=` would crash Gloo.
def _gloo(view: View) -> dict[str, str]:
    """Return this node's interface."""
    iface = view.place.iface
    return {"GLOO_SOCKET_IFNAME": iface, "TP_SOCKET_IFNAME": iface} if iface else {}


# UCX: the active RDMA ports, and the world's interface for TCP.
def _ucx(view: View) -> dict[str, str]:
    """Return this node's devices, or nothing if an RDMA device is silent: the interface alone excludes InfiniBand."""
    iface = view.place.iface
    return {"UCX_NET_DEVICES": ",".join((*view.hcas, iface))} if iface and view.hcas is not None else {}


_PET = ("PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT")
_PET_RDZV = ("PET_RDZV_BACKEND", "PET_RDZV_ID", "PET_RDZV_ENDPOINT", "PET_RDZV_CONF", "PET_LOCAL_ADDR")
_RESTARTS = ("PET_MAX_RESTARTS", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE")
_ELASTIC = (*_PET[:3], *_PET_RDZV, *NO_RANK, *_RESTARTS)
_JAX = (
    *("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID", "JAX_LOCAL_DEVICE_IDS", _JAX_MARK),
    *("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"),
)
_CPU = ("ACCELERATE_USE_CPU",)
_MPI = ("MINGLE_HOSTFILE", *_OPEN_MPI, *_HYDRA, "HYDRA_IFACE", "SLURM_OVERLAP")

FRAMEWORKS = {
    "torchrun": Framework(_torchrun, (*_PET, *_PET_RDZV, *NO_RANK, *_RESTARTS)),
    "torchrun-elastic": Framework(_torchrun_elastic, _ELASTIC, ("iface", "memory")),
    "accelerate": Framework(_cpu, ("MINGLE_ACCELERATE_CONFIG", *_CPU), ("cpu_only",), files=_accelerate_files),
    "cpu": Framework(_cpu, _CPU, ("cpu_only",)),
    "process": Framework(_process, ("TORCHELASTIC_RUN_ID", *_CPU), ("cpu_only",)),
    "lightning": Framework(_lightning, ("TORCHELASTIC_RUN_ID", "SLURM_JOB_NAME")),
    "deepspeed": Framework(lambda _view: {}, ("MINGLE_HOSTFILE",), ("roster", "names"), files=_hostfile),
    "mpi": Framework(_mpi, _MPI, ("roster", "names", "iface"), files=_mpi_files),
    "horovod": Framework(_horovod, ("MINGLE_HOSTS",), ("roster", "names")),
    "jax": Framework(_jax, _JAX),
    "tensorflow": Framework(_tensorflow, ("TF_CONFIG",), ("roster",)),
    "ray": Framework(_ray, ("RAY_ADDRESS",)),
    "xgboost": Framework(_xgboost, ("DMLC_TRACKER_URI", "DMLC_TRACKER_PORT", "DMLC_TASK_ID", "DMLC_NUM_WORKER")),
    "mlx": Framework(_mlx, ("MLX_RANK", "MLX_HOSTFILE"), ("roster",), files=_mlx_files),
    "swift": Framework(_swift, ("NPROC_PER_NODE",)),
    "llamafactory": Framework(_llamafactory, ("FORCE_TORCHRUN", "NPROC_PER_NODE")),
    "composer": Framework(_composer, ("BASE_RANK",)),
    "vllm": Framework(_own_address("VLLM_HOST_IP"), ("VLLM_HOST_IP",)),
    "sglang": Framework(_own_address("SGLANG_HOST_IP"), ("SGLANG_HOST_IP",)),
    "nccl": Framework(_nccl, ("NCCL_SOCKET_IFNAME", "NCCL_SOCKET_FAMILY"), ("iface", "site")),
    "gloo": Framework(_gloo, ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"), ("iface",)),
    "ucx": Framework(_ucx, ("UCX_NET_DEVICES",), ("iface", "hcas")),
}

# The defaults: torchrun's variables, as most people then type `torchrun train.py`, and the interface for Gloo, torch's
# default backend on CPUs. NONE leaves them out.
DEFAULT, ALWAYS, NONE = "torchrun", "gloo", "none"


def profiles(requested: tuple[str, ...]) -> tuple[str, ...]:
    """Return the frameworks to export for: DEFAULT, ALWAYS and the requested ones, or with NONE only these.

    DEFAULT is left out if a requested one sets its variables too. Raises UsageError for an unknown name.
    """
    if NONE in requested:
        return tuple(name for name in dict.fromkeys(requested) if name != NONE)
    names = set(FRAMEWORKS[DEFAULT].names)
    is_replaced = any(names.intersection(framework(name).names) for name in requested if name != DEFAULT)
    first = (DEFAULT,) if DEFAULT in requested or not is_replaced else ()
    return tuple(dict.fromkeys((*first, ALWAYS, *requested)))


def framework(name: str) -> Framework:
    """Return the framework of this name, built-in or a plugin. Raises UsageError with the nearest known name."""
    if name in FRAMEWORKS:
        return FRAMEWORKS[name]
    if (row := plugins.find(plugins.FRAMEWORKS, name, Framework, _RETURNS)) is not None:
        return row
    known = [*FRAMEWORKS, *plugins.names(plugins.FRAMEWORKS), NONE]
    raise UsageError(f"a framework: {', '.join(known)}", name, f"--for {nearest(name, known)}")


def _are_settings(found: object) -> bool:
    return isinstance(found, dict) and all(isinstance(text, str) for pair in found.items() for text in pair)


def _are_files(found: object) -> bool:
    return isinstance(found, tuple) and all(isinstance(file, File) for file in found)


_RETURNS = {"settings": ("a dict of strings", _are_settings), "files": ("a tuple of File", _are_files)}


def plugin_variables() -> tuple[str, ...]:
    """Return the names that the loaded plugins may export."""
    return tuple(variable for row in plugins.loaded(plugins.FRAMEWORKS) for variable in row.names)


def needs(names: tuple[str, ...]) -> frozenset[Need]:
    """Return what these frameworks need the caller to find out. Raises UsageError."""
    return frozenset[Need]().union(*(framework(name).needs for name in names))
