"""``ptxlab cache``: where compiled kernels are kept, how much that is, and away with it."""

from __future__ import annotations

import typer

from ptxlab.cli.common import Format, FormatOption, JsonFlag, command_line, emit
from ptxlab.cli.parsing import App


def register(app: typer.Typer) -> None:
    """Add the command."""
    group = App()
    group.command("info")(info)
    group.command("clear")(clear)
    app.add_typer(group, name="cache", help="Where compiled kernels are kept.")


def info(json: JsonFlag = False, format: FormatOption = Format.TABLE) -> None:
    """Show the cache's folder, its size and its limit."""
    from ptxlab.experiments.record import Record
    from ptxlab.toolchain import cache

    emit(Record(command=command_line(), result=cache.info()), json=json, format=format)


def clear(json: JsonFlag = False, format: FormatOption = Format.TABLE) -> None:
    """Remove every compiled kernel; they are built again when needed."""
    from ptxlab.experiments.record import Record
    from ptxlab.toolchain import cache

    result = {"folder": str(cache.cache_folder()), "removed": cache.clear()}
    emit(Record(command=command_line(), result=result), json=json, format=format)
