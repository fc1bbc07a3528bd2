"""What the commands share: their standard options, and how records and files leave the program.

Imports nothing heavy: what draws, computes or compiles is imported by the command that needs it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer
from typer.core import TyperGroup

from ptxlab.errors import MissingError, UsageError, unknown_name
from ptxlab.files import write_whole

if TYPE_CHECKING:
    from ptxlab.experiments.record import Record


class Format(StrEnum):
    """The human forms of a record."""

    TABLE = "table"
    CSV = "csv"
    MD = "md"


class Backend(StrEnum):
    """What may answer; AUTO is the device where there is one, else the model."""

    AUTO = "auto"
    DEVICE = "device"
    MODEL = "model"


JsonFlag = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else there.")
]
FormatOption = Annotated[Format, typer.Option("--format", help="How to print for people.")]
DebugFlag = Annotated[
    bool, typer.Option("--debug", help="Show the traceback of an error.", expose_value=False)
]
"""Every command has it without declaring it, and main acts on it: see Group."""
ArchOption = Annotated[
    str | None,
    typer.Option(
        "--arch",
        metavar="SM_XX",
        help="Architecture to compile for; left out: that of the device that runs, else sm_90a.",
    ),
]
BackendOption = Annotated[
    Backend, typer.Option("--backend", help="What answers; auto takes the device if there is one.")
]
DeviceOption = Annotated[int, typer.Option("--device", metavar="N", min=0, help="Which GPU, counted from 0.")]
TimeoutOption = Annotated[
    float,
    typer.Option("--timeout", metavar="SECONDS", min=0.001, help="Time limit of one job on the GPU."),
]

SvgOption = Annotated[Path | None, typer.Option("--svg", help="Draw the picture into this file.")]
HtmlOption = Annotated[
    Path | None, typer.Option("--html", help="Write a page on which a lane lights up everywhere.")
]


class Group(TyperGroup):
    """Commands under one name: ``typer.Typer(cls=Group)``.

    It answers an unknown command with the nearest name and the whole list, and gives its commands
    what all of them have in common.
    """

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
        if not ctx.resilient_parsing and not asked.startswith("-"):
            known = self.list_commands(ctx)
            if asked not in known and self.get_command(ctx, asked) is None:
                raise unknown_name(f"{ctx.command_path} command", asked, known)
        name, command, rest = super().resolve_command(ctx, args)
        if command is not None:
            _equip(command, ctx.find_root().command)
        return name, command, rest

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands; a long line is wrapped, where typer's own would be cut."""
        commands: dict[str, Any] = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        with formatter.section("Commands"):
            formatter.write_dl([(name, each.get_short_help_str(1000)) for name, each in commands.items()])


def _equip(command: Any, root: Any) -> None:
    """Give a command, and all under it, --debug (declared at the root) and help without panels."""
    command.rich_markup_mode = root.rich_markup_mode
    if all(param.name != "debug" for param in command.params):
        command.params.extend(param for param in root.params if param.name == "debug")
    for child in getattr(command, "commands", {}).values():
        _equip(child, root)


_command_line: list[str] = []


def command_line() -> list[str]:
    """Return what the user typed after the program's name: Record.command."""
    return list(_command_line)


def set_command_line(argv: Sequence[str]) -> None:
    """Remember what the user typed (main does)."""
    _command_line[:] = argv


def emit(record: Record, *, json: bool, format: Format = Format.TABLE) -> None:
    """Print the record on stdout: as the JSON document, or as the command's view of it.

    Failed checks are named on stderr too, so that whoever reads only the log knows why.

    Raises:
        typer.Exit: with the record's exit code when a check failed.

    """
    print_record(record, json=json, format=format)
    failed = [check for check in record.checks if not check["ok"]]
    if failed:
        first = f"{failed[0]['name']}: {failed[0]['detail']}"
        complain(f"{len(failed)} of {len(record.checks)} checks failed, the first: {first}")
        raise typer.Exit(int(record.exit_code))


def print_record(record: Record, *, json: bool, format: Format) -> None:
    """Print the record on stdout, whatever its checks say."""
    from ptxlab.render.show import text_of

    record.command = record.command or command_line()
    write(text_of(record.document(), "json" if json else format.value))


def write(text: str) -> None:
    """Write text to stdout.

    Raises:
        BrokenPipeError: the reader is gone.
        MissingError: stdout cannot be written, such as on a full disk.

    """
    try:
        _put(text, sys.stdout)
    except BrokenPipeError:
        raise
    except OSError as error:
        silence(sys.__stdout__)
        raise MissingError(f"cannot write to stdout: {error.strerror or error}") from error


def complain(message: str, hint: str = "") -> None:
    """Print a failure on stderr: one line, and one line with the next command if there is one."""
    lines = [f"ptxlab: {_one_line(message)}"] + ([f"hint: {_one_line(hint)}"] if hint else [])
    try:
        _put("\n".join(lines) + "\n", sys.stderr)
    except OSError:  # there is no other place to say it; the exit code still does
        silence(sys.__stderr__)


def _put(text: str, stream: TextIO | None) -> None:
    """Write and flush; a stream that was closed before the program started is None."""
    if stream is not None:
        stream.write(text)
        stream.flush()


def silence(stream: TextIO | None) -> None:
    """Send what the stream still buffers, and what follows, nowhere: its destination is lost."""
    if stream is not None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def _one_line(text: str) -> str:
    """Return the text with its line breaks shown as "; " (a compiler's message has several)."""
    return "; ".join(part.strip() for part in text.splitlines() if part.strip())


def save_pictures(record: Record, svg: Path | None, html: Path | None) -> None:
    """Draw the record's view into the files that the user asked for.

    Raises:
        MissingError: one cannot be written there.

    """
    if svg is None and html is None:
        return
    from ptxlab.render.html import page
    from ptxlab.render.show import blocks
    from ptxlab.render.svg import draw

    record.command = record.command or command_line()
    view = blocks(record.document())
    for path, form in ((svg, draw), (html, page)):
        if path:
            write_whole(path, form(view))
