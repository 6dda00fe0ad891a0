"""What is fuzzed: for each decoder a function that takes any bytes, and asserts what must hold of what it reads.

Only errors that are documented may leave a decoder, with the documented exit code; beyond that a target asserts what
its docstring says. Left out: what the kernel alone writes (/proc, /sys, options of sockets), what a program of this
package writes to its own parent over a pipe, and a file with this user's own MAC (joining.py).
"""

from __future__ import annotations

import functools
import json
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from fuzz import peers
from fuzz.doubles import documented, place, variables, written
from mingle_hooks import files, job, settings, values
from mingle_hooks.check import report, rules, session
from mingle_hooks.cli import jobs
from mingle_hooks.cli.template import SCHEMAS
from mingle_hooks.errors import LONGEST, MingleError
from mingle_hooks.export import hostfiles, launchers, variables as shells
from mingle_hooks.hooks import files as hook_files, slurm as slurm_conf, targets as hook_targets, verify
from mingle_hooks.net import addresses, devices
from mingle_hooks.rendezvous import fingerprint, report as differences
from mingle_hooks.rendezvous.messages import Member
from mingle_hooks.rendezvous.wire import WireError, decode, parse
from mingle_hooks.run import agent, attempt, command, starters, status
from mingle_hooks.schedulers import detect, facts, pbs
from mingle_hooks.schedulers.facts import MOST_NODES, MOST_TASKS
from mingle_hooks.scripts import directives, lint, rewrite, script
from mingle_hooks.scripts.job import FIELDS

USAGE, FACTS, SETTINGS = 64, 65, 78


def host_list(data: bytes) -> None:
    """Check that a list gives no more hosts than allowed, each a host name, and the same ones once it is folded."""
    text = os.fsdecode(data)
    most = 1 + len(data) % 300
    hosts = documented(lambda: facts.expand(text, most=most), FACTS)
    if hosts is not None:
        assert 1 <= len(hosts) <= most
        assert all(map(addresses.is_hostname, hosts))
        assert sorted(facts.expand(facts.fold(hosts))) == sorted(set(hosts))
    counts = documented(lambda: facts.expand_counts(text, most=most), FACTS)
    if counts is not None:
        assert 1 <= len(counts) <= most
        again = ",".join(map(str, counts))
        assert facts.expand_counts(again, most=most) == counts


def node_file(data: bytes) -> None:
    """Check that a file gives hosts with their slots, no more than it has lines, and is written the same."""
    path = written("nodes", data)
    for read in (facts.read_nodefile, facts.read_pe_hostfile):
        slots = documented(functools.partial(read, path), FACTS)
        if slots is None:
            continue
        assert all(map(addresses.is_hostname, slots))
        assert 1 <= sum(slots.values()) <= MOST_TASKS
        assert len(slots) <= data.count(b"\n") + 1
        members = [Member(rank, host, "", its) for rank, (host, its) in enumerate(slots.items()) if its]
        if read is facts.read_nodefile:
            again = written("nodes", hostfiles.text("nodefile", members).encode())
            assert facts.read_nodefile(again) == slots


def hosts_file(data: bytes) -> None:
    """Check that a block is added to /etc/hosts and removed, and no other byte of the file changes, whatever it has.

    `BEGIN` and `END` stand for the block's own marks.
    """
    world, lines = "fuzz", "10.0.0.1 node1\n"
    begin, end = hostfiles._marks(world)
    text = hostfiles._without(data.replace(b"BEGIN", begin).replace(b"END", end), world)
    added = hostfiles._with(text, world, lines)
    assert lines.encode() in added
    assert added.startswith(text)
    assert hostfiles._without(added, world) == text
    more = hostfiles._with(added, "another", lines)
    assert hostfiles._without(hostfiles._without(more, world), "another") in (text, text + b"\n")


def configuration(data: bytes) -> None:
    """Read configurations: slurm.conf, slurmd's unit, pbs.conf, nccl.conf, what scontrol shows, hooks' headers."""
    text = data.decode(errors="replace")
    path = written("slurm.conf", data)
    os.makedirs(f"{place()}/etc/default", exist_ok=True)
    written("etc/default/slurmd", data)
    found = documented(lambda: slurm_conf.find_slurm_conf(place(), "/slurm.conf"), FACTS)
    for conf in filter(None, (found, slurm_conf.parse_config(text))):
        assert all(key == key.lower() and its for key, its in conf.values.items())
        assert conf.one("Prolog") in (*conf.all("prolog"), "")
    starters._slurm_setting({"SLURM_CONF": path}, "KillWait")
    assert pbs.home(path).startswith("/")
    assert (pbs.programs(path) or "/").startswith("/")
    pbs.starts_mom(path)
    for name, setting in addresses.nccl_settings({"NCCL_CONF_FILE": path}, place()).items():
        assert "\n" not in name + setting.value
        addresses.is_nccl_interface(setting.value, "eth0")
    header = hook_files.read_header(data)
    assert header is None or not header.is_whole or hook_files.with_checksum(text).encode() == data
    with suppress(ValueError):  # the package's own recordings and the tests' only
        hook_targets.fake_event(text)
    entries = hook_files._parsed(data)
    if entries is not None:
        assert hook_files._parsed(hook_files._text(entries, "").encode()) == sorted(entries, key=lambda its: its.path)


def settings_file(data: bytes) -> None:
    """Check that a file is read into settings that the schema allows too, or is refused in one line."""
    path = written("mingle.toml", data)
    loaded = documented(lambda: settings.load({}, {}, system_file=path), SETTINGS)
    if loaded is None:
        return
    assert 1 <= loaded.timeout <= values.LONGEST_WAIT_S
    assert loaded.port_range
    tree = files.toml(data)
    if not loaded.left_out and tree.get("version", 1) == 1:
        _schema("settings")(tree)
    os.makedirs(f"{place()}/home/.config/mingle", exist_ok=True)
    written("home/.config/mingle/mingle.toml", data)
    documented(lambda: settings.load({"HOME": f"{place()}/home"}, {}, system_file=f"{place()}/none"), SETTINGS)


def job_file(data: bytes) -> None:
    """Check that a job has directives of one line each for each scheduler, or is refused; the schema allows it too."""
    try:
        tree = files.toml(data)
    except ValueError:
        return
    described = documented(
        lambda: script.describe({"command": ()}, ("train.py",) * ("command" not in tree), spec=tree), USAGE
    )
    if described is None:
        return
    _schema("job")(json.loads(json.dumps(tree)))
    assert described.nodes >= 1
    for row in directives.TABLE:
        found = documented(functools.partial(directives.directives, row, described), USAGE)
        for directive in found or ():
            assert "\n" not in directive.text
            assert "\r" not in directive.text
    for argv in (described.command, described.starter):
        with suppress(MingleError):
            _is_argv(script.quote_argv(argv) if argv else "", argv)


def _is_argv(text: str, argv: Sequence[str]) -> None:
    """Check that a text of bash without $'…' has these words."""
    if "$'" not in text:
        assert shlex.split(text) == list(argv)


@functools.cache
def _schema(name: str) -> Callable[[object], object]:
    import fastjsonschema  # where pip has installed the tests' extra

    return fastjsonschema.compile(SCHEMAS[name]())


# The variables of schedulers that name a file: here they have its content.
_FILES = ("PBS_NODEFILE", "PBS_GPUFILE", "LSB_DJOB_HOSTFILE", "OAR_NODEFILE", "PE_HOSTFILE", "SLURM_HOSTFILE")


def environment(data: bytes) -> dict[str, str]:
    """Return an environment in which the variables that name files name such files."""
    found = variables(data)
    for name in _FILES:
        if name in found:
            found[name] = written(name, os.fsencode(found[name]))
    return found


def scheduler(data: bytes) -> None:
    """Check that an environment gives consistent facts, the same each time, or exit code 65."""
    environ = environment(data)
    facts = documented(lambda: detect.detect(environ, "node1"), FACTS)
    if facts is None:
        return
    assert facts == detect.detect(environ, "node1")
    assert facts.nodes is None or 1 <= facts.nodes <= MOST_NODES
    assert all(map(addresses.is_hostname, facts.hosts))
    assert len(facts.hosts) in (0, facts.nodes)
    assert len(facts.tasks_per_node) in (0, facts.nodes)
    assert facts.job_id is None or (0 < len(facts.job_id) <= 511 and facts.job_id.isprintable())
    assert facts.step.isprintable()
    assert environ.get("PBS_JOBCOOKIE", "\0") not in repr(facts) or facts.cookie is None
    documented(lambda: starters._component_slots(environ), FACTS)
    if facts.hosts:
        its = starters.Allocation(facts.hosts, (1,) * len(facts.hosts), environ=environ)
        documented(lambda: starters._gpus(its, 1), USAGE)
        assert starters._slots_in_order(its).keys() == set(facts.hosts)


def request(data: bytes) -> None:
    """Check that an environment, with settings in it, gives a member's request, or exit code 64, 65 or 78.

    A fingerprint of it is one short line.
    """
    environ = environment(data)
    documented(lambda: agent.Task.find(agent.Options.parse([]), environ), USAGE)
    spec = documented(lambda: job.member_spec(environ, {}), USAGE, FACTS, SETTINGS)
    if spec is None:
        return
    assert spec.attempt.id
    assert spec.nodes is None or 1 <= spec.nodes <= MOST_NODES
    assert spec.rank is None or 0 <= spec.rank < (spec.nodes or MOST_NODES)
    assert spec.slots >= 1
    assert 0 < len(spec.attempt.group6) < 40
    assert (devices.visible_gpus(environ, place()) or 0) >= 0
    named = fingerprint.fingerprint_environment(fingerprint.FingerprintRequest(environ))
    text = fingerprint.dump_fingerprint(named)
    assert len(text) <= fingerprint.LONGEST
    assert text.isprintable()


# Files and reports in JSON.


def run_files(data: bytes) -> None:
    """Check that a run's file can be shown, and written again the same, or is left out with a line that says so."""
    runs = f"{place()}/runs"
    os.makedirs(runs, mode=0o700, exist_ok=True)
    written("runs/one.json", data)
    notes: list[str] = []
    for run in status.read_runs(runs, notes.append):
        again = parse(status.RunStatus, json.loads(values.to_json(run.body())))
        assert again == run
        lines = jobs.run_page(run)
        assert all(line.isprintable() for line in lines), lines
        assert all(line.isprintable() for line in jobs._table([run]))
        values.to_json(jobs.whole_run_row(run))
    assert all("left out" in note for note in notes)


def check(data: bytes) -> None:
    """Check that there is a report as a table and as JSON, with the page's data, whatever hosts say.

    A line is one host's facts, what it found, and what it counted, each a JSON object, between tabs.
    """
    hosts: list[report.Host] = []
    found: list[dict[int, Any]] = [{}, {}]
    for number, line in enumerate(data.split(b"\n")[:4]):
        try:
            facts, *others = [decode(part) for part in line.split(b"\t")[:3]]
            hosts.append(report.parse_report_host(f"node{number + 1}", facts))
        except WireError:
            hosts.append(report.Host(f"node{number + 1}", missing="no answer"))
            continue
        for kind, body in zip(found, others, strict=False):
            kind[number] = body
    here = [number for number, host in enumerate(hosts) if host.missing is None]
    known = [hosts[number] for number in here]
    shared = rules.shared_networks(known)
    whole = session.assemble_report(hosts, here, shared, found[0], found[1], 0.0, dict.fromkeys(here, 1.0))
    judged = rules.judge(whole)
    assert set(judged.exclude) <= {host.name for host in hosts}
    assert judged.status in (0, 69, 71, 76)
    assert all(line.isprintable() for line in report.table_lines(judged))
    _schema("check")(json.loads(json.dumps(judged.to_json())))
    json.dumps(report._page_data(judged, report._racks([host.name for host in hosts])))


def fingerprints(data: bytes) -> None:
    """Check that what members say of their nodes is compared, whatever it is, and can be shown."""
    members = []
    for number, line in enumerate(data.decode("utf-8", "replace").split("\n")[:8]):
        if len(line) <= fingerprint.LONGEST and line.isprintable():
            members.append(differences.Compared(f"node{number}", line, (0.0, float(len(line))), line))
            parts = fingerprint.load_fingerprint(line)
            text = fingerprint.dump_fingerprint(parts)
            assert len(text) <= fingerprint.LONGEST
            assert text.isprintable()
    for asks_rdma in (False, True):
        found = differences.compare_members(members, asks_rdma=asks_rdma)
        assert all(line.isprintable() for line in differences.finding_lines(found))
        assert {host for one in found for host in one.hosts} <= {one.host for one in members}


def rollout(data: bytes) -> None:
    """Check that the nodes' reports, as clush prints them, are compared or refused, and can be shown."""
    found = documented(lambda: verify.compare_reports(data.decode(errors="replace"), ["node1", "node2"]), USAGE)
    for finding in found or ():
        assert all(text.isprintable() for text in finding[:3])


# Text of and for shells and programs.


def exports(data: bytes) -> None:
    """Check that a shell, by its own rules, reads each variable's value, and nothing else."""
    given = variables(data)
    for name in shells.SHELLS:
        text = documented(functools.partial(shells.success, name, given, ("MASTER_ADDR",)), USAGE)
        if text is None:
            continue
        left = [] if "MASTER_ADDR" in given else ["MASTER_ADDR"]
        if shells.SHELLS[name].success is shells._sh:
            assert _sh(text) == ([*left, *given], given), text
        elif name == "json":
            assert json.loads(text) == {**dict.fromkeys(left), **given}
        elif name == "fish":
            assert _fish(text) == given
        elif name == "dotenv":
            assert dict(line.split("=", 1) for line in text.split("\n")[:-1]) == given
        elif name == "taskprolog":
            lines = [line.removeprefix("export ") for line in text.split("\n")[:-1] if line.startswith("export ")]
            assert dict(line.split("=", 1) for line in lines) == given
        elif name == "csh":
            assert all(len(os.fsencode(line)) <= shells.LONGEST_CSH_LINE_BYTES for line in text.split("\n"))
            assert text.count("\n") == len(given) + len(left)


def _sh(text: str) -> tuple[list[str], Mapping[str, str]]:
    """Read `eval unset A B && { export A='…'; … } || …`: the names that are removed, and the variables."""
    words = shlex.split(text)
    if "&&" not in words:
        assert words[0] == "unset"
        return [word.rstrip(";") for word in words[1:]], {}
    at, end = words.index("&&"), words.index("||")
    assert (*words[:2], words[at + 1], words[end - 1]) == ("eval", "unset", "{", "}")
    rest = words[at + 2 : end - 1]
    assert rest[::2] == ["export"] * (len(rest) // 2)
    pairs = [word.partition("=") for word in rest[1::2]]
    assert all(value.endswith(";") for *_, value in pairs)
    return words[2:at], {name: value[:-1] for name, _, value in pairs}


def _fish(text: str) -> dict[str, str]:
    """Read `set -gx NAME '…';` with fish's two escapes."""
    found, at = {}, 0
    while (at := text.find("set -gx ", at)) >= 0:
        name, _, rest = text[at + 8 :].partition(" '")
        value, place = "", 0
        while rest[place] != "'":
            place += rest[place] == "\\" and rest[place + 1] in "\\'"
            value += rest[place]
            place += 1
        assert rest[place + 1] == ";"
        found[name] = value
        at += 8 + len(name) + 2 + place
    return found


def command_line(data: bytes) -> None:
    """Read a user's words, between NULs; what is read as options is written as the same options."""
    words = tuple(os.fsdecode(word) for word in data.split(b"\0"))
    if (read := settings.split_call(words)) is not None:
        options, rest = read
        assert len(rest) <= len(words)
        again = settings.split_call(settings.option_arguments(options))
        assert again == (options, ())
        of_settings = {name: value for name, value in options.items() if name in {*settings.BY_NAME, "no_strict"}}
        documented(lambda: settings.load({}, of_settings, system_file=f"{place()}/none"), USAGE)
    launcher, end = launchers.find(words)
    if launcher is not None:
        assert 0 < end <= len(words)
        given = launchers.parse_options(words[end:], launcher.flags or ())
        documented(lambda: launchers.check_options(launcher.name, given, 2, 1), USAGE)
        documented(lambda: launchers.check_processes(launcher.name, words[end:], 2), USAGE)
    read_as = documented(lambda: script.read_command(script._checked(words), None, "torchrun"), USAGE)
    if read_as is not None:
        documented(lambda: script.check_nodes(read_as, 2), USAGE)
        with suppress(MingleError):
            _is_argv(script.quote_argv(words), words)
    documented(lambda: agent.parse_addresses(words[0]), USAGE)
    for text in words[:4]:
        with suppress(MingleError):
            assert values.SHORTEST_WAIT_S <= values.seconds(text) <= values.LONGEST_WAIT_S
        with suppress(MingleError):
            host, port = values.endpoint(text)
            assert host
            assert port is None or 0 < port < 65536


def job_script(data: bytes) -> None:
    """Check that traps are on lines of the script, and a fixed script has none; one that is unsure is unchanged."""
    text = data.decode(errors="surrogateescape")
    found = lint.lint_script(text)
    lines = text.count("\n") + 1
    assert all(1 <= finding.line <= lines for finding in found)
    assert found == sorted(found)
    fixed = rewrite.fix_script(text)
    assert fixed.text == text or not fixed.unsure
    assert not found or fixed.unsure or fixed.text != text
    if fixed.text != text:
        assert not lint.lint_script(fixed.text)
        assert rewrite.fix_script(fixed.text) == rewrite.Fixed(fixed.text)
        assert "mingle" in fixed.text
        assert rewrite._GONE not in fixed.text


def output(data: bytes) -> None:
    """Check that what a command wrote last has one line that ended it, and can be shown."""
    tail = data.decode(errors="replace")
    line = command.root_exception(tail)
    assert "\n" not in line
    cause = attempt.Cause("ended", "node1", 0, 1.0, 1, tail=tail[-8192:], exception=line[:400])
    assert cause.likeness == cause._replace(host="node2").likeness
    text = attempt.event_text("failed", {**cause._asdict(), "attempt": 0}) or ""
    assert all(shown.isprintable() for shown in text.split("\n"))
    assert len(text) <= attempt.MOST_LINES * (attempt.LONGEST_LINE + 3) + LONGEST
    assert all(shown.isprintable() for shown in attempt.stacks_text("node1", 0, tail).split("\n"))


class Target(NamedTuple):
    """A function that takes any bytes, and words that its inputs have."""

    call: Callable[[bytes], None]
    words: Sequence[str] = ()


_JSON = ("{}", "[]", "null", "true", "false", '""', "1e999", "-1", "\\ud800", "0", "9" * 20)
_SCRIPT = (
    "#SBATCH --nodes=2\n", "#SBATCH --ntasks-per-node=8\n", "#PBS -l select=2:mpiprocs=4\n", "srun ", "mpirun ", "ssh ",
    "torchrun ", "accelerate launch ", "deepspeed ", "python train.py", "ray start --head", "--rdzv-endpoint=",
    "<<EOF\n", "MASTER_ADDR=", "MASTER_PORT=29500", "$(hostname)", "${", "$((", "`", "for h in ", "; do ", "done",
    "if ", "; then ", "\\\n", "bash -c '", "export ", "scontrol show hostnames ", "--nnodes=2 ",
    "--node_rank=$SLURM_NODEID ", "function f {", "case ", " in ", ";;", "esac", "&&", "||", "<<<",
    "apptainer exec --nv ", "NCCL_SOCKET_IFNAME=eth0", "sbatch <<'E'\n",
)  # fmt: skip
_SCHEDULERS = sorted(
    {name for table in (detect.LAUNCHERS, detect.MANAGERS, detect.PLATFORMS) for row in table for name in row.marks}
)
_OF_SLURM = """JOB_NODELIST STEP_ID STEP_NODELIST STEP_NUM_NODES STEP_NUM_TASKS STEP_TASKS_PER_NODE TASKS_PER_NODE
NODEID PROCID LOCALID NTASKS HET_SIZE JOB_ID_HET_GROUP_0 JOB_NODELIST_HET_GROUP_0 GPUS_ON_NODE GPUS DISTRIBUTION
JOB_NUM_NODES RESTART_COUNT TOPOLOGY_ADDR STEP_GPUS"""
_OF_OTHERS = """SLURMD_NODENAME PBS_JOBCOOKIE PBS_TASKNUM PBS_NODENUM NCPUS LSB_MCPU_HOSTS LSB_JOBINDEX NHOSTS NSLOTS
FLUX_JOB_NNODES FLUX_JOB_SIZE PMI_SIZE OMPI_COMM_WORLD_SIZE PALS_NODEID MPI_LOCALRANKID MPI_LOCALNRANKS NODE_RANK NNODES
RANK WORLD_SIZE LOCAL_RANK HOSTNAME"""
_NAMES = [f"{name}=" for name in (*_SCHEDULERS, *_FILES, *settings.NOT_SETTINGS, *_OF_OTHERS.split())]
_NAMES += [f"SLURM_{name}=" for name in _OF_SLURM.split()]
_OPTIONS = sorted(
    {*settings.OPTIONS, *settings.FLAGS, *launchers.NODES, "torchrun", "python", "-m", "--", "srun", "mingle", "exec"}
)
TARGETS: dict[str, Target] = {
    **{name: Target(call, (*_JSON, *(f'"{key}":' for key in peers.WORDS))) for name, call in peers.TARGETS.items()},
    "host_list": Target(host_list, ("[", "]", "[1-3,07]", "(x3)", "n[01-10]")),
    "node_file": Target(node_file),
    "hosts_file": Target(hosts_file, ("BEGIN", "END", "\n", ", after a newline of its own")),
    "configuration": Target(
        configuration, ("Include ", "Prolog=", "SLURMD_OPTIONS=", "PBS_HOME=", "KillWait=", "\\\n")
    ),
    "settings_file": Target(settings_file, [f"{row.key} = " for row in settings.TABLE if row.key]),
    "job_file": Target(job_file, [f"{name} = " for name in ("command", *FIELDS)]),
    "scheduler": Target(scheduler, _NAMES),
    "request": Target(request, (*_NAMES, *(f"{row.variable}=" for row in settings.TABLE if row.variable))),
    "run_files": Target(run_files, (*_JSON, *(f'"{key}":' for key in status.RunStatus._fields))),
    "check": Target(check, (*_JSON, "\t", *(f'"{key}":' for key in (*report._Facts._fields, *report.Counted._fields)))),
    "fingerprints": Target(fingerprints, ("=", "%20", *(f"{name}=" for name in values.FIELDS), *differences.PARTS)),
    "rollout": Target(rollout, (*_JSON, 'node1: {"hooks":', '"problems":', '"chain":', '"slurm.conf":')),
    "exports": Target(exports),
    "command_line": Target(command_line, _OPTIONS),
    "job_script": Target(job_script, _SCRIPT),
    "output": Target(
        output, ("Traceback (most recent call last):", "ChildFailedError", "  rank      : 0", "Original ")
    ),
}
