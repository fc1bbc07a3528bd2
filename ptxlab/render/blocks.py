"""What a view is made of. A view turns a JSON document into blocks; every human format prints blocks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Cell = str | int | float | bool | None


@dataclass(frozen=True)
class Text:
    """A paragraph. ``style`` says what it is, not how it looks."""

    text: str
    style: Literal["plain", "heading", "conclusion", "good", "bad", "warning", "faint"] = "plain"


@dataclass(frozen=True)
class Table:
    """Rows under column names. None prints as a dash, and as an empty field in CSV."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[Cell, ...]]


@dataclass(frozen=True)
class Grid:
    """A matrix whose cells are coloured by what they belong to (a lane, a bank).

    Attributes:
        title: what the matrix is.
        cells: the text of each cell, row by row.
        colours: for each cell the number it is coloured by, or None for no colour.
        row_names: a name for each row ("row 3"), or [] for plain numbers.
        column_names: a name for each column, or [] for plain numbers.

    """

    title: str
    cells: list[list[str]]
    colours: list[list[int | None]]
    row_names: list[str] = field(default_factory=list)
    column_names: list[str] = field(default_factory=list)


Block = Text | Table | Grid
