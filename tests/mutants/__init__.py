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
    schedulers,
    starters,
    worlds,
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
    *starters.ROWS,
    *worlds.ROWS,
)
