"""What a view is made of. A view turns a JSON document into blocks; every human format prints blocks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Cell = str | int | float | bool | None
Medium = Literal["table", "csv", "md", "picture"]
"""Where blocks are shown: on a terminal, in one of the files that --format makes, by --svg and --html."""

EVERYWHERE: tuple[Medium, ...] = ("table", "csv", "md", "picture")
FILES: tuple[Medium, ...] = ("csv", "md", "picture")
SCREEN: tuple[Medium, ...] = ("table",)


@dataclass(frozen=True)
class Text:
    """A paragraph. ``style`` says what it is, not how it looks."""

    text: str
    style: Literal["plain", "heading", "conclusion", "good", "bad", "warning", "faint"] = "plain"
    media: tuple[Medium, ...] = EVERYWHERE


@dataclass(frozen=True)
class Table:
    """Rows under column names. None prints as a dash, and as an empty field in CSV."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[Cell, ...]]
    media: tuple[Medium, ...] = EVERYWHERE


@dataclass(frozen=True)
class Grid:
    """A matrix whose cells are coloured by what they belong to (a lane, a bank).

    Attributes:
        title: what the matrix is.
        cells: the text of each cell, row by row.
        colours: for each cell the number it is coloured by, or None for no colour.
        row_names: a name for each row ("row 3"), or [] for plain numbers.
        column_names: a name for each column, or [] for plain numbers.
        media: where it is shown.
        marked: row and column of the cell that the picture is about, or None.
        keys: for each cell the name of what it belongs to, which other pictures and tables of a page may
            share, or None; [] where a colour means something in this picture alone.

    """

    title: str
    cells: list[list[str]]
    colours: list[list[int | None]]
    row_names: list[str] = field(default_factory=list)
    column_names: list[str] = field(default_factory=list)
    media: tuple[Medium, ...] = EVERYWHERE
    marked: tuple[int, int] | None = None
    keys: list[list[str | None]] = field(default_factory=list)

    def named_keys(self) -> list[list[str | None]]:
        """Return the keys, or names that no other picture has."""
        return self.keys or [
            [None if number is None else f"{self.title} {number}" for number in row] for row in self.colours
        ]

    def cut(self, most: int) -> list[Grid]:
        """Return the grid, or blocks of its columns none of which has more than ``most``.

        Their number of columns is a power of two, as that of the matrices themselves is.
        """
        columns = max((len(row) for row in self.cells), default=0)
        if columns <= most:
            return [self]
        size = 1 << max(0, most.bit_length() - 1)
        names = self.column_names or [str(column) for column in range(columns)]
        return [
            replace(
                self,
                title=f"{self.title}{', continued' if first else ''}",
                cells=[row[first : first + size] for row in self.cells],
                colours=[row[first : first + size] for row in self.colours],
                column_names=names[first : first + size],
                keys=[row[first : first + size] for row in self.named_keys()],
                marked=(self.marked[0], self.marked[1] - first) if self.marked else None,
            )
            for first in range(0, columns, size)
        ]


Block = Text | Table | Grid


def drawn(picture: Mapping[str, Any]) -> Grid:
    """Return a picture of a document as a grid; JSON knows no tuples."""
    marked = picture.get("marked")
    return Grid(**{**picture, "marked": tuple(marked) if marked else None})


def meant_for(blocks: Iterable[Block], medium: Medium) -> list[Block]:
    """Return the blocks that are shown there."""
    return [block for block in blocks if medium in block.media]
