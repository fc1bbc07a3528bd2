"""The command ``ptxlab``: finds what was asked for, and turns every ending into an exit code."""

from __future__ import annotations

import importlib
import io
import os
import re
import select
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any, cast

import typer
import typer.main

from ptxlab import __version__
from ptxlab.cli import common, completion
from ptxlab.cli.parsing import App, Group
from ptxlab.errors import ExitCode, PtxlabError, ToolError

COMMANDS = ("doctor", "probe", "layout", "swizzle", "banks", "sass", "gemm", "profile", "cache")
"""Each is a module of ptxlab.cli with ``register(app)``; this is the order in --help."""


class _Commands(Group):
    """The commands, each imported when it is needed and no sooner."""

    def list_commands(self, ctx: Any) -> list[str]:
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        del ctx
        if cmd_name not in COMMANDS:
            return None
        if cmd_name not in self.commands:
            app = App()
            importlib.import_module(f"ptxlab.cli.{cmd_name}").register(app)
            self.commands.update(typer.main.get_group(app).commands)
        return self.commands[cmd_name]


app = App(
    cls=_Commands,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(ctx: typer.Context, asked: bool) -> None:  # noqa: FBT001 - typer calls it with the flag's value
    if asked and not ctx.resilient_parsing:  # which is how a shell asks what could follow
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
    root = _root_command()
    try:
        if completion.VARIABLE in os.environ:
            return completion.complete(root, os.environ[completion.VARIABLE])
        result = root.main(args=list(argv) or ["--help"], prog_name="ptxlab", standalone_mode=False)
        common.write("")
    except SystemExit as ending:
        if isinstance(ending.__context__, BrokenPipeError):  # typer's answer to a closed pipe
            raise ending.__context__ from None
        result = ending.code
    return result if isinstance(result, int) else ExitCode.OK


def _root_command() -> Any:
    """Return what parses the command line."""
    root = typer.main.get_command(app)
    for param in root.params:
        if param.name in ("install_completion", "show_completion"):
            param.callback = completion.install_with_care(cast("Any", param.callback))
    return root


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
    return ToolError(
        f"{type(error).__name__}: {error} (this is a fault of ptxlab)",
        "run it again with --debug and report what that shows",
        code="internal",
    )


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
