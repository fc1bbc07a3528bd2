"""Blocks as text for a terminal: its width, its colours. In a pipe: neither cut nor coloured."""

from __future__ import annotations

import io
import sys
import textwrap
from collections.abc import Iterable, Sequence
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
_SENTENCE = 30  # a column that is wider may be folded ...
_FOLDED = 24  # ... to so many letters, if it alone is, before a table is given up
_GAP = 3  # between columns
_FEW = 5  # cells of a row that stand below each other
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
    text = io.StringIO()  # not stdout: what cannot be written is found out when all of it is
    console = Console(
        file=text,
        force_terminal=None if piped else True,
        width=_PIPE_WIDTH if piped else None,
        highlight=False,
        markup=False,
        emoji=False,
    )
    if console.color_system in ("standard", "windows"):
        console.no_color = True  # 16 colours would mix the lanes up
    for number, (kind, group) in enumerate(groupby(blocks, key=type)):
        if number:
            console.print()
        _print(console, kind, list(group), piped=piped)
    return "".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())


def _print(console: Console, kind: type, blocks: list[Block], *, piped: bool) -> None:
    """Print neighbouring blocks of one kind: paragraphs close together, grids side by side."""
    if kind is Grid and not piped:
        grids = [block for block in blocks if isinstance(block, Grid)]
        pieces = [piece for grid in grids for piece in _pieces(grid, console.width)]
        console.print(Columns([_drawn(piece, console.width) for piece in pieces], padding=(1, 4)))
        return
    for number, block in enumerate(blocks):
        if number and (kind is not Text or getattr(block, "style", "") == "heading"):
            console.print()
        console.print(_drawn(block, console.width), soft_wrap=kind is Text and piped)


def _drawn(block: Block, room: int) -> RenderableType:
    """Return the block as rich draws it in lines of so many letters."""
    if isinstance(block, Text):
        return RichText(block.text, style=_STYLES[block.style])
    body = _table(block, room) if isinstance(block, Table) else _grid(block, room)
    return Group(RichText(block.title, style="bold"), body) if block.title else body


def _table(table: Table, room: int) -> RenderableType:
    """Return a table; lanes carry their colours. One that no folding makes fit becomes a list of rows."""
    if _is_too_wide(table, room):
        return _listed(table, room)
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


def _is_too_wide(table: Table, room: int) -> bool:
    """Say whether a table stays wider than a line even if its columns of sentences are folded."""
    columns = [[name, *(cell_text(row[i]) for row in table.rows)] for i, name in enumerate(table.columns)]
    widths = [max(map(len, texts)) for texts in columns]
    long = [texts for texts, width in zip(columns, widths, strict=True) if width > _SENTENCE]
    least = _FOLDED if len(long) == 1 else _SENTENCE
    folded = sum(_longest_word(texts, room, least) for texts in long)
    return folded + sum(width for width in widths if width <= _SENTENCE) + _GAP * len(widths) > room


def _longest_word(texts: Sequence[str], room: int, least: int) -> int:
    """Return the length of the longest word that fits into a line, or ``least`` if that is more."""
    words = (len(word) for text in texts for word in text.split())
    return max((length for length in words if least < length <= room), default=least)


def _listed(table: Table, room: int) -> RenderableType:
    """Return the rows of a table below each other: the first cell, then every other with its name.

    The others stand in a column if they are few and several of them long, else side by side.
    """
    names = table.columns[1:]
    long = sum(any(len(cell_text(row[i])) > _FOLDED for row in table.rows) for i in range(1, len(names) + 1))
    indent = max(map(len, names)) if len(names) <= _FEW and long > 1 else 0
    lines: list[RichText] = []
    for row in table.rows:
        first = f"{table.columns[0]} " if is_numeric(table, 0) else ""
        lines.append(RichText(f" {first}{cell_text(row[0])}", style="bold"))
        named = [
            f"{name:{indent}} {cell_text(cell)}"
            for name, cell in zip(names, row[1:], strict=True)
            if cell is not None or not indent
        ]
        listed = [line for part in named for line in _wrapped(part, room)] if indent else _flowed(named, room)
        lines += [RichText(f"   {line}") for line in listed]
    return Group(*lines)


def _flowed(parts: list[str], room: int) -> list[str]:
    """Return lines that hold the parts, side by side where they are short."""
    lines: list[str] = []
    joined = False
    for part in parts:
        short = len(part) <= _FOLDED
        if joined and short and len(lines[-1]) + 6 + len(part) <= room:
            lines[-1] += f"   {part}"
        else:
            lines += _wrapped(part, room)
        joined = short
    return lines


def _wrapped(text: str, room: int) -> list[str]:
    return textwrap.wrap(text, max(room - 4, 8), subsequent_indent="  ", break_on_hyphens=False)


def _pieces(grid: Grid, room: int) -> list[Grid]:
    """Return the matrix, or blocks of its columns that fit into a line: no cell is ever cut."""
    if _gap(grid, room):
        return [grid]
    return grid.cut(max(1, (room - _left(grid)) // (_widest(grid) + 2)))


def _gap(grid: Grid, room: int) -> int:
    """Return how many spaces a cell has besides its text: 2, or 1 where only so it fits, or 0 where not."""
    columns = len(grid_names(grid)[1])
    return next((gap for gap in (2, 1) if _left(grid, gap) + columns * (_widest(grid) + gap) <= room), 0)


def _left(grid: Grid, gap: int = 2) -> int:
    """Return the width of the names of the rows, a space behind them, and one before if there is room."""
    return gap + max((len(name) for name in grid_names(grid)[0]), default=0)


def _widest(grid: Grid) -> int:
    names = grid_names(grid)[1]
    brackets = 2 if grid.marked else 0
    return brackets + max((len(text) for texts in (*grid.cells, names) for text in texts), default=0)


def _grid(grid: Grid, room: int) -> RenderableType:
    """Return a matrix whose cells stand on the colour of what they belong to."""
    row_names, column_names = grid_names(grid)
    gap = _gap(grid, room) or 2
    width, left = _widest(grid) + gap, _left(grid, gap)
    head = "".join(name.center(width) for name in column_names)
    lines = [RichText(" " * left + head, style="dim")]
    for row, (name, cells, colours) in enumerate(zip(row_names, grid.cells, grid.colours, strict=True)):
        shown = (f"[{text}]" if (row, col) == grid.marked else text for col, text in enumerate(cells))
        painted = (_painted(text.center(width), number) for text, number in zip(shown, colours, strict=True))
        lines.append(RichText.assemble((f"{name:>{left - 1}} ", "dim"), *painted))
    return Group(*lines)


def _painted(text: str, number: int | None) -> RichText:
    """Return the text on the colour of that number, or as it is."""
    if number is None:
        return RichText(text)
    tint = colour(number)
    return RichText(text, style=f"{tint.ink} on {tint.paper}")
