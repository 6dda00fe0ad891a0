"""Nodes as trees of files: machines that are known, and what differs between two of a kind by nature."""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from mingle_hooks.net import devices
from mingle_hooks.net.addresses import ListedAddress as Listed, read_attribute
from mingle_hooks.rendezvous.fingerprint import FingerprintRequest as Asked, fingerprint

GIB = 1 << 30
SHM, TMP = "/dev/shm", "/tmp"
TORCH = ("torch-2.5.1+cu124", "nvidia_nccl_cu12-2.21.5", "nvidia_cuda_runtime_cu12-12.4.127", "numpy-2.1.0")
COMMIT = "57f6c79e1b2c3d4e57f6c79e1b2c3d4e57f6c79e"


def silence(monkeypatch: pytest.MonkeyPatch, silent: Path) -> None:
    """Have a device not answer: whoever reads this file of it waits."""

    def read(path: str) -> str:
        if path == str(silent):
            time.sleep(60)
        return read_attribute(path)

    monkeypatch.setattr(devices, "read_attribute", read)


class Space(NamedTuple):
    """What statvfs(3) says."""

    f_frsize: int
    f_blocks: int
    f_bavail: int


class Node:
    """A node's files below a directory, and what its fingerprint is taken of."""

    def __init__(self, root: Path, number: int = 1) -> None:
        self.root, self.number = root, number
        self._made: set[str] = set()
        self.environ = {"PATH": "/usr/bin:/opt/venv/bin", "HOME": "/home/alice"}
        self.command: tuple[str, ...] = ("python", "train.py")
        self.addresses: list[Listed] = []
        self.space: Mapping[str, Space] = {}
        self.limits()
        self.write("/proc/sys/kernel/osrelease", "5.15.0-1053-nvidia")
        self.write("/etc/os-release", 'NAME="Ubuntu"\nID=ubuntu\nVERSION_ID="22.04"')
        self.write("/work/train.py", "import torch\n")

    def write(self, path: str, text: str | bytes, mode: int = 0o644) -> None:
        place = f"{self.root}{os.path.dirname(path)}"
        if place not in self._made:  # a node has hundreds of files in few directories
            os.makedirs(place, exist_ok=True)
            self._made.add(place)
        with open(f"{self.root}{path}", "wb", buffering=0) as file:
            file.write(text.encode() + b"\n" if isinstance(text, str) else text)
            os.chmod(file.fileno(), mode)

    def limits(self, memlock: int = -1, nofile: int = 65536, nproc: int = 4_127_000) -> None:
        self.rlimits = {"memlock": memlock, "nofile": nofile, "nproc": nproc}

    def interface(
        self, name: str, address: str, *, mbps: int, mtu: int = 9000, kind: int = 1, card: bool = True
    ) -> None:
        top = f"/sys/class/net/{name}"
        for what, value in {"type": kind, "mtu": mtu, "speed": mbps, "operstate": "up"}.items():
            self.write(f"{top}/{what}", str(value))
        if card:
            self.write(f"{top}/device/vendor", "0x15b3")
        self.addresses.append(Listed(name, len(self.addresses) + 2, address, 16))

    def rdma(self, device: str, *, gbps: int = 400, layer: str = "InfiniBand", state: str = "4: ACTIVE") -> None:
        port = f"/sys/class/infiniband/{device}/ports/1"
        for what, value in {"state": state, "rate": f"{gbps} Gb/sec (4X NDR)", "link_layer": layer}.items():
            self.write(f"{port}/{what}", value)
        self.write(f"/sys/class/infiniband/{device}/fw_ver", "28.39.1002")
        self.write(f"/dev/infiniband/uverbs{device[-1]}", "")

    def nvidia(self, count: int, model: str) -> None:
        self.write("/sys/module/nvidia/version", "570.86.15")
        for index in range(count):
            bus = f"0000:{0x10 * (index + 1) + self.number:02X}:00.0"  # other nodes have theirs elsewhere
            self.write(f"/proc/driver/nvidia/gpus/{bus}/information", "GPU UUID: GPU-…", mode=0)
            self.write(f"/sys/bus/pci/devices/{bus.lower()}/device", model)
            self.write(f"/dev/nvidia{index}", "")

    def venv(self) -> None:
        self.write("/opt/venv/bin/python", "", mode=0o755)
        self.write("/opt/venv/pyvenv.cfg", "home = /usr/bin\nversion = 3.11.2")
        for package in TORCH:
            self.write(f"/opt/venv/lib/python3.11/site-packages/{package}.dist-info/METADATA", "")

    def asked(self) -> Asked:
        def statvfs(path: str) -> os.statvfs_result:
            return self.space.get(path.removeprefix(str(self.root)), Space(4096, 64 * GIB // 4096, 32 * GIB // 4096))  # type: ignore[return-value]

        root = str(self.root)
        return Asked(self.environ, self.command, "/work", root, statvfs, self.rlimits, lambda: self.addresses)

    def fingerprint(self) -> tuple[str, str]:
        return fingerprint(self.asked())


def dgx(root: Path, number: int = 1) -> Node:
    node = Node(root, number)
    node.nvidia(8, "0x2330")
    node.venv()
    node.interface("bond0", f"10.1.0.{number}", mbps=200_000, card=False)
    for index in range(8):
        node.rdma(f"mlx5_{index + number % 2}")
        node.interface(f"ibp{index}s0", f"100.126.{index}.{number}", mbps=400_000, mtu=4092, kind=32)
    node.interface("docker0", "172.17.0.1", mbps=10_000, mtu=1500, card=False)
    node.write("/work/.git/HEAD", COMMIT)
    return node


def azure(root: Path, number: int = 1) -> Node:
    node = Node(root, number)
    node.nvidia(8, "0x2330")
    node.interface("eth0", f"10.0.0.{number}", mbps=100_000, mtu=1500)
    for index in range(8):
        node.rdma(f"mlx5_ib{index}")
        node.interface(f"ib{index}", f"172.16.1.{8 * number + index}", mbps=400_000, mtu=2044, kind=32)
    node.rdma("mlx5_an8", gbps=100, layer="Ethernet")
    return node


def aws(root: Path, number: int = 1) -> Node:
    node = Node(root, number)
    node.nvidia(8, "0x2330")
    for index in range(32):
        node.rdma(f"rdmap{16 + index}s27", gbps=100, layer="Unspecified")
        node.interface(f"enp{71 + index}s0", f"10.1.{index}.{number}", mbps=-1)
    return node


def mi300x(root: Path, number: int = 1) -> Node:
    node = Node(root, number)
    node.write("/sys/module/amdgpu/version", "6.10.5")
    for index in range(10):  # two of them are processors
        top = f"/sys/class/kfd/kfd/topology/nodes/{index}"
        node.write(f"{top}/gpu_id", "0" if index < 2 else str(40_000 + 97 * index + number))
        node.write(f"{top}/properties", f"cpu_cores_count 0\nvendor_id 4098\ndevice_id {0x74A1}\nunique_id {number}")
    node.interface("eno0", f"10.4.0.{number}", mbps=200_000)
    for index in range(8):
        node.rdma(f"bnxt_re{index}", layer="Ethernet")
    return node


def laptop(root: Path, number: int = 1) -> Node:
    node = Node(root, number)
    node.limits(memlock=8 << 20, nofile=1024, nproc=127_000 + number)
    node.interface("wlp2s0", f"192.168.1.{number}", mbps=-1, mtu=1500)
    node.interface("docker0", "172.17.0.1", mbps=10_000, mtu=1500, card=False)
    return node


def container(root: Path, number: int = 1) -> Node:
    """Make a container that sees its host's /sys, but was given no RDMA device, and a small /dev/shm."""
    node = dgx(root, number)
    for file in (root / "dev/infiniband").iterdir():
        file.unlink()
    node.space = {SHM: Space(4096, 16384, 16384)}
    node.environ |= {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_BUILD_ID": "12345"}
    node.environ["APPTAINER_CONTAINER"] = "docker://bob:hunter2@registry/torch.sif"
    return node
