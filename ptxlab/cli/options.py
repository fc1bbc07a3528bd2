"""Commands that a probe makes: its own options, typed and explained, before those of what is done with it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.main

from ptxlab.cli.common import (
    Format,
    FormatOption,
    HtmlOption,
    JsonFlag,
    SvgOption,
    emit,
    save_pictures,
)
from ptxlab.cli.parsing import App, Command, Group
from ptxlab.errors import PtxlabError

if TYPE_CHECKING:
    from ptxlab.experiments.base import Option
    from ptxlab.experiments.probe import Probe
    from ptxlab.experiments.record import Record
    from ptxlab.experiments.registry import Entry


LaneOption = Annotated[
    int | None, typer.Option("--lane", metavar="N", min=0, max=31, help="Show just this lane.")
]


Action = Callable[..., "Record"]
"""What is done with a probe: takes it, the values of its options, and as keyword-only parameters whatever
else the command line gives; returns the record, which is then shown."""


def probe_group(action: Action, *, of_maps: bool = False, of_memory: bool = False) -> type[Group]:
    """Return a kind of group: fixed commands, and one for every probe, loaded when it is called.

    Args:
        action: what the commands of probes do.
        of_maps: list just the probes that report register maps.
        of_memory: and those that report operands in shared memory alone.

    """
    made = partial(_command, action=action, of_maps=of_maps)

    class Probes(Group):
        """The group; typer makes it."""

        @cached_property
        def entries(self) -> dict[str, Entry]:
            """Every probe by its name."""
            from ptxlab.experiments.registry import probe_entries

            return {each.name: each for each in probe_entries() if each.name not in self.commands}

        def list_commands(self, ctx: Any) -> list[str]:
            """Return the names of the fixed commands and of the probes that look sound."""
            del ctx
            said = {name: each.said for name, each in self.entries.items()}
            wanted = (
                name
                for name, each in said.items()
                if each.maps or not of_maps or (of_memory and each.in_memory)
            )
            sound = (name for name in wanted if not said[name].problem)
            return [*self.commands, *sound]

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            """Return a command by its name."""
            del ctx
            if cmd_name in self.commands:
                return self.commands[cmd_name]
            entry = self.entries.get(cmd_name)
            return _Unloaded(entry, made) if entry else None

    return Probes


class _Unloaded(Command):
    """The command of a probe as lists and TAB need it: the probe's file is run when it is called."""

    def __init__(self, entry: Entry, made: Callable[[Probe], Any]) -> None:
        super().__init__(entry.name)
        self._entry, self._made = entry, made

    def get_short_help_str(self, limit: int = 45) -> str:
        """Return the probe's question."""
        del limit
        return self._entry.said.summary

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Load the probe and return the context of its own command.

        Raises:
            ToolError: it cannot be loaded; the message says which line.

        """
        from ptxlab.experiments.base import blamed
        from ptxlab.experiments.registry import load_probe

        try:
            probe = load_probe(self._entry)
            with blamed(probe.file):
                command = self._made(probe)
        except PtxlabError:
            if not extra.get("resilient_parsing"):
                raise
            return super().make_context(info_name, args, parent, **extra)  # TAB has nothing to offer
        return command.make_context(info_name, args, parent, **extra)


def _command(probe: Probe, *, action: Action, of_maps: bool) -> Any:
    """Return the command of one probe: its own options, then the parameters of ``action``.

    One ``of_maps`` does not show options that change no map; who types one is told so by the action.

    Raises:
        ToolError: the probe has an option that every probe has, or has it twice.

    """
    from ptxlab.experiments.base import blamed

    options = probe.options()

    def run(**given: Any) -> None:
        own = {name: given.pop(name) for name in options}
        svg, html = (given.pop(each.name) for each in _DRAWN)
        printed = {each.name: given.pop(each.name) for each in _PRINTED}
        with blamed(probe.file):  # all that an action asks of the probe
            record = action(probe, own, **given)
        save_pictures(record, svg, html, probe.file)
        emit(record, author=probe.file, **printed)

    run.__doc__ = "\n\n".join(filter(None, (probe.summary, probe.usage)))
    asked = _parameters_of(action, probe)
    _refuse_taken(probe, [_flag(each.name) for each in (*asked, *_DRAWN, *_PRINTED)])
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [_parameter(name, each, hidden=of_maps and not each.maps) for name, each in options.items()]
        + [*asked, *_DRAWN, *_PRINTED]
    )
    app = App(add_completion=False)
    app.command(probe.name)(run)
    return typer.main.get_command(app)


def _parameters_of(action: Action, probe: Probe) -> list[inspect.Parameter]:
    """Return what an action asks of the command line for this probe."""
    given = ("probe", "own") if probe.maps else ("probe", "own", "lane")
    parameters = inspect.signature(action, eval_str=True).parameters
    return [each for name, each in parameters.items() if name not in given]


def _refuse_taken(probe: Probe, shared: list[str]) -> None:
    """Refuse an option of a probe that every probe has, or that it has twice."""
    from ptxlab.experiments.base import fault

    every = [*shared, "--probe", "--own", "--help", "--debug"]
    flags = [each for name, own in probe.options().items() for each in (_flag(name), own.alias) if each]
    taken = [each for each in flags if each in every or flags.count(each) > 1]
    if taken:
        raise fault(probe, f"there is a {taken[0]} already; call the option something else")


def _parameter(name: str, option: Option, *, hidden: bool) -> inspect.Parameter:
    """Return the option of a probe as typer reads it from a signature."""
    flag = _flag(name)
    flags = [f"{flag}/--no-{flag[2:]}" if option.default is True else flag]
    flags += [option.alias] if option.alias else []
    choices = "|".join(str(choice) for choice in option.choices if choice != "")
    short = len(choices) < 40
    declared = typer.Option(
        *flags,
        hidden=hidden,
        help=option.help if short else f"{option.help} ({', '.join(map(str, option.choices))})",
        metavar=option.metavar or (choices if short else "") or None,
        show_default=option.default not in ("", False) and "left out" not in option.help,
        autocompletion=lambda: [str(choice) for choice in option.choices],
    )
    kind = type(option.default)
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=option.default,
        annotation=Annotated[kind, declared],
    )


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _shared(name: str, annotation: Any, *, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


_DRAWN = (_shared("svg", SvgOption, default=None), _shared("html", HtmlOption, default=None))
_PRINTED = (
    _shared("json", JsonFlag, default=False),
    _shared("format", FormatOption, default=Format.TABLE),
)
