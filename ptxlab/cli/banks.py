"""``ptxlab banks``: what one warp instruction costs at the banks of shared memory."""

from __future__ import annotations

from typing import Annotated

import typer

from ptxlab.cli import choices
from ptxlab.cli.common import Format, FormatOption, JsonFlag, emit


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(banks)


def banks(
    addr: Annotated[
        str, typer.Option("--addr", metavar="EXPR", help="Byte address of each lane: 'lane % 8 * 128'.")
    ],
    width: Annotated[
        str,
        typer.Option(
            "--width",
            help="Bits a lane moves (32, 64, 128), ldmatrix.xN, stmatrix.xN, cp.async.4|.8|.16, or wgmma.",
            autocompletion=choices.widths,
        ),
    ] = "32",
    op: Annotated[
        str,
        typer.Option(
            "--op",
            help="ld or st, as seen from shared memory; left out: as --width says, else ld.",
            autocompletion=choices.directions,
        ),
    ] = "",
    mask: Annotated[
        str,
        typer.Option("--mask", metavar="LANES", help="Lanes that take part, such as 0-15,20; left out: all."),
    ] = "",
    warp: Annotated[int, typer.Option("--warp", min=0, help="What the name warp stands for.")] = 0,
    json: JsonFlag = False,
    format: FormatOption = Format.TABLE,
) -> None:
    """Say how many wavefronts a warp's access to shared memory takes, and which lanes meet in which bank."""
    from ptxlab.experiments.banks import banks_record

    emit(banks_record(width, op, addr, mask, warp), json=json, format=format)
