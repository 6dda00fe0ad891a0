"""What `mingle env` and `mingle exec` share: ask, wait where people can see it, and collect the variables."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from mingle_hooks import runtime
from mingle_hooks.cli.waiting import Waiting
from mingle_hooks.errors import PlaceError
from mingle_hooks.export import variables
from mingle_hooks.export.shells import check
from mingle_hooks.join import enquire, join

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mingle_hooks.export.view import File, View
    from mingle_hooks.join import Enquiry


def answer(options: Mapping[str, object], *, explain: bool, no_wait: bool) -> tuple[dict[str, str], str]:
    """Return the variables to export, and the shell that they are for."""
    enquiry = enquire(os.environ, options)
    names = enquiry.settings.frameworks
    check(enquiry.settings.shell)
    with Waiting(sys.stderr, quiet=enquiry.settings.quiet) as watcher:
        view = join(enquiry, watcher, no_wait=no_wait)
    paths = _write(variables.files(view, names), enquiry, view)
    found = variables.variables(view, names, paths)
    if explain:
        from mingle_hooks.export.explain import explain as table  # noqa: PLC0415 - only then

        print(table(found), file=sys.stderr)  # noqa: T201 - the answer to --explain
    return {variable.name: variable.value for variable in found}, enquiry.settings.shell


def _write(files: tuple[File, ...], enquiry: Enquiry, view: View) -> dict[str, str]:
    """Write each file whole into a private directory; return name -> path."""
    if not files:
        return {}
    directory = runtime.path(enquiry.own, enquiry.facts.job_id, f"world-{view.world.digest}")
    runtime.make(directory)
    paths = {}
    for file in files:
        path = paths[file.name] = f"{directory}/{file.name}"
        try:
            with open(f"{path}.{os.getpid()}", "w") as draft:
                draft.write(file.text)
            os.replace(draft.name, path)
        except OSError as error:
            raise PlaceError("to write a file for a framework", f"{path}: {error.strerror}", "XDG_RUNTIME_DIR") from error
    return paths
