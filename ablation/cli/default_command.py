"""A group of commands with one that is meant when none is named: `ablation audit RUN` beside `ablation audit weights`."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup


class DefaultCommand(TyperGroup):
    """Runs the command `default` where the first argument is not the name of a command, and none of the group's own options."""

    default = "run"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        named = bool(args) and (args[0] in self.commands or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if named else [self.default, *args])
