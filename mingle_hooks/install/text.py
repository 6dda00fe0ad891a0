"""A hook's text: the template filled in, with a header that tells who made it and a checksum."""

from __future__ import annotations

import functools
import json
import shlex
from typing import TYPE_CHECKING, NamedTuple

from mingle_hooks.filling import Shipped, environment
from mingle_hooks.install import made
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
    text = (
        _environment()
        .get_template(hook.template)
        .render(
            header=made.header(hook.scheduler, hook.name, chain.program),
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
    return made.stamped(text)


@functools.cache
def _environment() -> jinja2.Environment:
    return environment(Shipped("hooks"), {"sh": shlex.quote, "json": json.dumps})
