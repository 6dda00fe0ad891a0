"""A command that only has commands below it."""

from __future__ import annotations

import shutil
from typing import Any

import click

from mingle_hooks.errors import UsageError
from mingle_hooks.nearest import nearest

# Set by what makes a shell complete: what is wanted, such as bash_complete.
COMPLETE = "_MINGLE_COMPLETE"


class Group(click.Group):
    """Shows its help where no command is named, as a mistake; what click does then differs from version to version."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"subcommand_metavar": "COMMAND [ARG]...", **kwargs})

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse an empty command line before click looks at it."""
        if not args and not self.invoke_without_command and not ctx.resilient_parsing:  # else: for a Tab
            click.echo(ctx.get_help(), err=True)
            ctx.exit(UsageError.exit_code)
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each command with the whole line that it says of itself."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, its.get_short_help_str(limit=1000)) for name, its in found if its is not None]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that is meant, and its own words. UsageError, with the nearest, where there is none."""
        name, known = args[0], self.list_commands(ctx)
        if name not in known and not ctx.resilient_parsing and not name.startswith("-"):
            near = f"{ctx.command_path} {self._meant(ctx, name)}"
            raise UsageError(f"a command: {', '.join(known)}", name, f"`{near}`")
        return super().resolve_command(ctx, args)

    def _meant(self, ctx: click.Context, name: str) -> str:
        """Return what to type instead of a name that is no command; a program's is what `exec` becomes."""
        lines = self._lines(ctx)
        if name not in lines and "exec" in lines and shutil.which(name):
            return f"exec {name}"
        return lines[nearest(name, lines)]

    def _lines(self, ctx: click.Context) -> dict[str, str]:
        """Return each command's name -> what to type; also of those below: `mingle doctor` is `mingle hooks doctor`."""
        known = self.list_commands(ctx)
        groups = {name: its for name in known if isinstance(its := self.get_command(ctx, name), click.Group)}
        below = {name: f"{group} {name}" for group, its in groups.items() for name in its.list_commands(ctx)}
        return {name: name for name in known} | {name: line for name, line in below.items() if name not in known}
