"""Each packaged form does everything on a bare Debian: installed, used on two hosts by multicast, and removed."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from building import DEB, OFFLINE, RPM, ZIP
from cluster.hosts import Hosts, missing
from executables import executable
from needs import need, skip_for_want_of

# Nothing is configured, and nobody has written dpkg's own list of what is there.
DPKG = "dpkg --force-depends,bad-path,unsafe-io --no-triggers --log=/dev/null"
# On each host: what of the kernel a root file system of its own has.
MOUNTS = "cd {root}; mount -t proc proc proc; mount --rbind /sys sys; mount --rbind /dev dev; mount -t tmpfs tmp tmp"
# To the other host, and into the same root file system there.
SSH = """#!/bin/sh
while [ "${{1#-}}" != "$1" ]; do [ "$1" != -o ] || shift; shift; done
pid=$(sed -n "s/^$1 //p" /opt/hosts); shift
exec nsenter --target "$pid" --net --mount --uts -- chroot {root} env -i HOME=/root PATH=/usr/bin:/bin sh -c "$*"
"""
ENV = {
    "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "MINGLE_VIA": "multicast",
    "MINGLE_KEY": "00112233445566778899aabbccddeeff" * 2,
}
TRAIN = "python3 -IS /opt/reduce.py"
LACKING = "ls root/usr/share/python-wheels/pip-*; ! chroot root /usr/bin/python3 -Ic 'import click'"

# A bound on what hangs, not a measure.
PATIENCE_S = 240.0


class Form(NamedTuple):
    """How a form is installed in the bare system, how mingle is called then, and how it is removed."""

    file: str
    install: str
    mingle: str
    remove: str
    from_outside: bool = False  # by a tool that the bare system lacks


FORMS = {
    "mingle.pyz": Form(ZIP, "cp /in/mingle.pyz /opt", "/opt/mingle.pyz", "rm /opt/mingle.pyz"),
    ".deb": Form(DEB, f"{DPKG} -i /in/{DEB}", "mingle", f"{DPKG} --purge mingle-hooks"),
    ".rpm": Form(
        RPM,
        f"rpm --root {{root}} --dbpath /opt/rpm --nodeps -i {{root}}/in/{RPM}",
        "mingle",
        "rpm --root {root} --dbpath /opt/rpm -e mingle-hooks; rm -r {root}/opt/rpm",
        from_outside=True,
    ),
    # pip is Debian's wheel as it lies there: what python3 -m venv does with it takes longer than all else here.
    "offline bundle": Form(
        OFFLINE,
        "export PYTHONPATH=$(ls -d /usr/share/python-wheels/pip-*.whl); python3 -m venv --without-pip /opt/venv &&"
        " cd /opt && tar xf /in/{0}.tar && /opt/venv/bin/python -m pip install -q --no-index --find-links {0}"
        " mingle-hooks && /opt/venv/bin/python -m pip check".format(OFFLINE.removesuffix(".tar")),
        "/opt/venv/bin/mingle",
        f"rm -r /opt/venv /opt/{OFFLINE.removesuffix('.tar')}",
    ),
}


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Lay an empty file system over this Debian's own, whose Python has none of the packages that mingle needs."""
    skip_for_want_of(missing())
    need("chroot")
    place = tmp_path_factory.mktemp("bare")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "bare", place], check=True)
    try:
        over = f"mkdir up work root; mount -t overlay -o lowerdir=/,upperdir=up,workdir=work bare root; {LACKING}"
        if subprocess.run(["sh", "-ec", over], cwd=place, capture_output=True, check=False).returncode:
            skip_for_want_of(["overlay mounts, Debian's python3-venv, and a system without click"])
        for directory in ("in", "opt"):
            (place / "root" / directory).mkdir(exist_ok=True)
        shutil.copy(Path(__file__).parents[2] / "support/programs/reduce.py", place / "root/opt")
        yield place / "root"
    finally:
        subprocess.run(["umount", "--recursive", "--lazy", place], check=True)


class Pair:
    """Two hosts that both have the bare system for their root."""

    def __init__(self, hosts: Hosts, root: Path) -> None:
        self.hosts, self.root = hosts, root
        (root / "opt/hosts").write_text("".join(f"{host.name} {host.pid}\n" for host in hosts))
        (root / "etc/hosts").write_text(hosts[0].run(["cat", "/etc/hosts"], check=True).stdout)
        executable(root / "usr/bin/ssh", SSH.format(root=root))
        for host in hosts:
            host.run(["sh", "-ec", MOUNTS.format(root=root)], check=True)

    def line(self, words: str) -> list[str | Path]:
        env = [f"{name}={value}" for name, value in ENV.items()]
        return ["chroot", self.root, "env", "-i", *env, "sh", "-c", words]

    def output(self, words: str) -> str:
        """Return what a line of shell prints on the first host, which has to succeed without a word on stderr."""
        done = self.hosts[0].run(self.line(words), cwd="/", timeout=PATIENCE_S)
        assert done.returncode == 0, done
        return done.stdout

    def files(self) -> set[str]:
        """Return what is laid over the system, but for what programs write as they run, and installers of their own."""
        up = self.root.with_name("up")
        found = {os.path.join(place, name) for place, _, names in os.walk(up) for name in names}
        own = re.compile(rf"{up}/(tmp|in|root|var/(lib|cache|log|backups))/|.*/__pycache__/")
        return {name for name in found if not own.match(name)}


@pytest.mark.parametrize("form", FORMS)
def test_each_form_does_everything_on_two_bare_hosts(
    form: str, bare: Path, made: Path, system: Path, hosts: Callable[..., Hosts]
) -> None:
    """By multicast only: env, exec, run and check; and template, hooks and docs. Removed, it leaves nothing.

    The program of .deb and .rpm is mingle.pyz with another first line (test_system.py): of these, a run is enough.
    """
    its = FORMS[form]
    package = next((place / its.file for place in (made, system) if (place / its.file).exists()), None)
    if package is None:
        skip_for_want_of(["a tool that makes the package"])
    if its.from_outside:
        need("rpm")
    shutil.copy(package, bare / "in")
    pair = Pair(hosts(2, share=[bare.parent]), bare)
    before = pair.files()
    act(pair, its, its.install)
    ran = pair.output(f"{its.mingle} run --hosts node1,node2 {TRAIN}").splitlines()
    assert sorted(ran) == ["node1: SUM=1", "node2: SUM=1"]
    if its.file in (ZIP, OFFLINE):
        assert_it_works(pair, its.mingle)
    act(pair, its, its.remove)
    assert pair.files() == before


def act(pair: Pair, its: Form, words: str) -> None:
    if its.from_outside:
        subprocess.run(["sh", "-ec", words.format(root=pair.root)], check=True, capture_output=True)
    else:
        pair.output(words)


def assert_it_works(pair: Pair, mingle: str) -> None:
    meeting = "--id a --nodes 2"
    worlds = pair.hosts.run_all(pair.line(f"{mingle} env {meeting} --shell json"), cwd="/")
    assert [one.returncode for one in worlds] == [0, 0], worlds
    assert len({json.loads(one.stdout)["MASTER_PORT"] for one in worlds}) == 1
    sums = pair.hosts.run_all(pair.line(f"{mingle} exec {meeting} {TRAIN}"), cwd="/")
    assert [one.stdout for one in sums] == ["SUM=1\n"] * 2, sums

    checked = pair.output(f"{mingle} check --timeout 60s --hosts node1,node2")
    assert (checked.count("  ok  "), "multicast" in checked) == (2, False), checked
    page = pair.output(f"{mingle} check --html /tmp/page --hosts localhost; cat /tmp/page")
    assert "<!doctype html>" in page

    script = pair.output(f"{mingle} template slurm -- train.py")
    assert f"exec {'/usr/bin/python3 ' * ('pyz' in mingle)}{mingle if 'pyz' in mingle else 'mingle'} run" in script
    assert pair.output(f"{mingle} hooks render slurm prolog").startswith("#!/bin/sh\n")
    assert pair.output(f"{mingle} docs run").startswith("# ")
