"""Blocks as text for a terminal: its width, its colours. In a pipe: neither cut nor coloured."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import groupby

from rich import box
from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text as RichText

from ptxlab.render.blocks import Block, Grid, Table, Text
from ptxlab.render.palette import colour
from ptxlab.render.text import cell_text, grid_names, is_numeric, lane_of

_PIPE_WIDTH = 1_000_000  # wider than any table: nothing is wrapped or cut
_STYLES = {
    "plain": "",
    "heading": "bold",
    "conclusion": "bold",
    "good": "green",
    "bad": "bold red",
    "warning": "yellow",
    "faint": "dim",
}


def to_terminal(blocks: Iterable[Block]) -> str:
    """Return the text for the terminal that stdout is, or for the pipe or file that it is."""
    piped = sys.stdout is None or not sys.stdout.isatty()
    console = Console(highlight=False, markup=False, emoji=False, width=_PIPE_WIDTH if piped else None)
    if console.color_system in ("standard", "windows"):
        console.no_color = True  # 16 colours would mix the lanes up
    with console.capture() as captured:
        for number, (kind, group) in enumerate(groupby(blocks, key=type)):
            if number:
                console.print()
            _print(console, kind, list(group), side_by_side=not piped)
    lines = captured.get().splitlines()
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _print(console: Console, kind: type, blocks: list[Block], *, side_by_side: bool) -> None:
    """Print neighbouring blocks of one kind: paragraphs close together, grids side by side."""
    if kind is Grid and side_by_side:
        console.print(Columns([_drawn(block) for block in blocks], padding=(1, 4)))
        return
    for number, block in enumerate(blocks):
        if number and (kind is not Text or getattr(block, "style", "") == "heading"):
            console.print()
        console.print(_drawn(block), soft_wrap=kind is Text and not side_by_side)


def _drawn(block: Block) -> RenderableType:
    """Return the block as rich draws it."""
    if isinstance(block, Text):
        return RichText(block.text, style=_STYLES[block.style])
    body = _table(block) if isinstance(block, Table) else _grid(block)
    return Group(RichText(block.title, style="bold"), body) if block.title else body


def _table(table: Table) -> RichTable:
    """Return a table; lanes carry their colours."""
    drawn = RichTable(box=box.SIMPLE_HEAD, show_edge=False)
    for number, name in enumerate(table.columns):
        drawn.add_column(
            RichText(name),
            justify="right" if is_numeric(table, number) else "left",
            overflow="fold",
        )
    for number, row in enumerate(table.rows):
        lane = lane_of(table, number)
        drawn.add_row(
            *(
                _painted(cell_text(cell), lane if name == "lane" else None)
                for name, cell in zip(table.columns, row, strict=True)
            )
        )
    return drawn


def _grid(grid: Grid) -> RichTable:
    """Return a matrix whose cells stand on the colour of what they belong to."""
    row_names, column_names = grid_names(grid)
    width = max((len(text) for row in grid.cells for text in row), default=0)
    width = max(width, *(len(name) for name in column_names)) + 2
    drawn = RichTable(box=None, padding=0, header_style="dim")
    drawn.add_column("", justify="right", style="dim", no_wrap=True)
    for name in column_names:
        drawn.add_column(RichText(name.center(width)), no_wrap=True)
    for name, cells, colours in zip(row_names, grid.cells, grid.colours, strict=True):
        painted = (_painted(text.center(width), number) for text, number in zip(cells, colours, strict=True))
        drawn.add_row(RichText(f"{name} "), *painted)
    return drawn


def _painted(text: str, number: int | None) -> RichText:
    """Return the text on the colour of that number, or as it is."""
    if number is None:
        return RichText(text)
    tint = colour(number)
    return RichText(text, style=f"{tint.ink} on {tint.paper}")
