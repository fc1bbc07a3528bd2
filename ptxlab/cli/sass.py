"""``ptxlab sass``: what the machine code holds, counted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ptxlab.cli.common import Format, FormatOption, JsonFlag, command_line, emit


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(sass)


def sass(
    target: Annotated[
        str,
        typer.Argument(metavar="TARGET", help="A .cu, .ptx or .cubin file, probe:NAME, or gemm:STAGE."),
    ],
    arch: Annotated[
        str | None,
        typer.Option(
            metavar="SM_XX[,SM_YY]",
            help="Architectures to compile for; left out: a .ptx's .target, a .cubin's own, else sm_90a.",
        ),
    ] = None,
    kernel: Annotated[
        str | None, typer.Option(metavar="NAME", help="This kernel alone, with every opcode; mangled or not.")
    ] = None,
    include: Annotated[
        list[Path] | None, typer.Option("-I", metavar="FOLDER", help="Look for headers there (.cu).")
    ] = None,
    define: Annotated[
        list[str] | None, typer.Option("-D", metavar="NAME[=VALUE]", help="Define a macro (.cu).")
    ] = None,
    std: Annotated[
        str | None, typer.Option("--std", metavar="STANDARD", help="C++ standard (.cu): c++20, ...")
    ] = None,
    level: Annotated[
        str | None,
        typer.Option("-O", metavar="LEVEL", help="Optimisation level of ptxas (.cu, .ptx): 0 to 3."),
    ] = None,
    maxrregcount: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Most registers of a thread (.cu, .ptx)."),
    ] = None,
    expect: Annotated[
        list[str] | None,
        typer.Option("--expect", metavar="OPCODE[=N]", help="Every kernel shown must hold it (N times)."),
    ] = None,
    check: Annotated[
        list[str] | None,
        typer.Option("--check", metavar="proxy-fence", help="Look for asynchronous reads without a fence."),
    ] = None,
    json: JsonFlag = False,
    format: FormatOption = Format.TABLE,
) -> None:
    """Count what a kernel's machine code holds: opcodes, registers, spills, loops, advisories."""
    from ptxlab.experiments.sass import sass_record
    from ptxlab.toolchain.options import Options

    options = Options(tuple(include or ()), tuple(define or ()), std, level, maxrregcount)
    archs = [name.strip() for name in arch.split(",")] if arch else []
    record = sass_record(target, archs, options, kernel, expect or (), check or ())
    record.command = command_line()
    emit(record, json=json, format=format)
