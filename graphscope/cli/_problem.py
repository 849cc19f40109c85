"""What the user can mend, told in one line."""

from __future__ import annotations

import click

from ..errors import GraphscopeError


class Problem(click.ClickException):
    """Something that the user can mend: one line on stderr, exit status 2."""

    exit_code = 2


class Commands(click.Group):
    """Commands that tell every misuse in one line."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            command = (error.ctx or ctx).command_path
            raise Problem(f"{error.format_message()} (see `{command} --help`)") from None
        except GraphscopeError as error:
            raise Problem(str(error)) from None
