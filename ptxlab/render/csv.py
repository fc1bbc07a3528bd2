"""Blocks as CSV: tables and matrices with an empty line between two of them, and lines that begin with #."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from itertools import groupby

from ptxlab.render.blocks import Block, Cell, Table, Text
from ptxlab.render.text import cell_line, grid_names


def to_csv(blocks: Iterable[Block]) -> str:
    """Return comma-separated values.

    Each table has its title in a line ``# title`` of its own, then its header. Sentences are such lines, too,
    so that a reader who wants the tables alone splits at the empty lines and drops what begins with #. The
    first field of a matrix's header is empty, as it stands over the names of the rows. Numbers keep all
    their digits.
    """
    parts: list[str] = []
    for is_text, group in groupby(blocks, key=lambda block: isinstance(block, Text)):
        each = [_one(block) for block in group]
        parts += ["".join(each)] if is_text else each
    return "\n".join(parts)


def _one(block: Block) -> str:
    if isinstance(block, Text):
        return _comment(block.text)
    if isinstance(block, Table):
        rows = [[_value(cell) for cell in row] for row in (block.columns, *block.rows)]
    else:
        row_names, column_names = grid_names(block)
        rows = [["", *column_names]]
        rows += [[name, *row] for name, row in zip(row_names, block.cells, strict=True)]
    return _comment(block.title) + "".join(_line(row) for row in rows)


def _comment(text: str) -> str:
    return "".join(f"# {line}\n" for line in text.splitlines())


def _line(row: list[Cell]) -> str:
    """Return the row; one that would begin like a comment is quoted."""
    stream = io.StringIO()
    is_like_a_comment = str(row[0]).startswith("#") if row else False
    writer = csv.writer(
        stream,
        lineterminator="\n",
        quoting=csv.QUOTE_ALL if is_like_a_comment else csv.QUOTE_MINIMAL,
    )
    writer.writerow(row)
    return stream.getvalue()


def _value(cell: Cell) -> Cell:
    """Return true and false as most readers of CSV know them; None becomes an empty field."""
    if isinstance(cell, bool):
        return str(cell).lower()
    return cell_line(cell) if isinstance(cell, str) else cell
