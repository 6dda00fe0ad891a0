"""The key of this member: the first that applies. It is never sent and appears in no message.

1. the given key: `--key-file`, else MINGLE_KEY, else the key file of the variable or the settings;
2. the key that root's hook created for this job, /run/mingle/JOB/key;
3. the key file in the home, ~/.config/mingle/key, created on first use if all nodes share the home.

Keys are not stretched, and an attacker who receives a beacon or a connection can test guesses offline. So a key is 32
random bytes, as `mingle key` prints them. Scheduler variables are too weak: PBS_JOBCOOKIE is four random() calls
after srand(time()), which takes less than a second to guess.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Mapping
from typing import NamedTuple

from mingle_hooks.errors import SecretError
from mingle_hooks.files import MOUNTS, RUN_ROOT, UnusableFileError, config_directory, contents, network_type, write_new
from mingle_hooks.net.addresses import HOST_CHARACTERS
from mingle_hooks.rendezvous.wire import Material
from mingle_hooks.schedulers.facts import JobFacts
from mingle_hooks.settings import Settings

# The public key of --insecure: the handshake stays the same and proves nothing.
PUBLIC = Material(b"mingle-hooks --insecure: anybody may join")
_KEY_BYTES = 32  # of randomness in a fresh key, as many as HMAC-SHA-256 puts out; no key may have fewer
LONGEST = 4096  # bytes of a key file
_HEX = b"0123456789ABCDEFabcdef"
_BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/_-"
_MOST_PADDING = 2  # of base64: "=" signs at its end
# A key has at least this many different characters, as 64 random hex digits have; "a" typed 64 times is no key.
_DIFFERENT = 6
# As in the Prolog, which creates no directory for other job ids.
_JOB_CHARACTERS = HOST_CHARACTERS + "[]"
LONGEST_JOB_ID = 255
_ASK = "asking the cluster's administrator, or --key-file FILE"


class Key(NamedTuple):
    """Key material, and its source for --explain."""

    material: Material
    source: str


def fresh() -> str:
    """Return a new key: 64 hex digits."""
    return os.urandom(_KEY_BYTES).hex()


def find(
    facts: JobFacts, settings: Settings, environ: Mapping[str, str], run_root: str = RUN_ROOT, mountinfo: str = MOUNTS
) -> Key:
    """Return the key of this call. Raises SecretError if a key is unfit, or none applies."""
    if settings.insecure:
        return Key(PUBLIC, "--insecure: a public key")
    directory, job = config_directory(environ), f"{run_root}/{facts.job_id}"
    if found := _pinned(settings, environ) or _of_job(facts.job_id, run_root):
        return found
    hooks = f", while {job} has no key from the site's hooks" if facts.job_id and os.path.isdir(job) else ""
    if found := _of_home(facts, directory, mountinfo):
        return found._replace(source=found.source + hooks)
    path = f"{directory or '~/.config/mingle'}/key"
    raise SecretError("a key that all members share", f"none given, and no file {path}{hooks}", _remedy(path))


def held(
    facts: JobFacts,
    settings: Settings,
    environ: Mapping[str, str],
    *,
    is_new: bool = False,
    run_root: str = RUN_ROOT,
    mountinfo: str = MOUNTS,
) -> tuple[Key, ...]:
    """Return all keys that this user has here: the given one alone, else those of the job and the home.

    With `is_new` the one in the home is created where find() would create it. The public key is never included. Raises
    SecretError if a key is unfit.
    """
    pinned = _pinned(settings, environ)
    if pinned is not None:
        return (pinned,)
    directory = config_directory(environ)
    of_home = _read(f"{directory}/key") if directory else None
    if of_home is None and is_new:
        try:
            of_home = _of_home(facts, directory, mountinfo)
        except SecretError:  # a home that cannot be written to
            pass
    return tuple(key for key in (_of_job(facts.job_id, run_root), of_home) if key is not None)


def _pinned(settings: Settings, environ: Mapping[str, str]) -> Key | None:
    by_option = settings.source("key_file").startswith("--")
    if "MINGLE_KEY" in environ and not by_option:
        return _key(environ["MINGLE_KEY"].encode(errors="surrogateescape"), "MINGLE_KEY")
    if settings.key_file is None:
        return None
    if (key := _read(settings.key_file)) is None:
        seen = f"no {settings.key_file} ({settings.source('key_file')})"
        raise SecretError("a key file", seen, _remedy(settings.key_file))
    return key


def _of_job(job_id: str | None, run_root: str) -> Key | None:
    """Return the key in the job's directory, which root created and gave to the job's user."""
    if not job_id or len(job_id) > LONGEST_JOB_ID or job_id.strip(_JOB_CHARACTERS) or job_id[0] in ".-]":
        return None
    path = f"{run_root}/{job_id}"
    try:
        directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:  # no Prolog of ours on this cluster
        return None
    except OSError as wrong:
        raise _unreadable(path, wrong, _ASK) from None
    try:
        found = os.fstat(directory)
        if found.st_uid not in (0, os.getuid()) or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            seen = f"{path} owned by uid {found.st_uid} with mode {stat.S_IMODE(found.st_mode):04o}"
            raise SecretError("a job directory that only root or this user can write to", seen, _ASK)
        return _read(f"{path}/key", within=directory)
    finally:
        os.close(directory)


def _of_home(facts: JobFacts, directory: str | None, mountinfo: str) -> Key | None:
    """Return the key in the home, which is created if there is none and all nodes share the home."""
    if directory is None:
        return None
    key = _read(f"{directory}/key")
    if key is None and (facts.shares_homes or network_type(directory, mountinfo)):
        _make(directory)
        key = _read(f"{directory}/key")
    return key


def _remedy(path: str) -> str:
    make = f"`umask 077; mkdir -p {os.path.dirname(path)} && mingle key > {path}`"
    return f"{make} on one machine, then copying that file to the others; or MINGLE_KEY, or --insecure"


def _make(directory: str) -> None:
    """Create DIRECTORY/key atomically, even if other nodes do so at the same moment.

    Each writes its own file and link(2)s it into place, which fails for all but the first. On NFS it may fail for the
    first too, if the reply is lost: so the caller ignores the result and reads the file.
    """
    temporary = f"{directory}/.key.{socket.gethostname()}.{os.getpid()}.{os.urandom(8).hex()}"
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        write_new(temporary, f"{fresh()}\n".encode())
        try:
            os.link(temporary, f"{directory}/key")
        finally:
            os.unlink(temporary)
    except FileExistsError:
        return  # another node was faster
    except OSError as wrong:
        raise SecretError(f"to create a key in {directory}", f"{wrong.strerror}", _remedy(f"{directory}/key")) from None


def _read(path: str, *, within: int | None = None) -> Key | None:
    """Return the key in a private file, or None if there is no such file.

    A symbolic link is followed except in the job's directory, as dotfiles often are links: the owner of the file itself
    is checked.
    """
    try:
        data = contents(path, most_bytes=LONGEST, refused_mode=0o077, owners=(0, os.getuid()), within=within)
    except FileNotFoundError:
        return None
    except UnusableFileError as wrong:
        raise SecretError(f"a private key: {wrong.expected}", wrong.seen, wrong.remedy) from None
    except OSError as wrong:
        raise _unreadable(path, wrong, f"chown {os.getuid()} and chmod 600 {path}") from None
    return _key(data, path)


def _key(data: bytes, source: str) -> Key:
    """Return a key, without white space around it. Raises SecretError for a typed phrase."""
    text = data.strip()
    if len(data) <= LONGEST and _is_random(text):
        return Key(Material(text), source)
    if _KEY_BYTES <= len(data) <= LONGEST and not _is_text(data):
        return Key(Material(data), source)
    expected = f"a key of at least {_KEY_BYTES} random bytes, in hexadecimal or base64"
    raise SecretError(expected, f"{len(text)} characters in {source} that are not a key", "`mingle key` to make one")


def _is_random(text: bytes) -> bool:
    """Return whether this encodes enough bytes in hex or base64; a phrase has spaces, or letters of one case."""
    if len(set(text)) < _DIFFERENT:
        return False
    if len(text) >= 2 * _KEY_BYTES and not text.strip(_HEX):
        return True
    digits = text.rstrip(b"=")
    is_base64 = not digits.strip(_BASE64) and len(text) - len(digits) <= _MOST_PADDING
    return is_base64 and 6 * len(digits) >= 8 * _KEY_BYTES and not text.islower() and not text.isupper()


def _is_text(data: bytes) -> bool:
    """Return whether this is text in any language: random bytes are almost never UTF-8."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _unreadable(path: str, wrong: OSError, remedy: str) -> SecretError:
    return SecretError("a key that can be read", f"{path}: {wrong.strerror}", remedy)
