"""``ptxlab doctor``: what is installed, what is missing, whether a kernel really gets through."""

from __future__ import annotations

import typer

from ptxlab.cli.common import (
    ArchOption,
    DeviceOption,
    Format,
    FormatOption,
    JsonFlag,
    TimeoutOption,
    command_line,
    emit,
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(doctor)


def doctor(
    arch: ArchOption = None,
    device: DeviceOption = 0,
    timeout: TimeoutOption = 20.0,
    json: JsonFlag = False,
    format: FormatOption = Format.TABLE,
) -> None:
    """Show every tool with path and version, and compile, disassemble and launch a kernel."""
    from ptxlab.experiments.doctor import doctor as examine

    record = examine(arch, device, timeout)
    record.command = command_line()
    emit(record, json=json, format=format)
