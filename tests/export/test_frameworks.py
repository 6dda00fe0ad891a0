"""Each framework's variables, as that framework reads them."""

from __future__ import annotations

import json

import pytest

from mingle_hooks.errors import NetworkError, UsageError
from mingle_hooks.export.frameworks import (
    FRAMEWORKS,
    HCAS,
    IFACE,
    NO_RANK,
    NOT_HERE,
    ROSTER,
    SITE,
    framework,
    needs,
    profiles,
)
from mingle_hooks.export.variables import files, left_to_nccl, own, variables
from mingle_hooks.net.addresses import NcclSetting
from mingle_hooks.schedulers.detect import detect
from mingle_hooks.world import Assignment, Batch, Member, View, World

SEATS = (Member(0, "n1", "10.0.0.1", 2), Member(1, "n2", "10.0.0.2", 4))
WORLD = World("job7", 2, 6, "10.0.0.1", 29_500, "0123456789abcdef", SEATS)
WORLD6 = WORLD._replace(master_addr="fd00::1", roster=(Member(0, "n1", "fd00::1", 2), Member(1, "n2", "fd00::2", 4)))
NODE = Assignment(1, 4, 2, "10.0.0.2", "ib0")
TASK = NODE._replace(local_rank=3, rank=5)
NODE_VIEW = View(WORLD, NODE, "node", {}, ("mlx5_0:1", "mlx5_1:1"), is_cpu_only=True)
TASK_VIEW = NODE_VIEW._replace(place=TASK, scope="task")
ENDS = NO_RANK | {"PET_NODE_RANK": NOT_HERE}
BATCH_VIEW = NODE_VIEW._replace(place=Assignment(None, None, None), batch=Batch(300, "4"))
IPV6_VIEW = NODE_VIEW._replace(world=WORLD6, place=NODE._replace(address="fd00::2"))


def settings(name: str, view: View = NODE_VIEW) -> dict[str, str]:
    """Return what one framework exports."""
    return framework(name).settings(view)


@pytest.mark.parametrize("name", list(FRAMEWORKS))
@pytest.mark.parametrize("view", [NODE_VIEW, TASK_VIEW, IPV6_VIEW], ids=["node", "task", "ipv6"])
def test_a_framework_exports_all_that_its_table_row_says_and_nothing_else(name: str, view: View) -> None:
    """The row is what an earlier mingle is recognised by."""
    exported = set(settings(name, view)) | {v for file in files(view, [name]) for v in file.variables}
    assert exported <= set(framework(name).names)
    optional = {*NO_RANK, "PET_RDZV_ENDPOINT", "PET_RDZV_CONF", "PET_LOCAL_ADDR", "JAX_LOCAL_DEVICE_IDS"}
    optional |= {"OMPI_COMM_WORLD_LOCAL_RANK", "TORCHELASTIC_RUN_ID", "SLURM_JOB_NAME", "SLURM_OVERLAP"}
    optional |= {"HYDRA_IFACE"}
    assert set(framework(name).names) - exported <= optional


@pytest.mark.parametrize("name", [name for name, row in FRAMEWORKS.items() if row.needs & {ROSTER, IFACE}])
def test_a_framework_without_what_it_needs_exports_nothing(name: str) -> None:
    """Half a set is never there; torchrun and accelerate get what makes them end at once."""
    bare = NODE_VIEW._replace(world=WORLD._replace(roster=()), place=Assignment(None, 4, None))
    assert settings(name, bare) in ({}, ENDS)
    assert files(bare, [name]) == ()


@pytest.mark.parametrize("environ", [{}, {"PET_RDZV_BACKEND": "static"}], ids=["", "static"])
@pytest.mark.parametrize("batch", [None, Batch(300, "4")], ids=["no names", "names"])
def test_a_torchrun_that_would_train_alone_is_made_to_end(batch: Batch | None, environ: dict[str, str]) -> None:
    """It takes these words for a rank, prints them and ends with 2, where c10d is no way or not the user's."""
    bare = NODE_VIEW._replace(place=Assignment(None, 4, None), batch=batch, user_environ=environ)
    words = settings("torchrun", bare) == settings("torchrun-elastic", bare) == ENDS
    assert words == (batch is None or bool(environ))


def test_a_batch_shells_torchrun_gets_what_holds_on_every_node() -> None:
    """Every node opens a store and uses the endpoint's, and no node rank is among it."""
    expected = NO_RANK | {
        "PET_NNODES": "2",
        "PET_NPROC_PER_NODE": "4",
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ID": "0123456789abcdef",
        "PET_RDZV_ENDPOINT": "10.0.0.1:29500",
        "PET_RDZV_CONF": "is_host=1,join_timeout=300,read_timeout=300",
    }
    assert settings("torchrun", BATCH_VIEW) == expected
    restarts = {"PET_MAX_RESTARTS": "3", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    assert settings("torchrun-elastic", BATCH_VIEW) == expected | restarts
    assert settings("torchrun", BATCH_VIEW._replace(world=WORLD6))["PET_RDZV_ENDPOINT"] == "[fd00::1]:29500"


def test_a_batch_shell_that_does_not_know_the_slots_of_all_nodes_leaves_them_to_torchrun() -> None:
    """Its own default is one process."""
    view = BATCH_VIEW._replace(batch=Batch(300, ""))
    assert "PET_NPROC_PER_NODE" not in settings("torchrun", view)


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
    """With PET_NNODES=1 torchrun would train alone on every node."""
    views = [NODE_VIEW, BATCH_VIEW] if name == "PET_NNODES" else [NODE_VIEW]
    for view in views:
        with pytest.raises(UsageError, match=f"{name}={value}.*unset {name}"):
            settings("torchrun", view._replace(user_environ={name: value}))


@pytest.mark.parametrize("value", ["2", "1:2", "2:8"])
def test_a_range_of_nodes_that_holds_the_world_is_the_users_to_give(value: str) -> None:
    """It is torchrun's own form for an elastic number."""
    assert settings("torchrun", NODE_VIEW._replace(user_environ={"PET_NNODES": value}))["PET_NNODES"] == "2"


def test_the_caller_is_told_what_to_find_out() -> None:
    """Nothing is asked for that no framework wants."""
    assert needs(("torchrun", "jax", "lightning")) == frozenset()
    assert needs(("tensorflow", "nccl")) == {ROSTER, IFACE, SITE}
    assert needs(("ucx",)) == {IFACE, HCAS}


@pytest.mark.parametrize(("wrong", "right"), [("pytorchrun", "torchrun"), ("TF", "--for"), ("tensorfow", "tensorflow")])
def test_an_unknown_framework_is_refused_with_the_nearest_known_one(wrong: str, right: str) -> None:
    """A typing mistake is told with its mend."""
    with pytest.raises(UsageError, match=f"{wrong}.*{right}"):
        variables(NODE_VIEW, [wrong])


def test_torchrun_gets_the_full_static_set() -> None:
    """Slots are this node's own."""
    assert settings("torchrun") == {
        "PET_NNODES": "2",
        "PET_NPROC_PER_NODE": "4",
        "PET_NODE_RANK": "1",
        "PET_MASTER_ADDR": "10.0.0.1",
        "PET_MASTER_PORT": "29500",
        "PET_RDZV_BACKEND": "static",
        "PET_RDZV_ID": "0123456789abcdef",
    }
    assert settings("torchrun", IPV6_VIEW)["PET_MASTER_ADDR"] == "fd00::1"


def test_torchrun_elastic_says_who_is_host() -> None:
    """Only rank 0 is."""
    assert settings("torchrun-elastic") == {
        "PET_NNODES": "2",
        "PET_NPROC_PER_NODE": "4",
        "PET_NODE_RANK": "1",
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ID": "0123456789abcdef",
        "PET_RDZV_ENDPOINT": "10.0.0.1:29500",
        "PET_RDZV_CONF": "is_host=0",
        "PET_LOCAL_ADDR": "10.0.0.2",
        "PET_MAX_RESTARTS": "3",
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    }
    first = IPV6_VIEW._replace(place=Assignment(0, 2, 0))
    assert settings("torchrun-elastic", first)["PET_RDZV_CONF"] == "is_host=1"
    assert settings("torchrun-elastic", first)["PET_RDZV_ENDPOINT"] == "[fd00::1]:29500"


def test_torchrun_follows_the_user_s_choice_of_backend() -> None:
    """With PET_RDZV_BACKEND=c10d from the user, the set is c10d's."""
    view = NODE_VIEW._replace(user_environ={"PET_RDZV_BACKEND": "c10d"})
    assert settings("torchrun", view) == settings("torchrun-elastic", view)


def test_jax_counts_processes_by_scope_and_brackets_ipv6() -> None:
    """One process for each node with all its devices, or one for each task."""
    assert settings("jax", IPV6_VIEW) == {
        "JAX_COORDINATOR_ADDRESS": "[fd00::1]:29500",
        "JAX_NUM_PROCESSES": "2",
        "JAX_PROCESS_ID": "1",
        "JAX_LOCAL_DEVICE_IDS": "0,1,2,3",
        "OMPI_MCA_orte_hnp_uri": "0.0;tcp6://[fd00::1]:29500",
        "OMPI_COMM_WORLD_SIZE": "2",
        "OMPI_COMM_WORLD_RANK": "1",
    }
    assert settings("jax", TASK_VIEW) == {
        "JAX_COORDINATOR_ADDRESS": "10.0.0.1:29500",
        "JAX_NUM_PROCESSES": "6",
        "JAX_PROCESS_ID": "5",
        "OMPI_MCA_orte_hnp_uri": "0.0;tcp://10.0.0.1:29500",
        "OMPI_COMM_WORLD_SIZE": "6",
        "OMPI_COMM_WORLD_RANK": "5",
        "OMPI_COMM_WORLD_LOCAL_RANK": "3",
    }


@pytest.mark.parametrize(
    "own",
    [
        {"OMPI_MCA_orte_hnp_uri": "7.0;tcp://10.9.9.9:1"},
        dict.fromkeys(("SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID"), "1"),
    ],
    ids=["Open MPI", "Slurm"],
)
def test_jax_is_left_to_the_cluster_that_it_finds_by_itself(own: dict[str, str]) -> None:
    """A real one is never covered by ours."""
    assert not [name for name in settings("jax", NODE_VIEW._replace(user_environ=own)) if name.startswith("OMPI")]


def test_jax_is_left_to_the_cluster_where_it_finds_all_of_it() -> None:
    """By half of Slurm's variables, as in a shell of ssh, it finds none."""
    own = dict.fromkeys(("SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_NTASKS", "SLURM_PROCID"), "1")
    assert "OMPI_COMM_WORLD_RANK" in settings("jax", NODE_VIEW._replace(user_environ=own))


def test_what_jax_takes_for_open_mpi_is_no_launcher_to_a_later_mingle() -> None:
    """It is listed as exported, and so it is not the user's."""
    found = {variable.name: variable.value for variable in variables(TASK_VIEW, ["jax"])}
    assert found["OMPI_COMM_WORLD_RANK"] == "5"
    assert not [name for name in own(found) if name.startswith("OMPI")]
    assert detect(own(found)).scheduler == "none"


def test_tensorflow_lists_every_worker() -> None:
    """Workers that share an address get ports of their own."""
    workers = ["10.0.0.1:29500", "10.0.0.2:29500"]
    expected = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": 1}}
    assert json.loads(settings("tensorflow")["TF_CONFIG"]) == expected
    config = json.loads(settings("tensorflow", TASK_VIEW)["TF_CONFIG"])
    assert config["task"]["index"] == 5
    assert config["cluster"]["worker"][:3] == ["10.0.0.1:29500", "10.0.0.1:29501", "10.0.0.2:29500"]
    config = json.loads(settings("tensorflow", IPV6_VIEW)["TF_CONFIG"])
    assert config["cluster"]["worker"] == ["[fd00::1]:29500", "[fd00::2]:29500"]


def test_tensorflow_refuses_a_port_past_the_last() -> None:
    """The message says what to choose."""
    view = TASK_VIEW._replace(world=WORLD._replace(master_port=65_535))
    with pytest.raises(NetworkError, match=r"65536.*--port-range"):
        settings("tensorflow", view)


def test_host_lists_name_each_host_once() -> None:
    """DeepSpeed refuses a host that stands there twice."""
    seats = (*SEATS, Member(2, "n1", "10.0.0.3", 3))
    view = NODE_VIEW._replace(world=WORLD._replace(roster=seats))
    assert [file.text for file in files(view, ["deepspeed"])] == ["n1 slots=5\nn2 slots=4\n"]
    assert [file.text for file in files(view, ["mpi"])] == ["n1 slots=5\nn2 slots=4\n", "n1:5\nn2:4\n"]
    assert settings("horovod", view) == {"MINGLE_HOSTS": "n1:5,n2:4"}


def test_hydra_is_told_its_interface_only_where_its_hosts_name_leads_nowhere() -> None:
    """Its daemons connect to the name otherwise, and all nodes get rank 0's interface by it."""
    assert "HYDRA_IFACE" not in settings("mpi")
    assert settings("mpi", NODE_VIEW._replace(is_named=False)) == {"HYDRA_IFACE": "ib0"}


def test_networks_are_named_as_each_library_wants_them() -> None:
    """NCCL takes an exact name, Gloo a bare one, UCX devices."""
    assert settings("nccl") == {"NCCL_SOCKET_IFNAME": "=ib0", "NCCL_SOCKET_FAMILY": "AF_INET"}
    assert settings("nccl", IPV6_VIEW)["NCCL_SOCKET_FAMILY"] == "AF_INET6"
    assert settings("gloo") == {"GLOO_SOCKET_IFNAME": "ib0", "TP_SOCKET_IFNAME": "ib0"}
    assert settings("ucx") == {"UCX_NET_DEVICES": "mlx5_0:1,mlx5_1:1,ib0"}
    assert settings("ucx", NODE_VIEW._replace(hcas=())) == {"UCX_NET_DEVICES": "ib0"}
    assert settings("ucx", NODE_VIEW._replace(hcas=None)) == {}


def test_ray_and_xgboost_meet_at_rank_0() -> None:
    """Rank 0's address and port, the same on all nodes."""
    assert settings("ray", IPV6_VIEW) == {"RAY_ADDRESS": "[fd00::1]:29500"}
    assert settings("xgboost", TASK_VIEW) == {
        "DMLC_TRACKER_URI": "10.0.0.1",
        "DMLC_TRACKER_PORT": "29501",
        "DMLC_TASK_ID": "5",
        "DMLC_NUM_WORKER": "6",
    }


def test_accelerate_gets_a_config_file_for_this_node() -> None:
    """It divides num_processes by num_machines, so nodes may differ."""
    (file,) = files(NODE_VIEW, ["accelerate"])
    config = json.loads(file.text)
    assert config["num_processes"] // config["num_machines"] == NODE.slots
    assert (config["machine_rank"], config["main_process_ip"], config["main_process_port"]) == (
        1,
        "10.0.0.1",
        29_500,
    )


def test_lightning_is_content_with_node_rank_and_no_local_rank() -> None:
    """LOCAL_RANK would make it believe that somebody else starts the processes."""
    names = {variable.name for variable in variables(NODE_VIEW, ["lightning"])}
    assert "NODE_RANK" in names
    assert "LOCAL_RANK" not in names


def test_a_process_that_knows_its_rank_is_one_of_torchrun_s_to_lightning() -> None:
    """By LOCAL_RANK alone Lightning would wait for processes that nobody starts."""
    names = {variable.name for variable in variables(TASK_VIEW, ["process"])}
    assert {"RANK", "LOCAL_RANK", "GROUP_RANK", "TORCHELASTIC_RUN_ID"} <= names
    assert settings("process") == {"ACCELERATE_USE_CPU": "true"}
    assert settings("process", NODE_VIEW._replace(is_cpu_only=False)) == {}


def test_lightning_in_a_step_of_slurm_starts_the_node_s_processes_itself() -> None:
    """Slurm's own SLURM_JOB_NAME is replaced, as any other makes Lightning take the step's tasks for its processes."""
    view = NODE_VIEW._replace(user_environ={"SLURM_JOB_ID": "7", "SLURM_JOB_NAME": "train"})
    found = {variable.name: variable for variable in variables(view, ["lightning"])}
    assert (found["SLURM_JOB_NAME"].value, found["SLURM_JOB_NAME"].lost) == ("interactive", "train from the scheduler")
    assert "SLURM_JOB_NAME" in found["MINGLE_EXPORTS"].value
    assert settings("lightning", NODE_VIEW) == {}


def test_accelerate_is_told_to_use_the_cpu_where_there_is_nothing_else() -> None:
    """Without a device that it knows it would train each process alone, and say nothing."""
    assert settings("cpu") == settings("accelerate") == {"ACCELERATE_USE_CPU": "true"}
    assert settings("cpu", NODE_VIEW._replace(is_cpu_only=False)) == {}


def test_launchers_that_start_torchrun_themselves_get_this_node_s_processes() -> None:
    """ms-swift and LLaMA-Factory hand them on; Composer wants to know where they begin."""
    assert settings("swift") == {"NPROC_PER_NODE": "4"}
    assert settings("llamafactory") == {"FORCE_TORCHRUN": "1", "NPROC_PER_NODE": "4"}
    assert settings("composer") == {"BASE_RANK": "2"}


def test_servers_get_this_node_s_own_address() -> None:
    """On the world's network, not the one that the default route takes."""
    assert settings("vllm") == {"VLLM_HOST_IP": "10.0.0.2"}
    assert settings("sglang", IPV6_VIEW) == {"SGLANG_HOST_IP": "fd00::2"}


def test_mlx_gets_its_ring() -> None:
    """A list of addresses for each rank."""
    (file,) = files(NODE_VIEW, ["mlx"])
    assert (settings("mlx"), file.variables) == ({"MLX_RANK": "1"}, ("MLX_HOSTFILE",))
    assert json.loads(file.text) == [["10.0.0.1:29500"], ["10.0.0.2:29500"]]


def test_mpirun_in_a_step_of_slurm_shares_the_step_s_cpus() -> None:
    """Its daemons come by srun, which would wait for them until the job ends."""
    view = NODE_VIEW._replace(user_environ={"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"})
    assert settings("mpi", view) == {"SLURM_OVERLAP": "1"}
    assert settings("mpi") == {}


@pytest.mark.parametrize("name", ["NCCL_SOCKET_IFNAME", "NCCL_SOCKET_FAMILY"])
def test_what_a_file_tells_nccl_is_not_exported(name: str) -> None:
    """A variable would silently beat /etc/nccl.conf."""
    view = NODE_VIEW._replace(site={name: NcclSetting("eth0", "/etc/nccl.conf")}, frameworks=("nccl",))
    assert name not in {variable.name for variable in variables(view, ["nccl", "gloo"])}
    told = f"{name}=eth0 is set in /etc/nccl.conf; mingle exports none, as a variable would override it"
    assert left_to_nccl(view) == [told]
    assert left_to_nccl(view._replace(frameworks=("gloo",))) == []


@pytest.mark.parametrize(
    "view",
    [
        NODE_VIEW._replace(site={"NCCL_SOCKET_IFNAME": NcclSetting("eth0", "/etc/nccl.conf")}),
        NODE_VIEW._replace(user_environ={"NCCL_SOCKET_IFNAME": "eth0"}),
    ],
    ids=["file", "variable"],
)
def test_who_names_nccls_interface_is_not_given_the_family_of_another(view: View) -> None:
    """The world's may have no address of that family there."""
    assert "NCCL_SOCKET_FAMILY" not in {variable.name for variable in variables(view, ["nccl"])}
