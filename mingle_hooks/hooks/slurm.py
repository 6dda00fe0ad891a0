"""Slurm's hooks, where they go, and the lines of slurm.conf that name them."""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import glob
import os
import re
import stat
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from mingle_hooks.errors import ConflictError, FactsError, UsageError, reason
from mingle_hooks.files import RUN_ROOT
from mingle_hooks.hooks import files, plan as plans
from mingle_hooks.hooks.files import DROP_INS, KEYS, SLURM_DIRECTORY, Chain, Entry, Site, is_glob, render_hook
from mingle_hooks.hooks.plan import EVIL, Draft, Finding, Hook, Line, Plan, Run, Stub, Target, Where, by_name
from mingle_hooks.settings import SYSTEM_FILE
from mingle_hooks.values import NONE, number

# How slurmd was started, or will be: the configuration that it reads depends on it.

# What Debian's and Red Hat's units read: SLURMD_OPTIONS="--conf-server ctl:6817".
_FILES = ("/etc/default/slurmd", "/etc/sysconfig/slurmd")
_ASSIGNED = re.compile(r"^\s*SLURMD_OPTIONS\s*=\s*(.*)$", re.MULTILINE)
_MOST_BYTES = 16 << 20  # slurm.conf with 10,000 node lines is 1 MB


def slurmd_option(root: str, name: str) -> str:
    """Return the value of a slurmd option, empty if it is not set; if it is repeated, the last one counts.

    Options are in the environment file of its unit, and on this host in the command line of the slurmd that runs.
    """
    texts = [text for path in _FILES for text in _ASSIGNED.findall(_text(files.below_root(root, path)))]
    given = [text.strip().strip("\"'") for text in texts]
    for path in () if root else sorted(glob.glob("/proc/[0-9]*/comm")):
        if _text(path) == "slurmd\n" and _is_roots_slurmd(process := os.path.dirname(path)):
            given.append(_text(f"{process}/cmdline").replace("\0", " "))
            break
    found = re.findall(rf"(?:^|\s){name}(?:=|\s*)(\S+)", " ".join(given))
    return found[-1] if found else ""


def _is_roots_slurmd(process: str) -> bool:
    """Return whether it is root's own: anybody can give that name to a program, or to a link to root's sudo."""
    with contextlib.suppress(OSError):
        program = os.path.basename(os.readlink(f"{process}/exe"))  # slurmd-wlm in Debian
        return program.startswith("slurmd") and os.stat(process).st_uid in {0, files.owner_of()}
    return False


def _text(path: str) -> str:
    """Return the text of a file; nothing where it cannot be read."""
    with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
        return file.read(_MOST_BYTES)
    return ""


# The lines of slurm.conf that concern hooks: read, never written.

# Where slurm.conf is: from packages, from source builds, on old Debian, and with a configless slurmd.
CONFIGLESS = "/run/slurm/conf/slurm.conf"
PLACES = ("/etc/slurm/slurm.conf", "/usr/local/etc/slurm.conf", "/etc/slurm-llnl/slurm.conf", CONFIGLESS)
_DEEPEST = 8  # files that include files
_LINE = re.compile(r"(Include\s+|(?P<key>[A-Za-z]+)\s*[-+*/]?=\s*)(?P<value>.*)", re.IGNORECASE)


class SlurmConf(NamedTuple):
    """Keys in lower case, each with all of its values in order."""

    path: str
    values: Mapping[str, list[str]] = MappingProxyType({})

    def all(self, key: str) -> tuple[str, ...]:
        """Return the values of a key, of which old versions of Slurm take the last only."""
        return tuple(self.values.get(key.lower(), ()))

    def one(self, key: str) -> str:
        """Return the last value of a key, or an empty text."""
        return "".join(self.all(key)[-1:])

    def pairs(self, keys: Iterable[str]) -> list[tuple[str, str]]:
        """Return these keys, each with each of its values."""
        return [(key, value) for key in keys for value in self.all(key)]


NO_CONF = SlurmConf(PLACES[0])  # it says nothing, as there is none


def _named_conf(root: str, path: str | None) -> str:
    """Return the path that was typed, or that Slurm was told; empty without any."""
    return path or ("" if root else os.environ.get("SLURM_CONF", "")) or slurmd_option(root, "-f")


def conf_places(where: Where) -> tuple[str, ...]:
    """Return all paths at which slurm.conf is looked for."""
    return tuple(filter(None, (_named_conf(where.root, where.slurm_conf), *PLACES)))


def find_slurm_conf(root: str, path: str | None = None) -> SlurmConf | None:
    """Read slurm.conf at `path`, or where Slurm looks for it, below root. None where there is none at all.

    Raises FactsError where it cannot be read.
    """
    named = _named_conf(root, path)
    # slurmd with --conf-server reads no file of the node's own.
    places = (CONFIGLESS,) if slurmd_option(root, "--conf-server") else PLACES
    for place in (named,) if named else places:
        if named or os.path.exists(files.below_root(root, place)):
            values: dict[str, list[str]] = {}
            _read(root, place, values, 0)
            return SlurmConf(place, values)
    return None


def _read(root: str, path: str, values: dict[str, list[str]], depth: int) -> None:
    """Add the values of a file and of the files that it includes."""
    try:
        mode = os.stat(place := files.below_root(root, path)).st_mode
        if not stat.S_ISREG(mode) or mode & stat.S_IWOTH:  # opening a FIFO would wait for a writer
            expected = "a regular file that not everybody can write, as root runs what it names"
            raise FactsError(expected, f"{place} with mode {stat.filemode(mode)}", f"chmod o-w {place}")
        with open(place, encoding="utf-8", errors="replace") as file:
            text = file.read(_MOST_BYTES)
    except (OSError, ValueError) as wrong:  # a name with a NUL
        raise FactsError("a readable slurm.conf", f"{root}{path}: {reason(wrong)}", "--slurm-conf PATH") from None
    uncommented = re.sub(r"(?<!\\)#.*", "", text)  # first, as no comment goes on in the next line
    for line in re.sub(r"\\[^\S\n]*\n", "", uncommented).splitlines():
        match = _LINE.fullmatch(line.strip())
        if match is None:
            continue
        if match["key"] is not None:
            values.setdefault(match["key"].lower(), []).append(match["value"].strip("\"'"))
        elif depth < _DEEPEST and "*" not in match["value"]:
            _read(root, os.path.join(os.path.dirname(path), _filled(match["value"], path, values)), values, depth + 1)


def _filled(name: str, path: str, values: Mapping[str, list[str]]) -> str:
    """Return an included file's name with the cluster's name for %c, the only % that slurm.conf(5) defines."""
    if "%" not in name:
        return name
    cluster = "".join(values.get("clustername", ())[-1:])
    if not cluster or "%" in name.replace("%c", ""):
        raise FactsError("%c, below the line ClusterName=", f"Include {name} in {path}", "--slurm-conf PATH")
    return name.replace("%c", cluster)


# What Slurm runs with at the moment, whatever the file says by now: for commands, never for hooks.

_COMMAND_S = 5.0
_SHOWN_LINE = re.compile(r"(?P<key>[A-Za-z_]+)(\[[0-9]+\])?\s*=\s*(?P<value>.*)")
_VERSION = re.compile(r"slurm\S* ([0-9]{1,2})\.([0-9]{1,2})\b")


def running_config(where: Where) -> SlurmConf | None:
    """Return what the controller runs with; None below a root, and where no controller answers in time."""
    text = _output_of(where, "scontrol", "show", "config")
    return parse_config(text) if text else None


def known_config(where: Where) -> SlurmConf:
    """Return slurm.conf; without one, what the controller runs with; else NO_CONF.

    Raises FactsError for a file that cannot be read.
    """
    return find_slurm_conf(where.root, where.slurm_conf) or running_config(where) or NO_CONF


def slurm_version(where: Where) -> tuple[int, int] | None:
    """Return Slurm's version: the one that was given, or the one of this host's programs if there is no root."""
    if where.slurm_version is not None:
        return where.slurm_version
    match = _VERSION.match(_output_of(where, "slurmd", "-V") or _output_of(where, "scontrol", "-V"))
    return (int(match[1]), int(match[2])) if match else None


def slurm_nodes(where: Where) -> tuple[str, ...]:
    """Return the nodes that the controller knows; none where it does not answer."""
    return tuple(sorted(set(_output_of(where, "sinfo", "--noheader", "--Node", "--format=%N").split())))


def parse_config(text: str) -> SlurmConf:
    """Return the answer to `scontrol show config`; later versions number the values of one key."""
    values: dict[str, list[str]] = {}
    for match in filter(None, map(_SHOWN_LINE.fullmatch, map(str.strip, text.splitlines()))):
        if match["value"] not in {"", "(null)"}:
            values.setdefault(match["key"].lower(), []).append(match["value"])
    return SlurmConf("what slurmctld runs with", values)


@functools.cache  # one run for each command, however many parts need it
def _output_of(where: Where, program: str, *arguments: str) -> str:
    """Return what a program of Slurm's prints; nothing below a root, and where it fails or takes too long."""
    path = plans.program_path(program)
    if where.root or not path:
        return ""
    environ = os.environ | ({"SLURM_CONF": where.slurm_conf} if where.slurm_conf else {})
    try:
        done = subprocess.run(
            [path, *arguments], env=environ, stdin=subprocess.DEVNULL, capture_output=True, errors="replace",
            timeout=_COMMAND_S, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout


# Slurm's hooks beyond their files: whether Slurm runs them, whether they may be removed, and how to simulate them.

# What a user, or another scheduler's leftovers, can put there.
_HOSTILE = {
    "a hostile job id": {"SLURM_JOB_ID": "7/../../etc;" + EVIL},
    "hostile host lists": {"SLURM_JOB_NODELIST": EVIL, "SLURM_STEP_NODELIST": "n[1-$(id)]", "SLURM_NODELIST": EVIL},
    "hostile numbers": {"SLURM_PROCID": "a[$(id)]", "SLURM_NODEID": "08", "SLURM_JOB_UID": "-1", "SLURM_NNODES": EVIL},
    "hostile texts": {"SLURM_JOB_COMMENT": EVIL, "SLURM_JOB_NAME": EVIL, "MASTER_ADDR": EVIL, "IFS": "0123456789"},
}


def slurm_findings(plan: Plan, where: Where) -> Iterator[Finding]:
    """Find where slurm.conf differs from the plan, and what drains nodes or fails tasks. Raises FactsError."""
    conf, now = find_slurm_conf(where.root, where.slurm_conf), running_config(where)
    if conf is not None and now is not None:
        yield from _stale(conf, now, several_lines=takes_several_lines(where))
    if (known := conf or now) is not None:
        for line in plan.lines:
            if not line.is_there:
                yield Finding(plan.where, f"does not say {line.text}", f"this line there: {line.text}")
        yield from (*_task_prolog(plan, known), *_globs(plan.root, known), *_timeouts(known))


def refuse_removal(where: Where, entries: tuple[Entry, ...]) -> None:
    """Raise ConflictError while slurm.conf runs one of the files; FactsError where none can be read."""
    conf = known_config(where)
    if not entries:
        return
    if conf is NO_CONF:
        expected = "a slurm.conf, or a controller that answers, to check that Slurm no longer runs mingle's files"
        raise FactsError(expected, "neither", "--slurm-conf with a copy of slurm.conf as it is on the controller")
    paths = {entry.path: entry for entry in entries}
    again = "then scontrol reconfigure, then this command again"
    for key, value in conf.pairs(KEYS):
        if value in paths:
            expected, own = f"a {conf.path} that does not name the files to remove", paths[value].chain
            instead = f"{key}={own}" if own else f"no {key} line"
            raise ConflictError(expected, f"{key}={value}", f"{instead} instead, {again}")
        if _would_be_empty(where.root, value, set(paths)):
            expected = f"programs that {key}={value} still matches afterwards (or it drains every node)"
            raise ConflictError(expected, "only mingle's", f"no {key} line in {conf.path}, {again}")


def task_prologs(root: str) -> str:
    """Return the directory of TaskProlog programs that a site may have; empty where it has none."""
    return files.TASK_PROLOGS if os.path.isdir(files.below_root(root, files.TASK_PROLOGS)) else ""


# The hooks that Slurm may still run, and the templates of their stubs. A TaskProlog in a container needs the mounts.
_STUBS = {
    **dict.fromkeys(("prolog", "epilog", "taskprolog", "taskprolog-all"), "slurm/stub.sh.j2"),
    "enroot-mounts": "slurm/enroot-mounts.fstab.j2",
}


def stub_files(where: Where, entries: tuple[Entry, ...]) -> dict[str, Stub]:
    """Return path -> the stub that runs the site's own alone; none in an image, where no slurmd runs.

    slurm.conf no longer names the files, else the removal is refused. But Slurm uses what it last read, and a slurmd
    may read it later than slurmctld.
    """
    now = running_config(where)
    is_silent = now is None and _has_controller(where)
    if where.root and now is None and not is_silent:
        return {}
    ours, stubs = {entry.path for entry in entries}, {}
    for entry in entries:
        if entry.name in _STUBS:
            hook = SLURM_HOOKS[entry.name]._replace(template=_STUBS[entry.name])
            own = task_prologs(where.root) if hook.is_users else ""
            text = render_hook(hook, Site(), Chain(entry.chain, own))
            is_run = is_silent or (now is not None and _is_run(where.root, now, entry.path, ours))
            stubs[entry.path] = Stub(text, is_run)
    return stubs


def clear_jobs(where: Where) -> list[str]:
    """Clean up after ended jobs, as Slurm no longer runs the Epilog that would; return what is left."""
    if where.root or not os.path.isdir(RUN_ROOT):
        return []
    found = {name.removesuffix(".stamp") for name in os.listdir(RUN_ROOT)}
    # The controller knows a job before its Prolog runs, so ask it second; without an answer all may still run.
    answer = _output_of(where, "squeue", "--all", "--format=%A") if found else ""
    text = render_hook(SLURM_HOOKS["job"], Site())
    for job in found - set(answer.split()) if answer else ():
        place = f"{RUN_ROOT}/{job}"
        user = os.lstat(place).st_uid if os.path.lexists(place) else 0
        environ = {"SLURM_JOB_ID": job, "SLURM_JOB_UID": str(user)}
        subprocess.run(["/bin/sh", "-c", text, "job", "epilog"], env=environ, stdin=subprocess.DEVNULL, check=False)
    left = sorted(os.listdir(RUN_ROOT))
    with contextlib.suppress(OSError):  # something is in it
        os.rmdir(RUN_ROOT)
    return [f"{RUN_ROOT}/{name}" for name in left]


def _is_run(root: str, conf: SlurmConf, path: str, ours: set[str]) -> bool:
    return any(
        value == path or (_would_be_empty(root, value, ours) and fnmatch.fnmatch(path, value))
        for _, value in conf.pairs(KEYS)
    )


def hook_runs(name: str) -> Iterator[Run]:
    """Yield how a hook is run: with recorded variables, and with hostile ones."""
    last: dict[str, str] = {}
    for label, text in plans.recorded(name):
        last = dict(line.partition("=")[::2] for line in text.splitlines())
        yield label, (), last
    yield "no variables at all", (), {}
    for label, spoilt in _HOSTILE.items():
        yield label, (), last | spoilt


def _task_prolog(plan: Plan, conf: SlurmConf) -> Iterator[Finding]:
    """Find our TaskProlog in slurm.conf although the settings for containers rule it out."""
    named = conf.one("TaskProlog")
    if not any(line.text.startswith("TaskProlog=") for line in plan.lines):
        own = next((file.entry.chain for file in plan.files if file.entry.name == "taskprolog-all"), "")
        if named in {file.entry.path for file in plan.files}:
            remedy = f"TaskProlog={own} instead" if own else "no TaskProlog line"
            yield Finding(conf.path, f"names TaskProlog={named}, which fails every task in a container", remedy)
        elif own and named != own:
            yield Finding(conf.path, f"does not name the site's own TaskProlog={own}", f"TaskProlog={own}")


def _stale(conf: SlurmConf, now: SlurmConf, *, several_lines: bool) -> Iterator[Finding]:
    """Find what Slurm still runs, though the file says otherwise."""
    for key in KEYS:
        says, runs = conf.all(key), now.all(key)
        says = says if several_lines and key != "TaskProlog" else says[-1:]
        if says != runs:
            what = f"says {key}={', '.join(says)}, and slurmctld runs with {', '.join(runs) or 'none'}"
            yield Finding(conf.path, what, "scontrol reconfigure")


def _globs(root: str, conf: SlurmConf) -> Iterator[Finding]:
    """Find what makes slurmd drain a node: a glob that matches nothing, or something that cannot be run."""
    for key, value in conf.pairs(("Prolog", "Epilog")):
        found = files.glob_matches(root, value) if is_glob(value) else [value]
        if not found:
            yield Finding(f"{key}={value}", "matches no file, which drains every node", f"no {key} line")
        for path in found:
            if not files.can_be_run(root, path):
                remedy = f"moving it out of {key}={value}, or chmod +x"
                yield Finding(path, "cannot be run, which drains every node", remedy)


def _timeouts(conf: SlurmConf) -> Iterator[Finding]:
    """Find timeouts of Slurm that are too short: root's hooks take up to 7 s (_run.sh.j2)."""
    for key in ("PrologTimeout", "EpilogTimeout", "PrologEpilogTimeout"):
        value = conf.one(key)
        if number(value, least=1, most=14) is not None:  # s: ours, and some for the site's own
            yield Finding(conf.path, f"has {key}={value} (s)", f"{key}=60, or no such line")


def _would_be_empty(root: str, value: str, ours: set[str]) -> bool:
    found = set(files.glob_matches(root, value)) if is_glob(value) else set()
    return bool(found & ours) and found <= ours


# The site's own programs that ours call.


def _own_program(draft: Draft, conf: SlurmConf, key: str, *ours: str) -> tuple[str, str]:
    """Return the site's own program for a key, and what is missing in the settings; each may be empty.

    `ours` are the paths of ours, first the one that may call it. The program is in the settings, the same on every
    node; else in slurm.conf, while that names the site's; else in what was installed here before. Raises FactsError if
    none of these has it, and if two contradict each other.
    """
    name, named = KEYS[key], conf.one(key)
    setting = draft.site.chain(name)
    theirs = "" if named in ours or is_glob(named) else named
    if setting is not None:
        program = "" if setting == NONE else setting
        if theirs and theirs != program:
            expected = f"one {key} of the site's own in {SYSTEM_FILE} and {conf.path}"
            remedy = f'{name} = "{theirs}" in [hooks], or another {key} in slurm.conf'
            raise FactsError(expected, f"{name} = {setting} and {key}={theirs}", remedy)
        return _not_ours(key, program, ours), ""
    if theirs:
        if not re.fullmatch(r"/[A-Za-z0-9_./+@-]+", theirs):
            raise FactsError("an absolute, plain path", f"{key}={theirs}", f"the whole path in {key}=")
        return _not_ours(key, theirs, ours), f'{name} = "{theirs}"'
    known = [draft.old.entries[path].chain for path in ours if path in draft.old.entries]
    if not known and (conf is NO_CONF or named == ours[0]) and not draft.where.is_preview:
        seen = f"{key}={named}, and no setting in {SYSTEM_FILE}"
        if conf is NO_CONF:
            seen = "neither slurm.conf nor a controller"
        remedy = f'{name} = "/the/path", or {name} = "none", in [hooks] of {SYSTEM_FILE}, the same on every node'
        raise FactsError(f"the site's own {key}, which mingle's calls at its end", seen, remedy)
    program = "".join(known[:1])
    return program, f'{name} = "{program or NONE}"'


def _not_ours(key: str, program: str, ours: tuple[str, ...]) -> str:
    if program in ours:
        raise FactsError(f"a {key} of the site's own", f"mingle's, {program}", f'{KEYS[key]} = "none" in [hooks]')
    return program


# Sites with pyxis: Slurm runs TaskProlog inside the container there, which has none of the host's files by itself.

# Where packages have enroot's configuration, and where its own Makefile puts it.
_ENROOT = ("/etc/enroot", "/usr/local/etc/enroot")
_PYXIS = "spank_pyxis"
# From here slurmstepd runs itself to run TaskProlog, and is loaded with the container's libraries (pyxis #163).
_NEEDS_LIBRARIES = (24, 11)


def containers(site: Site, where: Where, conf: SlurmConf) -> tuple[str, str]:
    """Return what is done for containers on this host, and where enroot's configuration is; each may be empty.

    The first is "mount", "hook" or "none"; empty where nothing is to be done.

    Raises FactsError where every task in a container would fail, and where there is no enroot for what is wanted.
    """
    enroot = next((place for place in _ENROOT if os.path.isdir(files.below_root(where.root, place))), "")
    way = site.containers
    if way != "auto":
        if way in {"mount", "hook"} and not enroot and not where.is_preview:
            raise FactsError(f"enroot's {_ENROOT[0]}", "none", 'containers = "none" in [hooks]')
        return way, enroot
    plugins = conf.one("PlugStackConfig") or f"{os.path.dirname(conf.path) or '/etc/slurm'}/plugstack.conf"
    if not _has_pyxis(where.root, plugins):
        return "mount" if enroot else "", enroot
    version = slurm_version(where)
    if enroot and version is not None and version < _NEEDS_LIBRARIES:
        return "mount", enroot
    if where.is_preview:
        return "", ""
    if not enroot:
        seen = f"no {_ENROOT[0]}, which would mount its file there"
    elif version is None:
        seen = "an unknown version of Slurm (--slurm-version)"
    else:
        shown = "{}.{:02}".format(*version)
        seen = f"Slurm {shown}, whose slurmstepd needs its own libraries there (24.11 and later)"
    hook = 'containers = "hook" in [hooks] (enroot\'s hook sets the variables, no TaskProlog does)'
    remedy = f'{hook}, or "none", or "mount" where every image has what slurmstepd needs'
    raise FactsError("a TaskProlog that runs in pyxis' containers", seen, remedy)


def _has_pyxis(root: str, path: str, depth: int = 0) -> bool:
    """Return whether a plugstack.conf, or a file that it includes, names pyxis."""
    for line in _text(files.below_root(root, path)).splitlines():
        plugin = line.partition("#")[0]
        include = re.match(r"\s*include\s+(\S+)", plugin)  # Slurm ignores what follows
        pattern = os.path.join(os.path.dirname(path), include[1]) if include and depth < _DEEPEST else ""
        included = files.glob_matches(root, pattern) if pattern else []
        if _PYXIS in plugin or any(_has_pyxis(root, each, depth + 1) for each in included):
            return True
    return False


SLURM_HOOKS = by_name(
    Hook("slurm", "job", "slurm/job.sh.j2"),
    Hook("slurm", "prolog", "slurm/wrapper.sh.j2"),
    Hook("slurm", "epilog", "slurm/wrapper.sh.j2", after="prolog"),
    Hook("slurm", "taskprolog", "slurm/taskprolog.sh.j2", is_users=True),
    Hook("slurm", "taskprolog-all", "slurm/wrapper.sh.j2", is_users=True),
    Hook("slurm", "enroot-mounts", "slurm/enroot-mounts.fstab.j2"),
    Hook("slurm", "enroot-hook", "slurm/enroot-hook.sh.j2"),
)
OLDEST = (22, 5)
# Prolog and Epilog may be named on several lines, and all are run; older versions take the last line.
_SEVERAL_LINES = (26, 5)
# In a globbed directory: after the site's own, as Slurm takes the names in reverse order.
_IN_GLOB = ("10-mingle", "10-mingle.sh", "mingle", "mingle.sh")
# What is done for containers: the hook, its path in enroot's configuration, and its mode.
_IN_ENROOT = {
    "mount": ("enroot-mounts", "mounts.d/50-mingle.fstab", 0o644),
    "hook": ("enroot-hook", "hooks.d/50-mingle.sh", 0o755),
}


def plan_slurm(site: Site, where: Where) -> Plan:
    """Return what to write below the root and what slurm.conf should say.

    The hooks are the same for every version from 22.05 on. Raises FactsError, PlaceError, and
    UsageError for an older one.
    """
    if where.slurm_version is not None and where.slurm_version < OLDEST:
        shown = "{}.{:02}".format(*where.slurm_version)
        raise UsageError("Slurm 22.05 or later", shown, "mingle env in the job scripts")
    draft, conf = Draft(site, where), known_config(where)
    draft.add(SLURM_HOOKS["job"], f"{SLURM_DIRECTORY}/job")
    # What the settings should say before slurm.conf names the files, as a new node has nothing else to go by.
    missing = [_add_root_hook(draft, conf, key) for key in ("Prolog", "Epilog")]
    way, enroot = containers(site, where, conf)
    missing.append(_add_task_hooks(draft, conf, is_named=way in {"", "mount"}))
    draft.lines.append(_flags(conf))
    if way in _IN_ENROOT:
        name, path, mode = _IN_ENROOT[way]
        draft.add(SLURM_HOOKS[name], f"{enroot or _ENROOT[0]}/{path}", mode=mode)
    cause = f"a node that is new or reimaged cannot know this: add to [hooks] of {SYSTEM_FILE}, on every node"
    draft.notes += (*_notes(site, where.root), *(f"{cause}: {line}" for line in missing if line))
    return draft.plan("slurm", conf.path)


def _add_root_hook(draft: Draft, conf: SlurmConf, key: str) -> str:
    """Add the file and its line of slurm.conf; return what the settings should say."""
    name = KEYS[key]
    hook, path, values = SLURM_HOOKS[name], f"{SLURM_DIRECTORY}/{name}", conf.all(key)
    others = [value for value in values if value != path]
    is_glob_alone = len(others) == 1 and is_glob(others[0])
    place, named, is_there = path, path, bool(values) and not others
    if others and not is_glob_alone and takes_several_lines(draft.where):
        chosen, is_there = draft.site.chain(name), path in values
        program = "" if chosen in {None, NONE, *others} else _not_ours(key, str(chosen), (path,))
        missing = "" if chosen else f'{name} = "{NONE}"'
    elif len(others) > 1:
        remedy = f"one line {key}=, with a glob such as /etc/slurm/{name}.d/* for several programs"
        raise FactsError(f"at most one {key} line in {conf.path}", ", ".join(others), remedy)
    else:
        program, missing = _own_program(draft, conf, key, path)
        if is_glob_alone:
            place, named, is_there, missing = _place_in(others[0]), others[0], True, ""
    draft.add(hook, place, Chain(program))
    draft.lines.append(Line(f"{key}={named}", is_there=is_there))
    return missing


def takes_several_lines(where: Where) -> bool:
    """Return whether this Slurm runs the programs of all Prolog and Epilog lines."""
    version = slurm_version(where)
    return version is not None and version >= _SEVERAL_LINES


def _place_in(glob: str) -> str:
    """Return a path that a glob of slurm.conf matches."""
    directory, pattern = os.path.split(glob)
    for name in _IN_GLOB:
        if fnmatch.fnmatchcase(name, pattern) and not is_glob(directory):
            return f"{directory}/{name}"
    raise FactsError(f"a glob that matches one of {', '.join(_IN_GLOB)}", glob, "a glob such as /etc/slurm/prolog.d/*")


def _add_task_hooks(draft: Draft, conf: SlurmConf, *, is_named: bool) -> str:
    """Add the TaskProlog and the wrapper that runs the site's own after it, which is there on every node.

    Add the line of slurm.conf if that may name one; return what the settings should say.
    """
    alone, path = f"{SLURM_DIRECTORY}/taskprolog", f"{SLURM_DIRECTORY}/taskprolog-all"
    program, missing = _own_program(draft, conf, "TaskProlog", path, alone)
    chain, now = Chain(program, task_prologs(draft.root)), conf.one("TaskProlog")
    draft.add(SLURM_HOOKS["taskprolog"], alone)
    draft.add(SLURM_HOOKS["taskprolog-all"], path, chain)
    has_drop_ins = os.path.isdir(files.below_root(draft.root, f"{DROP_INS}/taskprolog.d"))
    line = path if program or chain.directory or now == path or has_drop_ins else alone
    if is_named:
        draft.lines.append(Line(f"TaskProlog={line}", is_there=now == line))
    return missing


def _has_controller(where: Where) -> bool:
    """Return whether there should be a controller, though it may not answer."""
    return not where.root and bool(plans.program_path("scontrol"))


def _flags(conf: SlurmConf) -> Line:
    """Return PrologFlags with Alloc: the key is then there on every node before the first step anywhere."""
    flags = [flag for flag in conf.one("PrologFlags").split(",") if flag]
    # X11 and Contain imply Alloc (slurm.conf(5)).
    is_there = bool({flag.lower() for flag in flags} & {"alloc", "contain", "x11"})
    return Line("PrologFlags=" + ",".join(flags if is_there else [*flags, "Alloc"]), is_there=is_there)


def _notes(site: Site, root: str) -> Iterator[str]:
    if not os.path.exists(files.below_root(root, site.key_file)):
        how = "Create it (mingle key): the same on all nodes, owned by root, mode 0400."
        yield f"{site.key_file} is missing, so jobs get no key from the hooks. {how}"
    if not root and site.interfaces and not any(os.path.exists(f"/sys/class/net/{name}") for name in site.interfaces):
        yield f"This node has no {' or '.join(site.interfaces)} (iface): its tasks get no NCCL_SOCKET_IFNAME."
    if not site.interfaces and not site.host_suffix:
        yield "No iface and no host_suffix in the settings: MASTER_ADDR is the first host's Slurm name."


TARGET = Target(
    "slurm",
    SLURM_HOOKS,
    plan_slurm,
    program="slurmd",
    version_option="-V",
    scripts=("prolog", "taskprolog", "epilog"),
    runs=hook_runs,
    findings=slurm_findings,
    refuse=refuse_removal,
    stubs=stub_files,
    clear=clear_jobs,
)
