"""What Torque documents of #PBS lines. Source: qsub(1B); "Requesting resources" of its Administrator Guide."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from directive_grammar import NUMBER, USERS, Grammar, are_ranges, fits, mebibytes, named, seconds

if TYPE_CHECKING:
    from directive_grammar import Form, Options

# Requesting resources: nodes={COUNT}[:ppn=N][:gpus=N][:property...][+...]; a property begins with a letter.
_PROPERTY = "[A-Za-z][A-Za-z0-9_.-]*"
_NODES = rf"{NUMBER}(?::ppn={NUMBER})?(?::gpus={NUMBER})?(?::{_PROPERTY})*"
_RESOURCES: dict[str, str] = {
    "nodes": rf"{_NODES}(?:\+{_NODES})*",
    "mem": f"{NUMBER}(?:[kmgt]?[bw])?",
    "walltime": "(?:(?:[0-9]+:)?[0-5]?[0-9]:)?[0-9]+",  # seconds, or [[HH:]MM:]SS
    "naccesspolicy": "shared|singlejob|singletask|singleuser|uniqueuser",
    "qos": r"[^\s,]+",
    "advres": r"[^\s,]+",
}
_HOST = "[A-Za-z0-9.-]+"
_PATH = rf"(?:{_HOST}:)?[^\s:][^\s]*"  # [hostname:]path_name
_JOB = r"[0-9]+(?:\[[0-9]*\])?(?:\.[A-Za-z0-9.-]+)?(?:@[A-Za-z0-9.-]+)?"
_JOBS = rf"(?::{_JOB})+"
_DEPENDENCY = (
    rf"(?:(?:synccount|on):{NUMBER}|syncwith:{_JOB}|(?:after|before)(?:ok|notok|any)?{_JOBS}"
    rf"|after(?:start|ok|notok|any)array{_JOBS}|before(?:start|ok|notok|any)array{_JOBS})"
)


def _resources(text: str) -> bool:
    """Tell whether this is resource_name[=value],... with a value of the resource's type."""
    pairs = [pair.partition("=") for pair in text.split(",")]
    return all(name in _RESOURCES and fits(_RESOURCES[name], its) for name, _, its in pairs)


def _array(text: str) -> bool:
    """Tell whether these are ids and ranges, and at most one %SLOTS."""
    ranges, percent, most = text.partition("%")
    return are_ranges(ranges, 0) and (not percent or fits(NUMBER, most))


def _is_consistent(options: Options) -> bool:
    """Tell that -e is not ignored for -j oe."""
    return not ("-j" in options and "-e" in options)


_OPTIONS: dict[str, Form | None] = {
    "-N": "[A-Za-z][!-~]{0,14}",  # at most 15, without white space, a letter first
    "-S": r"/[^\s,@]+(?:@[A-Za-z0-9.-]+)?",
    "-l": _resources,
    "-q": rf"[A-Za-z0-9_.-]+(?:@{_HOST})?|@{_HOST}",  # queue, @server or queue@server
    "-A": r".+",
    "-t": _array,
    "-o": _PATH,
    "-e": _PATH,
    "-j": "oe|eo|n",
    "-M": USERS,
    "-m": "[abe]+|n",
    "-r": "y|n",
    "-W": rf"depend={_DEPENDENCY}(?:,{_DEPENDENCY})*",
}
GRAMMAR = Grammar("torque", _OPTIONS, _is_consistent, many=("-l",))


def asked(options: Options) -> dict[str, Any]:
    """Return what the directives ask for: a group of nodes for each part, and memory of the whole job."""
    resources = dict(text.partition("=")[::2] for text in options["-l"])
    fields = {"job-name": "-N", "account": "-A", "partition": "-q", "array": "-t", "output": "-o", "error": "-e"}
    return named(options, fields | {"mail-user": "-M"}) | {
        "groups": [_group(part) for part in resources["nodes"].split("+")],
        "mem": mebibytes(resources["mem"]) if "mem" in resources else 0,
        "time": seconds(resources["walltime"]) if "walltime" in resources else 0,
        "qos": resources.get("qos", ""),
        "reservation": resources.get("advres", ""),
        "exclusive": resources.get("naccesspolicy") == "singlejob",
        "dependency": options.get("-W", [""])[0].removeprefix("depend="),
        "requeue": options["-r"] == ["y"],
    }


def _group(part: str) -> dict[str, Any]:
    count, *rest = part.split(":")
    numbers = dict(word.split("=") for word in rest if "=" in word)
    properties = [word for word in rest if "=" not in word]
    return {
        "nodes": int(count),
        "ppn": int(numbers.get("ppn", 1)),
        "gpus": int(numbers.get("gpus", 0)),
        "properties": properties,
    }
