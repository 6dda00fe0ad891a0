"""What Grid Engine documents of #$ lines: submit(1), sge_types(5) and complex(5) of Son of Grid Engine 8.1.9."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from directive_grammar import NUMBER, USERS, Grammar, are_ranges, fits, mebibytes, named, seconds

if TYPE_CHECKING:
    from directive_grammar import Form, Options

_NOT_IN_OBJECT = set("/:'\\[]{}|()@%,\"")  # sge_types(5), object_name
_NOT_IN_QUEUES = set("/:'\\{}%\"")  # wc_queue_list: expressions of names, with @host and @@hostgroup
# submit(1), -o: [[hostname]:]path,... where $ begins one of these pseudo variables only
_PATH = r"(?:[A-Za-z0-9.-]*:)?(?:[^$:,]|\$(?:HOME|USER|JOB_ID|JOB_NAME|HOSTNAME|TASK_ID))+"
# submit(1), -pe: parallel_environment n[-[m]]|[-]m,...
_RANGE = f"(?:{NUMBER}(?:-(?:{NUMBER})?)?|-{NUMBER})"
_RESOURCES: dict[str, str] = {
    "h_rt": "[0-9]+:[0-9]+:[0-9]+",  # time_specifier
    "h_vmem": "[0-9]+(?:[.][0-9]+)?[kKmMgGtT]?",  # memory_specifier
    "gpu": NUMBER,
    "exclusive": "true|false|TRUE|FALSE|1|0",
}


def _object(text: str) -> bool:
    return bool(re.fullmatch("[!-~]{1,512}", text)) and not _NOT_IN_OBJECT.intersection(text)


def _queues(text: str) -> bool:
    return all(re.fullmatch("[!-~]+", name) and not _NOT_IN_QUEUES.intersection(name) for name in text.split(","))


def _resources(text: str) -> bool:
    """Tell whether this is name[=value],... (submit(1), -l), with a value of the resource's type."""
    pairs = [pair.partition("=") for pair in text.split(",")]
    return all(_object(name) and fits(_RESOURCES.get(name, r"[^\s,]*"), its) for name, _, its in pairs)


def _tasks(text: str) -> bool:
    """Tell whether this is n[-m[:s]], one range of numbers from 1 (submit(1), -t)."""
    return "," not in text and are_ranges(text, 1, f"(?::{NUMBER})?")


def _is_consistent(options: Options) -> bool:
    """Tell that -tc has its array, and that -e is not ignored for -j y."""
    return not ("-tc" in options and "-t" not in options) and not ("-j" in options and "-e" in options)


_OPTIONS: dict[str, Form | None] = {
    "-N": r"[^\x00-\x1f\x7f-\U0010ffff/:@\\*?0-9][^\x00-\x1f\x7f-\U0010ffff/:@\\*?]*",  # name, and no digit first
    "-S": r"/\S+",
    "-pe": rf"[!-~]+ {_RANGE}(?:,{_RANGE})*",
    "-l": _resources,
    "-q": _queues,
    "-P": _object,
    "-ar": NUMBER,
    "-t": _tasks,
    "-tc": NUMBER,
    "-hold_jid": "[0-9]+(?:,[0-9]+)*",
    "-o": _PATH,
    "-e": _PATH,
    "-j": "y|n|yes|no",
    "-M": USERS,
    "-m": "[abes]+|n",
    "-r": "y|n|yes|no",
    "-cwd": None,
}
GRAMMAR = Grammar("sge", _OPTIONS, _is_consistent, pairs=("-pe",), many=("-l",))


def asked(options: Options) -> dict[str, Any]:
    """Return what the directives ask for. Slots are those of the whole job, and memory is for each of them."""
    resources = dict(pair.partition("=")[::2] for text in options.get("-l", []) for pair in text.split(","))
    array, most = options.get("-t", [""])[0], options.get("-tc", [""])[0]
    fields = {"job-name": "-N", "account": "-P", "reservation": "-ar", "output": "-o", "error": "-e", "mail-user": "-M"}
    return named(options, fields) | {
        "slots": int(options["-pe"][0].split()[1]),
        "mem": mebibytes(resources["h_vmem"]) if "h_vmem" in resources else 0,
        "gpus-per-node": int(resources.get("gpu", 0)),
        "exclusive": "exclusive" in resources,
        "time": seconds(resources["h_rt"]) if "h_rt" in resources else 0,
        "constraint": {name: its for name, its in resources.items() if name not in _RESOURCES},
        "partition": options.get("-q", [""])[0],
        "array": f"{array}%{most}" if most else array,
        "dependency": options.get("-hold_jid", [""])[0],
        "requeue": options["-r"] == ["y"],
    }
