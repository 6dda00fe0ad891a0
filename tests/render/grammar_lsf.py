"""What LSF documents of #BSUB lines. Source: IBM Spectrum LSF 10.1, by the name of the page where a rule has one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from directive_grammar import NUMBER, USERS, Grammar, are_ranges, fits, mebibytes, named

if TYPE_CHECKING:
    from directive_grammar import Form, Options


def _name(text: str) -> bool:
    """Tell a name from what is none: bsub -J; "Job Arrays" has the characters, and at most 255 of them."""
    match = re.fullmatch(rf"([A-Za-z0-9._-]+)(?:\[([^\]]*)\](?:%{NUMBER})?)?", text)
    if not match or len(match[1]) > 4094:
        return False
    return match[2] is None or (len(text) <= 255 and are_ranges(match[2], 1, f"(?::{NUMBER})?"))


_OPERAND = re.compile(r"defined\([A-Za-z_]\w*\)|[A-Za-z_][\w.]*|[0-9]+(?:\.[0-9]+)?[KMGTkmgt]?[Bb]?", re.ASCII)


def _selection(text: str) -> bool:
    """Tell whether this is an expression ("Select string"): operands and operators give one, until one is left."""
    left, before = _OPERAND.sub("x", text), ""
    while left != before:
        before = left
        left = re.sub(r"\( *x *\)", "x", left)
        left = re.sub(r"! *x", "x", left) if not re.search(r"x *! *x", left) else left
        left = re.sub(r"x *(?:&&|\|\||[=!]=|[<>]=?|[-+*/]) *x", "x", left)
    return left.strip() == "x"


_SECTIONS: dict[str, Form] = {
    "select": _selection,
    "span": f"ptile={NUMBER}|hosts=1",  # "Span string"
    "affinity": rf"core\({NUMBER}\)",  # "Affinity string"
    # "Usage string"; /host and the like since 10.1.0.9 ("Resource management")
    "rusage": rf"mem={NUMBER}(?:[KMGT]B?)?(?:/(?:host|task|job))?",
}


def _sections(text: str) -> dict[str, str]:
    """Take a requirement apart: each section once, one blank between two ("Resource requirement strings")."""
    sections = re.findall(r"([a-z]+)\[([^\]]*)\]", text)
    is_whole = " ".join(f"{name}[{body}]" for name, body in sections) == text
    return dict(sections) if is_whole and len(dict(sections)) == len(sections) else {"none": text}


def _requirement(text: str) -> bool:
    return all(name in _SECTIONS and fits(_SECTIONS[name], body) for name, body in _sections(text).items())


# bsub -w: conditions on a job's number, or on a name; one that begins with a digit would need quotes.
_JOB = r"(?:[0-9]+|[A-Za-z_.][A-Za-z0-9_.-]*\*?)(?:\[[0-9,:-]+\])?"
_COMPARED = r", *(?:(?:[<>]=?|[=!]=) *)?[0-9]+"
_CONDITION = (
    rf"(?:(?:done|ended|started|post_done|post_err)\({_JOB}\)|exit\({_JOB}(?:{_COMPARED})?\)"
    rf"|num(?:done|ended|exit|hold|pend|run|start)\({_JOB}(?:{_COMPARED}|, *\*)\))"
)
_TIME = r"(?:[0-9]+:)?[0-9]+"  # [hour:]minute; the minutes may be more than 59
_GPU = (
    rf"num={NUMBER}(?:/(?:task|host))?(?::mode=(?:shared|exclusive_process))?(?::j_exclusive=(?:yes|no))?"
    r"(?::gmodel=[A-Za-z0-9_.-]+)?"
)


def _minutes(text: str) -> int:
    hours, _, minutes = text.rpartition(":")
    return int(hours or 0) * 60 + int(minutes)


def _limit(text: str) -> bool:
    return bool(re.fullmatch(_TIME, text)) and _minutes(text) > 0


def _addresses(text: str) -> bool:
    """Tell whether these are addresses with a blank between two (bsub -u)."""
    return len(text) <= 511 and "," not in text and fits(USERS, text.replace(" ", ","))


def _is_consistent(options: Options) -> bool:
    """Tell that a warning has its time and a limit, and does not come with the start (bsub -wa, -wt)."""
    if "-wa" not in options and "-wt" not in options:
        return True
    return {"-wa", "-wt", "-W"} <= options.keys() and _minutes(options["-wt"][0]) < _minutes(options["-W"][0])


GRAMMAR = Grammar(
    "lsf",
    {
        "-J": _name,
        "-n": f"{NUMBER}(?:,{NUMBER})?",  # min[,max]
        "-R": _requirement,
        "-gpu": _GPU,
        "-W": _limit,
        "-q": r"(?!default\b)[A-Za-z0-9_-]{1,59}(?: [A-Za-z0-9_-]{1,59})*",  # "queue_name ..."; names: lsb.queues
        "-P": r".{1,511}",
        "-sla": r"[^\s,]+",
        "-U": r"[^\s,]+",
        "-o": r".{1,4094}",
        "-e": r".{1,4094}",
        "-u": _addresses,
        "-w": rf"{_CONDITION}(?: ?(?:&&|\|\|) ?{_CONDITION})*",
        "-wa": "[A-Z]+[0-9]?",  # a signal's name without SIG
        "-wt": _TIME,
        **dict.fromkeys(("-x", "-r", "-N", "-B")),
    },
    _is_consistent,
)


def asked(options: Options) -> dict[str, Any]:
    """Return what the directives ask for."""
    sections = _sections(options["-R"][0])
    tasks, ptile = int(options["-n"][0]), int(sections["span"].removeprefix("ptile="))
    memory = re.fullmatch(r"mem=(\w+)/host", sections.get("rusage", ""))
    gpus = re.fullmatch(r"num=([0-9]+)/host(?::gmodel=(.*))?", options.get("-gpu", [""])[0])
    name, _, array = options["-J"][0].partition("[")
    fields = {"account": "-P", "qos": "-sla", "reservation": "-U", "output": "-o", "error": "-e", "dependency": "-w"}
    return named(options, fields) | {
        "job-name": name,
        "array": array.replace("]", ""),
        "nodes": tasks // ptile,
        "ntasks-per-node": ptile,
        "cpus-per-task": int(re.sub("[^0-9]", "", sections.get("affinity", "")) or 0),
        "mem": mebibytes(memory[1]) if memory else 0,
        "gpus-per-node": (int(gpus[1]), gpus[2] or "") if gpus else None,
        "constraint": sections.get("select", ""),
        "time": _minutes(options["-W"][0]) * 60 if "-W" in options else 0,
        "partition": options.get("-q", [""])[0].split(),
        "mail-user": options.get("-u", [""])[0].split(),
        "exclusive": "-x" in options,
        "requeue": "-r" in options,
    }
