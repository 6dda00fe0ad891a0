"""What `mingle env` and `mingle exec` do: ask, wait where people can see it, and hand over the variables."""

from __future__ import annotations

import errno
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from types import TracebackType
from typing import NamedTuple, TextIO

from mingle_hooks import files as files_files
from mingle_hooks.cli.plain import option_arguments, write_stderr, write_stdout
from mingle_hooks.errors import LONGEST, MingleError, NotExecutableError, NotFoundError, PlaceError, printable
from mingle_hooks.export import launchers, shells, variables
from mingle_hooks.export.variables import Variable
from mingle_hooks.job import member_spec, obstacle_to
from mingle_hooks.joining import join
from mingle_hooks.rendezvous.messages import Failure
from mingle_hooks.rendezvous.request import MemberSpec, Progress
from mingle_hooks.world import File, View

# What people see while a member waits: one live line on a terminal, a plain line now and then elsewhere.

# A world that forms within this many seconds needs no words.
SILENT_S = 1.0
# Between two plain lines in a log: the first soon, then ever less often.
PLAIN_S = (1.0, 10.0, 30.0, 60.0, 300.0)
CLEAR = "\r\x1b[K"


class ProgressPrinter:
    """An observer that writes to a stream what it hears; a quiet one writes nothing."""

    def __init__(self, stream: TextIO, *, quiet: bool, tell: Callable[[str], None] | None = None) -> None:
        self._stream, self._quiet, self.tell = stream, quiet, tell
        self._is_terminal = stream.isatty()
        self._began = self._last = time.monotonic()
        self._lines = 0
        self._is_dirty = False

    def __enter__(self) -> ProgressPrinter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._clear()

    def failed(self, error: MingleError) -> None:
        """Write it at once: a scheduler may end this process as soon as another member has ended."""
        self._clear()
        self._write(f"mingle: {printable(error, LONGEST)}\n")
        error.is_printed = True

    def note(self, text: str) -> None:
        """Write a line that stays."""
        if not self._quiet:
            self._clear()
            self._write(f"mingle: {printable(text)}\n")

    def progress(self, progress: Progress) -> None:
        """Write how many are in, where it is time to."""
        now = time.monotonic()
        waited = now - self._began
        if self._quiet or waited < SILENT_S:
            return
        text = printable(_sentence(progress, waited), 200)
        if self._is_terminal:
            self._write(f"{CLEAR}mingle: {text}")
            self._is_dirty = True
        elif now - self._last >= PLAIN_S[min(self._lines, len(PLAIN_S) - 1)]:
            self._last, self._lines = now, self._lines + 1
            self._write(f"mingle: {text}\n")

    def _clear(self) -> None:
        if self._is_dirty:
            self._write(CLEAR)
            self._is_dirty = False

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError:  # a log that is full stops no job
            return


def _sentence(progress: Progress, waited_s: float) -> str:
    """Say who is awaited, and for how long by now."""
    if not progress.inside:  # rank 0 counts, and it has not been met
        return f"still looking for {progress.missing} after {waited_s:.0f} s"
    of = f" of {progress.nodes}" if progress.nodes else ""
    nodes = "node" if progress.inside == 1 and not of else "nodes"
    return f"{progress.inside}{of} {nodes} checked in after {waited_s:.0f} s; waiting for {progress.missing}"


FORMED = "MINGLE_RUN_FORMED"  # a supervisor's pipe, which hears that the world has formed


class _HeldSockets(list["socket.socket"]):
    """The sockets that keep MASTER_PORT from everybody; `with` closes them."""

    def __enter__(self) -> _HeldSockets:
        return self

    def __exit__(self, *_error: object) -> None:
        for sock in self:
            sock.close()


def print_variables(options: Mapping[str, object], *, explain: bool, no_wait: bool) -> None:
    """Print the variables in the language of a shell: all of them, at once, at the end.

    Raises what member_spec() and join() raise, PlaceError and UsageError.
    """
    spec = member_spec(os.environ, options)
    shells.check(spec.settings.shell)
    if "shell" not in spec.settings.sources:
        shells.check_reader()
    with _HeldSockets() as held:
        view, notes = _joined(spec, obstacle_to((), spec), held, explain=explain, no_wait=no_wait)
        found = _found(spec, view)
        if explain:
            _print_explanation(spec, view, found, notes)
        values = {variable.name: variable.value for variable in found}
        write_stdout(shells.success(spec.settings.shell, values, variables.stale(os.environ, values)))


class ExecFlags(NamedTuple):
    """The flags of `mingle exec`: see cli/options.py."""

    explain: bool = False
    no_wait: bool = False
    verbatim: bool = False
    keep_key: bool = False


def become_command(command: tuple[str, ...], options: Mapping[str, object], how: ExecFlags) -> None:
    """Set the variables and become the command, completed unless it is to be `verbatim`.

    Returns only where rank 0 starts it for all. Raises NotFoundError and NotExecutableError where it cannot, and what
    member_spec() and join() raise.
    """
    spec = member_spec(os.environ, options)
    if spec.nodes != 1:
        launchers.check_command(command, spec, verbatim=how.verbatim)
    spec = spec if how.verbatim else launchers.with_frameworks(command, spec)
    obstacle = obstacle_to(command, spec, verbatim=how.verbatim)
    with _HeldSockets() as held:  # until execve(2), which closes them
        view, notes = _joined(spec, obstacle, held, explain=how.explain, no_wait=how.no_wait, command=command)
        view = view if how.verbatim else launchers.with_ranks(command, spec, view)
        if not how.verbatim and launchers.is_elsewhere(command, view):
            note = f"{command[0]} runs on rank 0's node and reaches this node from there"
            ProgressPrinter(sys.stderr, quiet=spec.settings.quiet).note(note)
            return
        found = _found(spec, view)
        values = {variable.name: variable.value for variable in found}
        command = command if how.verbatim else launchers.completed(command, view, values)
        if how.explain:
            import shlex

            _print_explanation(spec, view, found, [*notes, f"becomes {shlex.join(command)}"])
        if FORMED in os.environ:
            from mingle_hooks.run import messages

            messages.tell_formed(os.environ[FORMED], view)
        _become(command, values, keep_key=how.keep_key or _starts_mingle(command))


def run_together(command: tuple[str, ...], options: Mapping[str, object], how: ExecFlags) -> int:
    """Run the command on all members as one; return its status. Who is alone, or in a run already, becomes it.

    Raises what become() raises, and what a run raises.
    """
    from mingle_hooks.run import together

    spec = member_spec(os.environ, options)
    if spec.nodes == 1 or FORMED in os.environ:
        become_command(command, options, how)
        return 0
    launchers.check_command(command, spec, verbatim=how.verbatim)
    launcher = None if how.verbatim else launchers.recognise(command)
    together.check(spec, launcher and launcher.starts, no_wait=how.no_wait)
    obstacle = obstacle_to(command, spec, verbatim=how.verbatim)
    with ProgressPrinter(sys.stderr, quiet=spec.settings.quiet) as observer:
        # The run's own members are compared.
        view = join(spec, observer, wants_roster=True, command=None, obstacle=obstacle)
    flags = {"explain": how.explain, "verbatim": how.verbatim, "keep_key": how.keep_key}
    own = {**options, **flags, **together.known(spec, view)}
    return together.together(command, spec, view, option_arguments(own))


def _starts_mingle(command: tuple[str, ...]) -> bool:
    """Tell whether a command's own words start mingle, as `bash -c 'eval "$(mingle env)"'` does: that needs the key."""
    words = (word for text in command for word in text.split())
    return any(word.rpartition("/")[2].strip("\"'`$();&|{}") == "mingle" for word in words)


def _become(command: tuple[str, ...], found: Mapping[str, str], *, keep_key: bool) -> None:
    stale = {*variables.stale(os.environ, found), FORMED, *(() if keep_key else ("MINGLE_KEY",))}
    environ = {name: value for name, value in os.environ.items() if name not in stale}
    # Python ignores SIGPIPE and SIGXFSZ, and what is ignored stays so in the command.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        _execute(command, {**environ, **found})
    except OSError as error:  # it could be started when this member checked in
        kind = NotFoundError if isinstance(error, FileNotFoundError) else NotExecutableError
        raise kind("a command that can be run", f"{command[0]}: {error.strerror}", "checking that file") from None


def _execute(command: tuple[str, ...], environ: dict[str, str]) -> None:
    """Become a command, found in PATH as execvp(3) does: os.execvpe loads the module `warnings` for that."""
    name, refusal = command[0], None
    directories = [""] if "/" in name else environ.get("PATH", os.defpath).split(":")
    for directory in directories:
        try:
            os.execve(os.path.join(directory, name), command, environ)  # noqa: S606 - the user's own command
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:  # it is there, and may not be run; another of this name may
            refusal = refusal or error
    raise refusal or FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)


def _joined(
    spec: MemberSpec,
    obstacle: Failure | None,
    held: list[socket.socket],
    *,
    explain: bool,
    no_wait: bool,
    command: tuple[str, ...] = (),
) -> tuple[View, list[str]]:
    """Return this member's view of the world, and how it formed where that is to be told."""
    notes: list[str] = []
    waiting = ProgressPrinter(sys.stderr, quiet=spec.settings.quiet, tell=notes.append if explain else None)
    with waiting as observer:
        return join(spec, observer, no_wait=no_wait, command=command, obstacle=obstacle, held=held), notes


def _found(spec: MemberSpec, view: View) -> tuple[Variable, ...]:
    """Return the variables, and write the files that some of them name."""
    names = spec.settings.frameworks
    return variables.variables(view, names, _write(variables.files(view, names), spec, view))


def _print_explanation(spec: MemberSpec, view: View, found: tuple[Variable, ...], notes: list[str]) -> None:
    """Answer --explain."""
    from mingle_hooks.net.addresses import hostname

    write_stderr(
        variables.explain(
            hostname(),
            found,
            variables.explain_sources(spec, view),
            os.environ,
            [*notes, *variables.left_to_nccl(view)],
        )
    )


def _write(files: tuple[File, ...], spec: MemberSpec, view: View) -> dict[str, str]:
    """Write each file whole into a private directory; return name -> path."""
    if not files:
        return {}
    name = f"world-{view.world.digest}-{sha256(spec.node.encode()).hexdigest()[:8]}"
    directory = files_files.private_path(spec.user_environ, spec.facts.job_id, name)
    files_files.make_private(directory)
    paths = {}
    for file in files:
        path = paths[file.name] = f"{directory}/{file.name}"
        try:
            with open(f"{path}.{os.getpid()}", "w") as draft:
                draft.write(file.text)
            os.replace(draft.name, path)
        except OSError as error:
            raise PlaceError(
                "to write a file for a framework", f"{path}: {error.strerror}", "another XDG_RUNTIME_DIR"
            ) from error
    return paths
