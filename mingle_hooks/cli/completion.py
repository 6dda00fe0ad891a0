"""`mingle completion`: what makes bash, zsh and fish complete mingle; and the answers to their questions.

The shells ask by calling mingle with _MINGLE_COMPLETE set, as click has it. After the options of `mingle exec` and
`mingle run` the words are another command's: there the answer is the place of that command, and the shell completes it
as its own.
"""

from __future__ import annotations

import os

import click
from click.shell_completion import CompletionItem, ShellComplete, add_completion_class, shell_complete, split_arg_string

from mingle_hooks.cli import plain
from mingle_hooks.cli.help import RUN, Grouped
from mingle_hooks.cli.plain import COMPLETE, write_stdout
from mingle_hooks.errors import UsageError
from mingle_hooks.values import number

_MOST_WORDS = 1 << 20  # of a command line

_BASH = """\
%(complete_func)s() {
    local type value response
    COMPREPLY=()
    response=$(env COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD="$COMP_CWORD" \\
        %(complete_var)s=bash_complete "$1" 2>/dev/null) || return
    while IFS=, read -r type value; do
        case $type in
        dir) compopt -o dirnames ;;
        file) compopt -o default ;;
        command)
            compopt +o nosort -o default 2>/dev/null
            if [[ $value -eq $COMP_CWORD ]]; then
                mapfile -t COMPREPLY < <(compgen -c -- "${COMP_WORDS[COMP_CWORD]}")
            elif declare -F _comp_command_offset >/dev/null; then
                _comp_command_offset "$value"
            elif declare -F _command_offset >/dev/null; then
                _command_offset "$value"
            fi
            ;;
        plain) COMPREPLY+=("$value") ;;
        esac
    done <<<"$response"
}
complete -o nosort -F %(complete_func)s %(prog_name)s 2>/dev/null || complete -F %(complete_func)s %(prog_name)s
"""

_ZSH = """\
#compdef %(prog_name)s

%(complete_func)s() {
    local -a response names described
    local type value help
    response=("${(@f)$(env COMP_WORDS="${words[*]}" COMP_CWORD=$((CURRENT - 1)) \\
        %(complete_var)s=zsh_complete %(prog_name)s 2>/dev/null)}")
    for type value help in "${response[@]}"; do
        case $type in
        dir) _path_files -/ ;;
        file) _files ;;
        command)
            shift "$value" words
            (( CURRENT -= value ))
            _normal -p %(prog_name)s
            ;;
        plain)
            if [[ $help == _ ]]; then
                names+=("$value")
            else
                described+=("${value//:/\\\\:}:$help")
            fi
            ;;
        esac
    done
    (( ! $#described )) || _describe -V unsorted described -U
    (( ! $#names )) || compadd -U -V unsorted -a names
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    %(complete_func)s "$@"
else
    compdef %(complete_func)s %(prog_name)s
fi
"""

_FISH = """\
function %(complete_func)s
    for line in (env %(complete_var)s=fish_complete COMP_WORDS=(commandline -cp) COMP_CWORD=(commandline -ct) \\
            %(prog_name)s 2>/dev/null)
        set -l parts (string split -m 1 , -- $line)
        switch $parts[1]
            case dir
                __fish_complete_directories $parts[2]
            case file
                __fish_complete_path $parts[2]
            case command
                set -l words (commandline -opc)
                set -l from (math $parts[2] + 1)
                complete -C (string join ' ' -- (string escape -- $words[$from..]) (commandline -ct))
            case plain
                echo $parts[2]
        end
    end
end
complete --no-files --command %(prog_name)s --arguments "(%(complete_func)s)"
"""


class _Completer(ShellComplete):
    """What is the same for all three shells."""

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the whole words before the cursor, without mingle itself, and the one at it."""
        words = split_arg_string(os.environ.get("COMP_WORDS", ""))
        current = self.current(words)
        self._current, self._places = current, _joined(words[1:current])
        incomplete = words[current] if current < len(words) else ""
        if incomplete == "=":  # bash: the end of `--for=`, which stands among the words before
            incomplete = ""
        return [word for word, _ in self._places], incomplete

    def current(self, words: list[str]) -> int:
        """Return the place of the word at the cursor."""
        told = number(os.environ.get("COMP_CWORD", ""), most=_MOST_WORDS)
        return len(words) if told is None else told

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[str]]:
        """Return what the word at the cursor may become."""
        found = _starting(args)
        if found is not None and (found[1] or not incomplete.startswith("-")):
            words = found[1][1:] if found[1][:1] == ("--",) else found[1]
            at = self._places[len(args) - len(words)][1] + 1 if words else self._current
            return [CompletionItem(str(at), type="command")]
        option, is_joined, begun = incomplete.partition("=")
        if not (is_joined and option.startswith("--")):
            return super().get_completions(args, incomplete)
        items = super().get_completions([*args, option], begun)
        return [CompletionItem(f"{option}={item.value}", item.type, item.help) for item in items]

    def format_completion(self, item: CompletionItem[str]) -> str:
        """Return one line, as bash reads it."""
        return f"{item.type},{item.value}"


def _starting(args: list[str]) -> tuple[dict[str, object], tuple[str, ...]] | None:
    """Return the options before COMMAND and its words, of a command that takes one; None of others."""
    if args[:1] == ["run"]:
        own = {f"--{name.replace('_', '-')}": name for name in RUN}
        flags = {option: name for option, name in own.items() if not RUN[name].metavar}
        texts = {option: name for option, name in own.items() if RUN[name].metavar}
        return plain.split_call(args[1:], {**plain.FLAGS, **flags}, {**plain.OPTIONS, **texts})
    return plain.split_call(args[1:]) if args[:1] == ["exec"] else None


def _joined(words: list[str]) -> list[tuple[str, int]]:
    """Return each word with its place, `--name`, `=` and `value`, as bash has them, as one."""
    found: list[tuple[str, int]] = []
    for place, word in enumerate(words):
        if word == "=" and found and found[-1][0].startswith("--"):
            found[-1] = (f"{found[-1][0]}=", found[-1][1])
        elif found and words[place - 1] == "=" and found[-1][0].endswith("="):
            found[-1] = (found[-1][0] + word, found[-1][1])
        else:
            found.append((word, place))
    if found and found[-1][0].endswith("=") and words[-1] == "=":  # its value is what is being typed
        found[-1] = (found[-1][0][:-1], found[-1][1])
    return found


class _Bash(_Completer):
    name = "bash"
    source_template = _BASH


class _Zsh(_Completer):
    name = "zsh"
    source_template = _ZSH

    def format_completion(self, item: CompletionItem[str]) -> str:
        """Return three lines: the type, the value, and what it is or _."""
        return f"{item.type}\n{item.value}\n{' '.join((item.help or '_').split())}"


class _Fish(_Completer):
    name = "fish"
    source_template = _FISH

    def current(self, words: list[str]) -> int:
        """Return the place of the word at the cursor, which COMP_CWORD holds itself."""
        return len(words) - bool(os.environ.get("COMP_CWORD"))

    def format_completion(self, item: CompletionItem[str]) -> str:
        """Return one line, with what it is after a tab."""
        told = "\t" + " ".join(item.help.split()) if item.help else ""
        return f"{item.type},{item.value}{told}"


SHELLS = {its.name: its for its in (_Bash, _Zsh, _Fish)}
EXAMPLES = """\
bash: echo 'eval "$(mingle completion bash)"' >> ~/.bashrc
zsh: echo 'eval "$(mingle completion zsh)"' >> ~/.zshrc # after compinit
fish: mingle completion fish > ~/.config/fish/completions/mingle.fish"""


def respond(cli: click.Command, asked: str) -> int:
    """Answer a shell's question, such as bash_complete; return the exit code. Raises UsageError."""
    for its in SHELLS.values():
        add_completion_class(its)
    if asked.partition("_")[0] not in SHELLS:
        raise UsageError(f"{COMPLETE} such as bash_complete", asked, "`mingle completion bash`")
    return shell_complete(cli, {}, "mingle", COMPLETE, asked)


@click.command(cls=Grouped, examples=EXAMPLES)
@click.argument("shell", type=click.Choice([*SHELLS]))
def completion(shell: str) -> None:
    """Print the completion script for a shell."""
    context = click.get_current_context().find_root()
    write_stdout(SHELLS[shell](context.command, {}, "mingle", COMPLETE).source())
