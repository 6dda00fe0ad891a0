"""Job scripts run on a real Slurm with stand-ins for training: which world formed, or which trap showed.

A form is a row of tests/data/lint/*.toml. Each runs on a lane: two hosts of its own, so that forms that run side by
side with the same port do not meet. On a plain lane names resolve everywhere, and interfaces are eth0 and ib0. On a
hard lane a host's own name is 127.0.1.1 there and nothing elsewhere, interfaces have another name on each host, and
there is a bridge with an address that all have.
"""

import json
import py_compile
import re
import shlex
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

from cluster.host import Host
from cluster.hosts import Hosts
from cluster.layouts import LOCALHOST
from cluster.paths import MINGLE
from cluster.slurm import ENDED, SlurmCluster
from support.programs import surroundings
from typing_extensions import Self

from mingle_hooks.files import toml

PROGRAMS = Path(surroundings.__file__).parent

MODULES = ("elastic", "launchers", "meeting", "surroundings")
NAMES = {
    "launchers": (
        *("torchrun", "torchrun_jsc", "accelerate", "accelerate-launch", "deepspeed", "composer", "ray"),
        *("llamafactory-cli", "swift", "axolotl", "python", "python3", *(f"python3.{minor}" for minor in range(6, 14))),
    ),
    "surroundings": (
        *("srun", "ssh", "scontrol", *surroundings.MPI, *surroundings.RESOLVERS),
        *(*surroundings.INSIDE, *surroundings.NOTHING),
    ),
}
PROGRAM = "#!{python} -IS\nimport sys\nsys.path.append({place!r})\nimport {module}\n{module}.main()\n"
# Read by each bash that a script is or starts: a login shell makes PATH anew, what a script enters is not there, and
# processors of a task are not asked for.
PRELUDE = r"""
case $PATH in {path}:*) ;; *) PATH={path}:$PATH ;; esac
export SLURM_CPUS_PER_TASK=${{SLURM_CPUS_PER_TASK:-1}}
sleep() {{ command sleep 0.3; }}
cd() {{ builtin cd "$@" 2>/dev/null || :; }}
for its in cp mv tar unzip rsync wget; do eval "$its() {{ command $its \"\$@\" 2>/dev/null || :; }}"; done
for its in curl vllm; do eval "$its() {{ command sleep 2; }}"; done
source() {{ [ -e "$1" ] || return 0; builtin source "$@"; }}
"""
HOSTS_OF_LANE = 2
CPUS, GPUS = 32, 2 * surroundings.MOST_GPUS  # for two jobs at once
# A lane is a partition, so that Slurm itself gives a job its one or two nodes.
PARTITION = "PartitionName={name} Nodes={nodes} MaxTime=INFINITE State=UP OverSubscribe=NO"
DEADLINE_S, END_S, ASK_S = 8.0, 15.0, 0.2

# What a job is run as, so that a trap may show: alone, beside another of its kind, without scontrol, or with a member
# that fails.
ONCE, TWICE, LACKS, FAILS = "once", "two at once", "no scontrol", "a member fails"
# A trap's run, its lane, and what shows it. `one world` shows none of them.
HANGS = ("hang", "error")
ALONE = ("each alone", "separate worlds", "first node only", *HANGS)
Trap = tuple[str, bool, tuple[str, ...]]
OF_TRAPS: dict[str, Trap] = {
    "fixed-port": (TWICE, False, ("clash",)),
    "own-name": (ONCE, True, HANGS),
    "each-itself": (ONCE, False, ALONE),
    "hostname-i": (ONCE, True, (*ALONE, "twice")),
    "localhost-fallback": (LACKS, False, (*ALONE, "twice")),
    "batch-rank": (ONCE, False, ("twice", *HANGS)),
    "no-rendezvous": (ONCE, False, ("clash", "twice", *ALONE)),
    "first-node-only": (ONCE, False, ALONE),
    "each-alone": (ONCE, False, ("clash", *ALONE)),
    "node-count": (ONCE, False, ("clash", "twice", *ALONE)),
    "tasks": (ONCE, False, ("clash", "twice", *ALONE)),
    "step-tasks": (ONCE, False, ALONE),
    "random-port": (ONCE, False, ALONE),
    "interface": (ONCE, True, ("error",)),
    "gloo-exclusion": (ONCE, False, ("error",)),
    "loop": (FAILS, False, ("hang",)),
}
OTHER: Trap = (ONCE, False, ("clash", "twice", *ALONE))
# From the worst on: what a run of several jobs is called.
WORST = (
    *("clash", "twice", "error", "nothing", "hang", "separate worlds", "each alone", "first node only", "ended"),
    "one world",
)


class Form(NamedTuple):
    """A script, where it was seen, its nodes on the command line (0: as it says), its traps as (kind, line)."""

    name: str
    seen: str
    nodes: int
    traps: tuple[tuple[str, int], ...]
    sure: bool
    script: str

    @property
    def kinds(self) -> list[str]:
        """The kinds of its traps, each once."""
        return list(dict.fromkeys(kind for kind, _ in self.traps))

    @property
    def is_for_slurm(self) -> bool:
        """Whether sbatch would take it: not a script for another scheduler, or for a node."""
        header = self.script[: re.search(r"^(?!#|\s*$)|\Z", self.script, re.MULTILINE).start()]  # type: ignore[union-attr]
        return self.nodes > 0 or "\n#SBATCH" in header

    @property
    def runs(self) -> list[tuple[str, bool]]:
        """How, and whether on a hard lane, it is to run so that each of its traps may show; once where it has none."""
        return sorted({OF_TRAPS.get(kind, OTHER)[:2] for kind in self.kinds} or {(ONCE, False)})

    def shown(self, outcomes: Mapping[tuple[str, bool], "Outcome"]) -> list[str]:
        """Return the kinds of its traps that these outcomes of its runs show."""
        its = {kind: OF_TRAPS.get(kind, OTHER) for kind in self.kinds}
        return [kind for kind, (how, is_hard, shows) in its.items() if outcomes[how, is_hard].verdict in shows]


class Outcome(NamedTuple):
    """What became of a run: one of WORST, the members' lines, each job's output, and seconds."""

    verdict: str
    why: str
    seconds: float
    lines: list[dict[str, Any]]
    output: str

    @property
    def is_well(self) -> bool:
        """Whether that is what a script without a trap does: one world, or the end of all after a failure."""
        return self.verdict in ("one world", "ended")


def forms(*paths: Path) -> Iterator[Form]:
    """Yield the forms of these files."""
    for path in paths:
        for row in toml(path.read_bytes())["form"]:
            found = (trap.rpartition(" ") for trap in row.get("traps", ()))
            traps = tuple((kind, int(line)) for kind, _, line in found)
            its = (row["name"], row.get("seen", ""), int(row.get("nodes", 0)), traps, bool(row.get("sure", True)))
            yield Form(*its, row["script"].lstrip("\n"))


def adapted(script: str, hosts: int = HOSTS_OF_LANE) -> str:
    """Return a script with what the lane can give: the one place where it changes before it runs.

    - Directives other than those of `surroundings.JOB` are dropped: partition, account, QOS, time, memory, CPUs of a
      task, constraints, output, exclusive nodes, arrays. A GPU's type is dropped, and more than eight are eight.
    - More nodes than there are become as many as there are: in directives, and where the same number is written down
      behind the name of a number of nodes, in any part of the script. Numbers of processes shrink in proportion.
    - srun's own options are treated so when it runs (surroundings.srun).
    - Python programs are looked for in the job's own directory, whichever the script names, and launchers on PATH.
    """
    first, end, rest = script.partition("\n")
    programs = "|".join(NAMES["launchers"])
    script = first + end + re.sub(rf"""[^\s"'=:`(]*/(?=(?:[\w.-]+\.py|{programs})\b)""", "", rest)
    lines, found = script.splitlines(keepends=True), {}
    for at, line in enumerate(lines):
        if line.startswith("#SBATCH") and "hetjob" not in line:
            words = shlex.split(line.removeprefix("#SBATCH"), comments=True)
            kept, _ = surroundings.split(words, surroundings.JOB)
            found.update({name: its[-1].rpartition("=")[2].lstrip("-nN") for name, its in kept})
            lines[at] = f"#SBATCH {shlex.join(word for _, its in kept for word in its)}\n" if kept else "#\n"
    each = found.get("ntasks-per-node", found.get("tasks-per-node", ""))
    nodes = max(map(int, re.findall(r"\d+", found.get("nodes", "")) or [0]))
    if not nodes and each.isdecimal() and found.get("ntasks", "").isdecimal():
        nodes = -(-int(found["ntasks"]) // int(each))
    return smaller("".join(lines), nodes, hosts) if nodes > hosts else "".join(lines)


OF_NODES = (
    r"((?:--?n?nodes|-N|--num[_-](?:machines|nodes)|\b(?:N?NODES|NUM_NODES|NUM_MACHINES))(?:[= ]\"?|\b))%d\b(?!:)"
)
OF_PROCESSES = r"((?:--num[_-]processes|--?ntasks|-np?|\bWORLD_SIZE|--world[_-]size)(?:[= ]\"?))(\d+)\b"


def smaller(script: str, nodes: int, hosts: int) -> str:
    """Return a script for so many nodes as one for fewer."""
    script = re.sub(rf"(--nodes=|--nodes |-N ?)\d+-{nodes}\b", rf"\g<1>{hosts}", script)
    script = re.sub(OF_NODES % nodes, rf"\g<1>{hosts}", script)

    def fewer(match: re.Match[str]) -> str:
        count = int(match[2])
        return f"{match[1]}{count * hosts // nodes}" if count % nodes == 0 else match[0]

    return re.sub(OF_PROCESSES, fewer, script)


def judged(lines: Sequence[dict[str, Any]], hosts: Iterable[str]) -> tuple[str, str]:
    """Return what these members' lines of one job mean on hosts that should all be in its world, and why."""
    said = [line for line in lines if line["program"] == "ray"] or lines
    for outcome in ("clash", "twice", "error", "hang", "failed", "stopped"):
        for line in said:
            if line["outcome"] == outcome:
                where = f" at {line['address']}:{line['port']}" if "address" in line else ""
                verdict = {"failed": "ended", "stopped": "hang"}.get(outcome, outcome)
                return verdict, f"{line['host']}{where}: {line.get('why', line.get('members', outcome))}"
    if not said:
        return "nothing", "no member came to the meeting"
    return formed(said, set(hosts))


def formed(said: Sequence[dict[str, Any]], wanted: set[str]) -> tuple[str, str]:
    """Return what worlds there are, where each member is in one."""
    worlds = {line["world"]: {member.rpartition(":")[0] for member in line["members"]} for line in said}
    if all(its == wanted for its in worlds.values()):
        return "one world", f"of {len(said[0]['members'])} on {len(wanted)} hosts"
    if all(len(line["members"]) == 1 for line in said):
        came = {line["host"] for line in said}
        return ("each alone" if came == wanted else "first node only"), f"{len(worlds)} worlds of one on {sorted(came)}"
    return "separate worlds", str([sorted(its) for its in worlds.values()])


class Lane(NamedTuple):
    """A partition of two hosts, and whether they are hard."""

    name: str
    hosts: tuple[str, ...]
    is_hard: bool


class Proof:
    """A Slurm whose hosts are lanes, as a context manager, and stand-ins in a directory that all hosts see."""

    def __init__(self, place: Path, plain: int = 3, hard: int = 1, *, deadline_s: float = DEADLINE_S) -> None:
        self.place, self.plain, self.hard, self.deadline_s = place, plain, hard, deadline_s
        self.lanes: dict[bool, SimpleQueue[Lane]] = {False: SimpleQueue(), True: SimpleQueue()}
        self._stack, self._number = ExitStack(), 0

    def __enter__(self) -> Self:
        self.place.chmod(0o755)
        install(self.place)
        with ExitStack() as stack:
            hosts = stack.enter_context(Hosts(HOSTS_OF_LANE * (self.plain + self.hard), share=[self.place]))
            conf_lines = ["GresTypes=gpu"]
            for number in range(self.plain + self.hard):  # the controller's must be plain
                at = HOSTS_OF_LANE * number
                its = [hosts[at + more] for more in range(HOSTS_OF_LANE)]
                lane = Lane(f"lane{number}", tuple(host.name for host in its), number >= self.plain)
                for host in its:
                    (harden if lane.is_hard else ease)(host, hosts)
                self.lanes[lane.is_hard].put(lane)
                conf_lines.append(PARTITION.format(name=lane.name, nodes=",".join(lane.hosts)))
            (self.place / "hosts").write_text("".join(f"{host.name} {host.pid}\n" for host in hosts))
            slurm = SlurmCluster(hosts, cpus=CPUS, gpus=GPUS, conf_lines=conf_lines, by_address=True)
            self.slurm = stack.enter_context(slurm)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    @contextmanager
    def lane(self, *, is_hard: bool) -> Iterator[Lane]:
        """Wait for a free lane."""
        its = self.lanes[is_hard].get()
        try:
            yield its
        finally:
            self.lanes[is_hard].put(its)

    def run(self, script: str, nodes: int = 0, *, how: str = ONCE, is_hard: bool = False) -> Outcome:
        """Run a form's script on a free lane, with the stand-ins, and tell what became of it.

        Each node gives half its processors, and eight GPUs where the script asks for none, as on sites with whole
        nodes. `nodes` are those of sbatch's command line, 0 for what the script says. A job that has not ended some
        seconds after the stand-ins' deadline is cancelled.
        """
        with self.lane(is_hard=is_hard) as lane:
            self._number += 1
            place = self.place / f"run{self._number}-{lane.name}"
            place.mkdir()
            began, text, jobs = time.monotonic(), adapted(script), ["a", "b"] if how == TWICE else ["a"]
            (place / "lines").touch()
            trainings(text, place)
            words, env = self._request(lane, text, nodes), self._environ(lane, place, how, len(jobs))
            ids = {}
            for job in jobs:
                words_of_job = (*words, f"--output={place}/{job}.out")
                try:
                    ids[job] = self.slurm.submit(text, *words_of_job, env={**env, "PROOF_JOB": job}, cwd=str(place))
                except AssertionError as refused:
                    return Outcome("error", str(refused).partition("\n")[0], time.monotonic() - began, [], text)
            cancelled = _end(self.slurm, list(ids.values()), began + self.deadline_s + END_S)
            lines = [json.loads(line) for line in (place / "lines").read_text().splitlines()]
            nodes_of = {job: self.slurm.job(number)["NodeList"] for job, number in ids.items()}
        hosts_of = {job: [node] if node in lane.hosts else lane.hosts for job, node in nodes_of.items()}
        found = [judged([line for line in lines if line["job"] == job], hosts_of[job]) for job in jobs]
        verdict, why = min(found, key=lambda its: WORST.index(its[0]))
        output = "".join((place / f"{job}.out").read_text() for job in jobs if (place / f"{job}.out").exists())
        if cancelled and verdict == "nothing":  # a world of servers may stay
            verdict, why = "hang", f"the job did not end: {why}"
        return Outcome(verdict, why, time.monotonic() - began, lines, output)

    def _request(self, lane: Lane, text: str, nodes: int) -> list[str]:
        words = [f"--partition={lane.name}", f"--mincpus={CPUS // 2}"]
        words += [f"--nodes={min(nodes, HOSTS_OF_LANE)}"] if nodes else []
        has_gpus = re.search(r"^#SBATCH.*(gpu|-G)", text, re.MULTILINE)
        return words if has_gpus else [*words, f"--gres=gpu:{surroundings.MOST_GPUS}"]

    def _environ(self, lane: Lane, place: Path, how: str, jobs: int) -> dict[str, str]:
        return {
            "PATH": f"{programs_of(place.parent)}:/usr/sbin:/usr/bin:/sbin:/bin",
            "BASH_ENV": f"{place.parent}/bin/prelude",
            "PROOF_PLACE": str(place),
            "PROOF_DEADLINE_S": str(self.deadline_s),
            "PROOF_JOBS": str(jobs),
            **({"PROOF_LACKS": "scontrol"} if how == LACKS else {}),
            **({"PROOF_FAILS": lane.hosts[-1]} if how == FAILS else {}),
            **({"PROOF_INTERFACES": "as they are" if lane.is_hard else "any"} if how == ONCE else {}),
        }


def _end(slurm: SlurmCluster, ids: list[str], until: float) -> bool:
    """Wait for the end of jobs, or cancel them, and tell whether that was so."""
    cancelled = False
    while left := [job for job in ids if not set(slurm.states(job)) <= ENDED]:
        if time.monotonic() > until and not cancelled:
            slurm.controller.run(["scancel", *left], check=True)
            cancelled = True
        time.sleep(ASK_S)
    return cancelled


def programs_of(place: Path) -> str:
    """Return the beginning of PATH: the stand-ins of a directory, and mingle."""
    return f"{place}/bin:{MINGLE.parent}"


def trainings(script: str, place: Path) -> None:
    """Make the Python programs that a script names: the stand-in for Python takes empty ones for training."""
    for name in re.findall(r"[\w./-]+\.py\b", script):
        path = place / name.lstrip("/.")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def install(place: Path) -> None:
    """Write the stand-ins into `bin` of a directory, compiled once and not by each of thousands of starts."""
    (place / "bin").mkdir()
    (place / "lib").mkdir()
    for module in MODULES:
        py_compile.compile(str(PROGRAMS / f"{module}.py"), cfile=str(place / "lib" / f"{module}.pyc"), doraise=True)
    for module, names in NAMES.items():
        for name in names:
            program = place / "bin" / name
            program.write_text(PROGRAM.format(python=sys.executable, place=str(place / "lib"), module=module))
            program.chmod(0o755)
    (place / "bin/activate").write_text(":\n")  # it is read, and not started
    (place / "bin/prelude").write_text(PRELUDE.format(path=programs_of(place)))


def names(hosts: Hosts) -> str:
    """Return the lines of /etc/hosts for Slurm's names, and for those of a second network, as some sites have them."""
    return "".join(f"{host.addr()} {host.name}\n{host.addr('ib0')} {host.name}-ib {host.name}i\n" for host in hosts)


def ease(host: Host, hosts: Hosts) -> None:
    """Let a host know all names."""
    host.write("/etc/hosts", LOCALHOST + names(hosts))


def harden(host: Host, hosts: Hosts) -> None:
    """Give a host a name that nobody else resolves, interfaces with names of its own, and docker0's address first.

    `hostname -I` lists interfaces in the order of their numbers: docker0 is what eth0 was, and eth0's address is on a
    macvlan above it.
    """
    own, first, second = f"ip-10-77-0-{host.number}", f"enp{host.number}s0", f"ibp{host.number}s0"
    host.write("/etc/hosts", f"{LOCALHOST}127.0.1.1 {own}\n{names(hosts)}")
    host.run(["hostname", own], check=True)
    lines = ["link set eth0 down name docker0", "addr flush dev docker0", "addr add 172.17.0.1/16 dev docker0"]
    lines += ["link set docker0 up", f"link add {first} link docker0 type macvlan mode bridge"]
    lines += [f"addr add {host.addr()}/24 brd + dev {first}", f"link set {first} up"]
    lines += [f"link set ib0 down name {second}", f"link set {second} up"]
    hosts.ip(lines, host)
