"""One run of a hook with file systems and processes of its own, of which some are at fault; nothing of it is left."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from typing import TYPE_CHECKING, NamedTuple

from mingle_hooks.errors import FactsError
from mingle_hooks.install.trial import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_UNSHARE = ("unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--mount-proc", "--kill-child")
_OTHERS = ("/run", "/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - each is a new one, to see what a hook writes there
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"  # where the hooks look for programs
# What a hook runs; mount comes last, as it is needed to spoil the others.
TOOLS = (
    *("stat", "mkdir", "chown", "chmod", "mv", "rm", "sha256sum", "cat", "logger", "timeout", "id", "chroot", "find"),
    *("umount", "mount"),
)
BROKEN = {"is missing": "#!/nonexistent\n", "fails": "#!/bin/sh\nexit 3\n", "hangs": "#!/bin/sh\nexec sleep 600\n"}
# What may be wrong where the hooks' directory is, or shall be: shell, run there.
PLACES = {
    "nothing wrong": "",
    "read-only": "/bin/mount -o remount,ro .",
    "no octet left": "/bin/mount -o remount,size=8k . && printf %8192s x >fill",
    "no name left": "/bin/mount -o remount,nr_inodes=3 . && true >fill",
    "a file in its place": "[ -e state ] || true >state",
    "a link in its place": "[ -e state ] || ln -s /run state",
    "anybody may write": "mkdir -p state && chmod 0777 state",
}
_SCRIPT = """
/bin/mount --bind {place} /mnt
for other in {others}; do /bin/mount -t tmpfs none "$other"; done
mkdir -p {place} /run/mount && /bin/mount --move /mnt {place} || exit
/bin/mount -t tmpfs none {place}/run && cd {place}/run || exit
{before}
{spoil_place}
{spoil_tools}
cd / && read -r began rest </proc/uptime
{command} </dev/null
status=$?
read -r ended rest </proc/uptime
echo "status $status $began $ended"
for path in {looked_at} {place}/run/*; do
  case {place}/run/state:{place}/run/fill:/run/mount in
    "$path"/* | *"$path":* | *:"$path") ;;
    *) [ ! -e "$path" ] || echo "outside $path" ;;
  esac
done
"""


class Faults(NamedTuple):
    """What is wrong in one run: a name of PLACES, and for each program that is broken one of BROKEN."""

    place: str
    tools: Mapping[str, str]


class Outcome(NamedTuple):
    """How a run ended, and what it wrote where it should not."""

    status: int
    milliseconds: float
    outside: tuple[str, ...]


def prepare(place: str) -> None:
    """Make what every run needs in a directory, the hooks' own being `run/state` in it.

    Raises FactsError where this host lets nobody have file systems apart.
    """
    if subprocess.run([*_UNSHARE, "true"], capture_output=True, check=False).returncode:
        raise FactsError("root, who can make namespaces", "none", "`mingle hooks simulate` without --runs")
    os.mkdir(f"{place}/run", 0o755)
    for how, text in BROKEN.items():
        with open(f"{place}/{how}", "w", encoding="ascii") as file:
            file.write(text)
        os.chmod(f"{place}/{how}", 0o755)  # noqa: S103 - it is a program


def ended(place: str, before: Sequence[str], argv: Sequence[str], faults: Faults) -> Outcome:
    """Run a command, with faults that come after another one."""
    broken = [(shutil.which(tool, path=_PATH), faults.tools[tool]) for tool in TOOLS if tool in faults.tools]
    binds = [("/bin/mount", "--bind", f"{place}/{how}", found) for found, how in broken if found and _is_itself(found)]
    script = _SCRIPT.format(
        place=place,
        others=" ".join(_OTHERS),
        before=f"{shlex.join(before)} </dev/null >/dev/null" if before else "",
        spoil_place=PLACES[faults.place],
        spoil_tools="\n".join(map(shlex.join, binds)),
        command=shlex.join(argv),
        looked_at=" ".join(f"{other}/* {other}/.[!.]*" for other in _OTHERS),
    )
    done = subprocess.run(
        [*_UNSHARE, "/bin/sh", "-s"], input=script, capture_output=True, text=True, errors="replace",
        timeout=PATIENCE_S, check=False, env={"PATH": _PATH},
    )  # fmt: skip
    lines = done.stdout.splitlines()
    status, began, end = next((line.split()[1:] for line in lines if line.startswith("status ")), ("-1", "0", "0"))
    taken = (float(end) - float(began)) * 1000  # of the hook alone, to 10 ms
    return Outcome(int(status), taken, tuple(line[8:] for line in lines if line.startswith("outside ")))


def _is_itself(path: str) -> bool:
    """Tell whether a program is no name of another's, as all are in BusyBox."""
    return os.path.basename(os.path.realpath(path)) == os.path.basename(path)
