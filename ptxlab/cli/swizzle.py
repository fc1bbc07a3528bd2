"""``ptxlab swizzle``: the smallest swizzle of a tile without conflicts, the cost of one, its other forms."""

from __future__ import annotations

from typing import Annotated

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
from ptxlab.cli.parsing import App

TileOption = Annotated[
    str,
    typer.Option(
        "--tile",
        metavar="ROWSxCOLS[:MAJOR]",
        help="The tile in shared memory, in elements; :m-major stands for --order column.",
    ),
]
DtypeOption = Annotated[
    str,
    typer.Option(
        "--dtype",
        help="Type of the elements (f16, tf32, s8, ...), or their width: b8, b16, b32, b64.",
        autocompletion=choices.tile_types,
    ),
]
_HOW = (
    "ldmatrix|stmatrix[.x1|.x2|.x4][.trans], mma.A|mma.B by 32-bit loads, wgmma, cp.async.4|.8|.16, tma, "
    "row[.64|.128], column, or the element of each lane: '(lane % 16, lane // 16)'."
)
AccessOption = Annotated[
    str, typer.Option("--access", help=f"How it is used: {_HOW}", autocompletion=choices.tile_accesses)
]
AlsoOption = Annotated[
    list[str],
    typer.Option(
        "--also",
        metavar="ACCESS",
        help="Another access that must not conflict either; may be given several times.",
        autocompletion=choices.tile_accesses,
    ),
]
OrderOption = Annotated[
    str,
    typer.Option(
        "--order",
        help="row: rows are contiguous (K-major); column: columns are.",
        autocompletion=choices.tile_orders,
    ),
]
SwizzleArgument = Annotated[
    str,
    typer.Argument(help="none, 32B, 64B, 128B, or B,M,S in elements.", autocompletion=choices.swizzles),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    group = App()
    for command in (solve, check, convert, pad):
        group.command(command.__name__)(command)
    app.add_typer(group, name="swizzle", help="Find or judge the swizzle of a tile in shared memory.")


def solve(
    tile: TileOption,
    dtype: DtypeOption = "f16",
    access: AccessOption = "ldmatrix.x4",
    also: AlsoOption = [],  # noqa: B006 - typer copies it
    order: OrderOption = "row",
    language: Annotated[
        str,
        typer.Option(
            "--emit",
            metavar="cuda",
            help="Print the device function of the answer, too.",
            autocompletion=choices.emitted,
        ),
    ] = "",
    svg: SvgOption = None,
    html: HtmlOption = None,
    json: JsonFlag = False,
    format: FormatOption = Format.TABLE,
) -> None:
    """Find the smallest Swizzle<B,M,S> of a tile without bank conflicts, else the least padding."""
    from ptxlab.experiments.swizzle import solve_record

    record = solve_record(tile, dtype, [access, *also], order, language)
    save_pictures(record, svg, html, None)
    emit(record, json=json, format=format)


def check(
    swizzle: SwizzleArgument,
    tile: TileOption,
    dtype: DtypeOption = "f16",
    access: AccessOption = "ldmatrix.x4",
    also: AlsoOption = [],  # noqa: B006 - typer copies it
    order: OrderOption = "row",
    svg: SvgOption = None,
    html: HtmlOption = None,
    json: JsonFlag = False,
    format: FormatOption = Format.TABLE,
) -> None:
    """Say what using the tile costs with a given swizzle; exit 1 when it conflicts."""
    from ptxlab.experiments.swizzle import check_record

    record = check_record(swizzle, tile, dtype, [access, *also], order)
    save_pictures(record, svg, html, None)
    emit(record, json=json, format=format)


def convert(
    swizzle: SwizzleArgument,
    dtype: Annotated[
        str,
        typer.Option(
            "--dtype",
            metavar="TYPE[,TYPE]",
            help="In offsets of which types.",
            autocompletion=choices.tile_types,
        ),
    ] = "f16,f32,u8,b1",
    origin: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="TYPE",
            help="What B,M,S count: a type, bytes or bits; left out: the first of --dtype.",
            autocompletion=choices.tile_types,
        ),
    ] = "",
    svg: SvgOption = None,
    html: HtmlOption = None,
    json: JsonFlag = False,
    format: FormatOption = Format.TABLE,
) -> None:
    """Write a swizzle for offsets that count other types, bytes or bits."""
    from ptxlab.experiments.swizzle import convert_record

    record = convert_record(swizzle, dtype, origin)
    save_pictures(record, svg, html, None)
    emit(record, json=json, format=format)


def pad(
    tile: TileOption,
    dtype: DtypeOption = "f32",
    read: Annotated[
        str, typer.Option("--read", help=f"How it is read: {_HOW}", autocompletion=choices.tile_accesses)
    ] = "column",
    write: Annotated[
        str,
        typer.Option("--write", help="How it is written, likewise.", autocompletion=choices.tile_accesses),
    ] = "row",
    order: OrderOption = "row",
    svg: SvgOption = None,
    html: HtmlOption = None,
    json: JsonFlag = False,
    format: FormatOption = Format.TABLE,
) -> None:
    """Find the least padding after each row with which neither reading nor writing conflicts."""
    from ptxlab.experiments.swizzle import pad_record

    record = pad_record(tile, dtype, read, write, order)
    save_pictures(record, svg, html, None)
    emit(record, json=json, format=format)
