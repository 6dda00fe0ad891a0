"""`mingle lint`: what goes wrong at run time in a job script of several nodes, and the shortest remedy.

`launches` reads the script. Each rule is a function from a job to findings; all of them are in RULES.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Iterator
from itertools import pairwise
from os.path import basename
from typing import Literal, NamedTuple

from mingle_hooks.export import launchers
from mingle_hooks.scripts.launches import (
    DECLARES,
    EACH,
    HOSTFILES,
    NAMES,
    NODES,
    RANK,
    TASKS,
    Arg,
    Assignment,
    Job,
    Launch,
    Place,
    count,
    read_jobs,
)
from mingle_hooks.scripts.shell import Frame, Text, unquote

Certainty = Literal["sure", "likely"]


class Finding(NamedTuple):
    """A trap: its line, its name, what happens at run time, what to write, and how sure that is."""

    line: int
    kind: str
    mistake: str
    remedy: str
    certainty: Certainty = "sure"


_PORT_NAME = re.compile(r"(?:\w*_)?(?:MASTER|RDZV|MAIN_PROCESS|HEAD|RAY|DIST|MAIN)_?PORT|MPORT", re.IGNORECASE)
_SERVER = re.compile("SERVE|API|HTTP|DASHBOARD|VLLM")  # users of it have to know its port
_PORT_OPTIONS = ("--master-port", "--main-process-port", "--rdzv-port")
_ADDRESS_OPTIONS = ("--master-addr", "--main-process-ip", "--rdzv-endpoint")
_ADDRESS_NAME = re.compile(
    r"(?:\w*_)?(?:MASTER|HEAD|MAIN|RDZV|COORDINATOR)_?(?:ADDR(?:ESS)?|IP|HOST|NODE|ENDPOINT|NODE_IP|PROCESS_IP)",
    re.IGNORECASE,
)
_WITH_PORT = re.compile(r":\d{2,5}[\"']?\Z")
_NUMBER = re.compile(
    r"[\"']?(?:\$\{\w{1,128}:?[-=][\"']?)?(?:\$\(\(\s{0,8})?([1-9]\d{0,4})(?:\s{0,8}\)\))?\s?[\"']?\}?[\"']?"
)
_WORD = re.compile(r"[A-Za-z_]\w*")
_VARIABLE = re.compile(r"[\"']?\$(?:(\w{1,128})|\{(\w{1,128})\})[\"']?")
_OWN_NAME = re.compile(
    r"[\"']?(?:\$\{\w{1,64}:?[-=])?[\"']?"
    r"(?:(?:\$\(|`)\s{0,8}(?:/usr)?(?:/bin/)?(?:hostname\b(?!\s{1,8}-(?:\w{0,8}[iI]|-ip|-all))|uname -n)"
    r"|\$\{?(?:HOSTNAME|HOST)\b)"
)
_OWN_WORD = re.compile(r"[\"']?(?:\$\(hostname\)|\$\{?HOSTNAME\}?)[\"']?")
_RAY = re.compile(r"(?<![a-zA-Z])ray(?![a-z])", re.IGNORECASE)
_LOOPBACK = re.compile(r"[\"']?(?:tcp://)?(?:\$\{\w{1,64}:?[-=])?(?:localhost\b|127\.\d|0\.0\.0\.0|\[?::1\b)")
_DEFAULT_HOST = re.compile(r"[\"']?\$\{(\w{1,64}):?[-=][\"']?(?:localhost|127\.)")
_ADDRESSES = ("MASTER_ADDR", "MASTER_HOST")  # which may come from the environment
_ALONE_ON_FAILURE = "when the command fails, every node becomes rank 0 of a world of its own, and the job hangs"
_HOSTNAME_I = re.compile(r"\bhostname\s{1,64}(?:-\w{0,8}[iI]\w{0,8}|--ip-address|--all-ip-addresses)\b")
_FALLBACK = re.compile(r"\|\|\s{0,64}(?:echo\s{1,8}|export\s{1,8})?(?:\w{1,64}=)?[\"']?(?:localhost|127\.0\.0\.1)")
_TO_LOCALHOST = re.compile(r"(?:echo |export )?(?:\w+=)?(?:localhost|127\.0\.0\.1)")
_RANDOM = re.compile(r"\$\{?RANDOM\b|\bRANDOM\b|\bshuf\b|getsockname|\.bind\(|/dev/urandom")
_RANK_NAME = re.compile(
    r"(?:NODE_|GROUP_|MACHINE_|LOCAL_|GLOBAL_|WORLD_)?RANK|NODE_?ID|NODEID|MACHINE_ID", re.IGNORECASE
)
_RANK_OPTIONS = ("--node-rank", "--machine-rank", "--rank", "--local-rank")
_INTERFACE = re.compile(
    r"(?:^|[\s\"'=,])((?:NCCL|RCCL|GLOO|TP)_SOCKET_IFNAME)=[\"']?(?:\$\{\w{1,64}:?-)?(\^?)=?([a-zA-Z][\w.,-]*)?"
)
MULTI = {"torchrun", "accelerate", "deepspeed"}  # launchers that start the processes of a node
# Options that tell each launcher about the other nodes: it needs one of every row.
_RENDEZVOUS: dict[str, list[tuple[str, ...]]] = {
    "torchrun": [("--rdzv-endpoint", "--master-addr")],
    "accelerate": [("--machine-rank", "--rdzv-backend"), ("--main-process-ip", "--config-file")],
    "c10d": [("--rdzv-endpoint", "--main-process-ip")],  # which reads no --master-addr
    "deepspeed": [("--hostfile", "-H", "--no-ssh", "--node-rank")],
}
_ON_HOST = re.compile(r"\s(?:-w|-r\s?\$|--nodelist|--relative)")
_TASKS_GIVEN = re.compile(r"--ntasks[= ]|\s-n")
_HOSTFILE = re.compile(r"HOSTFILE|--hostfile")  # a program of the user's may reach the others by it
_ITSELF = re.compile(r"\$\{?(?:0|BASH_SOURCE)\b")  # a script that starts itself on the nodes


def lint_script(text: str, nodes: int | None = None) -> list[Finding]:
    """Return the traps in a script, by line; `nodes` is what the command line of sbatch or qsub requests."""
    return lint_jobs(read_jobs(text, nodes))


def lint_jobs(jobs: list[Job]) -> list[Finding]:
    """Return the traps in the jobs of a script, by line."""
    found = {finding for job in jobs for rule in RULES for finding in rule(job)}
    firsts = {(finding.line, finding.kind): finding for finding in sorted(found, reverse=True)}
    return sorted(firsts.values())


def _remedy(job: Job, launch: Launch) -> str:
    """Return the shortest line that forms the world for this launcher."""
    program = {"accelerate": "accelerate launch", "python": "--scope task python"}.get(launch.program, launch.program)
    steps = [name for name in launch.chain if name in ("srun", "mpirun", "mpiexec")]
    if not steps and job.requested.scheduler not in ("slurm", ""):
        return f"`mingle run {program} …`"
    return f"`{steps[-1] if steps else job.srun} mingle exec {program} …`"


def _advice(job: Job) -> str:
    """Return the remedy for the first launcher of a job."""
    launches = [launch for launch in job.launches if launch.program in MULTI]
    if launches and not job.is_several:
        return "`torchrun --standalone`"
    launches += [launch for launch in job.launches if launch.program == "python" and launch.place == "step"]
    return _remedy(job, launches[0]) if launches else "`mingle exec`"


def _port(job: Job) -> Iterator[Finding]:
    """Find ports that are the same in all jobs."""
    mistake = "this port is the same in all your jobs: two of them on one node collide, or join each other's world"
    remedy = f"leaving it out: {_advice(job)} finds a free one"
    for at in _ports(job):
        yield Finding(job.line(at), "fixed-port", mistake, remedy)


def _ports(job: Job) -> Iterator[int]:
    if any(one.standalone and not job.is_conditional(one.standalone.word.start) for one in job.launches):
        return  # which takes a free one
    starts = [command.start for command in job.steps if not command.has_frame("substitution")]
    starts = sorted([*starts, *(launch.at.start for launch in job.launches)])
    fixed = {name: _fixed_values(values, starts) for name, values in job.assignments.items()}
    texts = [arg.text for launch in job.launches for arg in launch.args]
    texts += [word.text for command in job.steps for word in command.words]
    given = {name for text in texts for name in NAMES.findall(text)}
    of_ray = [arg for one in job.launches if one.program[:3] == "ray" and (arg := one.option("--address"))]
    heads = {name for arg in of_ray for name in NAMES.findall(arg.text)} | {"RAY_ADDRESS"}
    # Which reads no MASTER_PORT.
    only_torchrun = bool(job.launches) and all(launch.program == "torchrun" for launch in job.launches)
    for name, values in job.assignments.items():
        is_given = name in given and "PORT" in name.upper() and not _SERVER.search(name.upper())
        if is_given or (_PORT_NAME.fullmatch(name) and name in (job.referred if only_torchrun else job.used)):
            yield from fixed[name]
        elif name in heads or _ADDRESS_NAME.fullmatch(name):
            with_port = [value.value for value in values if _WITH_PORT.search(value.value.text)]
            yield from (value.start for value in with_port if "http" not in value.text)
    for launch in job.launches:
        yield from _option_ports(job, launch, fixed)


def _fixed_values(values: list[Assignment], starts: list[int]) -> list[int]:
    """Return where a variable gets a hard-coded port, unless it is computed anew before something starts."""
    found: list[int] = []
    computed: tuple[int, tuple[Frame, ...]] = (-1, ())  # what has started before, and the blocks around it
    for one in reversed(values):
        command, started = one.command, bisect(starts, one.span.start)
        if _NUMBER.fullmatch(one.value.text):
            if computed != (started, command.frames[: len(computed[1])]):
                found.append(one.value.start)
        elif {*_WORD.findall(one.value.text)} - {one.name}:  # not from itself alone
            is_for_all = not command.words or command.name in DECLARES
            if is_for_all and command.before not in ("&&", "||") and not command.has_frame("if", "case"):
                computed = (started, command.frames)
    return found[::-1]


def _option_ports(job: Job, launch: Launch, fixed: dict[str, list[int]]) -> Iterator[int]:
    options = [launch.option(option) for option in _PORT_OPTIONS]
    if launch.program.startswith("ray"):
        heads = [other for other in job.launches if other.program == "ray start" and other.has("--port")]
        options += [launch.option("--port"), None if heads else launch.option("--address")]
    for value in options:
        at = _fixed(fixed, value.text.rpartition(":")[2], value.word) if value else None
        if at is not None:
            yield at
    if value := launch.option("--rdzv-endpoint"):
        yield from _endpoint(job, launch, value, fixed)
    elif not launch.has(*_PORT_OPTIONS, "--config-file") and launch.program in MULTI:
        yield from (value.word.start for value in [launch.option(*_ADDRESS_OPTIONS)] if value)  # 29500


def _fixed(fixed: dict[str, list[int]], text: str, word: Text) -> int | None:
    """Return the position of a hard-coded port."""
    if _NUMBER.fullmatch(text):
        return word.start
    if match := _VARIABLE.fullmatch(text):
        return next(iter(fixed.get(match[1] or match[2], ())), None)
    return None


def _endpoint(job: Job, launch: Launch, value: Arg, fixed: dict[str, list[int]]) -> Iterator[int]:
    text, at = value.text, value.word.start
    for _ in range(4):
        match = _VARIABLE.fullmatch(text)
        values = job.assignments.get(match[1] or match[2], []) if match else []
        if not values:
            break
        if re.match(r"[\"']?(?:\$\(|`|\()", values[-1].value.text):  # a host
            text = "host"
            break
        text, at = values[-1].value.plain, values[-1].value.start
    host, colon, port = text.rpartition(":")
    if colon and not host.endswith("$("):
        if (found := _fixed(fixed, port.strip("\"'"), value.word)) is not None:
            yield found if found != value.word.start else at
    elif not _VARIABLE.fullmatch(text) and not re.search(r"\$\{?\d|\$[@*]", text):
        backend = launch.option("--rdzv-backend")
        if not backend or "static" not in backend.text:
            yield value.word.start


def _addresses(job: Job) -> Iterator[tuple[str, int, Place]]:
    """Yield the addresses of rank 0 as they are written, their position, and where they are expanded."""
    used: set[str] = set()
    for launch in job.launches:
        of_ray = ("--address", "--node-ip-address") if launch.program == "ray start" else ()
        if value := launch.option(*_ADDRESS_OPTIONS, *of_ray):
            used.update(NAMES.findall(value.text))
            is_early = not value.early.isdisjoint(range(value.word.start, value.word.end))
            yield value.text, value.word.start, "batch" if is_early else launch.place
    for name, values in job.assignments.items():
        if _ADDRESS_NAME.fullmatch(name) or name in used:
            for found in values:
                is_early = not found.value.early.isdisjoint(range(found.value.start, found.value.end))
                yield found.value.text, found.value.start, "batch" if is_early else job.place(found.command)
    for command in job.steps:  # the name, handed to a script of the user's
        for before, word in pairwise(command.words):
            if job.place(command) == "batch" and _OWN_WORD.fullmatch(word.text) and before.text[0] != "-":
                yield word.text, word.start, "batch"


def _own_address(job: Job) -> Iterator[Finding]:
    """Find a node's own name, or loopback, as the address of rank 0."""
    if not job.is_several:
        return
    alone = "each node takes itself for rank 0, and waits for the others or trains alone"
    remedy = f"leaving it out: {_advice(job)} finds rank 0"
    for text, at, place in _addresses(job):
        line = job.line(at)
        if not job.assignments.keys().isdisjoint({"HOST", "HOSTNAME"}.intersection(NAMES.findall(text))):
            continue
        if (match := _DEFAULT_HOST.match(text)) and match[1] in job.assignments and match[1] not in _ADDRESSES:
            yield Finding(line, "localhost-fallback", _ALONE_ON_FAILURE, "|| exit")
        elif _LOOPBACK.match(text) or (place == "step" and _OWN_NAME.match(text)):
            yield Finding(line, "each-itself", alone, remedy)
        elif _OWN_NAME.match(text) and not job.is_conditional(at):
            mistake = "the host's own name may resolve to 127.0.1.1 there, or on the other nodes to another network"
            yield Finding(line, "own-name", mistake, remedy, "likely")


def _hostname_i(job: Job) -> Iterator[Finding]:
    mistake = "hostname -i gives 127.0.1.1 on Debian, and hostname -I whatever network comes first"
    remedy = f"leaving it out: {_advice(job)} finds the address"
    values = [found.value for all_of in job.assignments.values() for found in all_of]
    for text in (*values, *(arg.word for launch in job.launches for arg in launch.args)):
        if match := _HOSTNAME_I.search(text.text):
            yield Finding(job.line(text.at[match.start()]), "hostname-i", mistake, remedy, "likely")


def _fallback(job: Job) -> Iterator[Finding]:
    for command in job.commands:
        given = (*command.words, *command.assignments)
        places = [word.at[match.start()] for word in given if (match := _FALLBACK.search(word.text))]
        if command.before == "||" and _TO_LOCALHOST.match(" ".join(word.plain for word in given)):
            places.append(command.start)
        for at in places:
            yield Finding(job.line(at), "localhost-fallback", _ALONE_ON_FAILURE, "|| exit")


def _batch_rank(job: Job) -> Iterator[Finding]:
    """Find a rank that the batch script expands, where it is the first node's."""
    if not job.is_several or not (job.requested.scheduler or job.steps):
        return  # perhaps each node runs this script
    remedy = f"{_advice(job)}, or single quotes: srun bash -c '…'"
    for name, at in _batch_ranks(job):
        mistake = f"the batch script expands ${name}, on the first node: every node gets the same rank"
        yield Finding(job.line(at), "batch-rank", mistake, remedy)


def _batch_ranks(job: Job) -> Iterator[tuple[str, int]]:
    # With c10d torchrun ranks the nodes itself, whatever --node-rank says.
    launches = [one for one in job.launches if not one.has_value("--rdzv-backend", "c10d")]
    for name, values in job.assignments.items():
        is_read = launches or not job.launches or name in ("RANK", "LOCAL_RANK")
        for value in values if is_read and _RANK_NAME.fullmatch(name) and name in job.used else ():
            is_batch = job.place(value.command) == "batch"
            yield from _expanded(value.value, value.value.early, everywhere=is_batch)
    for launch in launches:
        for option in _RANK_OPTIONS:
            if arg := launch.option(option):
                yield from _expanded(unquote(arg.word), arg.early)
    for command in job.steps:
        for word in command.words if job.place(command) == "batch" else ():
            if match := re.search(r"--export[= ]\S*?RANK=(?=\$)", word.text):
                yield from _expanded(word.part(match.end(), len(word.text)), frozenset(), everywhere=True)


def _expanded(text: Text, early: frozenset[int], *, everywhere: bool = False) -> Iterator[tuple[str, int]]:
    """Yield the first rank in a text, if the batch script expands it."""
    match = RANK.search(text.text)
    if match and (everywhere or text.at[match.start()] in early):
        yield match[1], text.at[match.start()]


def _first_node_only(job: Job) -> Iterator[Finding]:
    """Find launchers that the batch part starts, on its own node."""
    itself = any(_ITSELF.search(word.text) for command in job.steps for word in command.words)
    if not (job.is_several and job.requested.scheduler) or itself:
        return
    if any(launch.place == "host" for launch in job.launches):
        return  # and this is the first node's
    has_steps = any(not command.has_frame("substitution") for command in job.steps)
    for launch in job.launches:
        reaches = launch.has("--hostfile", "-H", *HOSTFILES)  # the others, by ssh
        is_one = not has_steps and len(job.launches) == 1 and not _HOSTFILE.search(job.source.text)
        trains = launch.program in MULTI or (launch.program == "python" and is_one)
        if launch.place == "batch" and trains and not reaches and "mingle run" not in launch.chain:
            mistake = f"{launch.program} runs on the first node only, as no srun starts it on the others"
            yield Finding(job.line(launch.at.start), "first-node-only", mistake, _remedy(job, launch))


def _rendezvous(job: Job) -> Iterator[Finding]:
    """Find launchers on several nodes that do not know the others, or expect a different number."""
    asks = any("mingle env" in word.text for command in job.commands for word in command.words)
    for launch in job.launches if job.is_several else ():
        if launch.program not in MULTI or launch.place == "batch":
            continue
        remedy = _remedy(job, launch)
        alone = launch.standalone
        nodes = launch.option(*launchers.NODES)
        number = nodes.text if nodes else ""
        started = started_tasks(job, launch)[0] if launch.place == "step" else None  # else a loop starts it
        at = alone or nodes
        if at and (alone or number == "1"):
            is_meant = (
                _is_apart(job, launch)
                or launch.is_of_task
                or job.is_conditional(at.word.start)
                or job.is_conditional(launch.at.start)
            )
            if not is_meant:
                mistake = "each node trains alone, and knows nothing of the others"
                what = f"leaving out {'--standalone' if alone else 'the number of nodes'}: {remedy}"
                yield Finding(job.line(launch.at.start), "each-alone", mistake, what)
        elif nodes and started and number.isdigit() and int(number) != started:
            mistake = f"{launch.program} waits for {number} nodes, and starts on {started}"
            yield Finding(job.line(nodes.word.start), "node-count", mistake, f"leaving it out: {remedy}")
        rows = _RENDEZVOUS["c10d" if launch.has_value("--rdzv-backend", "c10d") else launch.program]
        is_told = launch.is_mingle or asks or launch.is_open or all(launch.has(*row) for row in rows)
        is_told |= launch.has_value("--rdzv-backend", "mingle")
        if launch.place == "step" and not is_told and not alone and number != "1":
            mistake = f"{launch.program} is not told of the other nodes: each trains alone, or waits"
            yield Finding(job.line(launch.at.start), "no-rendezvous", mistake, remedy)


def _too_many_nodes(job: Job) -> Iterator[Finding]:
    """Find steps of more nodes than the job has."""
    for command in job.steps if not job.is_several else ():
        nodes = count(NODES, " ".join(word.plain for word in command.words)) if command.name == "srun" else None
        if nodes and nodes > (job.requested.nodes or nodes):
            mistake = f"srun asks for {nodes} nodes, and the job has {job.requested.nodes}: Slurm refuses the step"
            yield Finding(job.line(command.start), "node-count", mistake, f"#SBATCH --nodes={nodes}")


def started_tasks(job: Job, launch: Launch) -> tuple[int | None, int | None]:
    """Return the nodes and the tasks that the step of a launch starts, None where the script does not say."""
    step = " ".join(arg.text for arg in launch.step)
    each, tasks = count(EACH, step), count(TASKS, step)
    nodes = count(NODES, f"-N{launch.nodes}") or job.requested.nodes or None
    if tasks is None and job.requested.tasks is None and nodes:
        return nodes, (each or 1) * nodes
    return nodes, tasks or job.requested.tasks


def _tasks(job: Job) -> Iterator[Finding]:
    """Find srun steps that start other tasks than intended.

    Seen with Slurm 22.05: --ntasks-per-node of srun has no effect if the directives request a number of tasks.
    """
    for launch in job.launches:
        name = basename(launch.step[0].text) if launch.step else ""
        nodes, tasks = started_tasks(job, launch)
        if name not in ("srun", "pbsdsh") or launch.place != "step" or launch.program not in MULTI:
            continue
        if nodes and tasks and tasks > nodes and nodes <= (job.requested.nodes or nodes):
            mistake = f"more than one {launch.program} starts on a node, and each starts all processes of the node"
            line = job.line(launch.step[0].word.start)
            yield Finding(line, "tasks", mistake, "--ntasks-per-node=1, and the launcher's own --nproc-per-node")
    for command in job.steps:
        step = " ".join(word.plain for word in command.words)
        each, nodes, tasks = count(EACH, step), count(NODES, step) or job.requested.nodes, job.requested.tasks
        if command.name != "srun" or not (each and nodes and tasks) or _TASKS_GIVEN.search(step):
            continue
        if tasks != each * nodes and nodes <= (job.requested.nodes or nodes):
            mistake = f"--ntasks-per-node={each} of srun has no effect: srun starts the {tasks} tasks of #SBATCH"
            remedy = f"--ntasks={each * nodes} beside it, and no fewer in #SBATCH"
            yield Finding(job.line(command.start), "step-tasks", mistake, remedy)


def _random(job: Job) -> Iterator[Finding]:
    """Find a port that each node draws."""
    if not job.is_several:
        return
    remedy = f"leaving it out: {_advice(job)}"
    for name, all_of in job.assignments.items():
        for found in all_of if _PORT_NAME.fullmatch(name) else ():
            if _RANDOM.search(found.value.text) and job.place(found.command) == "step":
                yield Finding(job.line(found.value.start), "random-port", "each node draws another port", remedy)


def _interfaces(job: Job) -> Iterator[Finding]:
    """Find names of interfaces that are written down."""
    exclusion = "^ is NCCL's syntax only: Gloo looks for an interface of that name, and fails"
    named = "interfaces have other names on other nodes and clusters, and NCCL takes each that begins with this one"
    for command in job.commands:
        is_local = not command.words  # NAME=VALUE, which an `export NAME` may follow
        for word in (*command.assignments, *command.words):
            for match in _INTERFACE.finditer(word.text):
                if is_local and match[1] not in job.used:
                    continue
                line = job.line(word.at[match.start(1)])
                if match[2] == "^":
                    if not match[1].startswith("NCCL"):
                        yield Finding(line, "gloo-exclusion", exclusion, "`mingle exec --for nccl,gloo`")
                elif match[3] and job.is_several:
                    yield Finding(line, "interface", named, "`mingle exec --for nccl,gloo`", "likely")
    for launch in job.launches if job.is_several else ():
        if value := launch.option("--network-interface", "--network-interfaces"):  # horovodrun
            yield Finding(job.line(value.word.start), "interface", named, _remedy(job, launch), "likely")


def _is_apart(job: Job, launch: Launch) -> bool:
    """Return whether it is one of several steps that train alone: srun chooses its node, and it knows of no others."""
    is_alone = launch.program == "python" and not any(map(_ADDRESS_NAME.fullmatch, job.assignments))
    is_anywhere = "srun" in launch.chain and not _ON_HOST.search(" ".join(arg.text for arg in launch.step))
    return launch.place == "host" and is_anywhere and (is_alone or launch.standalone is not None)


def _loop(job: Job) -> Iterator[Finding]:
    """Find loops that start each node's launcher in the background."""
    mistake = "when one node fails, the others wait for it until the time limit, and the job ends with 0"
    for launch in job.launches:
        is_of_world = not launch.program.startswith("ray") and not _is_apart(job, launch)
        if launch.place == "host" and launch.loop is not None and is_of_world:
            at = (launch.step[0].word if launch.step else launch.at).start
            line = job.line(at if launch.outer.has_frame("loop") else launch.loop)
            yield Finding(line, "loop", mistake, f"`mingle run {launch.program} …` in place of the loop")
    started = {id(launch.outer) for launch in job.launches}
    for command in job.steps:  # a script of the user's
        words = " ".join(word.plain for word in command.words)
        is_one = command.name in ("ssh", "pbs_tmrsh", "pbsdsh", "blaunch") or _ON_HOST.search(words)
        is_own = id(command) not in started and command.has_frame("loop") and not _RAY.search(words)
        if is_one and is_own and command.after == "&":
            remedy = "`mingle run COMMAND` in place of the loop"
            yield Finding(job.line(command.start), "loop", mistake, remedy, "likely")


RULES = (
    *(_port, _own_address, _hostname_i, _fallback, _random, _interfaces),
    *(_batch_rank, _first_node_only, _rendezvous, _too_many_nodes, _tasks, _loop),
)
