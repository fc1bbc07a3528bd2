"""What commands and groups do differently from typer's own: ``App`` makes them.

All have --debug; their help leaves by the way that every answer does; no value is empty; and wrong usage is
told with the nearest name and what would be legal.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

from ptxlab.cli.common import write
from ptxlab.errors import UsageError, is_plain_number, printable, shortened, unknown_name

# Typer keeps its copy of click to itself: the base of its usage errors is taken from one of them.
_TyperUsageError = cast("type[Any]", typer.BadParameter.__mro__[1])

_NEGATIVE = re.compile(r"-\d+")  # a space before it tells click that it is no option, and int() nothing

_NUMBERS = {int: "a whole number", float: "a number"}

if TYPE_CHECKING:
    _Base = TyperCommand
else:
    _Base = object


class _Shared(_Base):
    """What a command and a group have in common. Typer keeps the type of a context to itself."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters: the command's own, the root's --debug, and --help."""
        *own, helping = super().get_params(ctx)
        debug = [param for param in ctx.find_root().command.params if param.name == "debug"]
        return [*own, *(param for param in debug if param not in own), helping]

    def get_help_option_names(self, ctx: Any) -> list[str]:
        """Return its flags in one order: click has them in a set."""
        return sorted(super().get_help_option_names(ctx))

    def get_help_option(self, ctx: Any) -> Any:
        """Return --help, which prints as every command does."""
        option = super().get_help_option(ctx)
        if option is not None:
            option.callback = _print_help
        return option

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse what was typed.

        Raises:
            UsageError: it is wrong.

        """
        if ctx.resilient_parsing:
            return super().parse_args(ctx, args)
        typed: dict[str, Any] = {}
        try:
            typed, _, _ = self.make_parser(ctx).parse_args(list(args))
            _refuse_empty(ctx, typed)
            _refuse_odd_numbers(ctx, typed)
            return super().parse_args(ctx, args)
        except _TyperUsageError as error:
            raise _usage_error(error, ctx, typed or self._as_far_as_sound(ctx, args)) from error

    def _as_far_as_sound(self, ctx: Any, args: list[str]) -> dict[str, Any]:
        """Return what stands on a line up to where it is wrong: what is legal there may depend on it."""
        ctx.resilient_parsing = True  # the parser stops instead of raising
        try:
            typed, ctx.args, _ = self.make_parser(ctx).parse_args(list(args))  # arguments are not sorted out
        finally:
            ctx.resilient_parsing = False
        return dict(typed)


class Command(_Shared, TyperCommand):
    """A command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse what was typed; where numbers are arguments, -1 is one and no option."""
        params: list[Any] = self.params
        arguments = [param for param in params if param.param_type_name == "argument"]
        if any(each.type_descriptor.annotation is int for each in arguments):
            args = [f" {word}" if _NEGATIVE.fullmatch(word) else word for word in args]
        return super().parse_args(ctx, args)


class Group(_Shared, TyperGroup):
    """Commands under one name; an unknown one is answered with the nearest name and the whole list."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the group's own options.

        Raises:
            UsageError: no command follows.

        """
        if not args and not self.invoke_without_command and not ctx.resilient_parsing:
            names = ", ".join(self.list_commands(ctx))
            raise UsageError(f"{ctx.command_path} needs a command: {names}", f"{ctx.command_path} --help")
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the name, the command and the arguments left for it.

        Raises:
            UsageError: the first argument is no command.

        """
        asked = args[0]
        if not asked.startswith("-") and self.get_command(ctx, asked) is None:
            raise unknown_name(f"{ctx.command_path} command", asked, self.list_commands(ctx))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands; a long line is wrapped, where typer's own would be cut."""
        commands: dict[str, Any] = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        with formatter.section("Commands"):
            formatter.write_dl([(name, each.get_short_help_str(1000)) for name, each in commands.items()])


class App(typer.Typer):
    """A group to which commands are added, all of them of the kinds above."""

    def __init__(self, cls: type[Group] = Group, **more: Any) -> None:
        # Panels around the help would double its time, and do not fit a pipe.
        super().__init__(cls=cls, no_args_is_help=True, rich_markup_mode=None, **more)

    def command(self, name: str | None = None, *, cls: type[TyperCommand] | None = None, **more: Any) -> Any:
        """Return the decorator that adds a command."""
        return super().command(name, cls=cls or Command, **more)


def typed_options(ctx: Any) -> dict[str, str]:
    """Return the parameters that stand on the command line: name -> how it is typed, such as "--list"."""
    return {
        param.name: _shown(param)
        for param in ctx.command.get_params(ctx)
        if getattr(ctx.get_parameter_source(param.name), "name", "") == "COMMANDLINE"
    }


def _print_help(ctx: Any, param: Any, asked: bool) -> None:  # noqa: FBT001 - typer calls it with the flag's value
    del param
    if asked and not ctx.resilient_parsing:
        write(f"{printable(ctx.get_help())}\n")
        raise typer.Exit


def _refuse_empty(ctx: Any, typed: Mapping[str, Any]) -> None:
    """Refuse an empty value, which would pass for one that was left out, and an option in a value's place."""
    params = ctx.command.get_params(ctx)
    flags = {flag for param in params for flag in _flags(param)}
    for param in params:
        value = typed.get(param.name)
        values = set(value if isinstance(value, list | tuple) else [value])
        if "" in values or (_flags(param) and values & flags):
            lacks = "has an empty word" if param.nargs == -1 else "needs a value"
            raise _needs(ctx, param, f"{_shown(param)} {lacks}", typed)


def _refuse_odd_numbers(ctx: Any, typed: Mapping[str, Any]) -> None:
    """Refuse a number that is not plain: click would take digits of any script, and 1_0."""
    for param in ctx.command.get_params(ctx):
        is_number, value = param.type_descriptor.annotation in _NUMBERS, typed.get(param.name)
        if is_number and isinstance(value, str) and not is_plain_number(value):
            raise typer.BadParameter(value, ctx=ctx, param=param)


def _needs(ctx: Any, param: Any, what: str, typed: Mapping[str, Any]) -> UsageError:
    """Return the error that a value is missing, with what it may be."""
    if _flags(param):
        told = f"legal: {', '.join(_choices(ctx, param, typed)) or param.metavar or 'any but an empty one'}"
    else:
        told = param.help or "an argument"
    return UsageError(f"{what}; {told}", f"{ctx.command_path} --help")


def _usage_error(error: Any, ctx: Any, typed: Mapping[str, Any]) -> UsageError:
    """Return typer's usage error in ptxlab's words."""
    path, params = ctx.command_path, ctx.command.get_params(ctx)
    match type(error).__name__:
        case "NoSuchOption":
            known = [flag for param in params for flag in _flags(param)]
            return unknown_name(f"{path} option", error.option_name, known)
        case "BadOptionUsage":
            (param,) = (each for each in params if error.option_name in _flags(each))
            if not param.is_flag:
                return _needs(ctx, param, f"{_shown(param)} needs a value", typed)
        case "MissingParameter":
            return _needs(ctx, error.param, f"{path} needs {_shown(error.param)}", typed)
        case "BadParameter" if error.param is not None:
            return _bad_value(error, ctx, error.param, typed)
    return UsageError(error.format_message(), f"{path} --help")


def _bad_value(error: Any, ctx: Any, param: Any, typed: Mapping[str, Any]) -> UsageError:
    """Return the error for a value that typer could not take: the value and the legal ones."""
    choices, value = _choices(ctx, param, typed), typed.get(param.name)
    if choices:
        told = unknown_name(f"value for {_shown(param)}", str(value), choices)
        told.hint = told.hint or f"{ctx.command_path} --help"
        return told
    shown = f"'{shortened(str(value).strip(), 80)}' is no value for {_shown(param)}"
    legal = _range(param) or _NUMBERS.get(param.type_descriptor.annotation)
    return UsageError(
        f"{shown}; legal: {legal}" if legal else f"{shown}: {error.message}", f"{ctx.command_path} --help"
    )


def _range(param: Any) -> str:
    """Return the numbers that an option may be, or "" where it has no limits."""
    low, high = param.min, param.max
    if low is None:
        return "" if high is None else f"at most {high}"
    return f"at least {low}" if high is None else f"{low} to {high}"


def _choices(ctx: Any, param: Any, typed: Mapping[str, Any]) -> list[str]:
    """Return what TAB offers for a parameter beside what was typed: the legal values, if there is a list."""
    ctx.params = {**typed, **ctx.params}
    return [item.value for item in param.shell_complete(ctx, "") if item.value]


def _flags(param: Any) -> list[str]:
    """Return how an option is typed; an argument has no flag."""
    return [*param.opts, *param.secondary_opts] if param.param_type_name == "option" else []


def _shown(param: Any) -> str:
    """Return the parameter as the help calls it."""
    if not _flags(param):
        return str(param.metavar or param.name)
    return str(max(param.opts, key=lambda flag: (len(flag.lstrip("-")), -len(flag))))  # -m rather than --m
