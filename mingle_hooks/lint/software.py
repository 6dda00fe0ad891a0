"""What COMMAND runs: installed versions, by their metadata, its image, its program's file, and the commit.

One module, as each costs 0.2 ms on every node of every job.
"""

from __future__ import annotations

import os
from hashlib import sha256
from typing import TYPE_CHECKING

import mingle_hooks
from mingle_hooks.fabric.sysfs import entries
from mingle_hooks.lint.asked import contents, text
from mingle_hooks.lint.text import NOTHING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mingle_hooks.lint.asked import Asked

# Distributions as their metadata's folders are named -> field.
_DISTRIBUTIONS = {
    "torch": "torch",
    "jax": "jax",
    "nvidia_nccl_cu11": "nccl",
    "nvidia_nccl_cu12": "nccl",
    "nvidia_nccl_cu13": "nccl",
    "nvidia_cuda_runtime_cu11": "cuda",
    "nvidia_cuda_runtime_cu12": "cuda",
    "nvidia_cuda_runtime": "cuda",
    "nvidia_cudnn_cu12": "cuda.cudnn",
    "nvidia_cudnn_cu13": "cuda.cudnn",
}
_METADATA = (".dist-info", ".egg-info")
# Where an image tells which it is; a path's last part only, as the rest may be a registry's with a password.
_IMAGES = ("APPTAINER_CONTAINER", "SINGULARITY_CONTAINER")
_BUILD = "NVIDIA_BUILD_ID"

# So much of a program's file is hashed, 0.1 ms, and its whole size.
MOST_BYTES = 1 << 14
MOST_WORDS = 64  # of COMMAND that are looked at
MOST_LEVELS = 32  # of directories above
_SCRIPTS = (".py", ".sh", ".jl", ".lua", ".R", ".pl")
_HASH = 8  # digits
# packed-refs of a repository with thousands of branches; what is longer is left unknown.
MOST_REFS_BYTES = 1 << 20


def versions(asked: Asked) -> dict[str, str]:
    """Return the versions of mingle, and of Python, torch, NCCL, CUDA's libraries and JAX where COMMAND is Python's."""
    own = {"mingle": mingle_hooks.__version__}
    python = interpreter(asked)
    if not python:
        return own
    name = os.path.basename(os.path.realpath(f"{asked.root}{python}"))
    prefix = os.path.dirname(os.path.dirname(python))
    libraries = [its for its in entries(f"{asked.root}{prefix}/lib") if its.startswith("python3.")]
    library = name if name in libraries else max(libraries, default=name)
    listed: dict[str, str] = {}
    for folder in _folders(asked, prefix, library):
        for entry in entries(f"{asked.root}{folder}"):
            if entry.endswith(_METADATA):
                its, _, rest = entry.rpartition(".")[0].partition("-")
                field = _DISTRIBUTIONS.get(its.lower())
                if field is not None:
                    listed.setdefault(field, rest.partition("-py3")[0])
    none = dict.fromkeys(("torch", "nccl", "cuda", "jax"), NOTHING)
    return {**own, **none, **listed, "python": _release(asked.root, prefix) or library.removeprefix("python")}


def _folders(asked: Asked, prefix: str, library: str) -> list[str]:
    """Return where this interpreter finds distributions, the first to count first."""
    folders = [f"{prefix}/lib/{library}/site-packages"]
    if not _release(asked.root, prefix):  # a virtual environment sees no other ones
        home = asked.environ.get("HOME", "")
        folders.insert(0, f"{home}/.local/lib/{library}/site-packages")
        folders += [f"/usr/local/lib/{library}/dist-packages", "/usr/lib/python3/dist-packages"]
    return folders


def _release(root: str, prefix: str) -> str:
    """Return Python's whole version as a virtual environment has it written down."""
    lines = (line.partition("=") for line in text(f"{root}{prefix}/pyvenv.cfg").splitlines())
    return next((value.strip() for name, _, value in lines if name.strip() in ("version", "version_info")), "")


def interpreter(asked: Asked) -> str:
    """Return the Python that runs COMMAND, "" where it is not known to be one: by its name, or by its first line."""
    for name in asked.command[:1] or ("python", "python3"):
        path = found(asked, name)
        if os.path.basename(path).startswith("python"):
            return path
        try:
            first = contents(f"{asked.root}{path}", 256).partition(b"\n")[0].decode() if path else ""
        except (OSError, UnicodeDecodeError):
            continue
        words = first[2:].split() if first.startswith("#!") else []
        if words[:1] and os.path.basename(words[0]) == "env":
            words = [found(asked, word) for word in words[1:2]]
        if words and os.path.basename(words[0]).startswith("python"):
            return words[0]
    return ""


def found(asked: Asked, name: str) -> str:
    """Return the path of a command as a shell finds it, "" where it finds none."""
    if "/" in name:
        return os.path.join(asked.directory, name)
    for directory in asked.environ.get("PATH", os.defpath).split(":"):
        path = os.path.join(asked.directory, directory, name)
        if os.access(f"{asked.root}{path}", os.X_OK) and not os.path.isdir(f"{asked.root}{path}"):
            return path
    return ""


def image(asked: Asked) -> dict[str, str]:
    """Return the distribution, and the container's image where it says which it is."""
    release = _pairs(text(f"{asked.root}/etc/os-release"))
    words = [" ".join(filter(None, (release.get("ID"), release.get("VERSION_ID"))))]
    words += [os.path.basename(asked.environ[name]) for name in _IMAGES if name in asked.environ][:1]
    words += [f"build {asked.environ[_BUILD]}"] if _BUILD in asked.environ else []
    return {"image": ", ".join(filter(None, words)) or NOTHING}


def _pairs(lines: str) -> Mapping[str, str]:
    pairs = (line.partition("=") for line in lines.splitlines())
    return {name: value.strip("\"'") for name, is_pair, value in pairs if is_pair}


def program(asked: Asked) -> dict[str, str]:
    """Return a hash of the first script among COMMAND's words, else of the command's own file."""
    if not asked.command:
        return {}
    words = [word for word in asked.command[1:MOST_WORDS] if word.endswith(_SCRIPTS) and not word.startswith("-")]
    for path in (*words, found(asked, asked.command[0])):
        try:
            whole = f"{asked.root}{os.path.join(asked.directory, path)}"
            data = contents(whole, MOST_BYTES) + str(os.stat(whole).st_size).encode()
        except OSError:
            continue
        return {"program": sha256(data).hexdigest()[:_HASH]}
    return {}


def git(asked: Asked) -> dict[str, str]:
    """Return the commit that is checked out in the working directory or above it; nothing where that is unknown."""
    directory = asked.directory
    for _ in range(MOST_LEVELS):
        place = os.path.join(directory, ".git")
        if os.path.isdir(f"{asked.root}{place}"):
            return _named(_commit(asked.root, place))
        said = text(f"{asked.root}{place}", 1024)
        if said.startswith("gitdir:"):  # a worktree or a submodule
            return _named(_commit(asked.root, os.path.join(directory, said[len("gitdir:") :].strip())))
        if directory in ("/", ""):
            break
        directory = os.path.dirname(directory)
    return {}


def _named(commit: str) -> dict[str, str]:
    is_one = len(commit) >= _HASH and not commit.strip("0123456789abcdef")
    return {"git": commit[:_HASH]} if is_one else {}


def _commit(root: str, place: str) -> str:
    """Return the commit of a git directory by its files; "" where refs are kept in another way (reftable)."""
    head = text(f"{root}{place}/HEAD", 1024).strip()
    if not head.startswith("ref: "):
        return head
    name = head[len("ref: ") :]
    common = os.path.join(place, text(f"{root}{place}/commondir", 1024).strip())
    for folder in (place, common):
        if commit := text(f"{root}{folder}/{name}", 128).strip():
            return commit
    try:
        packed = b"\n" + contents(f"{root}{common}/packed-refs", MOST_REFS_BYTES)
    except OSError:
        return ""
    before, is_there, _ = packed.partition(f" {name}\n".encode("utf-8", "surrogateescape"))
    return before.rpartition(b"\n")[2].decode("ascii", "replace") if is_there else ""
