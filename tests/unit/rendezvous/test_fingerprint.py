import os
import select
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.nodes import COMMIT, GIB, SHM, TMP, Node, Space, aws, azure, container, dgx, laptop, mi300x, silence
from support.recorded import assigned
from support.running import children

from mingle_hooks.net import devices as child
from mingle_hooks.rendezvous.fingerprint import (
    LONGEST,
    dump_fingerprint as dumps,
    is_variable,
    load_fingerprint as loads,
)
from mingle_hooks.rendezvous.report import Compared, compare_members, field_name, finding_lines
from mingle_hooks.values import FIELDS


def parts(node: Node) -> dict[str, str]:
    found = loads(node.fingerprint()[0])
    assert {field_name(name) for name in found} <= {*FIELDS, "more"}
    return found


def test_a_dgx_has_the_expected_fingerprint(tmp_path: Path) -> None:
    found = parts(dgx(tmp_path))
    assert found == assigned(
        f"kernel=5.15.0-1053-nvidia kernel.machine={os.uname().machine} driver=570.86.15 gpus='8 H100' rdma=8x400G"
        " rdma.link=InfiniBand rdma.firmware=28.39.1002 limits.memlock=unlimited limits.nofile=4096+ limits.nproc=4096+"
        " shm=ok tmp=ok torch=2.5.1+cu124 nccl=2.21.5 cuda=12.4.127 jax=- python=3.11.2 image='ubuntu 22.04'"
        f" mingle={found['mingle']} program={found['program']} git=57f6c79e"
    )
    addresses = dgx(tmp_path / "another").fingerprint()[1].split()
    assert addresses[:2] == ["10.1.0.1=200G,mtu9000", "100.126.0.1=400G,mtu4092"]
    assert len(addresses) == 9  # docker's bridge is none of them


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (azure, {"gpus": "8 H100", "rdma": "1x100G+8x400G", "rdma.link": "InfiniBand+RoCE", "torch": None}),
        (aws, {"gpus": "8 H100", "rdma": "32x100G", "rdma.link": "EFA"}),
        (mi300x, {"gpus": "8 MI300X", "driver": "amdgpu 6.10.5", "rdma.link": "RoCE"}),
        (laptop, {"gpus": "-", "driver": "-", "rdma": "-", "limits.memlock": "8M", "limits.nofile": "1024"}),
        (
            container,
            {"rdma": "no-device", "shm": "64M", "image": "ubuntu 22.04, torch.sif, build 12345", "gpus": "8 H100"},
        ),
    ],
)
def test_other_machines_have_the_expected_fingerprints(
    make: Callable[[Path], Node], said: dict[str, str | None], tmp_path: Path
) -> None:
    found = parts(make(tmp_path))
    assert {name: found.get(name) for name in said} == said
    assert "hunter2" not in str(found)


def test_values_that_differ_by_nature_are_left_out(tmp_path: Path) -> None:
    members = []
    for number in range(1, 5):
        node = dgx(tmp_path / str(number), number)
        node.limits(nofile=1 << 16 + number % 3, nproc=4_000_000 + 512 * number)
        node.space = {SHM: Space(4096, 2**28 + number, 2**27 - number), TMP: Space(4096, 2**26, 2**25 * number)}
        node.environ |= {
            "HOSTNAME": f"node{number}",
            "SLURM_PROCID": str(number),
            "CUDA_VISIBLE_DEVICES": ",".join(f"GPU-{number}-{index}" for index in range(8)),
            "NCCL_SOCKET_IFNAME": f"enp{number}s0",
            "NCCL_IB_HCA": f"mlx5_{number % 2}",
            "NCCL_HOSTID": f"host{number}",
            "NCCL_DEBUG": "WARN",
            "OMP_NUM_THREADS": "12",
        }
        text, addresses = node.fingerprint()
        members.append(Compared(f"node{number}", text, (0.0, 0.01 * number), addresses))
    assert finding_lines(compare_members(members)) == []
    assert len({member.fingerprint.replace(f"host{n}", "") for n, member in enumerate(members, 1)}) == 1


def test_memlock_is_unlimited_for_a_process_that_may_lock_all_memory(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.limits(memlock=65536)
    assert parts(node)["limits.memlock"] == "64K"
    node.write("/proc/self/status", "Name:\tpython\nCapEff:\t000001ffffffffff")
    node.write("/proc/self/uid_map", "         0          0 4294967295")
    assert parts(node)["limits.memlock"] == "unlimited"
    node.write("/proc/self/uid_map", "         0      61001          1")
    assert parts(node)["limits.memlock"] == "64K"


def test_limits_are_classes_and_without_any_is_enough(tmp_path: Path) -> None:
    node = Node(tmp_path)
    for limits, classes in (((1 << 40, 1500, -1), "unlimited 1024 4096+"), ((9 << 20, 4096, 0), "8M 4096+ 0")):
        node.limits(*limits)
        found = parts(node)
        assert [found[f"limits.{name}"] for name in ("memlock", "nofile", "nproc")] == classes.split()


@pytest.mark.parametrize(("name", "path"), [("shm", SHM), ("tmp", TMP)])
def test_space_is_full_below_32_mib_and_else_as_it_should_be(name: str, path: str, tmp_path: Path) -> None:
    node = Node(tmp_path)
    for free, what in ((8191, "full"), (8192, "ok")):
        node.space = {path: Space(4096, 4 * GIB // 4096, free)}
        assert parts(node)[name] == what


def test_ports_that_are_down_and_cards_that_are_gone_are_seen(tmp_path: Path) -> None:
    node = dgx(tmp_path)
    node.rdma("mlx5_3", state="1: DOWN")
    node.environ["CUDA_VISIBLE_DEVICES"] = "0,1,2,3,4,5,6,7"
    gpu = next((tmp_path / "proc/driver/nvidia/gpus").iterdir())
    (gpu / "information").unlink()
    gpu.rmdir()
    found = parts(node)
    assert (found["rdma"], found["gpus"]) == ("7x400G", "7 H100")
    for index in range(9):
        node.rdma(f"mlx5_{index}", state="1: DOWN")
    assert parts(node)["rdma"] == "down"


def test_a_silent_device_is_the_finding_after_half_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "ANSWER_S", 0.05)
    node = dgx(tmp_path)
    silence(monkeypatch, tmp_path / "sys/class/infiniband/mlx5_3/ports/1/state")
    before, began = set(children()), time.monotonic()
    text, addresses = node.fingerprint()
    assert loads(text)["rdma"] == "silent"
    assert addresses.split()[0] == "10.1.0.1"
    assert time.monotonic() - began < 5
    assert set(children()) == before  # nor is a child left, as it can be killed


def test_the_commit_is_found_however_git_keeps_it(tmp_path: Path) -> None:
    node = Node(tmp_path)
    assert "git" not in parts(node)
    node.write("/.git/HEAD", "ref: refs/heads/main")
    node.write("/.git/refs/heads/main", COMMIT)
    assert parts(node)["git"] == COMMIT[:8]
    (tmp_path / ".git/refs/heads/main").unlink()
    node.write("/.git/packed-refs", f"# pack-refs\n{COMMIT[::-1]} refs/heads/main2\n{COMMIT} refs/heads/main\n^12")
    assert parts(node)["git"] == COMMIT[:8]
    node.write("/work/.git", "gitdir: ../.git/worktrees/work")
    node.write("/.git/worktrees/work/HEAD", "ref: refs/heads/main")
    node.write("/.git/worktrees/work/commondir", "../..")
    assert parts(node)["git"] == COMMIT[:8]
    node.write("/.git/worktrees/work/HEAD", "ref: refs/heads/.invalid")  # as reftable has it
    assert "git" not in parts(node)
    node.write("/work/.git", "gitdir: /nowhere")
    assert "git" not in parts(node)


def test_the_program_is_the_first_script_among_the_arguments(tmp_path: Path) -> None:
    node = Node(tmp_path)
    one = parts(node)["program"]
    node.command = ("torchrun", "--nproc-per-node", "8", "/work/train.py", "--out", f"{os.getpid()}.log")
    assert parts(node)["program"] == one
    node.write("/work/train.py", "import jax\n")
    assert parts(node)["program"] != one
    os.mkfifo(tmp_path / "work/pipe.py")
    node.command = ("python", "pipe.py")
    assert "program" not in parts(node)
    node.write("/usr/bin/simulate", "\x7fELF", mode=0o755)
    node.command = ("simulate", "--steps", "3")
    assert parts(node)["program"]
    node.command = ()
    assert "program" not in parts(node)


def test_versions_are_those_of_the_commands_own_interpreter(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.venv()
    node.write("/usr/bin/torchrun", "#!/opt/venv/bin/python\nimport sys", mode=0o755)
    node.command = ("torchrun", "train.py")
    assert parts(node)["torch"] == "2.5.1+cu124"
    node.write("/usr/bin/torchrun", "#!/usr/bin/env python\nimport sys", mode=0o755)
    assert parts(node)["torch"] == "2.5.1+cu124"
    node.command = ("bash", "job.sh")
    assert "torch" not in parts(node)
    node.command = ()  # a shell's own python is what it will most likely start
    assert parts(node)["torch"] == "2.5.1+cu124"


def test_a_python_of_the_system_has_more_than_one_place(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.write("/usr/bin/python3", "", mode=0o755)
    node.command = ("python3", "-m", "train")
    for version in ("3.9", "3.10", "3.11"):  # what is no link to one of them has the latest
        node.write(f"/usr/lib/python{version}/os.py", "")
    node.write("/usr/lib/python3/dist-packages/torch-1.13.1.egg-info/PKG-INFO", "")
    assert (parts(node)["torch"], parts(node)["python"]) == ("1.13.1", "3.11")
    node.write("/home/alice/.local/lib/python3.11/site-packages/torch-2.5.1.dist-info/METADATA", "")
    assert parts(node)["torch"] == "2.5.1"


def test_secrets_and_long_values_stay_at_home(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.environ |= {
        **dict.fromkeys(("NCCL_API_KEY", "NCCL_TOKEN", "UCX_PASSWORD", "FI_MY_SECRET", "AWS_SECRET_ACCESS_KEY"), "s1"),
        "NCCL_PLUGIN_AUTH": "ghp_0123456789abcdefghijABCDEFGHIJ",
        "NCCL_CONF": "x" * 10**6,
        "NCCL_TEXT": "a\n\x1b[2Jb",
        "NCCL_BÄD": "1",
        "NCCL_" + "A" * 100: "1",
        "HOSTNAME": "node1",
        "NCCL_DEBUG": "INFO",
        "NCCL_EMPTY": "",
        "CUDA_VISIBLE_DEVICES": "0,1",
    }
    found = {name: value for name, value in parts(node).items() if is_variable(name)}
    shown = {name: value if len(value) < 9 else value[0] for name, value in found.items()}
    hashed = dict.fromkeys(("NCCL_PLUGIN_AUTH", "NCCL_CONF", "NCCL_TEXT"), "#")
    assert shown == {**hashed, "NCCL_DEBUG": "INFO", "NCCL_EMPTY": "empty", "CUDA_VISIBLE_DEVICES": "2 listed"}


def test_addresses_that_only_this_host_can_use_are_left_out(tmp_path: Path) -> None:
    node = dgx(tmp_path)
    usable = {address.partition("=")[0] for address in node.fingerprint()[1].split()}
    for address in ("127.0.0.2", "::1", "169.254.1.2", "fe80::2", "::1:2", "::1234:1"):
        node.interface("eth9", address, mbps=1000)
    assert {address.partition("=")[0] for address in node.fingerprint()[1].split()} - usable == {"::1:2", "::1234:1"}


def test_a_node_without_these_files_has_a_fingerprint(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.limits(memlock=65536)
    node.write("/proc/self/status", "CapEff: not-hex")
    node.write("/proc/driver/nvidia/version", "")
    node.write("/sys/class/kfd/kfd/topology/nodes/0/gpu_id", "7")
    node.write("/sys/class/kfd/kfd/topology/nodes/0/properties", "device_id x")
    assert parts(node)["kernel"]
    node.environ["PATH"] = ""
    assert parts(node)["kernel"]


def test_a_child_that_is_left_behind_has_no_descriptor_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader's port would be taken for the framework, and `eval` would wait for the end of its output."""
    silence(monkeypatch, tmp_path / "state")
    here, there = os.pipe()
    heard = child._receive

    def while_it_waits(pipe: int, _within_s: float, pid: int) -> tuple[bytes, bool]:
        monkeypatch.setattr(child, "_receive", heard)
        os.close(there)
        is_end, _, _ = select.select([here], [], [], 5.0)  # a bound on a test that fails
        assert is_end  # so the child has it no more
        os.close(here)
        return heard(pipe, 0.0, pid)

    monkeypatch.setattr(child, "_receive", while_it_waits)
    assert child.read_in_child([str(tmp_path / "state")]) is None


def test_parts_that_did_not_fit_twice_are_one_hash() -> None:
    """A difference in what was left out at first does not vanish where parts are added later."""
    usual = {f"NCCL_{number:02}": "x" * 15 for number in range(60)}
    texts = [dumps({**loads(dumps({**usual, "NCCL_99": last})), "gpus.power": "700 W"}) for last in "abcdefgh"]
    assert {len(text.split("more=")) for text in texts} == {2}
    assert len({loads(text)["more"] for text in texts}) == len(texts)
    assert max(map(len, texts)) <= LONGEST
