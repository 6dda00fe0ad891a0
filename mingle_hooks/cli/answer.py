"""`mingle env` and `mingle exec`: join the world, show progress, and print the variables or become the command."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import NamedTuple, NoReturn, TextIO

from mingle_hooks.errors import LONGEST, MingleError, NotExecutableError, NotFoundError, PlaceError, printable
from mingle_hooks.export import frameworks, launchers, variables
from mingle_hooks.export.variables import Variable
from mingle_hooks.files import make_private, private_path, remove_private, write_stderr, write_stdout
from mingle_hooks.job import along_path, member_spec, obstacle_to
from mingle_hooks.joining import join
from mingle_hooks.net.addresses import hostname
from mingle_hooks.rendezvous.member import MemberSpec, Progress
from mingle_hooks.rendezvous.messages import Failure, File, View
from mingle_hooks.settings import option_arguments


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


# The files of some thousand nodes.
_TRIAL_BYTES = 1 << 16
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
        stale, ends = variables.stale(os.environ, values), spec.settings.on_failure != "status"
        write_stdout(variables.success(spec.settings.shell, values, stale, ends=ends))


def execute(command: tuple[str, ...], options: Mapping[str, object], flags: Flags) -> int:
    """Set the variables and become the command, with a launcher's options added unless it is `verbatim`.

    With `together` the command runs on all members as one, unless this is a single member or one in a run. Returns the
    status of such a run, or 0 if rank 0 starts the command for all. Raises NotFoundError and NotExecutableError, and
    what member_spec(), join() and a run raise.
    """
    spec = member_spec(os.environ, options)
    if spec.nodes != 1:
        launchers.check_command(command, spec, verbatim=flags.verbatim, no_wait=flags.no_wait)
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
        variables.check(values)
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
        obstacle = obstacle or _obstacle_to_files(spec, command)
    notes: list[str] = []
    printer = ProgressPrinter(sys.stderr, quiet=spec.settings.quiet, explain=notes.append if flags.explain else None)
    with printer as observer:
        return join(spec, observer, no_wait=flags.no_wait, command=command, obstacle=obstacle, held=held), notes


def _exported(spec: MemberSpec, view: View) -> tuple[Variable, ...]:
    """Return the variables, and write the files whose paths they hold."""
    names = spec.settings.frameworks
    paths = _write(variables.files(view, names), _directory(spec, view.world.digest))
    return variables.variables(view, names, paths)


def _print_explanation(spec: MemberSpec, view: View, found: tuple[Variable, ...], notes: list[str]) -> None:
    """Print the explanation of --explain to stderr."""
    notes = [*notes, *variables.left_to_nccl(view)]
    write_stderr(variables.explain(hostname(), found, variables.explain_sources(spec, view), os.environ, notes))


def _obstacle_to_files(spec: MemberSpec, command: tuple[str, ...]) -> Failure | None:
    """Return why a framework's file cannot be written here, or None.

    After COMMIT the others would start without this node. If the launcher reaches all nodes itself, only rank 0's node
    needs the file.
    """
    launcher = launchers.find(command)[0] if command else None
    reaches_all = launcher is not None and launcher.starts == "job"
    if not reaches_all and any(frameworks.framework(name).files for name in spec.settings.frameworks):
        directory = _directory(spec, os.urandom(8).hex())
        try:
            _write((File("trial", "#" * _TRIAL_BYTES, ()),), directory)
        except PlaceError as error:
            return Failure("file", (hostname(), error.seen))
        finally:
            remove_private(directory)
    return None


def _directory(spec: MemberSpec, name: str) -> str:
    name = f"world-{name}-{sha256(spec.node.encode()).hexdigest()[:8]}"
    return private_path(spec.user_environ, spec.facts.job_id, name)


def _write(files: tuple[File, ...], directory: str) -> dict[str, str]:
    """Write each file atomically into a private directory; return name -> path."""
    if not files:
        return {}
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
