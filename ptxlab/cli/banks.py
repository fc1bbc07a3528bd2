"""``ptxlab banks``: what one warp instruction costs at the banks of shared memory."""

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


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(banks)


def banks(
    expression: Annotated[
        str | None, typer.Argument(metavar="EXPR", help="Byte address of each lane: the same as --addr.")
    ] = None,
    addr: Annotated[
        str | None,
        typer.Option("--addr", metavar="EXPR", help="Byte address of each lane: 'lane % 8 * 128'."),
    ] = None,
    width: Annotated[
        str,
        typer.Option(
            "--width",
            "--access",
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
    times: Annotated[
        int, typer.Option("--times", metavar="N", min=1, max=10**15, help="How often it runs: the sums, too.")
    ] = 1,
    svg: SvgOption = None,
    html: HtmlOption = None,
    json: JsonFlag = False,
    format: FormatOption = Format.TABLE,
) -> None:
    """Say how many wavefronts a warp's access to shared memory takes, and which lanes meet in which bank."""
    from ptxlab.errors import UsageError
    from ptxlab.experiments.banks import banks_record

    if (expression is None) == (addr is None):
        raise UsageError(
            "banks needs the address of each lane, once; legal: --addr EXPR", "ptxlab banks --addr 'lane * 4'"
        )
    record = banks_record(width, op, addr or expression or "", mask, warp, times)
    save_pictures(record, svg, html, None)
    emit(record, json=json, format=format)
