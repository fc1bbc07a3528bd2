"""``ptxlab layout``: which lane and register hold which element, and which architecture has what form."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ptxlab.cli import choices
from ptxlab.cli.common import (
    Format,
    FormatOption,
    JsonFlag,
    emit,
)
from ptxlab.cli.options import LaneOption, probe_group
from ptxlab.cli.parsing import App

OperandArgument = Annotated[
    str,
    typer.Argument(
        help="A, B, C, D, E or registers: what the probe reports.", autocompletion=choices.operands
    ),
]
ArchOption = Annotated[
    str | None,
    typer.Option(
        "--arch",
        metavar="SM_XX",
        help="Architecture; left out: sm_90a.",
        autocompletion=choices.archs,
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    group = App()
    for name, action, help_text in (
        ("where", _where, "Say which lane, register and slot hold an element."),
        ("what", _what, "Say which elements a register of a lane holds."),
        ("table", _table, "List a whole register map, and draw it."),
        ("detail", _detail, "Show registers, formulas, architectures, SASS and FLOP of a form."),
    ):
        probes = App(cls=probe_group(action, drawn=action is _table, of_maps=True))
        probes.callback()(_nothing)  # without commands of its own, typer wants one
        group.add_typer(probes, name=name, help=help_text)
    group.command("support")(support)
    group.command("compare")(compare)
    app.add_typer(group, name="layout", help="Look up who holds what, and what each architecture has.")


def _nothing() -> None:
    """Do nothing before a command runs."""


def _where(
    probe: Any,  # a Probe: naming the class here would import numpy for every --help
    own: dict[str, Any],
    *,
    operand: OperandArgument,
    row: Annotated[int, typer.Argument(help="Row of the element, from 0.")],
    col: Annotated[int, typer.Argument(help="Column of the element, from 0.")],
    arch: ArchOption = None,
) -> Any:
    from ptxlab.experiments.layout import where_record

    return where_record(_ask(probe, own, arch), operand, row, col)


def _what(
    probe: Any,
    own: dict[str, Any],
    *,
    operand: OperandArgument,
    lane: Annotated[int, typer.Argument(help="Lane, 0 to 31.")],
    register: Annotated[int, typer.Argument(help="Register: index of the PTX operand.")],
    slot: Annotated[
        int | None, typer.Argument(help="Element in the register, 0 the lowest bits; left out: all.")
    ] = None,
    arch: ArchOption = None,
) -> Any:
    from ptxlab.experiments.layout import what_record

    return what_record(_ask(probe, own, arch), operand, lane, register, slot)


def _table(
    probe: Any,
    own: dict[str, Any],
    *,
    operand: Annotated[
        str | None,
        typer.Argument(
            help="A, B, C, D, E or registers; left out: all that there are.",
            autocompletion=choices.operands,
        ),
    ] = None,
    lane: LaneOption = None,
    arch: ArchOption = None,
) -> Any:
    from ptxlab.experiments.layout import table_record

    return table_record(_ask(probe, own, arch), operand, lane)


def _detail(
    probe: Any,
    own: dict[str, Any],
    *,
    arch: ArchOption = None,
) -> Any:
    from ptxlab.experiments.layout import detail_record

    return detail_record(_ask(probe, own, arch))


def _ask(probe: Any, own: dict[str, Any], arch: str | None) -> Any:
    from ptxlab.experiments.layout import ask
    from ptxlab.toolchain.arch import parse_arch

    return ask(probe, own, parse_arch(arch) if arch else None)


def support(
    arch: Annotated[
        str | None,
        typer.Option(
            metavar="SM_XX[,SM_YY]",
            help="Columns; left out: one of every generation.",
            autocompletion=choices.archs,
        ),
    ] = None,
    only: Annotated[
        str,
        typer.Option(
            metavar="TEXT",
            help="Just forms that begin so (mma, ldmatrix, ...), or if none does, that hold it (s4).",
            autocompletion=choices.instructions,
        ),
    ] = "",
    json: JsonFlag = False,
    format: FormatOption = Format.TABLE,
) -> None:
    """Show which instruction forms each architecture has, native or emulated, from real compiles."""
    from ptxlab.experiments.support import support_record
    from ptxlab.render.progress import reporter

    archs = [name.strip() for name in arch.split(",")] if arch else []
    with reporter(quiet=json) as progress:
        record = support_record(archs, only, progress)
    emit(record, json=json, format=format)


def compare(
    c: Annotated[
        str,
        typer.Option(
            "--c",
            metavar="SHAPE:TYPE",
            help="The result: C of mma (m16n8k32:s32), or D of wgmma (m64n64k16:f32).",
        ),
    ],
    a: Annotated[
        str | None,
        typer.Option(
            "--a",
            metavar="SHAPE:TYPE",
            help="The A it shall become: of mma (m16n8k32:s8), or of wgmma from registers (m64n64k16:bf16).",
        ),
    ] = None,
    b: Annotated[
        str | None, typer.Option("--b", metavar="SHAPE:TYPE", help="The B of mma it shall become.")
    ] = None,
    json: JsonFlag = False,
    format: FormatOption = Format.TABLE,
) -> None:
    """Say whether one product's result feeds another's A or B without moving data between lanes, and how.

    Shapes of mma are m8n8k4, m8n8k16, m8n8k32, m8n8k128, m16n8k4, m16n8k8, m16n8k16, m16n8k32, m16n8k64,
    m16n8k128 and m16n8k256; of wgmma m64nNk8 (tf32), m64nNk16 (f16, bf16) and m64nNk32 (8 bits). Types of C
    are f16, f32, f64 and s32; those of A and B f16, bf16, tf32, f64, e4m3, e5m2, s8, u8, s4, u4 and b1.
    """
    from ptxlab.errors import UsageError
    from ptxlab.experiments.compare import compare_record

    if (a is None) == (b is None):
        raise UsageError("compare needs one of --a and --b", "ptxlab layout compare --help")
    emit(compare_record(c, "A" if a else "B", a or b or ""), json=json, format=format)
