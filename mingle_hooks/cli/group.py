"""A command that only has commands below it."""

from __future__ import annotations

import click

from mingle_hooks.errors import UsageError


class Group(click.Group):
    """Shows its help where no command is named, as a mistake; what click does then differs from version to version."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse an empty command line before click looks at it."""
        if not args and not self.invoke_without_command:
            click.echo(ctx.get_help(), err=True)
            ctx.exit(UsageError.exit_code)
        return super().parse_args(ctx, args)
