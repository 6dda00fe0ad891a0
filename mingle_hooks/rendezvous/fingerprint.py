"""The fingerprint of a node: one short text of what should be alike on all nodes of a job."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from hashlib import sha256
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import quote, unquote

import mingle_hooks
from mingle_hooks.errors import MingleError
from mingle_hooks.files import read_bounded
from mingle_hooks.net import devices
from mingle_hooks.net.addresses import (
    ListedAddress,
    is_loopback,
    is_virtual_name,
    list_addresses,
    list_entries,
    read_attribute,
)


class FingerprintRequest(NamedTuple):
    """The user's environment, the command and its directory, and the root of this node's files."""

    environ: Mapping[str, str]
    command: tuple[str, ...] = ()
    directory: str = "/"
    root: str = ""
    statvfs: Callable[[str], os.statvfs_result] = os.statvfs
    limits: Mapping[str, int] = MappingProxyType({})  # the user's, by name, as of getrlimit(2)
    listed: Callable[[], Iterable[ListedAddress]] = list_addresses


def own_limits() -> dict[str, int]:
    """Return this process's current limits, by name."""
    names = {"memlock": resource.RLIMIT_MEMLOCK, "nofile": resource.RLIMIT_NOFILE, "nproc": resource.RLIMIT_NPROC}
    return {name: resource.getrlimit(number)[0] for name, number in names.items()}


# A fingerprint is one printable text of sorted ``name=value`` parts, which the leader compares as a whole.
#
# A name in lower case is a field or a part of one (``limits.memlock``); one in upper case is a variable.

# Characters of the whole, and of one value: twenty usual fields leave room for some thirty variables.
LONGEST, LONGEST_VALUE_TEXT = 1024, 48
# One hash of the parts that did not fit: a fingerprint with it may omit variables that are set.
MORE = "more"
NOTHING = "-"  # there is none, which is compared too
FULL = "full"  # /dev/shm or /tmp: reported whatever the others have
DOWN, NO_DEVICE, SILENT = "down", "no-device", "silent"  # of RDMA, instead of the active ports
_ROOM = LONGEST - len(f" {MORE}=01234567")
# Characters that are not escaped: ASCII from "!" on, except "%".
_PLAIN = "".join(map(chr, range(0x21, 0x7F))).replace("%", "")


def dump_fingerprint(parts: Mapping[str, str]) -> str:
    """Return a text of at most LONGEST characters; parts that do not fit, the last variables by name, become a hash."""
    shown: list[str] = []
    left_out: list[str] = []
    length = -1
    for name in sorted(parts.keys() - {MORE}, key=lambda name: (is_variable(name), name)):
        text = f"{name}={quote(shorten(parts[name], LONGEST_VALUE_TEXT), _PLAIN, errors='surrogateescape')}"
        if not left_out and length + 1 + len(text) <= _ROOM:
            shown.append(text)
            length += 1 + len(text)
        else:
            left_out.append(text)
    if MORE in parts:  # of a text that parts were added to: one hash stands for both
        left_out.append(parts[MORE])
    if left_out:
        shown.append(f"{MORE}={short_hash(' '.join(left_out))}")
    return " ".join(sorted(shown))


def load_fingerprint(text: str) -> dict[str, str]:
    """Return the parts of a text; those of an unknown form are left out."""
    pairs = (part.partition("=") for part in text.split(" "))
    return {name: unquote(value) for name, is_part, value in pairs if is_part and name}


def is_variable(name: str) -> bool:
    """Return whether a part is a variable of the environment."""
    return name[:1].isupper()


def shorten(value: str, longest: int) -> str:
    """Return the value, or its hash if it is longer than `longest`."""
    return value if len(value) <= longest else f"#{short_hash(value)}"


def short_hash(value: str) -> str:
    """Return 8 hex digits of a text's hash: enough to distinguish a few, and no way back to the text."""
    # Only the beginning and the length are hashed, as a variable may have a megabyte.
    return sha256(f"{len(value)} {value[:4096]}".encode("utf-8", "surrogateescape")).hexdigest()[:8]


# The variables that change how a training runs; others are private.

_PREFIXES = ("NCCL_", "RCCL_", "TORCH_NCCL_", "GLOO_", "UCX_", "FI_", "OMP_", "HSA_", "NVSHMEM_")
_NAMES = (
    *("CUDA_LAUNCH_BLOCKING", "CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_DEVICE_ORDER", "PYTORCH_CUDA_ALLOC_CONF"),
    *("TORCH_DISTRIBUTED_DEBUG", "XLA_FLAGS", "ZE_AFFINITY_MASK"),
)
# Lists of devices and interfaces: names may differ between nodes, but their number should not.
_LISTS = ("_VISIBLE_DEVICES", "_NET_DEVICES", "_IFNAME", "_HCA", "_AFFINITY_MASK")
# A member's frame is sealed, not encrypted: possible secrets are left out.
_SECRET = ("KEY", "TOKEN", "SECRET", "PASS", "CREDENTIAL")
_CHARACTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"
LONGEST_NAME = 48
# Settings are words, numbers and short lists; a longer value, or one of other characters, is sent as a hash.
LONGEST_VALUE_ENVIRONMENT = 15
_VALUE_CHARACTERS = f"{_CHARACTERS}abcdefghijklmnopqrstuvwxyz.,:;/^=+-"


def fingerprint_environment(request: FingerprintRequest) -> dict[str, str]:
    """Return the variables: short values as they are, lists of devices as a count, others as hashes."""
    found = {}
    for name, value in request.environ.items():
        if not name.startswith(_PREFIXES) and name not in _NAMES and not name.endswith("_VISIBLE_DEVICES"):
            continue
        if len(name) > LONGEST_NAME or name.strip(_CHARACTERS) or any(part in name for part in _SECRET):
            continue
        if name.endswith(_LISTS):
            found[name] = f"{value.count(',') + 1} listed" if value else "empty"
        else:
            longest = -1 if value.strip(_VALUE_CHARACTERS) else LONGEST_VALUE_ENVIRONMENT
            found[name] = shorten(value, longest) or "empty"
    return found


# The machine and its kernel: versions, GPUs, limits, space.

MIB, GIB = 1 << 20, 1 << 30
# With less free space it counts as full: NCCL and data loaders take more at once.
LEAST_FREE_BYTES = 32 * MIB
# Kernel modules whose versions are drivers'; NVIDIA's is shown without a name.
_DRIVERS = ("nvidia", "amdgpu", "neuron", "habanalabs")
# By architecture: a model, as people call it, and its device ids in pci.ids (NVIDIA, AMD); others are shown by number.
_DEVICE_IDS = (
    "V100 1db1 1db4 1db5 1db6, T4 1eb8",
    "A100 20b0 20b1 20b2 20b5 20f1, A800 20f3, A10 2236, A10G 2237, A40 2235",
    "L40S 26b9, L40 26b5, L4 27b8",
    "H100 2330, H100-PCIe 2331, H100-NVL 2321, H200 2335, H800 2324, H20 2329, GH200 2342",
    "B200 2901, GB200 2941, B300 3182, GB300 31c2",
    "MI100 738c, MI250X 7408 740c, MI210 740f",
    "MI300A 74a0, MI300X 74a1, MI325X 74a5, MI350X 75a0, MI355X 75a3",
)
_MODELS = {f"0x{number}": row[0] for row in map(str.split, ", ".join(_DEVICE_IDS).split(", ")) for number in row[1:]}
# Limits of files and processes follow the memory size: values above this are equal.
ENOUGH = 4096
UNLIMITED = "unlimited"
_CAP_IPC_LOCK = 14  # linux/capability.h: a process with it may lock all memory, outside of user namespaces
_ALL_USERS = "0 0 4294967295"


def kernel_release(request: FingerprintRequest) -> dict[str, str]:
    """Return the kernel's release and the architecture."""
    machine = os.uname()
    release = read_attribute(f"{request.root}/proc/sys/kernel/osrelease") or machine.release
    return {"kernel": release, "kernel.machine": machine.machine}


def gpu_driver(request: FingerprintRequest) -> dict[str, str]:
    """Return the version of the accelerators' driver."""
    found = []
    for module in _DRIVERS:
        version = read_attribute(f"{request.root}/sys/module/{module}/version")
        if not version and module == "nvidia":
            # Its first line reads "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Thu Jan …".
            fields = read_attribute(f"{request.root}/proc/driver/nvidia/version", 256).partition("\n")[0].split()
            version = next((field for field in fields if field[0].isdigit() and "." in field), "")
        if version:
            found.append(version if module == "nvidia" else f"{module} {version}")
    return {"driver": ", ".join(found) or NOTHING}


def gpu_models(request: FingerprintRequest) -> dict[str, str]:
    """Return `8 H100`: the number of accelerators that this process may use, and their model.

    No file below /proc/driver/nvidia/gpus/*/ is read: that takes the driver's power lock.
    """
    count = devices.visible_gpus(request.environ, request.root)
    nvidia = list_entries(f"{request.root}/proc/driver/nvidia/gpus")
    if nvidia:
        ids = {read_attribute(f"{request.root}/sys/bus/pci/devices/{device.lower()}/device") for device in nvidia}
        if "MIG-" not in request.environ.get("CUDA_VISIBLE_DEVICES", ""):
            count = min(count or 0, len(nvidia))  # the scheduler's list may name a GPU that has fallen off the bus
    else:
        ids = _amd(request.root)
    if count is None:  # neither NVIDIA's nor AMD's
        neuron = len(devices.device_files(f"{request.root}/dev", "neuron"))
        count = neuron or len(list_entries(f"{request.root}/dev/accel"))
        ids = {"neuron"} if neuron else {"accel"}
    models = sorted(_MODELS.get(device_id, device_id) for device_id in ids if device_id)
    return {"gpus": " ".join([str(count), *models]) if count else NOTHING}


def _amd(root: str) -> set[str]:
    for node in devices.amd_gpus(root)[:1]:
        lines = (line.split() for line in read_attribute(f"{node}/properties").splitlines())
        return {f"{int(fields[1]):#06x}" for fields in lines if fields[:1] == ["device_id"]}
    return set()


def limits_of(request: FingerprintRequest) -> dict[str, str]:
    """Return the limits that break jobs, in classes: larger values depend on the memory size."""
    found = {f"limits.{name}": _limit(name, soft) for name, soft in request.limits.items()}
    if found.get("limits.memlock", UNLIMITED) != UNLIMITED and _may_lock(request.root):
        found["limits.memlock"] = UNLIMITED
    return found


def _limit(name: str, soft: int) -> str:
    if name == "memlock":
        return _size(soft) if 0 <= soft < GIB else UNLIMITED  # RLIM_INFINITY is -1
    return str(1 << soft.bit_length() - 1 if soft else 0) if 0 <= soft < ENOUGH else f"{ENOUGH}+"


def _may_lock(root: str) -> bool:
    lines = read_attribute(f"{root}/proc/self/status").splitlines()
    capabilities = next((int(line.split()[1], 16) for line in lines if line.startswith("CapEff:")), 0)
    users = read_attribute(f"{root}/proc/self/uid_map", 256).split()
    return bool(capabilities >> _CAP_IPC_LOCK & 1) and " ".join(users) == _ALL_USERS


def free_space(request: FingerprintRequest) -> dict[str, str]:
    """Return whether the memory file system and /tmp have room, and the size of a small one."""
    found = {}
    for name, path in (("shm", "/dev/shm"), ("tmp", "/tmp")):  # noqa: S108 - only checked
        with suppress(OSError):
            usage = request.statvfs(f"{request.root}{path}")
            total, free = usage.f_blocks * usage.f_frsize, usage.f_bavail * usage.f_frsize
            is_small = name == "shm" and total < GIB
            found[name] = FULL if free < LEAST_FREE_BYTES else _size(total) if is_small else "ok"
    return found


def _size(count: int) -> str:
    """Return the next lower power of two of a number of bytes: 64K, 8M."""
    kib = 1 << max(count >> 10, 1).bit_length() - 1
    return f"{kib >> 10}M" if kib >= 1 << 10 else f"{kib}K"


# RDMA ports, and this node's addresses with the speed and MTU of their interfaces.

# Addresses that are reported: a cloud's machine may have one for each of 32 ports.
MOST_ADDRESSES = 16
# Hardware types of linux/if_arp.h that carry a cluster's traffic: Ethernet and InfiniBand.
_TYPES = ("1", "32")
_UP = ("up", "unknown")
_UNKNOWN_MBPS = 2**32 - 1
_LINKS = {"Ethernet": "RoCE", "Unspecified": "EFA"}


def network_of(request: FingerprintRequest) -> tuple[dict[str, str], str]:
    """Return the RDMA part of a fingerprint, and `10.0.0.2=100G,mtu9000 …`, the addresses that others may use.

    Raises NetworkError.
    """
    net, ports = f"{request.root}/sys/class/net", [*devices.rdma_ports(f"{request.root}{devices.RDMA}").values()]
    usable = [one for one in request.listed() if _is_usable(one.address)]
    names = [name for name in dict.fromkeys(one.name for one in usable) if _is_up(net, name)]
    paths = [f"{net}/{name}/speed" for name in names]
    if ports:
        cards = {port.rpartition("/ports/")[0] for port in ports}
        queried = [f"{port}/{what}" for port in ports for what in ("state", "rate")]
        answers = devices.read_in_child([*queried, *(f"{card}/fw_ver" for card in cards), *paths])
    else:
        answers = {path: read_attribute(path) for path in paths}
    kinds = {name: _kind(f"{net}/{name}", answers) for name in names}
    texts = [f"{one.address}{kinds[one.name]}" for one in usable if one.name in kinds]
    has_device = any(name.startswith("uverbs") for name in list_entries(f"{request.root}/dev/infiniband"))
    return _rdma(ports, answers, has_device=has_device), " ".join(texts[:MOST_ADDRESSES])


def _is_usable(address: str) -> bool:
    return not is_loopback(address) and not address.startswith(("fe80:", "169.254."))


def _is_up(net: str, name: str) -> bool:
    if read_attribute(f"{net}/{name}/type") not in _TYPES or read_attribute(f"{net}/{name}/operstate") not in _UP:
        return False
    is_card = os.path.exists(f"{net}/{name}/device")  # and so no bridge
    return is_card or not is_virtual_name(name)


def _kind(interface: str, answers: Mapping[str, str] | None) -> str:
    """Return speed and MTU as the suffix of an address, "" if a device does not answer."""
    if answers is None:
        return ""
    speed = answers[f"{interface}/speed"]
    is_known = speed.isdecimal() and 0 < int(speed) < _UNKNOWN_MBPS
    return f"={f'{int(speed) / 1000:g}G,' if is_known else ''}mtu{read_attribute(f'{interface}/mtu')}"


def _rdma(ports: Iterable[str], answers: Mapping[str, str] | None, *, has_device: bool) -> dict[str, str]:
    """Return `8x400G` for the active ports, or why there are none, and their link layer and firmware."""
    layers = {read_attribute(f"{port}/link_layer") for port in ports}
    link = "+".join(sorted(_LINKS.get(layer, layer) for layer in layers)) or NOTHING
    parts = {"rdma": NOTHING, "rdma.link": link}
    if not layers:
        return parts
    if answers is None:
        return {**parts, "rdma": SILENT}
    rates: dict[str, int] = {}
    for port in ports:
        if answers[f"{port}/state"].endswith("ACTIVE"):  # "4: ACTIVE"
            rate = answers[f"{port}/rate"].partition(" ")[0]  # "400 Gb/sec (4X NDR)"
            rates[rate] = rates.get(rate, 0) + 1
    active = "+".join(f"{count}x{rate}G" for rate, count in sorted(rates.items()))
    firmware = sorted({value for path, value in answers.items() if path.endswith("/fw_ver") and value})
    parts["rdma"] = (active if has_device else NO_DEVICE) if active else DOWN
    return {**parts, "rdma.firmware": "+".join(firmware) or NOTHING}


# What COMMAND runs: the installed versions, the image, the program's file, and the commit.

# Name of a distribution's metadata folder -> field.
_DISTRIBUTIONS = {
    "torch": "torch",
    "jax": "jax",
    **dict.fromkeys(("nvidia_nccl_cu11", "nvidia_nccl_cu12", "nvidia_nccl_cu13"), "nccl"),
    **dict.fromkeys(("nvidia_cuda_runtime_cu11", "nvidia_cuda_runtime_cu12", "nvidia_cuda_runtime"), "cuda"),
    **dict.fromkeys(("nvidia_cudnn_cu12", "nvidia_cudnn_cu13"), "cuda.cudnn"),
}
_METADATA = (".dist-info", ".egg-info")
# Variables with the image's name: only the last part of the path, as the rest may hold a registry's password.
_IMAGES = ("APPTAINER_CONTAINER", "SINGULARITY_CONTAINER")
_BUILD = "NVIDIA_BUILD_ID"

# So many bytes of a program's file are hashed, in 0.1 ms, with its whole size.
MOST_BYTES = 1 << 14
MOST_ARGUMENTS = 64  # of COMMAND that are searched for a script
_SCRIPTS = (".py", ".sh", ".jl", ".lua", ".R", ".pl")
_HASH = 8  # digits
# The packed-refs of a repository with thousands of branches; the end of a longer file is ignored.
MOST_REFS_BYTES = 1 << 20


def package_versions(request: FingerprintRequest) -> dict[str, str]:
    """Return the version of mingle, and of Python, torch, NCCL, CUDA's libraries and JAX if COMMAND is Python's."""
    own = {"mingle": mingle_hooks.__version__}
    python = interpreter(request)
    if not python:
        return own
    name = os.path.basename(os.path.realpath(f"{request.root}{python}"))
    prefix = os.path.dirname(os.path.dirname(python))
    libraries = [folder for folder in list_entries(f"{request.root}{prefix}/lib") if folder.startswith("python3.")]
    if name not in libraries:  # the longest is the latest: python3.12 comes after python3.9
        name = max(libraries, key=lambda folder: (len(folder), folder), default=name)
    listed: dict[str, str] = {}
    for folder in _folders(request, prefix, name):
        for entry in list_entries(f"{request.root}{folder}"):
            if entry.endswith(_METADATA):
                distribution, _, rest = entry.rpartition(".")[0].partition("-")
                field = _DISTRIBUTIONS.get(distribution.lower())
                if field is not None:
                    listed.setdefault(field, rest.partition("-py3")[0])
    none = dict.fromkeys(("torch", "nccl", "cuda", "jax"), NOTHING)
    return {**own, **none, **listed, "python": _release(request.root, prefix) or name.removeprefix("python")}


def _folders(request: FingerprintRequest, prefix: str, library: str) -> list[str]:
    """Return the folders of this interpreter's distributions, in the order of precedence."""
    folders = [f"{prefix}/lib/{library}/site-packages"]
    if not _release(request.root, prefix):  # a virtual environment sees no other ones
        home = request.environ.get("HOME", "")
        folders.insert(0, f"{home}/.local/lib/{library}/site-packages")
        folders += [f"/usr/local/lib/{library}/dist-packages", "/usr/lib/python3/dist-packages"]
    return folders


def _release(root: str, prefix: str) -> str:
    """Return Python's full version from a virtual environment's pyvenv.cfg, "" without one."""
    lines = (line.partition("=") for line in read_attribute(f"{root}{prefix}/pyvenv.cfg").splitlines())
    return next((value.strip() for name, _, value in lines if name.strip() in ("version", "version_info")), "")


def interpreter(request: FingerprintRequest) -> str:
    """Return the Python that runs COMMAND, found by the command's name or first line, "" if it is none."""
    for name in request.command[:1] or ("python", "python3"):
        path = find_program(request, name)
        if os.path.basename(path).startswith("python"):
            return path
        try:
            first = read_bounded(f"{request.root}{path}", 256).partition(b"\n")[0].decode() if path else ""
        except (OSError, UnicodeDecodeError):
            continue
        argv = first[2:].split() if first.startswith("#!") else []
        if argv[:1] and os.path.basename(argv[0]) == "env":
            argv = [find_program(request, program) for program in argv[1:2]]
        if argv and os.path.basename(argv[0]).startswith("python"):
            return argv[0]
    return ""


def find_program(request: FingerprintRequest, name: str) -> str:
    """Return the path of a command as a shell finds it, "" if there is none."""
    if "/" in name:
        return os.path.join(request.directory, name)
    for directory in request.environ.get("PATH", os.defpath).split(":"):
        path = os.path.join(request.directory, directory, name)
        if os.access(f"{request.root}{path}", os.X_OK) and not os.path.isdir(f"{request.root}{path}"):
            return path
    return ""


def container_image(request: FingerprintRequest) -> dict[str, str]:
    """Return the distribution, and the container's image if the environment names it."""
    lines = (line.partition("=") for line in read_attribute(f"{request.root}/etc/os-release").splitlines())
    release = {name: value.strip("\"'") for name, _, value in lines}
    labels = [" ".join(filter(None, (release.get("ID"), release.get("VERSION_ID"))))]
    labels += [os.path.basename(request.environ[name]) for name in _IMAGES if name in request.environ][:1]
    labels += [f"build {request.environ[_BUILD]}"] if _BUILD in request.environ else []
    return {"image": ", ".join(filter(None, labels)) or NOTHING}


def program_hash(request: FingerprintRequest) -> dict[str, str]:
    """Return a hash of the first script among COMMAND's arguments, else of the command's own file."""
    if not request.command:
        return {}
    scripts = [word for word in request.command[1:MOST_ARGUMENTS] if word.endswith(_SCRIPTS) and word[0] != "-"]
    for path in (*scripts, find_program(request, request.command[0])):
        try:
            whole = f"{request.root}{os.path.join(request.directory, path)}"
            data = read_bounded(whole, MOST_BYTES) + str(os.stat(whole).st_size).encode()
        except OSError:
            continue
        return {"program": sha256(data).hexdigest()[:_HASH]}
    return {}


def git_commit(request: FingerprintRequest) -> dict[str, str]:
    """Return the commit that is checked out in the working directory or above it, if it is known."""
    directory = request.directory
    while directory not in ("/", "") and not os.path.exists(f"{request.root}{directory}/.git"):
        directory = os.path.dirname(directory)
    place = os.path.join(directory, ".git")
    kind, _, elsewhere = read_attribute(f"{request.root}{place}", 1024).partition(":")
    if kind == "gitdir":  # a worktree or a submodule
        place = os.path.join(directory, elsewhere.strip())
    commit = _commit(request.root, place)
    is_one = len(commit) >= _HASH and not commit.strip("0123456789abcdef")
    return {"git": commit[:_HASH]} if is_one else {}


def _commit(root: str, place: str) -> str:
    """Return the commit of a git directory by its files, "" if refs have another format (reftable)."""
    head = read_attribute(f"{root}{place}/HEAD", 1024)
    if not head.startswith("ref: "):
        return head
    name = head[len("ref: ") :]
    common = os.path.join(place, read_attribute(f"{root}{place}/commondir", 1024))
    for folder in (place, common):
        if commit := read_attribute(f"{root}{folder}/{name}"):
            return commit
    try:
        packed = b"\n" + read_bounded(f"{root}{common}/packed-refs", MOST_REFS_BYTES)
    except OSError:
        return ""
    before, is_there, _ = packed.partition(f" {name}\n".encode("utf-8", "surrogateescape"))
    return before.rpartition(b"\n")[2].decode("ascii", "replace") if is_there else ""


SOURCES = (
    *(kernel_release, gpu_driver, gpu_models, limits_of, free_space),
    *(package_versions, container_image, program_hash, git_commit, fingerprint_environment),
)


# This node's files have an unknown format, or the kernel does not list its addresses.
_UNKNOWN = (OSError, ValueError, LookupError, MingleError)


def fingerprint(request: FingerprintRequest) -> tuple[str, str]:
    """Return the fingerprint, and this node's own addresses. A source that fails contributes nothing."""
    parts: dict[str, str] = {}
    addresses = ""
    for source in SOURCES:
        with suppress(*_UNKNOWN):
            parts |= source(request)
    with suppress(*_UNKNOWN):
        rdma, addresses = network_of(request)
        parts |= rdma
    return dump_fingerprint(parts), addresses
