"""Commands that a probe makes: its own options, typed and explained, before those of what is done with it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.main

from ptxlab.cli.common import Group
from ptxlab.errors import ToolError

if TYPE_CHECKING:
    from ptxlab.experiments.base import Option
    from ptxlab.experiments.probe import Probe


def probe_group(action: Callable[..., None]) -> type[Group]:
    """Return a kind of group: fixed commands, and one for every probe, loaded when it is asked for.

    Args:
        action: takes the probe, the values of the probe's options, and as keyword-only parameters whatever
            else the command line gives.

    """

    class Probes(Group):
        """The group; typer makes it."""

        def list_commands(self, ctx):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - typer keeps these types to itself
            from ptxlab.experiments.registry import probe_entries

            del ctx
            return [*self.commands, *(entry.name for entry in probe_entries() if not entry.problem)]

        def get_command(self, ctx, cmd_name):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
            from ptxlab.experiments.registry import find_probe, probe_entries

            del ctx
            if cmd_name in self.commands:
                return self.commands[cmd_name]
            if cmd_name not in [entry.name for entry in probe_entries()]:
                return None
            return _command(find_probe(cmd_name), action)

    return Probes


def _command(probe: Probe, action: Callable[..., None]) -> Any:
    """Return the command of one probe: its own options, then the parameters of ``action``."""
    options = probe.options()

    def run(**given: Any) -> None:
        own = {name: given.pop(name) for name in options}
        action(probe, own, **given)

    run.__doc__ = probe.summary
    shared = inspect.signature(action, eval_str=True).parameters
    taken = sorted(set(options) & set(shared))
    if taken:
        raise ToolError(
            f"{probe.folder}: every probe has --{taken[0]} already; call the option something else"
        )
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [_parameter(name, each) for name, each in options.items()]
        + [p for p in shared.values() if p.name not in ("probe", "own")]
    )
    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    app.command(probe.name)(run)
    return typer.main.get_command(app)


def _parameter(name: str, option: Option) -> inspect.Parameter:
    """Return the option of a probe as typer reads it from a signature."""
    flag = f"--{name.replace('_', '-')}"
    flags = (f"{flag}/--no-{flag[2:]}",) if option.default is True else (flag,)
    choices = "|".join(map(str, option.choices))
    short = len(choices) < 40
    declared = typer.Option(
        *flags,
        help=option.help if short else f"{option.help} ({', '.join(map(str, option.choices))})",
        metavar=option.metavar or (choices if short else "") or None,
        show_default=option.default not in ("", False),
    )
    kind = type(option.default)
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=option.default,
        annotation=Annotated[kind, declared],
    )
