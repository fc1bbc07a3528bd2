"""``ptxlab sass``: what the machine code holds, counted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ptxlab.cli import choices
from ptxlab.cli.common import Format, FormatOption, JsonFlag, command_line, emit


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(sass)


TargetArgument = Annotated[
    str,
    typer.Argument(
        metavar="TARGET",
        help="A .cu, .ptx or .cubin file, probe:NAME, or gemm:STAGE.",
        autocompletion=choices.targets,
    ),
]
ArchsOption = Annotated[
    str | None,
    typer.Option(
        "--arch",
        metavar="SM_XX[,SM_YY]",
        help="Architectures to compile for; left out: a .ptx's .target, a .cubin's own, else sm_90a.",
        autocompletion=choices.archs,
    ),
]
KernelOption = Annotated[
    str | None,
    typer.Option(
        "--kernel", metavar="NAME", help="This kernel alone, with every opcode: a name of the list."
    ),
]
IncludeOption = Annotated[
    list[Path] | None, typer.Option("-I", metavar="FOLDER", help="Look for headers there (.cu).")
]
DefineOption = Annotated[
    list[str] | None, typer.Option("-D", metavar="NAME[=VALUE]", help="Define a macro (.cu).")
]
StandardOption = Annotated[
    str | None,
    typer.Option(
        "--std",
        metavar="STANDARD",
        help="C++ standard (.cu): c++20, ...",
        autocompletion=choices.cpp_standards,
    ),
]
LevelOption = Annotated[
    str | None,
    typer.Option(
        "-O",
        metavar="LEVEL",
        help="Optimisation level of ptxas (.cu, .ptx): 0 to 3.",
        autocompletion=choices.optimisation_levels,
    ),
]
RegistersOption = Annotated[
    int | None,
    typer.Option("--maxrregcount", metavar="N", min=1, help="Most registers of a thread (.cu, .ptx)."),
]

ExpectOption = Annotated[
    list[str] | None,
    typer.Option("--expect", metavar="OPCODE[=N]", help="Every kernel shown must hold it (N times)."),
]
CheckOption = Annotated[
    list[str] | None,
    typer.Option("--check", metavar="proxy-fence", help="Look for asynchronous reads without a fence."),
]
FlopsFlag = Annotated[
    bool, typer.Option("--flops", help="Show what the tensor instructions compute: one, and all of the code.")
]


def sass(
    target: TargetArgument,
    arch: ArchsOption = None,
    kernel: KernelOption = None,
    include: IncludeOption = None,
    define: DefineOption = None,
    std: StandardOption = None,
    level: LevelOption = None,
    maxrregcount: RegistersOption = None,
    expect: ExpectOption = None,
    check: CheckOption = None,
    flops: FlopsFlag = False,
    json: JsonFlag = False,
    format: FormatOption = Format.TABLE,
) -> None:
    """Count what a kernel's machine code holds: opcodes, registers, spills, loops, advisories."""
    from ptxlab.experiments.sass import sass_record
    from ptxlab.render.progress import reporter
    from ptxlab.toolchain.options import Options

    options = Options(tuple(include or ()), tuple(define or ()), std, level, maxrregcount)
    archs = [name.strip() for name in arch.split(",")] if arch else []
    with reporter(quiet=json) as report:
        record = sass_record(
            target, archs, options, kernel, expect or (), check or (), flops=flops, report=report
        )
    record.command = command_line()
    emit(record, json=json, format=format)
