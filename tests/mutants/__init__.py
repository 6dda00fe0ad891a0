"""Defects put in on purpose, and the tests that have to find each: `make mutants`."""

from mutants.rows import (
    cli,
    export,
    fabric,
    found,
    hooks,
    install,
    job,
    leader,
    member,
    multicast,
    protocol,
    render,
    runner,
    schedulers,
    starters,
    supervise,
)

DEFECTS = (
    *schedulers.ROWS,
    *job.ROWS,
    *fabric.ROWS,
    *export.ROWS,
    *render.ROWS,
    *install.ROWS,
    *hooks.ROWS,
    *cli.ROWS,
    *protocol.ROWS,
    *multicast.ROWS,
    *leader.ROWS,
    *member.ROWS,
    *found.ROWS,
    *runner.ROWS,
    *starters.ROWS,
    *supervise.ROWS,
)
