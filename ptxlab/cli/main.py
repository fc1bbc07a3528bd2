"""The command ``ptxlab``: finds what was asked for, and turns every ending into an exit code."""

from __future__ import annotations

import importlib
import io
import re
import select
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn, cast

import typer
import typer.main

from ptxlab import __version__
from ptxlab.cli import common
from ptxlab.errors import ExitCode, PtxlabError, ToolError, UsageError, unknown_name

COMMANDS = ("doctor", "probe", "layout", "swizzle", "sass", "gemm", "profile", "cache")
"""Each is a module of ptxlab.cli with ``register(app)``; this is the order in --help."""

# Typer keeps its copy of click to itself: the base of its usage errors is taken from one of them.
_TyperUsageError = cast("type[Any]", typer.BadParameter.__mro__[1])


class _Commands(common.Group):
    """The commands, each imported when it is needed and no sooner."""

    def list_commands(self, ctx: Any) -> list[str]:
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        del ctx
        if cmd_name not in COMMANDS:
            return None
        if cmd_name not in self.commands:
            app = typer.Typer()
            importlib.import_module(f"ptxlab.cli.{cmd_name}").register(app)
            self.commands.update(typer.main.get_group(app).commands)
        return self.commands[cmd_name]


app = typer.Typer(
    cls=_Commands,
    rich_markup_mode=None,  # panels around the help would double its time, and do not fit a pipe
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(asked: bool) -> None:  # noqa: FBT001 - typer calls it with the flag's value
    if asked:
        common.write(f"ptxlab {__version__}\n")
        raise typer.Exit


@app.callback()
def _root(
    *,
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True),
    ] = False,
    debug: common.DebugFlag = False,
) -> None:
    """What tensor-core instructions do: predicted by a model, run, compared."""


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run the command line (``sys.argv`` if None) and end the process with its exit code."""
    sys.exit(run(sys.argv[1:] if argv is None else argv))


def run(argv: Sequence[str]) -> int:
    """Run the command line and return its exit code. No exception leaves this function."""
    _survive_any_text()
    common.set_command_line(argv)
    try:
        return _reported(argv)
    except BrokenPipeError:  # the reader, such as head, has what it wanted
        common.silence(sys.__stdout__)
        return ExitCode.OK
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except Exception as error:  # noqa: BLE001 - telling of the first failure failed, too
        return _complain(error)


def _reported(argv: Sequence[str]) -> int:
    """Run the command line and tell the user of every failure."""
    try:
        return _dispatch(argv)
    except Exception as error:
        if isinstance(error, BrokenPipeError) and _reader_is_gone():
            raise
        if _typed(argv, "--debug"):
            traceback.print_exception(error)
        return _report(error, argv)


def _dispatch(argv: Sequence[str]) -> int:
    """Let typer parse the command line and call the command; return the exit code."""
    try:
        result = typer.main.get_command(app).main(
            args=list(argv) or ["--help"], prog_name="ptxlab", standalone_mode=False
        )
        common.write("")
    except SystemExit as ending:
        if isinstance(ending.__context__, BrokenPipeError):  # typer's answer to a closed pipe
            raise ending.__context__ from None
        result = ending.code
    return result if isinstance(result, int) else ExitCode.OK


def _report(error: Exception, argv: Sequence[str]) -> int:
    """Print what was reached, or the error document, and the failure; return the exit code."""
    failure = _as_ptxlab_error(error)
    try:
        if _typed(argv, "--json"):
            from ptxlab.experiments.record import error_document
            from ptxlab.render.show import as_json

            common.write(as_json(error_document(common.command_line(), failure)))
        elif failure.record is not None:
            common.print_record(failure.record, json=False, format=_typed_format(argv))
    except BrokenPipeError:
        raise
    except Exception:
        _complain(failure)
        raise
    return _complain(failure)


def _complain(error: Exception) -> int:
    """Print the failure on stderr; return the exit code."""
    failure = _as_ptxlab_error(error)
    common.complain(failure.message, failure.hint)
    return failure.exit_code


def _as_ptxlab_error(error: Exception) -> PtxlabError:
    """Return the failure as one that can be reported."""
    if isinstance(error, PtxlabError):
        return error
    if isinstance(error, _TyperUsageError):
        return _usage_error(error)
    return ToolError(
        f"{type(error).__name__}: {error} (this is a fault of ptxlab)",
        "run it again with --debug and report what that shows",
        code="internal",
    )


def _usage_error(error: Any) -> UsageError:
    """Return typer's usage error in ptxlab's words."""
    path = error.ctx.command_path if error.ctx else "ptxlab"
    name = getattr(error, "option_name", "")
    if name and type(error).__name__ == "NoSuchOption":
        known = [option for p in error.ctx.command.get_params(error.ctx) for option in p.opts]
        return unknown_name(f"{path} option", name, [k for k in known if k.startswith("-")])
    value = _typed_value(getattr(getattr(error, "param", None), "opts", []))
    given = f" (given: '{value}')" if value is not None and f"'{value}'" not in error.format_message() else ""
    return UsageError(error.format_message() + given, f"{path} --help")


def _typed_value(options: Sequence[str]) -> str | None:
    """Return what was typed for an option, which typer's own messages leave out."""
    words = _options(common.command_line())
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word in options:
            return following
        name, equals, value = word.partition("=")
        if equals and name in options:
            return value
    return None


def _options(argv: Sequence[str]) -> list[str]:
    """Return the part of the command line that is ptxlab's: what stands before ``--``."""
    return list(argv[: argv.index("--")]) if "--" in argv else list(argv)


def _typed(argv: Sequence[str], flag: str) -> bool:
    """Whether the flag was typed; asked for when parsing itself may have failed."""
    return flag in _options(argv)


def _typed_format(argv: Sequence[str]) -> common.Format:
    """Return the --format that was typed, or the default."""
    words = " ".join(_options(argv))
    forms = (form for form in common.Format if re.search(rf"--format[ =]{form.value}\b", words))
    return next(forms, common.Format.TABLE)


def _survive_any_text() -> None:
    """Let text that the terminal's encoding lacks print as an escape instead of raising."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _reader_is_gone() -> bool:
    """Whether the pipe that broke is stdout, and not one to some other program."""
    if sys.platform == "win32" or sys.__stdout__ is None:
        return sys.__stdout__ is not None
    poll = select.poll()
    poll.register(sys.__stdout__, 0)
    return bool(poll.poll(0))
