"""How a cell reads, in whatever form it is printed."""

from __future__ import annotations

from collections.abc import Iterable

from ptxlab.isa.threads import thread
from ptxlab.render.blocks import Block, Cell, Grid, Table, Text


def titled(blocks: Iterable[Block]) -> tuple[str, list[Block]]:
    """Return the first heading, which is the title of a picture or page, and the other blocks."""
    rest = list(blocks)
    for block in rest:
        if isinstance(block, Text) and block.style == "heading":
            rest.remove(block)
            return block.text, rest
    return "ptxlab", rest


def cell_text(cell: Cell) -> str:
    """Return the cell for people: a dash for None, six significant digits for a float."""
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return f"{cell:.6g}" if isinstance(cell, float) else cell_line(str(cell))


def cell_line(text: str) -> str:
    """Return the text in one line, as a cell is part of one."""
    return "; ".join(line for line in text.splitlines() if line)


def is_numeric(table: Table, column: int) -> bool:
    """Whether every value of the column is a number, so that it aligns to the right."""
    cells = [row[column] for row in table.rows if row[column] is not None]
    return bool(cells) and all(isinstance(cell, int | float) and not isinstance(cell, bool) for cell in cells)


def lane_of(table: Table, row: int) -> int | None:
    """Return the lane that a row is about, which its column "lane" says, or None."""
    if "lane" not in table.columns:
        return None
    cell = table.rows[row][table.columns.index("lane")]
    return cell if isinstance(cell, int) and not isinstance(cell, bool) else None


def thread_of(table: Table, row: int) -> str | None:
    """Return the name of the thread that a row is about, as pictures name it, or None."""
    if lane_of(table, row) is None:
        return None
    numbers = zip(table.columns, table.rows[row], strict=True)
    return thread({name: cell for name, cell in numbers if isinstance(cell, int)})


def grid_names(grid: Grid) -> tuple[list[str], list[str]]:
    """Return the names of the grid's rows and columns: its own, or plain numbers."""
    width = max((len(row) for row in grid.cells), default=0)
    rows = grid.row_names or [str(row) for row in range(len(grid.cells))]
    return rows, grid.column_names or [str(column) for column in range(width)]
