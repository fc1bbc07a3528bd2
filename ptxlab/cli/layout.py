"""``ptxlab layout``: which lane and register hold which element, and which architecture has what form."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ptxlab.cli import choices
from ptxlab.cli.common import (
    Format,
    FormatOption,
    HtmlOption,
    JsonFlag,
    SvgOption,
    emit,
    save_pictures,
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
        probes = App(cls=probe_group(action, of_maps=True, of_memory=action is _where))
        probes.callback()(_nothing)  # without commands of its own, typer wants one
        group.add_typer(probes, name=name, help=help_text)
    group.command("support")(support)
    group.command("compare")(compare)
    group.command("trace")(trace)
    group.command("eval")(evaluate)
    group.command("print", help="The same as eval.")(evaluate)
    group.command("explain")(explain)
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

    return where_record(_ask(probe, own, arch, in_memory=True), operand, row, col)


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


def _ask(probe: Any, own: dict[str, Any], arch: str | None, *, in_memory: bool = False) -> Any:
    from ptxlab.experiments.layout import ask
    from ptxlab.toolchain.arch import parse_arch

    return ask(probe, own, parse_arch(arch) if arch else None, in_memory=in_memory)


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


def evaluate(
    expression: Annotated[
        str, typer.Argument(metavar="LAYOUT", help='A layout: "(4,8):(1,4)", "Sw<3,4,3> o (64,16):(16,1)".')
    ],
    table: Annotated[bool, typer.Option("--table", help="List every coordinate with its offset.")] = False,
    dtype: Annotated[
        str | None,
        typer.Option("--dtype", help="Type of the elements (f16, tf32, s8, ...): the swizzle moves bytes."),
    ] = None,
    svg: SvgOption = None,
    html: HtmlOption = None,
    json: JsonFlag = False,
    format: FormatOption = Format.TABLE,
) -> None:
    """Show where a layout puts its coordinates, whether two share an offset, and with a type the banks."""
    from ptxlab.experiments.algebra import eval_record

    record = eval_record(expression, dtype, table=table)
    save_pictures(record, svg, html, None)
    emit(record, json=json, format=format)


def explain(
    operation: Annotated[
        str,
        typer.Argument(
            metavar="OPERATION",
            help='An operation and its operands: "complement 4:2 24", "composition (6,2):(8,2) (4,3):(3,1)".',
        ),
    ],
    svg: SvgOption = None,
    html: HtmlOption = None,
    json: JsonFlag = False,
    format: FormatOption = Format.TABLE,
) -> None:
    """Do an operation on layouts step by step, and prove the result by trying every coordinate."""
    from ptxlab.experiments.algebra import explain_record

    record = explain_record(operation)
    save_pictures(record, svg, html, None)
    emit(record, json=json, format=format)


def trace(
    at: Annotated[
        str | None,
        typer.Option(
            "--at", metavar="ROW,COL", help="The element of the matrix; left out: one far from 0,0."
        ),
    ] = None,
    tile: Annotated[
        str | None,
        typer.Option(
            "--tile", metavar="ROWSxCOLS", help="The tile in shared memory, as it lies in the matrix; 128x64."
        ),
    ] = None,
    matrix: Annotated[
        str | None,
        typer.Option("--matrix", metavar="ROWSxCOLS", help="The matrix; left out: 4 tiles each way."),
    ] = None,
    dtype: Annotated[
        str, typer.Option("--dtype", help="Type of the elements.", autocompletion=choices.traced_types)
    ] = "f16",
    swizzle: Annotated[
        str, typer.Option("--swizzle", help="Of shared memory.", autocompletion=choices.swizzles)
    ] = "128B",
    instr: Annotated[
        str | None,
        typer.Option(
            "--instr", metavar="NAME", help="mma.m16n8k16, wgmma.m64n256k16, ...; left out: mma of the type."
        ),
    ] = None,
    operand: Annotated[
        str, typer.Option("--operand", help="A or B.", autocompletion=choices.traced_operands)
    ] = "A",
    major: Annotated[
        str,
        typer.Option(
            "--major", help="K: rows of the matrix are m or n; MN: they are k.", autocompletion=choices.majors
        ),
    ] = "K",
    stages: Annotated[int, typer.Option("--stages", min=1, max=64, help="Tiles that the ring holds.")] = 4,
    copy: Annotated[
        str, typer.Option("--copy", help="What fills it: tma or cp.async.", autocompletion=choices.copies)
    ] = "tma",
    svg: SvgOption = None,
    html: HtmlOption = None,
    json: JsonFlag = False,
    format: FormatOption = Format.TABLE,
) -> None:
    """Follow one element through shared memory, registers and a product, and back to global memory.

    The other operand is thought of as the identity matrix, so that the product is the element's own matrix.
    """
    from ptxlab.experiments.trace import trace_record

    record = trace_record(
        at, tile=tile, matrix=matrix, dtype=dtype, swizzle=swizzle, instr=instr, operand=operand, major=major,
        stages=stages, copy=copy,
    )  # fmt: skip
    save_pictures(record, svg, html, None)
    emit(record, json=json, format=format)
