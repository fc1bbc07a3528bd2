"""``ptxlab swizzle``: the smallest swizzle that reads a tile without conflicts, or the cost of one."""

from __future__ import annotations

from typing import Annotated

import typer

from ptxlab.cli import choices
from ptxlab.cli.common import Format, FormatOption, JsonFlag, emit
from ptxlab.cli.parsing import App

TileOption = Annotated[
    str, typer.Option("--tile", metavar="ROWSxCOLS", help="The tile in shared memory, in elements.")
]
DtypeOption = Annotated[
    str,
    typer.Option(
        "--dtype",
        help="Type of the elements (f16, tf32, s8, ...), or their width: b8, b16, b32, b64.",
        autocompletion=choices.tile_types,
    ),
]
AccessOption = Annotated[
    str,
    typer.Option(
        "--access",
        help="ldmatrix.x1|.x2|.x4[.trans], or mma.A|mma.B by 32-bit loads.",
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


def register(app: typer.Typer) -> None:
    """Add the command."""
    group = App()
    group.command("solve")(solve)
    group.command("check")(check)
    app.add_typer(group, name="swizzle", help="Find or judge the swizzle of a tile in shared memory.")


def solve(
    tile: TileOption,
    dtype: DtypeOption = "f16",
    access: AccessOption = "ldmatrix.x4",
    order: OrderOption = "row",
    json: JsonFlag = False,
    format: FormatOption = Format.TABLE,
) -> None:
    """Find the smallest Swizzle<B,M,S> that reads the tile without bank conflicts."""
    from ptxlab.experiments.swizzle import solve_record

    emit(solve_record(tile, dtype, access, order), json=json, format=format)


def check(
    swizzle: Annotated[
        str,
        typer.Argument(help="none, 32B, 64B, 128B, or B,M,S in elements.", autocompletion=choices.swizzles),
    ],
    tile: TileOption,
    dtype: DtypeOption = "f16",
    access: AccessOption = "ldmatrix.x4",
    order: OrderOption = "row",
    json: JsonFlag = False,
    format: FormatOption = Format.TABLE,
) -> None:
    """Say what reading the tile costs with a given swizzle; exit 1 when it conflicts."""
    from ptxlab.experiments.swizzle import check_record

    emit(check_record(swizzle, tile, dtype, access, order), json=json, format=format)
