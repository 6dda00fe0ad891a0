"""A hook's text: the template filled in, with a header that tells who made it and a checksum."""

from __future__ import annotations

import functools
import hashlib
import json
import shlex
from typing import TYPE_CHECKING, NamedTuple

import mingle_hooks
from mingle_hooks.filling import Shipped, environment
from mingle_hooks.install.site import KILL_SWITCH
from mingle_hooks.runtime import RUN_ROOT

if TYPE_CHECKING:
    import jinja2

    from mingle_hooks.install.hook import Hook
    from mingle_hooks.install.site import Site

# Where the site's prolog.d, epilog.d and taskprolog.d are, whose programs Slurm's hooks run.
DROP_INS = "/etc/mingle"
# What enroot's hook asks, outside of the container.
TASK_PROLOG = "/etc/mingle/hooks/slurm/taskprolog"
_SUM = "sha256 of the other lines:"


class Chain(NamedTuple):
    """What the site has of its own: a program that the hook calls, a directory of programs, and prolog.d and so on."""

    program: str = ""
    directory: str = ""
    drop_ins: str = DROP_INS


NO_CHAIN = Chain()


def render(
    hook: Hook,
    site: Site,
    chain: Chain = NO_CHAIN,
    *,
    state_directory: str = RUN_ROOT,
    kill_switch: str = KILL_SWITCH,
) -> str:
    """Return the whole file; the same arguments always give the same text.

    The two places are the ones on every host, except where a hook is tried out.
    """
    made_by = f"Made by: mingle hooks render {hook.scheduler} {hook.name} (mingle-hooks {mingle_hooks.__version__})."
    lines = (
        made_by,
        "Change /etc/mingle/mingle.toml and make it again, rather than change it here.",
        f"{_SUM} @",
    )
    text = (
        _environment()
        .get_template(hook.template)
        .render(
            header="\n".join(f"{hook.comment}{line}" for line in lines),
            hook=hook,
            site=site,
            chain=chain.program,
            directory=chain.directory,
            drop_ins=chain.drop_ins,
            kill_switch=kill_switch,
            state_directory=state_directory,
            task_prolog=TASK_PROLOG,
        )
    )
    if not hook.comment:  # JSON has no comments
        return text
    line = f"{hook.comment}{_SUM} @\n"
    digest = hashlib.sha256(text.replace(line, "", 1).encode()).hexdigest()
    return text.replace(line, f"{hook.comment}{_SUM} {digest}\n", 1)


@functools.cache
def _environment() -> jinja2.Environment:
    return environment(Shipped("hooks"), {"sh": shlex.quote, "json": json.dumps})
