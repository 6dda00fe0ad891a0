"""A real OpenPBS on a set of hosts: server, scheduler, router and data service on the first, pbs_mom on each.

PBS_EXEC, of the environment or of /etc/pbs.conf, says where it is installed. All of PBS_HOME lies on the
hosts' own tmpfs, and nothing listens outside of their networks. Its INSTALL says how to build one; 23.06.06 builds with
Python 3.11, such as Debian 12's, after its later commits 1d17427c0 and dd2a24640.
"""

import json
import os
import pwd
import re
import shutil
import stat
import subprocess
import time
from pathlib import Path
from typing import Any

from cluster.host import Host
from cluster.hosts import Hosts
from cluster.scheduler import Scheduler

CONF = "/etc/pbs.conf"
HOME = "/run/pbs"  # each host has a /run of its own
PROGRAMS = ("sbin/pbs_server", "sbin/pbs_sched", "sbin/pbs_comm", "sbin/pbs_mom", "bin/qsub", "bin/qmgr", "bin/pbsdsh")
DATA_USER = "postgres"  # PostgreSQL does not run as root
CPUS = 4
READY_S = 120.0
# As pbs_postinstall makes them; that script would also register a service with this machine.
DIRECTORIES = {
    "server_logs": 0o755, "spool": 0o1777, "server_priv": 0o750, "server_priv/accounting": 0o755,
    "server_priv/jobs": 0o750, "server_priv/users": 0o750, "server_priv/hooks": 0o750,
    "server_priv/hooks/tmp": 0o750, "sched_logs": 0o755, "sched_priv": 0o750, "comm_logs": 0o755, "aux": 0o755,
    "checkpoint": 0o700, "mom_logs": 0o755, "mom_priv": 0o751, "mom_priv/jobs": 0o751, "mom_priv/hooks": 0o750,
    "mom_priv/hooks/tmp": 0o750, "undelivered": 0o1777,
}  # fmt: skip
SCHEDULER_FILES = {
    "pbs_dedicated": "dedicated_time",
    "pbs_holidays": "holidays",
    "pbs_resource_group": "resource_group",
    "pbs_sched_config": "sched_config",
}
SETTINGS = (
    "create queue workq queue_type=execution,enabled=true,started=true",
    "set server default_queue=workq",
    "set server job_history_enable=true",  # a test asks for its jobs after their end
    "set server flatuid=true",  # the same users on all hosts
    "create resource gpu_type type=string, flag=h",
)


def pbs_exec() -> str:
    """Return where OpenPBS is installed, or nothing."""
    found = os.environ.get("PBS_EXEC", "")
    if not found and Path(CONF).exists():
        match = re.search(r"^PBS_EXEC=(\S+)$", Path(CONF).read_text(), re.MULTILINE)
        found = match[1] if match else ""
    return found


def missing() -> list[str]:
    """Return what this machine lacks for a real OpenPBS on its hosts."""
    place = pbs_exec()
    if not place:
        return ["a real OpenPBS (PBS_EXEC)"]
    lacks = [f"{place}/{name}" for name in PROGRAMS if not os.access(f"{place}/{name}", os.X_OK)]
    iff = Path(f"{place}/sbin/pbs_iff")
    if iff.exists() and not iff.stat().st_mode & stat.S_ISUID:
        lacks.append(f"chmod 4755 {iff}, by which users give in jobs")
    lacks += [] if DATA_USER in {its.pw_name for its in pwd.getpwall()} else [f"the user {DATA_USER}"]
    return lacks + ([] if shutil.which("psql") else ["psql"])


class RealPbs(Scheduler):
    """OpenPBS on hosts that already stand, as a context manager; its processes end with it.

    Jobs are alice's. `place` is a directory that all hosts share.
    """

    # The data service is made within 5 s, and the hosts are free 3 s later; a busy machine may need much longer.
    ready_s, most_s = READY_S, 0.2

    def __init__(self, hosts: Hosts, place: Path) -> None:
        super().__init__(hosts)
        self.place, self.exec = place, pbs_exec()
        self._outputs: dict[str, Path] = {}

    def _start(self) -> None:
        lines = [f"PBS_EXEC={self.exec}", f"PBS_HOME={HOME}", f"PBS_SERVER={self.controller.name}"]
        # Output is copied by cp on the same host, never by scp.
        self.controller.write(CONF, "\n".join([*lines, "PBS_START_MOM=1", "PBS_SCP=/bin/false"]) + "\n")
        self.controller.write("/etc/profile.d/pbs.sh", Path(f"{self.exec}/etc/pbs.sh").read_text())
        for host in self.hosts:
            self._make_home(host)
        self._make_data_service()
        self._pbs(self.controller, "pbs_comm")
        self._pbs(self.controller, "pbs_server")
        self.until(lambda: not self.run("bin/qstat", "-B").returncode, "pbs_server")
        for command in SETTINGS:
            self.qmgr(command)
        self._pbs(self.controller, "pbs_sched")
        for host in self.hosts:
            self._pbs(host, "pbs_mom")
            self.qmgr(f"create node {host.name}")
            self.qmgr(f"set node {host.name} resources_available.ncpus={CPUS}")

    def _make_home(self, host: Host) -> None:
        for name, mode in DIRECTORIES.items():
            directory = host.outside(f"{HOME}/{name}")
            directory.mkdir(parents=True, exist_ok=True)
            directory.chmod(mode)
        host.outside(HOME).chmod(0o755)
        for source, name in SCHEDULER_FILES.items():
            shutil.copy(f"{self.exec}/etc/{source}", host.outside(f"{HOME}/sched_priv/{name}"))
        host.write(f"{HOME}/pbs_environment", "PATH=/bin:/usr/bin\n")
        host.write(f"{HOME}/server_priv/db_user", DATA_USER, mode=0o600)
        # All directories of jobs are shared.
        host.write(f"{HOME}/mom_priv/config", "$usecp *:/ /\n")

    def _make_data_service(self) -> None:
        host, owner = self.controller, pwd.getpwnam(DATA_USER)
        sockets = host.outside("/run/postgresql")
        sockets.mkdir()
        os.chown(sockets, owner.pw_uid, owner.pw_gid)
        env = {"PBS_DATA_SERVICE_USER": DATA_USER}
        host.run(["bash", "-c", f". {self.exec}/libexec/pbs_db_env && {self.exec}/libexec/pbs_db_utility install_db"],
                 env=env, cwd="/", timeout=READY_S, check=True)  # fmt: skip
        # Asks whether to go on, and starts the data service, which goes on when this server has ended.
        create = [f"{self.exec}/sbin/pbs_server", "-t", "create"]
        host.run(create, input="y\n", cwd="/", timeout=READY_S, check=True)
        self.until(lambda: not self.run("bin/qstat", "-B").returncode, "first pbs_server")
        self.run("bin/qterm", "-t", "quick").check_returncode()
        self.until(lambda: "pbs_server.bin" not in "".join(host.processes().values()), "end of the first pbs_server")

    def _pbs(self, host: Host, name: str) -> None:
        self._daemon(host, [f"{self.exec}/sbin/{name}", "-N"], f"{HOME}/{name}.out")

    def run(self, program: str, *words: str, user: str = "root", **options: Any) -> subprocess.CompletedProcess[str]:
        """Run one of PBS's programs on the server's host."""
        return self.controller.run([f"{self.exec}/{program}", *words], user=user, **options)

    def qmgr(self, command: str) -> str:
        """Run a command of qmgr as root and return what it prints."""
        return self.run("bin/qmgr", "-c", command, check=True).stdout

    def _logs(self, host: Host) -> list[Path]:
        return sorted(host.outside(HOME).glob("*_logs/*"))

    def nodes(self) -> dict[str, str]:
        """Return host name -> state, such as free, job-busy, offline."""
        shown = self.run("bin/pbsnodes", "-a", "-F", "json")
        return {name: its["state"] for name, its in json.loads(shown.stdout or "{}").get("nodes", {}).items()}

    def is_idle(self) -> bool:
        """Tell whether every host is free and no job is there."""
        nodes = self.nodes()
        is_free = len(nodes) == len(self.hosts) and set(nodes.values()) == {"free"}
        return is_free and not self.run("bin/qstat").stdout.strip()

    def submit(self, script: str, *qsub: str, cwd: str, output: bool = True, env: dict[str, str] | None = None) -> str:
        """Give in a script (its text) as alice, with these options of qsub, and return the job's id.

        Its output goes straight to a file of its own in the shared place, unless the script says where.
        """
        file = self.place / f"{time.monotonic_ns()}.out"
        more = ["-o", f"{file}", "-j", "oe", "-k", "doe"] if output else []
        # -f: no qsub in the background, which would wait for a minute for others to serve.
        words = ["bin/qsub", "-f", *more, *qsub]
        done = self.run(*words, user="alice", input=script, cwd=cwd, env=env or {})
        if done.returncode:
            raise AssertionError(f"qsub {qsub}: {done.stderr}\n{self.logs()}")
        job = done.stdout.strip()
        self._outputs[job] = file
        return job

    def next(self, job: str, seconds: float = READY_S) -> str:
        """Wait for the job that was given in after this one, and return its id."""
        found = re.sub(r"^\d+", lambda number: str(int(number[0]) + 1), job)
        self.until(lambda: not self.run("bin/qstat", "-x", found).returncode, f"job after {job}", seconds)
        output = self.job(found)["Output_Path"].partition(":")[2]
        self._outputs[found] = self.controller.outside(output)
        return found

    def job(self, job: str) -> dict[str, Any]:
        """Return what `qstat -f` says of a job, also of one that has ended."""
        shown = self.run("bin/qstat", "-x", "-f", "-F", "json", job, check=True)
        state: dict[str, Any] = json.loads(shown.stdout, strict=False)["Jobs"][job]
        return state

    def wait_state(self, job: str, state: str, timeout: float = READY_S) -> None:
        """Wait until a job is in a state: Q, R, F or another of qstat's letters."""
        self.until(lambda: self.job(job)["job_state"] == state, f"state {state} of job {job}", timeout)

    def wait(self, job: str, timeout: float = READY_S) -> int:
        """Wait for a job's end and return its exit status."""
        self.wait_state(job, "F", timeout)
        return int(self.job(job).get("Exit_status", -1))

    def delete(self, job: str) -> None:
        """Delete a job and wait for its end."""
        self.run("bin/qdel", job, user="alice", check=True)
        self.wait(job)

    def output(self, job: str) -> str:
        """Return what a job wrote."""
        file = self._outputs[job]
        return file.read_text() if file.exists() else ""

    def wait_for_text(self, job: str, text: str) -> None:
        """Wait until a job's output holds a text."""
        self.until(lambda: text in self.output(job), lambda: f"{text!r} in:\n{self.output(job)}")

    def unwell(self) -> dict[str, str]:
        """Return the hosts that take no jobs, with their states: offline, down and the like."""
        well = {"free", "job-busy", "job-exclusive"}
        return {name: state for name, state in self.nodes().items() if not set(state.split(",")) <= well}

    def settle(self) -> None:
        """Delete every job, let every host work again, and wait until all are free."""

        def is_empty() -> bool:
            jobs = re.findall(r"^[0-9]\S*", self.run("bin/qstat", "-w").stdout, re.MULTILINE)
            if jobs:
                self.run("bin/qdel", "-W", "force", *jobs)  # again: a job may just give in another
            return not jobs

        self.until(is_empty, lambda: f"end of all jobs:\n{self.run('bin/qstat', '-w').stdout}")
        for name in self.unwell():
            self.run("bin/pbsnodes", "-r", name, check=True)
        self.wait_idle()

    def _is_own(self, line: str) -> bool:
        """Tell PBS's own programs: a qsub of a job waits a minute for others, and the data service has workers."""
        return bool(re.match(r"(\S*/)?(qsub|pbs_\w+|postgres)(\.bin)?[ :]", f"{line} "))
