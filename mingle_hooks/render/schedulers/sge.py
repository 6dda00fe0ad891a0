"""Directives for Grid Engine's qsub. Source: qsub(1), submit(1).

A parallel environment decides how slots are put on nodes, and its name is the site's: `--directive "-pe NAME N"`
replaces the one here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mingle_hooks.render.quantities import hms, size
from mingle_hooks.render.schedulers import Directive, pbs, refused

if TYPE_CHECKING:
    from mingle_hooks.render.job import Job

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.+-]{0,229}", re.ASCII)
_ARRAY = re.compile(r"[1-9][0-9]*-[0-9]+(?::[0-9]+)?(?:%[0-9]+)?", re.ASCII)
_RESOURCE = re.compile(
    r"[A-Za-z][A-Za-z0-9_]*(=[A-Za-z0-9_.*|-]+)?(,[A-Za-z][A-Za-z0-9_]*(=[A-Za-z0-9_.*|-]+)?)*", re.ASCII
)


def directives(job: Job) -> tuple[Directive, ...]:
    """Return the directives. `requeue` is the queue's to do, on the script's exit status 99."""
    if len(job.groups) > 1:
        raise refused("nodes", "+".join(str(group.nodes) for group in job.groups), "one group of nodes")
    group = job.groups[0]
    slots = group.ntasks * (group.cpus or 1)
    ranges, _, most = (job.array or "").partition("%")
    return (
        Directive(
            f"-N {pbs.matching('job-name', job.job_name, _NAME, 'a letter, then letters, digits and _.+-')}", "job-name"
        ),
        Directive("-S /bin/bash", "default"),
        *(
            []
            if any(text.startswith("-pe ") for text in job.directive)
            else [Directive(f"-pe mpi {group.nodes * slots}", "nodes")]
        ),
        *pbs.option("-l gpu=", "gpus-per-node", group.gpus and group.gpus.number),
        # Grid Engine counts memory for each slot.
        *pbs.option("-l h_vmem=", "mem", group.mem and size(-(-group.mem // slots), ("M", "G"))),
        *(
            [Directive(f"-l {pbs.matching('constraint', group.constraint, _RESOURCE, 'NAME=VALUE')}", "constraint")]
            if group.constraint
            else []
        ),
        *([Directive("-l exclusive=true", "exclusive")] if job.exclusive else []),
        *pbs.option("-l h_rt=", "time", job.time and hms(job.time)),
        *pbs.option("-q ", "partition", job.partition),
        *pbs.option("-P ", "account", job.account),
        *pbs.option("-ar ", "reservation", job.reservation),
        *(
            [Directive(f"-t {pbs.matching('array', ranges, _ARRAY, 'FIRST-LAST[:STEP] from 1')}", "array")]
            if ranges
            else []
        ),
        *pbs.option("-tc ", "array", most),
        *pbs.option("-hold_jid ", "dependency", job.dependency),
        *pbs.option("-o ", "output", job.output),
        *(pbs.option("-e ", "error", job.error) if job.error else (Directive("-j y", "default"),)),
        *pbs.option("-M ", "mail-user", job.mail_user),
        *pbs.option("-m ", "mail-type", pbs.mail(job)),
        *(_no_qos(job)),
        Directive(f"-r {'y' if job.requeue else 'n'}", "requeue" if job.requeue else "default"),
        Directive("-cwd", "default"),
    )


def _no_qos(job: Job) -> tuple[Directive, ...]:
    if job.qos:
        raise refused("qos", job.qos, "nothing, as Grid Engine has none")
    return ()
