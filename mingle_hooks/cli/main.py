"""`mingle`: run a command line, and turn errors into one line and an exit code.

Plain calls of `mingle env` and `mingle exec` do without click: join the world, show progress, and print the variables
or become the command.
"""

from __future__ import annotations

import itertools
import os
import shlex
import signal
import socket
import stat
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from types import FrameType
from typing import NamedTuple, NoReturn, TextIO

from mingle_hooks.errors import (
    LONGEST,
    MingleError,
    NotExecutableError,
    NotFoundError,
    PlaceError,
    UsageError,
    limit,
    printable,
)
from mingle_hooks.export import frameworks, launchers, variables
from mingle_hooks.export.variables import Variable
from mingle_hooks.files import fill_standard_descriptors, make_private, private_path, write_stderr, write_stdout
from mingle_hooks.job import along_path, member_spec, obstacle_to
from mingle_hooks.joining import join
from mingle_hooks.net.addresses import hostname
from mingle_hooks.rendezvous.member import MemberSpec, Progress
from mingle_hooks.rendezvous.messages import Failure, File, View
from mingle_hooks.settings import EXEC_ONLY, FLAGS, NOT_FOR_RUN, OPTIONS, option_arguments, split_call

_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StoppedError(BaseException):
    """A signal ends this process; raised so that `with` and `finally` clean up, and no `except Exception` goes on."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.exit_code = 128 + number


def _stop(number: int, _frame: FrameType | None) -> None:
    raise StoppedError(number)


def main() -> NoReturn:
    """Run this process's command line, and exit."""
    for number in _ENDS:
        # An ignored signal stays ignored, as nohup(1) needs.
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _stop)
    # While SIGCHLD is ignored, the kernel drops the status of a child. COMMAND of `mingle exec` inherits it as it is.
    if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN and sys.argv[1:2] not in (["env"], ["exec"]):
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _fill_standard_descriptors()
    sys.exit(run(sys.argv[1:]))


def _fill_standard_descriptors() -> None:
    """Open /dev/null for each closed standard stream.

    It is read-only, so that output is not lost unnoticed; the command of `mingle exec` finds the stream closed.
    """
    fill_standard_descriptors(os.O_RDONLY)
    # Python sets closed streams to None.
    sys.stdin = sys.stdin or os.fdopen(0, closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)


# What sees this process fail, srun or `mingle run`, may end rank 0 at once: rank 0 prints the reason first.
RANK_0_PRINTS_S = 0.5


def run(arguments: list[str]) -> int:
    """Return the exit code of one command line."""
    try:
        return _run(arguments)
    except MingleError as error:
        is_printed = _is_printed(error)
        if is_printed and error.repeats_rank_0:
            with suppress(StoppedError):
                time.sleep(RANK_0_PRINTS_S)
        return _fail(arguments, None if is_printed else str(error), error.exit_code)
    except StoppedError as error:
        return _fail(arguments, str(error), error.exit_code)
    except Exception as error:  # noqa: BLE001 - a bug: eval must fail too, and a report needs the traceback
        if (short := limit(error)) is not None:
            return _fail(arguments, str(short), short.exit_code)
        import traceback

        write_stderr(traceback.format_exc())
        return _fail(arguments, "this is a bug in mingle; please report it with the lines above", MingleError.exit_code)


def _is_printed(error: MingleError) -> bool:
    """Return whether the job's output has this message already, from this process, rank 0 or task 0."""
    is_by_rank_0 = error.repeats_rank_0 and _is_of_step()
    is_elsewhere = is_by_rank_0 or (error.is_about_arguments and _repeats_task_0())
    return error.is_printed or is_elsewhere


def _is_of_step() -> bool:
    """Return whether all tasks of a Slurm step share this stderr: slurmstepd reads it from a pipe and srun shows it.

    A file (`srun --error=%t`), a terminal (`srun --pty`) or a redirection is this task's own.
    """
    return "SLURM_STEP_ID" in os.environ and "SLURM_LOCALID" in os.environ and stat.S_ISFIFO(os.fstat(2).st_mode)


# Values of bash's variable `_` if no bash of this task started the process.
_STARTERS = ("", "srun", "salloc", "sbatch")


def _repeats_task_0() -> bool:
    """Return whether srun gave the same arguments to task 0 of this step, which prints the error about them.

    If slurmstepd did not start this process itself, a script may have chosen arguments for each task; `_` shows that
    `bash -c` became this process. Each component of a heterogeneous job has its own command. `srun --multi-prog` and
    `exec` in a script cannot be detected.
    """
    if os.environ.get("SLURM_PROCID", "0") == "0" or "SLURM_HET_SIZE" in os.environ or not _is_of_step():
        return False
    try:
        with open(f"/proc/{os.getppid()}/comm") as parent:
            is_direct = parent.read() == "slurmstepd\n"
    except OSError:  # hidden, as in a container
        return False
    return is_direct and os.path.basename(os.environ.get("_", "")) in _STARTERS


def _run(arguments: list[str]) -> int:
    call = read_call(arguments)
    if call is None:
        from mingle_hooks.cli import commands

        code = commands.run_click(arguments)
        return _fail(arguments, None, code) if code else 0
    options, command = call
    if arguments[0] == "run":
        from mingle_hooks.run import start

        return start.run(command, options)
    flags = Flags(*(options.pop(flag, False) is True for flag in Flags._fields))
    if command:
        return execute(command, options, flags)
    print_variables(options, flags)
    return 0


def read_call(arguments: Sequence[str]) -> tuple[dict[str, object], tuple[str, ...]] | None:
    """Return the options and flags of a plain call of `env`, `exec` or `run`, and the command of the last two.

    A plain one has only known options, with values that do not look like options; those before a command end at `--` or
    at the first argument that is no option. None means that click, which knows the same options, must parse it: help
    and mistakes too.
    """
    flags, texts = FLAGS, OPTIONS
    if arguments[:1] == ["run"]:
        from mingle_hooks.run.start import Options

        flags, texts = ({name: to for name, to in table.items() if to not in NOT_FOR_RUN} for table in (FLAGS, OPTIONS))
        own = {f"--{name.replace('_', '-')}": name for name in Options._fields if name != "start_option"}  # repeated
        flags["--no-label"] = own.pop("--no-label")
        texts |= own
    found = split_call(arguments[1:], flags, texts) if arguments and arguments[0] in ("env", "exec", "run") else None
    if found is None:
        return None
    options, command = found
    if arguments[0] == "env":
        return None if command or not options.keys().isdisjoint(EXEC_ONLY) else found
    command = command[1:] if command[:1] == ("--",) else command
    return (options, command) if command else None


def _fail(arguments: list[str], why: str | None, code: int) -> int:
    """Print the reason to stderr, and for `mingle env` text that makes eval fail; return the exit code."""
    for number in _ENDS:
        if signal.getsignal(number) is _stop:  # this process is about to exit
            signal.signal(number, signal.SIG_IGN)
    if why is not None:
        write_stderr(f"mingle: {printable(why, LONGEST)}\n")
    if arguments[:1] == ["env"] or (code == UsageError.exit_code and _is_mistyped(arguments)):
        try:
            write_stdout(_failure_text(arguments[1:], code))
        except MingleError:  # the reason is printed, and the exit code is set
            pass
    return code


def _is_mistyped(arguments: list[str]) -> bool:
    """Return whether this may be a mistyped `mingle env` in an eval, such as `mingle evn` or `mingle --id a`."""
    from mingle_hooks.cli.commands import COMMANDS

    return arguments[:1] != [] and arguments[0] not in COMMANDS and not sys.stdout.isatty()


def _failure_text(arguments: list[str], code: int) -> str:
    """Return text that makes eval fail with `code`, for the --shell in the arguments, which may be invalid."""
    shell = _last_value(arguments, "--shell", "MINGLE_SHELL") or variables.reader()
    shell = shell if shell in variables.SHELLS else "sh"
    ends = _last_value(arguments, "--on-failure", "MINGLE_ON_FAILURE") != "status"
    return variables.failure(shell, code, variables.leftovers(os.environ), ends=ends)


def _last_value(arguments: list[str], option: str, variable: str) -> str:
    """Return the last value of an option, by default the variable's."""
    found = os.environ.get(variable, "")
    for before, argument in itertools.pairwise(["", *arguments]):
        if before == option:
            found = argument
        elif argument.startswith(f"{option}="):
            found = argument.removeprefix(f"{option}=")
    return found


# `mingle env` and `mingle exec`.


class Flags(NamedTuple):
    """The flags of one call, which are no settings: cli/commands.py has their help."""

    explain: bool = False
    no_wait: bool = False
    together: bool = False
    verbatim: bool = False
    keep_key: bool = False


# Progress while a member waits: one live line on a terminal, occasional plain lines elsewhere.

# Nothing is shown for a world that forms within this many seconds.
SILENT_S = 1.0
# Seconds between two plain lines in a log.
PLAIN_S = (1.0, 10.0, 30.0, 60.0, 300.0)
CLEAR = "\r\x1b[K"


class ProgressPrinter:
    """An observer that writes progress and notes to a stream; a quiet one writes errors only."""

    def __init__(self, stream: TextIO, *, quiet: bool, explain: Callable[[str], None] | None = None) -> None:
        self._stream, self._quiet, self.explain = stream, quiet, explain
        self._is_terminal = stream.isatty()
        self._began = self._last = time.monotonic()
        self._lines = 0
        self._is_live = False  # the last line is to be written over

    def __enter__(self) -> ProgressPrinter:
        return self

    def __exit__(self, *_error: object) -> None:
        if self._is_live:
            self._write("")

    def failed(self, error: MingleError) -> None:
        """Write the error at once: a scheduler may kill this process as soon as another member has ended."""
        self._write(f"mingle: {printable(error, LONGEST)}\n")
        error.is_printed = True

    def note(self, text: str) -> None:
        """Write a line that stays."""
        if not self._quiet:
            self._write(f"mingle: {printable(text)}\n")

    def progress(self, progress: Progress) -> None:
        """Write how many members have checked in, if a line is due."""
        now = time.monotonic()
        waited = now - self._began
        if self._quiet or waited < SILENT_S:
            return
        text = printable(_sentence(progress, waited), 200)
        if self._is_terminal:
            self._write(f"mingle: {text}", is_live=True)
        elif now - self._last >= PLAIN_S[min(self._lines, len(PLAIN_S) - 1)]:
            self._last, self._lines = now, self._lines + 1
            self._write(f"mingle: {text}\n")

    def _write(self, text: str, *, is_live: bool = False) -> None:
        clear = CLEAR if is_live or self._is_live else ""
        self._is_live = is_live
        try:
            self._stream.write(clear + text)
            self._stream.flush()
        except OSError:  # a full log must not stop the job
            return


def _sentence(progress: Progress, waited_s: float) -> str:
    """Return a sentence about who is missing, and how long this member has waited."""
    if not progress.inside:  # rank 0, which counts, has not been found
        return f"still looking for {progress.missing} after {waited_s:.0f} s"
    of = f" of {progress.nodes}" if progress.nodes else ""
    nodes = "node" if progress.inside == 1 and not of else "nodes"
    return f"{progress.inside}{of} {nodes} checked in after {waited_s:.0f} s; waiting for {progress.missing}"


FORMED = "MINGLE_RUN_FORMED"  # the descriptor of the agent's pipe, to report that the world has formed


class _HeldSockets(list["socket.socket"]):
    """The sockets that reserve MASTER_PORT; `with` closes them."""

    def __enter__(self) -> _HeldSockets:
        return self

    def __exit__(self, *_error: object) -> None:
        for sock in self:
            sock.close()


def print_variables(options: Mapping[str, object], flags: Flags) -> None:
    """Print the variables in the language of a shell, in one write.

    Raises what member_spec() and join() raise, PlaceError and UsageError.
    """
    spec = member_spec(os.environ, options)
    variables.shell_named(spec.settings.shell)  # raises for an unknown one before the others wait
    if "shell" not in spec.settings.sources:
        variables.check_reader()
    with _HeldSockets() as held:
        view, notes = _joined(spec, obstacle_to((), spec), held, flags)
        found = _exported(spec, view)
        if flags.explain:
            _print_explanation(spec, view, found, notes)
        values = {variable.name: variable.value for variable in found}
        write_stdout(variables.success(spec.settings.shell, values, variables.stale(os.environ, values)))


def execute(command: tuple[str, ...], options: Mapping[str, object], flags: Flags) -> int:
    """Set the variables and become the command, with a launcher's options added unless it is `verbatim`.

    With `together` the command runs on all members as one, unless this is a single member or one in a run. Returns the
    status of such a run, or 0 if rank 0 starts the command for all. Raises NotFoundError and NotExecutableError, and
    what member_spec(), join() and a run raise.
    """
    spec = member_spec(os.environ, options)
    if spec.nodes != 1:
        launchers.check_command(command, spec, verbatim=flags.verbatim)
        if flags.together and FORMED not in os.environ:
            return _run_together(command, options, flags, spec)
    spec = spec if flags.verbatim else launchers.with_frameworks(command, spec)
    obstacle = obstacle_to(command, spec, verbatim=flags.verbatim)
    with _HeldSockets() as held:  # until execve(2), which closes them
        view, notes = _joined(spec, obstacle, held, flags, command)
        view = view if flags.verbatim else launchers.with_ranks(command, spec, view)
        if not flags.verbatim and launchers.is_elsewhere(command, view):
            note = f"{command[0]} runs on rank 0's node and reaches this node from there"
            ProgressPrinter(sys.stderr, quiet=spec.settings.quiet).note(note)
            return 0
        found = _exported(spec, view)
        values = {variable.name: variable.value for variable in found}
        command = command if flags.verbatim else launchers.completed(command, view, values)
        if flags.explain:
            _print_explanation(spec, view, found, [*notes, f"becomes {shlex.join(command)}"])
        if FORMED in os.environ:
            from mingle_hooks.run import messages

            messages.report_formed(os.environ[FORMED], view)
        return _become(command, values, keep_key=flags.keep_key or _starts_mingle(command))


def _run_together(command: tuple[str, ...], options: Mapping[str, object], flags: Flags, spec: MemberSpec) -> int:
    """Run the command on all members as one; return its status. Raises what join() and a run raise."""
    from mingle_hooks.run import start

    launcher = None if flags.verbatim else launchers.recognise(command)
    start.check_together(spec, launcher and launcher.starts, no_wait=flags.no_wait)
    obstacle = obstacle_to(command, spec, verbatim=flags.verbatim)
    with ProgressPrinter(sys.stderr, quiet=spec.settings.quiet) as observer:
        # The run's own members are compared.
        view = join(spec, observer, wants_roster=True, command=None, obstacle=obstacle)
    own = {**options, **flags._replace(no_wait=False, together=False)._asdict(), **start.world_options(spec, view)}
    return start.run_together(command, spec, view, option_arguments(own))


def _starts_mingle(command: tuple[str, ...]) -> bool:
    """Return whether a command starts mingle, as `bash -c 'eval "$(mingle env)"'` does: then it needs the key."""
    words = (word for text in command for word in text.split())
    return any(word.rpartition("/")[2].strip("\"'`$();&|{}") == "mingle" for word in words)


def _become(command: tuple[str, ...], found: Mapping[str, str], *, keep_key: bool) -> NoReturn:
    stale = {*variables.stale(os.environ, found), FORMED, *(() if keep_key else ("MINGLE_KEY",))}
    environ = {name: value for name, value in os.environ.items() if name not in stale}
    # Python ignores SIGPIPE and SIGXFSZ, and the command would inherit that.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    environ |= found
    try:  # os.execvpe would import `warnings`
        along_path(command[0], environ.get("PATH", os.defpath), lambda file: os.execve(file, command, environ))  # noqa: S606 - the user's own command
    except OSError as error:  # the check before check-in passed
        kind = NotFoundError if isinstance(error, FileNotFoundError) else NotExecutableError
        raise kind("a command that can be run", f"{command[0]}: {error.strerror}", "checking that file") from None


def _joined(
    spec: MemberSpec, obstacle: Failure | None, held: list[socket.socket], flags: Flags, command: tuple[str, ...] = ()
) -> tuple[View, list[str]]:
    """Return this member's view of the world, and for --explain the notes on how it formed. Raises UsageError."""
    if spec.nodes != 1 and not flags.no_wait and not spec.facts.is_batch:
        frameworks.check_leftovers(spec)
    notes: list[str] = []
    printer = ProgressPrinter(sys.stderr, quiet=spec.settings.quiet, explain=notes.append if flags.explain else None)
    with printer as observer:
        return join(spec, observer, no_wait=flags.no_wait, command=command, obstacle=obstacle, held=held), notes


def _exported(spec: MemberSpec, view: View) -> tuple[Variable, ...]:
    """Return the variables, and write the files whose paths they hold."""
    names = spec.settings.frameworks
    return variables.variables(view, names, _write(variables.files(view, names), spec, view))


def _print_explanation(spec: MemberSpec, view: View, found: tuple[Variable, ...], notes: list[str]) -> None:
    """Print the explanation of --explain to stderr."""
    sources, notes = variables.explain_sources(spec, view), [*notes, *variables.left_to_nccl(view)]
    write_stderr(variables.explain(hostname(), found, sources, os.environ, notes))


def _write(files: tuple[File, ...], spec: MemberSpec, view: View) -> dict[str, str]:
    """Write each file atomically into a private directory; return name -> path."""
    if not files:
        return {}
    name = f"world-{view.world.digest}-{sha256(spec.node.encode()).hexdigest()[:8]}"
    directory = private_path(spec.user_environ, spec.facts.job_id, name)
    make_private(directory)
    paths = {}
    for file in files:
        path = paths[file.name] = f"{directory}/{file.name}"
        try:
            with open(f"{path}.{os.getpid()}", "w") as draft:
                draft.write(file.text)
            os.replace(draft.name, path)
        except OSError as error:
            seen = f"{path}: {error.strerror}"
            raise PlaceError("to write a file for a framework", seen, "another XDG_RUNTIME_DIR") from error
    return paths
