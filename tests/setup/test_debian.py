"""What `make test` installs on Debian before anything else, seen by stand-ins for the programs that it calls."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from needs import need

SETUP = Path(__file__).parent
TOOLS = re.findall(r"[a-z0-9-]+", (SETUP / "debian.sh").read_text().split("packages='")[1].split("'")[0])
# What the scripts call that changes nothing.
HARMLESS = ("sh", "sed", "grep", "head", "rm", "chmod", "dirname", "tr", "uname")
LOG = 'echo "${0##*/} $*" >>"$PLACE/log"\n'
STAND_INS = {
    "id": "echo ${UNDER_TEST_UID:-0}",
    "dpkg-query": r"""
case $1 in
--show)
    [ $# -gt 2 ] || for its in "$PLACE/installed"/*; do echo "installed ${its##*/}"; done
    [ -e "$PLACE/installed/${3:-}" ] && printf installed ;;
--listfiles) while read -r line; do echo "$line"; done <"$PLACE/installed/$2" ;;
esac""",
    "apt-get": LOG
    + r"""
[ -e "$PLACE/network" ] || { echo 'Err:1 http://deb.example.org'; echo 'E: no way to deb.example.org'; exit 100; }
is_install=
for its; do
    case $its in
    install) is_install=yes; wanted= ;;
    update | -* | *::*) ;;
    slurm-client) wanted="$wanted slurm-client munge" ;;  # munge it depends on
    *) wanted="$wanted $its"; [ -e "$PLACE/known/$its" ] || { echo "E: no $its" >&2; exit 100; } ;;
    esac
done
[ -n "$is_install" ] || exit 0
[ -e "$DPKG_ROOT/usr/sbin/policy-rc.d" ] && echo "policy: $("$DPKG_ROOT/usr/sbin/policy-rc.d"; echo $?)" >>"$PLACE/log"
for its in $wanted; do while read -r line; do echo "$line"; done <"$PLACE/known/$its" >"$PLACE/installed/$its"; done""",
    "systemctl": LOG + "[ ! -e $PLACE/no-systemd ] || { echo 'no systemd' >&2; exit 1; }",
    "update-rc.d": LOG,
}
FILES = {
    "munge": "/usr/sbin/munged\n/lib/systemd/system/munge.service\n/etc/init.d/munge\n",
    "slurmd": "/usr/lib/systemd/system/slurmd.service\n/etc/init.d/slurmd\n/etc/default/slurmd\n",
    "slurmctld": "/lib/systemd/system/slurmctld.service\n",
    "man-db": "/lib/systemd/system/man-db.timer\n/usr/bin/man\n",
}
# A Debian's Python, with or without what Debian has in packages of its own.
PYTHON = """#!/bin/sh
exec {python} -c "import sys; sys.base_prefix = {prefix!r}; sys.version_info = (3, 12, 0)
sys.modules |= {modules}
$2"
"""


@dataclass
class Debian:
    """A Debian of stand-ins: the packages that it knows, those that it has, and what was called."""

    place: Path

    def has(self, *packages: str) -> None:
        for package in packages:
            (self.place / "installed" / package).write_text(FILES.get(package, "/usr/bin/program\n"))

    def knows(self, *packages: str) -> None:
        for package in packages:
            (self.place / "known" / package).write_text(FILES.get(package, "/usr/bin/program\n"))

    def program(self, name: str, text: str) -> Path:
        path = self.place / "bin" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text if text.startswith("#!") else f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return path

    def python(self, *, prefix: str = "/usr", venv: bool = True) -> Path:
        """Make its interpreter."""
        modules = "dict(ensurepip=sys)" if venv else "dict(ensurepip=None)"
        its = {"python": sys.executable, "prefix": prefix, "modules": modules}
        return self.program("python3", PYTHON.format(**its))

    def run(self, script: str, *words: str, uid: int = 0) -> subprocess.CompletedProcess[str]:
        """Run a script of tests/setup, with nothing of this machine's on PATH that could change it."""
        env = {"PATH": f"{self.place}/bin", "PLACE": str(self.place), "UNDER_TEST_UID": str(uid)}
        env["DPKG_ROOT"] = str(self.place / "root")
        argv = ["/bin/sh", SETUP / script, *words]
        return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=False)

    def calls(self, program: str) -> list[str]:
        """Return what a program was called with, the options left out."""
        log = self.place / "log"
        lines = [line.split() for line in log.read_text().splitlines()] if log.exists() else []
        words = [[w for w in line[1:] if not re.match("-|.*::", w)] for line in lines if line[0] == program]
        return [" ".join(line) for line in words]


@pytest.fixture
def debian(tmp_path: Path) -> Debian:
    """Give a Debian with a network, and no package of those that are wanted."""
    for name in ("bin", "known", "installed", "root/etc", "root/usr/sbin"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "network").touch()
    (tmp_path / "root" / "etc" / "os-release").write_text("ID=debian\n")
    made = Debian(tmp_path)
    for name in HARMLESS:  # not as links: what a test writes must never reach the machine's own programs
        made.program(name, f'exec {shutil.which(name)} "$@"')
    for name, text in STAND_INS.items():
        made.program(name, text)
    made.knows(*TOOLS, *FILES)
    made.has("base-files")
    return made


def test_only_what_is_missing_is_installed(debian: Debian) -> None:
    debian.has("dash")
    done = debian.run("packages.sh", "dash", "ksh", "munge")
    assert debian.calls("apt-get") == ["update", "install ksh munge"]
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "installing: ksh munge\n")


def test_where_nothing_is_missing_nothing_is_called_or_said(debian: Debian) -> None:
    debian.has("dash", "munge")
    done = debian.run("packages.sh", "dash", "munge")
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "")
    assert not (debian.place / "log").exists()


def test_services_that_it_installed_are_neither_started_nor_left_enabled(debian: Debian) -> None:
    """Nor those of what they depend on; those that were there before are the admin's."""
    debian.has("slurmd")
    debian.run("packages.sh", "slurm-client", "slurmd", "slurmctld", "man-db", "dash")
    assert debian.calls("systemctl") == ["disable man-db.timer", "disable munge.service", "disable slurmctld.service"]
    assert debian.calls("update-rc.d") == ["munge disable"]
    assert debian.calls("policy:") == ["101"]
    assert not (debian.place / "root/usr/sbin/policy-rc.d").exists()


def test_the_admins_policy_stays(debian: Debian) -> None:
    policy = debian.place / "root/usr/sbin/policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 104\n")
    policy.chmod(0o755)
    debian.run("packages.sh", "munge")
    assert debian.calls("policy:") == ["104"]
    assert policy.read_text() == "#!/bin/sh\nexit 104\n"


@pytest.mark.parametrize("init", ["none", "one that fails"])
def test_where_no_init_system_answers_nothing_is_said(debian: Debian, init: str) -> None:
    """As in most containers."""
    if init == "none":
        (debian.place / "bin/systemctl").unlink()
        (debian.place / "bin/update-rc.d").unlink()
    else:
        (debian.place / "no-systemd").touch()
    done = debian.run("packages.sh", "munge")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_package_that_the_release_does_not_have_keeps_no_other_away(debian: Debian) -> None:
    (debian.place / "known/mksh").unlink()
    done = debian.run("packages.sh", "mksh", "munge", "ksh")
    assert (debian.place / "installed/munge").exists()
    assert (debian.place / "installed/ksh").exists()
    assert (done.returncode, done.stderr) == (1, "!!! NOT INSTALLED, as apt-get could not: mksh\n")
    assert debian.calls("systemctl") == ["disable munge.service"]


def test_without_a_network_it_says_so_and_tries_once(debian: Debian) -> None:
    (debian.place / "network").unlink()
    done = debian.run("packages.sh", "munge", "ksh")
    assert done.stderr.splitlines() == [
        "!!! apt-get update failed: E: no way to deb.example.org; trying with the package lists that are here",
        "!!! NOT INSTALLED, as apt-get could not: munge ksh",
    ]
    assert done.returncode == 1
    assert debian.calls("apt-get") == ["update", "install munge ksh"]
    assert "-o Acquire::Retries=0" in (debian.place / "log").read_text()


def test_without_root_it_says_so_in_one_line(debian: Debian) -> None:
    debian.has("ksh")
    done = debian.run("packages.sh", "munge", "ksh", "dash", uid=1000)
    assert (done.returncode, done.stderr) == (1, "!!! NOT INSTALLED, as this is not root: munge dash\n")
    assert debian.calls("apt-get") == []


@pytest.mark.parametrize("release", ["ID=fedora\n", 'ID="rocky"\nID_LIKE="rhel centos fedora"\n', ""])
def test_on_another_system_it_says_so_in_one_line(debian: Debian, release: str) -> None:
    """Where there is no os-release it is called what uname calls it."""
    file = debian.place / "root/etc/os-release"
    file.write_text(release)
    its = {"ID=f": "fedora", 'ID="': "rocky"}.get(release[:4], "Linux")
    if not release:
        file.unlink()
        debian.program("uname", "echo Linux")
    done = debian.run("packages.sh", "munge", "ksh")
    says = f"!!! NOT INSTALLED: this is {its}, not Debian or Ubuntu; wanted are the likes of: munge ksh\n"
    assert (done.returncode, done.stderr) == (1, says)
    assert debian.calls("apt-get") == []


@pytest.mark.parametrize("release", ["ID=ubuntu\nID_LIKE=debian\n", 'ID=mint\nID_LIKE="ubuntu debian"\n'])
def test_what_is_like_debian_is_taken_for_it(debian: Debian, release: str) -> None:
    (debian.place / "root/etc/os-release").write_text(release)
    assert debian.run("packages.sh", "ksh").returncode == 0


@pytest.mark.parametrize(("venv", "wanted"), [(True, []), (False, ["python3.12-venv"])])
def test_what_this_python_lacks_for_an_environment_is_installed(debian: Debian, venv: bool, wanted: list[str]) -> None:  # noqa: FBT001
    """And no compiler."""
    debian.python(venv=venv)
    debian.has(*TOOLS)
    debian.knows(*wanted)
    done = debian.run("debian.sh", "python3", str(debian.place / "venv"))
    assert (done.returncode, done.stderr) == (0, "")
    assert debian.calls("apt-get") == (["update", f"install {' '.join(wanted)}"] if wanted else [])


def test_a_python_is_installed_where_there_is_none(debian: Debian) -> None:
    """With what makes an environment."""
    debian.has(*TOOLS)
    debian.knows("python3", "python3-venv")
    debian.run("debian.sh", "python3", str(debian.place / "venv"))
    assert debian.calls("apt-get")[1:] == ["install python3 python3-venv"]


def test_debians_packages_are_of_no_use_to_another_python(debian: Debian) -> None:
    """It is told which, and the tools are installed all the same."""
    debian.python(prefix="/opt/python", venv=False)
    done = debian.run("debian.sh", "python3", str(debian.place / "venv"))
    assert re.fullmatch(r"!!! NOT INSTALLED: \S+ has no ensurepip, and is not Debian's\n", done.stderr)
    assert debian.calls("apt-get")[1:] == [f"install {' '.join(TOOLS)}"]


def test_an_environment_that_is_made_needs_nothing_more(debian: Debian) -> None:
    """Whatever the Python that made it lacks."""
    debian.python(venv=False)
    debian.program("../venv/bin/python", "exit 0")
    debian.has(*TOOLS)
    debian.run("debian.sh", "python3", str(debian.place / "venv"))
    assert debian.calls("apt-get") == []


def test_whatever_could_not_be_had_make_goes_on(debian: Debian) -> None:
    assert debian.run("debian.sh", "python3", "/nonexistent", uid=1000).returncode == 0


@pytest.mark.parametrize("script", ["debian.sh", "packages.sh", "torch.sh", "frameworks.sh"])
def test_shellcheck_finds_nothing(script: str) -> None:
    need("shellcheck")
    done = subprocess.run(["shellcheck", "--shell=sh", SETUP / script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("goal", ["test", "bench", "cluster"])
def test_the_tools_come_before_the_environment(goal: str, tmp_path: Path) -> None:
    """Without Debian's venv there is none."""
    need("make")
    argv = ["make", "--dry-run", "--jobs=4", f"--directory={SETUP.parents[1]}", goal, f"VENV={tmp_path}/venv"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stdout.index("tests/setup/debian.sh") < done.stdout.index(" -m venv ") < done.stdout.index(" -m pip ")
