"""Each framework's variables, as that framework reads them."""

import json
from contextlib import nullcontext

import pytest
from frameworks.reads import FOR_USER_CODE, OWN, READS
from support.recorded import STEP, assigned

from mingle_hooks.errors import NetworkError, UsageError
from mingle_hooks.export.frameworks import FRAMEWORKS, NO_RANK, NOT_HERE, check_leftovers, framework, needs, profiles
from mingle_hooks.export.variables import files, left_to_nccl, variables
from mingle_hooks.job import member_spec
from mingle_hooks.net.addresses import NcclSetting
from mingle_hooks.rendezvous.messages import Assignment, Batch, File, Member, View, World

SEATS = (Member(0, "n1", "10.0.0.1", 2), Member(1, "n2", "10.0.0.2", 4))
WORLD = World("job7", 2, 6, "10.0.0.1", 29_500, "0123456789abcdef", SEATS)
WORLD6 = WORLD._replace(master_addr="fd00::1", roster=(Member(0, "n1", "fd00::1", 2), Member(1, "n2", "fd00::2", 4)))
NODE = Assignment(1, 4, 2, "10.0.0.2", "ib0")
TASK = NODE._replace(local_rank=3, rank=5)
NODE_VIEW = View(WORLD, NODE, "node", {}, ("mlx5_0:1", "mlx5_1:1"), is_cpu_only=True)
TASK_VIEW = NODE_VIEW._replace(place=TASK, scope="task")
ENDS = NO_RANK | {"PET_NODE_RANK": NOT_HERE}
BATCH_VIEW = NODE_VIEW._replace(place=Assignment(None, None, None), batch=Batch(300, "4"))
SIX_PORTS = (29_500, 29_501, 29_500, 29_501, 29_502, 29_503)
IPV6_VIEW = NODE_VIEW._replace(world=WORLD6, place=NODE._replace(address="fd00::2"))


def settings(name: str, view: View = NODE_VIEW) -> dict[str, str]:
    """Return what one framework exports."""
    return framework(name).settings(view)


def chosen(backend: str) -> View:
    """Return the view of a user who chose a backend of torchrun."""
    return NODE_VIEW._replace(user_environ={"PET_RDZV_BACKEND": backend})


def at_port(port: int) -> View:
    """Return a task's view of a world with this master port."""
    return TASK_VIEW._replace(world=WORLD._replace(master_port=port))


STATIC = assigned(
    "PET_NNODES=2 PET_NPROC_PER_NODE=4 PET_NODE_RANK=1 PET_MASTER_ADDR=10.0.0.1 PET_MASTER_PORT=29500"
    " PET_RDZV_BACKEND=static PET_RDZV_ID=0123456789abcdef"
)
C10D = assigned(
    "PET_NNODES=2 PET_NPROC_PER_NODE=4 PET_RDZV_BACKEND=c10d PET_RDZV_ID=0123456789abcdef"
    " PET_RDZV_ENDPOINT=10.0.0.1:29500"
)
RESTARTS = {"PET_MAX_RESTARTS": "3", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
# Of several nodes' batch shell: each node opens a store and uses the endpoint's, and no node rank is among it.
OF_BATCH = NO_RANK | C10D | {"PET_RDZV_CONF": "is_host=1,join_timeout=300,read_timeout=300"}
OF_UNKNOWN_SLOTS = {name: value for name, value in OF_BATCH.items() if name != "PET_NPROC_PER_NODE"}
ELASTIC = C10D | RESTARTS | {"PET_NODE_RANK": "1", "PET_RDZV_CONF": "is_host=0", "PET_LOCAL_ADDR": "10.0.0.2"}
ELASTIC6 = C10D | RESTARTS | {"PET_RDZV_ENDPOINT": "[fd00::1]:29500", "PET_RDZV_CONF": "is_host=1"}
ELASTIC6 |= {"PET_NPROC_PER_NODE": "2", "PET_NODE_RANK": "0"}
JAX = assigned(
    "JAX_COORDINATOR_ADDRESS=10.0.0.1:29500 JAX_NUM_PROCESSES=6 JAX_PROCESS_ID=5 OMPI_COMM_WORLD_SIZE=6"
    " OMPI_MCA_orte_hnp_uri=0.0;tcp://10.0.0.1:29500 OMPI_COMM_WORLD_RANK=5 OMPI_COMM_WORLD_LOCAL_RANK=3"
)
JAX6 = assigned(
    "JAX_COORDINATOR_ADDRESS=[fd00::1]:29500 JAX_NUM_PROCESSES=2 JAX_PROCESS_ID=1 JAX_LOCAL_DEVICE_IDS=0,1,2,3"
    " OMPI_MCA_orte_hnp_uri=0.0;tcp6://[fd00::1]:29500 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1"
)
JAX6_IN_CLUSTER = {name: value for name, value in JAX6.items() if name.startswith("JAX")}
OF_SLURM = ("SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID")
TRACKERS = {65_534: "65535", 65_535: "65534"}
XGBOOST = assigned("DMLC_TRACKER_URI=10.0.0.1 DMLC_TRACKER_PORT=29501 DMLC_TASK_ID=5 DMLC_NUM_WORKER=6")
GPUS = NODE_VIEW._replace(is_cpu_only=False)
OF_STEP = NODE_VIEW._replace(user_environ={"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"})


@pytest.mark.parametrize(
    ("name", "view", "exported"),
    [
        ("torchrun", NODE_VIEW, STATIC),
        ("torchrun", IPV6_VIEW, STATIC | {"PET_MASTER_ADDR": "fd00::1"}),
        *(("torchrun", chosen(backend), ELASTIC) for backend in ("c10d", "etcd-v2")),
        ("torchrun", chosen(""), STATIC),
        ("torchrun", BATCH_VIEW, OF_BATCH),
        # Where c10d is no way, or not the user's, torchrun takes a message for a rank, prints it and ends with 2.
        *((name, BATCH_VIEW._replace(batch=None), ENDS) for name in ("torchrun", "torchrun-elastic")),
        *((name, BATCH_VIEW._replace(user_environ={"PET_RDZV_BACKEND": "static"}), ENDS)
          for name in ("torchrun", "torchrun-elastic")),
        ("torchrun", BATCH_VIEW._replace(world=WORLD6), OF_BATCH | {"PET_RDZV_ENDPOINT": "[fd00::1]:29500"}),
        # Where not all nodes' slots are known torchrun starts its own default.
        ("torchrun", BATCH_VIEW._replace(batch=Batch(300, "")), OF_UNKNOWN_SLOTS),
        ("torchrun-elastic", NODE_VIEW, ELASTIC),
        ("torchrun-elastic", IPV6_VIEW._replace(place=Assignment(0, 2, 0)), ELASTIC6),
        ("torchrun-elastic", BATCH_VIEW, OF_BATCH | RESTARTS),
        ("torchrun", TASK_VIEW, STATIC | {"PET_NNODES": "6", "PET_NPROC_PER_NODE": "1", "PET_NODE_RANK": "5"}),
        ("jax", IPV6_VIEW, JAX6),
        ("jax", TASK_VIEW, JAX),
        # A cluster that JAX finds is never covered; a part of Slurm's variables, as in a shell of ssh, is none.
        ("jax", IPV6_VIEW._replace(user_environ=dict.fromkeys(OF_SLURM[:-1], "1")), JAX6),
        *(("jax", IPV6_VIEW._replace(user_environ=dict.fromkeys(its, "1")), JAX6_IN_CLUSTER)
          for its in (OF_SLURM, ("OMPI_MCA_orte_hnp_uri",))),
        ("mpi", NODE_VIEW, {}),
        ("mpi", OF_STEP, {"SLURM_OVERLAP": "1"}),  # else its daemons, started by srun, wait for the step's CPUs
        ("mpi", NODE_VIEW._replace(has_known_name=False), {"HYDRA_IFACE": "ib0"}),
        ("nccl", NODE_VIEW, {"NCCL_SOCKET_IFNAME": "=ib0", "NCCL_SOCKET_FAMILY": "AF_INET"}),
        ("nccl", NODE_VIEW._replace(user_environ={"NCCL_SOCKET_IFNAME": ""}),
         {"NCCL_SOCKET_IFNAME": "=ib0", "NCCL_SOCKET_FAMILY": "AF_INET"}),
        ("nccl", NODE_VIEW._replace(place=NODE_VIEW.place._replace(iface=None)), {}),
        ("nccl", IPV6_VIEW, {"NCCL_SOCKET_IFNAME": "=ib0", "NCCL_SOCKET_FAMILY": "AF_INET6"}),
        ("gloo", NODE_VIEW, {"GLOO_SOCKET_IFNAME": "ib0", "TP_SOCKET_IFNAME": "ib0"}),
        ("ucx", NODE_VIEW, {"UCX_NET_DEVICES": "mlx5_0:1,mlx5_1:1,ib0"}),
        ("ucx", NODE_VIEW._replace(hcas=()), {"UCX_NET_DEVICES": "ib0"}),
        ("ucx", NODE_VIEW._replace(hcas=None), {}),
        ("ray", IPV6_VIEW, {"RAY_ADDRESS": "[fd00::1]:29500"}),
        ("xgboost", TASK_VIEW, XGBOOST),
        *(("xgboost", at_port(port), XGBOOST | {"DMLC_TRACKER_PORT": its}) for port, its in TRACKERS.items()),
        ("horovod", NODE_VIEW, {"MINGLE_HOSTS": "n1:2,n2:4"}),
        ("lightning", TASK_VIEW._replace(user_environ={"SLURM_JOB_ID": "7"}), {"TORCHELASTIC_RUN_ID": WORLD.digest}),
        ("cpu", NODE_VIEW, {"ACCELERATE_USE_CPU": "true"}),
        ("accelerate", NODE_VIEW, {"ACCELERATE_USE_CPU": "true"}),
        ("cpu", GPUS, {}),
        ("process", NODE_VIEW, {"ACCELERATE_USE_CPU": "true"}),
        ("process", GPUS, {}),
        ("lightning", NODE_VIEW, {}),
        ("swift", NODE_VIEW, {"NPROC_PER_NODE": "4"}),
        ("llamafactory", NODE_VIEW, {"FORCE_TORCHRUN": "1", "NPROC_PER_NODE": "4"}),
        ("composer", NODE_VIEW, {"BASE_RANK": "2"}),
        ("vllm", NODE_VIEW, {"VLLM_HOST_IP": "10.0.0.2"}),
        ("sglang", IPV6_VIEW, {"SGLANG_HOST_IP": "fd00::2"}),
    ],
)  # fmt: skip
def test_a_framework_gets_the_whole_set_that_it_reads(name: str, view: View, exported: dict[str, str]) -> None:
    """For this node or task, with IPv6 addresses as the framework splits them."""
    assert settings(name, view) == exported


def test_of_every_exported_name_it_is_known_where_it_is_read() -> None:
    """A name that no framework reads is no help, and none of the table is left over."""
    names = {name for row in FRAMEWORKS.values() for name in row.names if not name.startswith(OWN)}
    assert names == {*READS, *FOR_USER_CODE}


@pytest.mark.parametrize(
    "name", [name for name, row in FRAMEWORKS.items() if {"roster", "iface"}.intersection(row.needs)]
)
def test_a_framework_without_what_it_needs_exports_nothing(name: str) -> None:
    """Half a set is never there; torchrun and accelerate get what makes them end at once."""
    bare = NODE_VIEW._replace(world=WORLD._replace(roster=()), place=Assignment(None, 4, None))
    assert settings(name, bare) in ({}, ENDS)
    assert files(bare, [name]) == ()


def test_everybody_gets_torchruns_set_and_the_interface_for_gloo() -> None:
    """`--for` adds to them; elastic replaces torchrun's set, and only `none` takes both away."""
    assert profiles(()) == profiles(("torchrun",)) == profiles(("gloo",)) == ("torchrun", "gloo")
    assert profiles(("nccl", "gloo", "nccl")) == ("torchrun", "gloo", "nccl")
    assert profiles(("torchrun-elastic", "nccl")) == ("gloo", "torchrun-elastic", "nccl")
    assert profiles(("none",)) == ()
    assert profiles(("none", "nccl")) == ("nccl",)
    with pytest.raises(UsageError, match="none"):
        profiles(("non",))


@pytest.mark.parametrize(("name", "value"), [("PET_NNODES", "1"), ("PET_NODE_RANK", "0"), ("PET_NNODES", "3:4")])
def test_a_leftover_that_contradicts_the_world_is_refused_by_its_name(name: str, value: str) -> None:
    """With PET_NNODES=1 torchrun would train alone on every node; a range that holds the world is the user's choice."""
    for view in (NODE_VIEW, BATCH_VIEW)[: 1 + (name == "PET_NNODES")]:
        with pytest.raises(UsageError, match=f"{name}={value}.*unset {name}"):
            settings("torchrun", view._replace(user_environ={name: value}))
    for held in ("2", "1:2", "2:8"):
        assert settings("torchrun", NODE_VIEW._replace(user_environ={"PET_NNODES": held}))["PET_NNODES"] == "2"


THIRD_OF_FOUR = {**STEP, "SLURM_NODEID": "1", "SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "4"}
THIRD_OF_FOUR |= {"SLURM_STEP_TASKS_PER_NODE": "2(x2)"}


@pytest.mark.parametrize(
    ("variable", "options", "is_refused"),
    [
        ("PET_NODE_RANK=0", {"rank": "1"}, True),
        ("PET_NODE_RANK=1", {"rank": "1"}, False),
        ("PET_NODE_RANK=1", {}, True),  # no rank is known yet
        ("PET_NODE_RANK=", {}, False),
        ("PET_STANDALONE=1", {}, True),
        ("PET_STANDALONE=0", {}, False),
        ("PET_NODE_RANK=0", {"frameworks": "none"}, False),
        ("PET_NNODES=1", {}, True),
        ("PET_NNODES=1:2", {}, False),
        ("PET_NNODES=1", {"frameworks": "torchrun-elastic"}, True),
        ("PET_NNODES=1", {"nodes": "1"}, False),
        # To torchrun each task is a node; this one is the third of two nodes with two tasks each.
        ("PET_NODE_RANK=1", {"scope": "task", "nodes": None}, True),
        ("PET_NODE_RANK=2", {"scope": "task", "nodes": None}, False),
        ("PET_NNODES=4", {"scope": "task", "nodes": None}, False),
    ],
)
def test_a_leftover_is_refused_before_check_in(
    variable: str, options: dict[str, str | None], *, is_refused: bool
) -> None:
    """Later, nodes whose rank it happens to be would start."""
    name, _, value = variable.partition("=")
    step = THIRD_OF_FOUR if "scope" in options else {}
    spec = member_spec({**step, name: value}, {"id": "a", "nodes": "2", **options})
    with pytest.raises(UsageError, match=f"{variable}.*unset {name}") if is_refused else nullcontext():
        check_leftovers(spec)


def test_nothing_is_looked_up_that_no_framework_needs() -> None:
    assert needs(("torchrun", "jax", "lightning")) == frozenset()
    assert needs(("tensorflow", "nccl")) == {"roster", "iface", "site"}
    assert needs(("ucx",)) == {"iface", "hcas"}


def test_tensorflow_and_mlx_list_every_worker() -> None:
    """Workers that share an address get ports of their own; a port past the last is refused with what to choose."""
    for view, index, workers in (
        (NODE_VIEW, 1, ["10.0.0.1:29500", "10.0.0.2:29500"]),
        (TASK_VIEW, 5, [f"10.0.0.{host}:{port}" for host, port in zip("112222", SIX_PORTS, strict=True)]),
        (IPV6_VIEW, 1, ["[fd00::1]:29500", "[fd00::2]:29500"]),
    ):
        expected = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}}
        assert json.loads(settings("tensorflow", view)["TF_CONFIG"]) == expected
        (file,) = files(view, ["mlx"])
        assert (settings("mlx", view), file.variables) == ({"MLX_RANK": str(index)}, ("MLX_HOSTFILE",))
        assert json.loads(file.text) == [[worker] for worker in workers]
    with pytest.raises(NetworkError, match=r"65536.*--port-range"):
        settings("tensorflow", at_port(65_535))


def test_accelerate_gets_a_config_file_for_this_node() -> None:
    """It divides num_processes by num_machines, so nodes may differ."""
    (file,) = files(NODE_VIEW, ["accelerate"])
    assert file.variables == ("MINGLE_ACCELERATE_CONFIG",)
    kind = {"compute_environment": "LOCAL_MACHINE", "distributed_type": "MULTI_GPU", "rdzv_backend": "static"}
    machines = {"num_machines": 2, "num_processes": 8, "machine_rank": 1, "same_network": True}
    master = {"main_process_ip": "10.0.0.1", "main_process_port": 29500}
    assert json.loads(file.text) == kind | machines | master
    for unknown in (NODE._replace(node_rank=None), NODE._replace(slots=None)):
        assert files(NODE_VIEW._replace(place=unknown), ["accelerate"]) == ()
    assert files(NODE_VIEW._replace(world=WORLD._replace(nodes=None)), ["accelerate"]) == ()


def test_each_launcher_has_its_file_by_its_own_variables() -> None:
    """DeepSpeed and mpi share one hostfile; a path that the user exported stays."""
    open_mpi = ("MINGLE_HOSTFILE", "OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile")
    hydra = ("MINGLE_MACHINEFILE", "HYDRA_HOST_FILE", "I_MPI_HYDRA_HOST_FILE")
    found = files(NODE_VIEW, ["deepspeed", "mpi"])
    hostfile, machinefile = "n1 slots=2\nn2 slots=4\n", "n1:2\nn2:4\n"
    assert found == (File("hostfile", hostfile, open_mpi), File("machinefile", machinefile, hydra))
    view = NODE_VIEW._replace(user_environ={"HYDRA_HOST_FILE": "/mine"})
    exported = variables(view, ["deepspeed", "mpi"], {"hostfile": "/run/h", "machinefile": "/run/m"})
    paths = dict.fromkeys(open_mpi, "/run/h") | dict.fromkeys(hydra, "/run/m") | {"HYDRA_HOST_FILE": "/mine"}
    assert paths.items() <= {variable.name: variable.value for variable in exported}.items()


def test_lightning_starts_the_node_s_processes_unless_each_has_its_rank() -> None:
    """LOCAL_RANK alone would make it wait for others; in a step of Slurm another job name would, too."""
    names = {variable.name for variable in variables(NODE_VIEW, ["lightning"])}
    assert ("NODE_RANK" in names, "LOCAL_RANK" in names) == (True, False)
    names = {variable.name for variable in variables(TASK_VIEW, ["process"])}
    assert {"RANK", "LOCAL_RANK", "GROUP_RANK", "TORCHELASTIC_RUN_ID"} <= names
    view = NODE_VIEW._replace(user_environ={"SLURM_JOB_ID": "7", "SLURM_JOB_NAME": "train"})
    found = {variable.name: variable for variable in variables(view, ["lightning"])}
    assert (found["SLURM_JOB_NAME"].value, found["SLURM_JOB_NAME"].lost) == ("interactive", "train from the scheduler")
    assert "SLURM_JOB_NAME" in found["MINGLE_EXPORTS"].value


@pytest.mark.parametrize("name", ["NCCL_SOCKET_IFNAME", "NCCL_SOCKET_FAMILY"])
def test_what_a_file_sets_for_nccl_is_not_exported(name: str) -> None:
    """A variable would silently beat /etc/nccl.conf; the family is left to the one who names the interface."""
    view = NODE_VIEW._replace(site={name: NcclSetting("eth0", "/etc/nccl.conf")}, frameworks=("nccl",))
    by_user = NODE_VIEW._replace(user_environ={"NCCL_SOCKET_IFNAME": "eth0"})
    assert name not in {variable.name for variable in variables(view, ["nccl", "gloo"])}
    for named in (view, by_user):
        assert "NCCL_SOCKET_FAMILY" not in {variable.name for variable in variables(named, ["nccl"])}
    note = f"{name}=eth0 is set in /etc/nccl.conf; mingle exports none, as a variable would override it"
    assert left_to_nccl(view) == [note]
    assert left_to_nccl(view._replace(frameworks=("gloo",))) == []
