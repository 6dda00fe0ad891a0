"""An admin's side of a Slurm whose hosts have an /etc each: the commands of docs/admin.md, run as they stand there."""

from __future__ import annotations

import os
import re
import stat
import sys
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING

from cluster.slurm import CONF, conf

if TYPE_CHECKING:
    import subprocess

    from cluster.host import Host
    from cluster.slurm import SlurmCluster

PAGE = Path(__file__).resolve().parents[3] / "docs" / "admin.md"
NEXT = "/root/slurm.conf.next"
# A home of root's that all hosts share holds what is on PATH before this machine's own: clush, and on one host alone
# /run/next, where its mingle is another version.
BIN = "/root/bin"
# The options of clush that the page uses. It ends with a status other than 0 where one host's command does.
CLUSH = """\
#!/bin/sh
nodes=all copy='' dest='' status=0
while :; do
  case "$1" in
    -a | -p) shift ;;
    -w) nodes="$2" && shift 2 ;;
    --copy) copy="$2" && shift 2 ;;
    --dest) dest="$2" && shift 2 ;;
    *) break ;;
  esac
done
while read -r name pid; do
  case ",${nodes}," in *,all,* | *",${name},"*) ;; *) continue ;; esac
  if [ -n "${copy}" ]; then set -- cp -p "${copy}" "${dest}"; fi
  there="nsenter --target ${pid} --net --mount --uts env PATH=/run/next:${PATH}"
  said="$(${there} sh -c "$*" 2>&1 </dev/null)" || status=1
  printf '%s\\n' "${said}" | sed "s/^/${name}: /"
done </root/nodes
exit "${status}"
"""
# The next version of mingle: the same with another number, which stands in the hooks.
NEXT_MINGLE = """\
#!/bin/sh
exec python3 -c '
import mingle_hooks
mingle_hooks.__version__ = "99.0"
from mingle_hooks.cli.main import main
main()' "$@"
"""
OWN_ETC = """\
mkdir /run/etc
mount -t tmpfs -o mode=755 etc /run/etc
cp -a /etc/. /run/etc/
mkdir -p /run/etc/slurm
mount --bind /etc/slurm /run/etc/slurm
mount --move /run/etc /etc
rmdir /run/etc
"""


def admin(slurm: SlurmCluster) -> None:
    """Give each host an /etc of its own, but for /etc/slurm, and the admin what the page's commands need."""
    slurm.hosts.run_all(["sh", "-ec", OWN_ETC], check=True)
    host = slurm.controller
    host.write(f"{BIN}/clush", CLUSH, mode=0o755)
    host.write("/root/nodes", "".join(f"{each.name} {each.pid}\n" for each in slurm.hosts))


def lines(heading: str) -> list[str]:
    """Return the commands below a heading of the page."""
    _, _, text = PAGE.read_text().partition(f"\n### {heading}\n")
    section = re.split(r"^##", text, maxsplit=1, flags=re.MULTILINE)[0]
    return dedent("".join(re.findall(r"^    .*\n", section, re.MULTILINE))).splitlines()


def run(slurm: SlurmCluster, *commands: str) -> subprocess.CompletedProcess[str]:
    """Run commands of the page as the admin; the first that fails ends them."""
    path = f"{BIN}:{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin"
    env = {"PATH": path, "EDITOR": f"cp {NEXT}"}
    return slurm.controller.run(["bash", "-eo", "pipefail", "-c", "\n".join(commands)], env=env, check=True)


def next_conf(slurm: SlurmCluster, *more: str) -> None:
    """Say what slurm.conf is after the admin has edited it."""
    slurm.controller.write(NEXT, conf([host.name for host in slurm.hosts], slurm.cpus, more))


def upgraded(slurm: SlurmCluster, count: int) -> None:
    """Put the next version of mingle on so many hosts, and on the others the one that is tested."""
    for number, host in enumerate(slurm.hosts):
        if number < count:
            host.write("/run/next/mingle", NEXT_MINGLE, mode=0o755)
        else:
            host.outside("/run/next/mingle").unlink(missing_ok=True)


def etc(host: Host) -> dict[str, tuple[int, int, int, bytes]]:
    """Return all of a host's /etc: path -> mode, owner, group and content."""
    top, found = str(host.outside("/etc")), {}
    for directory, names, files in os.walk(top):
        for path in (f"{directory}/{name}" for name in (*names, *files)):
            its = os.lstat(path)
            data = os.fsencode(os.readlink(path)) if stat.S_ISLNK(its.st_mode) else b""
            if stat.S_ISREG(its.st_mode):
                data = Path(path).read_bytes()
            found[path.removeprefix(top)] = (its.st_mode, its.st_uid, its.st_gid, data)
    assert CONF.removeprefix("/etc") in found
    return found
