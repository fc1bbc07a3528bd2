"""Blocks as CSV: every table and every matrix, with an empty line between two of them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable

from ptxlab.render.blocks import Block, Cell, Grid, Table
from ptxlab.render.text import grid_names


def to_csv(blocks: Iterable[Block]) -> str:
    """Return comma-separated values with a header row each; paragraphs are for people and left out.

    The first field of a matrix's header is its title. Numbers keep all their digits.
    """
    return "\n".join(_one(block) for block in blocks if isinstance(block, Table | Grid))


def _one(block: Table | Grid) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    if isinstance(block, Table):
        writer.writerow(block.columns)
        writer.writerows([_value(cell) for cell in row] for row in block.rows)
    else:
        row_names, column_names = grid_names(block)
        writer.writerow([block.title, *column_names])
        writer.writerows([name, *row] for name, row in zip(row_names, block.cells, strict=True))
    return stream.getvalue()


def _value(cell: Cell) -> Cell:
    """Return true and false as most readers of CSV know them; None becomes an empty field."""
    return str(cell).lower() if isinstance(cell, bool) else cell
