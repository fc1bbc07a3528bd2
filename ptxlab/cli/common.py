"""What the commands share: their standard options, and how records and files leave the program.

Imports nothing heavy: what draws, computes or compiles is imported by the command that needs it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from ptxlab.cli import choices
from ptxlab.errors import MissingError, one_line, shortened
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
"""Every command has it without declaring it, and main acts on it: see parsing."""
ArchOption = Annotated[
    str | None,
    typer.Option(
        "--arch",
        metavar="SM_XX",
        help="Architecture to compile for; left out: that of the device that runs, else sm_90a.",
        autocompletion=choices.archs,
    ),
]
BackendOption = Annotated[
    Backend, typer.Option("--backend", help="What answers; auto takes the device if there is one.")
]
DeviceOption = Annotated[int, typer.Option("--device", metavar="N", min=0, help="Which GPU, counted from 0.")]


def seconds(what: str) -> Any:
    """Declare a time limit, of a millisecond to a day: clocks and locks know no infinity."""
    return typer.Option("--timeout", metavar="SECONDS", min=0.001, max=86400, help=f"Time limit of {what}.")


TimeoutOption = Annotated[float, seconds("one job on the GPU")]

SvgOption = Annotated[Path | None, typer.Option("--svg", help="Draw the picture into this file.")]
HtmlOption = Annotated[
    Path | None, typer.Option("--html", help="Write a page on which a lane lights up everywhere.")
]


_command_line: list[str] = []


def command_line() -> list[str]:
    """Return what the user typed after the program's name: Record.command."""
    return list(_command_line)


def set_command_line(argv: Sequence[str]) -> None:
    """Remember what the user typed (main does)."""
    _command_line[:] = argv


def emit(record: Record, *, json: bool, format: Format = Format.TABLE, author: Path | None = None) -> None:
    """Print the record on stdout: as the JSON document, or as the command's view of it.

    Failed checks are named on stderr too, so that whoever reads only the log knows why.

    Args:
        record: what to print.
        json: whether as the document.
        format: else in which form.
        author: the file of the probe that said what the record holds; what cannot be shown is its fault.

    Raises:
        typer.Exit: with the record's exit code when a check failed.

    """
    print_record(record, json=json, format=format, author=author)
    failed = [check for check in record.checks if not check["ok"]]
    if failed:
        first = f"{failed[0]['name']}: {failed[0]['detail']}"
        complain(f"{len(failed)} of {len(record.checks)} checks failed, the first: {first}")
        raise typer.Exit(int(record.exit_code))


def print_record(record: Record, *, json: bool, format: Format, author: Path | None = None) -> None:
    """Print the record on stdout, whatever its checks say."""
    from ptxlab.render.show import text_of

    record.command = record.command or command_line()
    with _blaming(author):
        text = text_of(record.document(), "json" if json else format.value)
    write(text)


def _blaming(author: Path | None) -> AbstractContextManager[None]:
    """Return what tells of an exception as the fault of a probe's file, where there is one."""
    if author is None:
        return nullcontext()
    from ptxlab.experiments.base import blamed

    return blamed(author)


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


_LINE = 500
"""Characters of a failure that are shown: a terminal's worth."""


def complain(message: str, hint: str = "") -> None:
    """Print a failure on stderr: one line, and one line with the next command if there is one."""
    told = one_line(message)
    if len(told) > _LINE:
        told = f"{shortened(told, _LINE)} (--json has it whole)"
    lines = [f"ptxlab: {told}"] + ([f"hint: {shortened(one_line(hint), _LINE)}"] if hint else [])
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


def save_pictures(record: Record, svg: Path | None, html: Path | None, author: Path | None) -> None:
    """Draw the record's view into the files that the user asked for; ``author`` as in emit.

    Raises:
        MissingError: one cannot be written there.

    """
    if svg is None and html is None:
        return
    from ptxlab.render.html import page
    from ptxlab.render.show import blocks
    from ptxlab.render.svg import draw

    record.command = record.command or command_line()
    with _blaming(author):
        view = blocks(record.document(), "picture")
    for path, form in ((html, page), (svg, draw)):  # the page first: a result may have nothing to draw
        if path:
            with _blaming(author):
                text = form(view)
            write_whole(path, text)
