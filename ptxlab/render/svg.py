"""The matrices of a record as one picture that needs nothing but a browser, the same every time."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby

from ptxlab.errors import UsageError
from ptxlab.render.blocks import Block, Grid, Text
from ptxlab.render.palette import colour
from ptxlab.render.text import grid_names, titled

_MARGIN = 28
_PICTURE_WIDTH = 1180  # a row of matrices is no wider, unless one alone is
_GUTTER = 36  # between matrices
_CELL_HEIGHT = 30
_CELL_GAP = 2
_LETTER = 7.3  # width of a monospaced letter at _FONT_SIZE
_FONT_SIZE = 12
_TITLE_LETTER = 12.0  # about the mean width of a letter of the picture's title
_TITLE_HEIGHT = 28
_NAMES_HEIGHT = 20
_CAPTION_HEIGHT = 20
_MONO = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"
_SANS = "system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif"
_KINDS = {
    "picture title": f'font-family="{_SANS}" font-size="20" font-weight="600"',
    "title": f'font-family="{_SANS}" font-size="14" font-weight="600"',
    "caption": f'font-family="{_SANS}" font-size="13"',
    "cell": f'font-family="{_MONO}" font-size="{_FONT_SIZE}" text-anchor="middle"',
    "column": f'font-family="{_MONO}" font-size="11" text-anchor="middle" fill-opacity="0.6"',
    "row": f'font-family="{_MONO}" font-size="11" text-anchor="end" fill-opacity="0.6"',
}
_CAPTIONS = {
    "plain": "#444444",
    "conclusion": "#1a1a1a",
    "good": "#1a7a3c",
    "bad": "#b3261e",
    "warning": "#8a5a00",
}


@dataclass(frozen=True)
class Drawing:
    """A piece of a picture with its top left corner at 0, 0; width and height in pixels."""

    width: float
    height: float
    body: str


def draw(blocks: Iterable[Block]) -> str:
    """Return a picture: the first heading, every matrix, and what is concluded from them.

    Raises:
        UsageError: there is no matrix among the blocks.

    """
    title, rest = titled(blocks)
    if not any(isinstance(block, Grid) for block in rest):
        raise UsageError("there is no matrix to draw in this result", "--html shows its tables")
    matrices = [draw_grid(piece) for block in rest if isinstance(block, Grid) for piece in pieces(block)]
    flow = _flow(matrices, top=_MARGIN + 40)
    width = max(640, 2 * _MARGIN + max(flow.width, len(title) * _TITLE_LETTER))
    captions = _captions(rest, top=flow.height + 24, width=width)
    height = captions.height + _MARGIN - 8
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" color="#1a1a1a" role="img">\n'
        f"<title>{escape(title)}</title>\n"
        f'<rect width="100%" height="100%" fill="#ffffff"/>\n'
        f"{_text(_MARGIN, _MARGIN + 14, title, 'picture title')}"
        f"{flow.body}{captions.body}</svg>\n"
    )


def pieces(grid: Grid) -> list[Grid]:
    """Return a matrix, or blocks of its columns that are no wider than a picture."""
    cell, left = _sizes(grid)
    return grid.cut(max(1, int((_PICTURE_WIDTH - 2 * _MARGIN - left) / cell)))


def _sizes(grid: Grid) -> tuple[float, float]:
    """Return the width of a cell, and of the names of the rows."""
    row_names, column_names = grid_names(grid)
    letters = max((len(text) for texts in (*grid.cells, column_names) for text in texts), default=1)
    left = max((len(name) for name in row_names), default=0) * _LETTER + 10
    return max(_CELL_HEIGHT, letters * _LETTER + 14), left


def draw_grid(grid: Grid) -> Drawing:
    """Return one matrix: its title, the names of rows and columns, and the coloured cells."""
    row_names, column_names = grid_names(grid)
    cell, left = _sizes(grid)
    top = _TITLE_HEIGHT + _NAMES_HEIGHT
    parts = [_text(left, 16, grid.title, "title")]
    for number, name in enumerate(column_names):
        centre = left + (number + 0.5) * cell
        parts.append(_text(centre, top - 6, name, "column"))
    for number, name in enumerate(row_names):
        middle = top + number * _CELL_HEIGHT + 19
        parts.append(_text(left - 8, middle, name, "row"))
        for column, text in enumerate(grid.cells[number]):
            tip = f"{grid.title}: row {name}, column {column_names[column]}"
            spot = (left + column * cell, top + number * _CELL_HEIGHT, cell)
            parts.append(_cell(spot, text, grid.colours[number][column], tip))
    width = left + len(column_names) * cell
    return Drawing(
        max(width, left + 8.2 * len(grid.title)),
        top + len(row_names) * _CELL_HEIGHT,
        "".join(parts),
    )


def _cell(spot: tuple[float, float, float], text: str, number: int | None, tip: str) -> str:
    """Return a cell at x, y with a width; ``data-n`` is the number that it is coloured by."""
    x, y, width = spot
    paper, ink, data = "#f1f1f1", "#1a1a1a", ""
    if number is not None:
        paper, ink, data = colour(number).paper, colour(number).ink, f' data-n="{number}"'
    return (
        f"<g{data}><title>{escape(tip)}: {escape(text)}</title>"
        f'<rect x="{x + _CELL_GAP / 2:.1f}" y="{y + _CELL_GAP / 2:.1f}" '
        f'width="{width - _CELL_GAP:.1f}" height="{_CELL_HEIGHT - _CELL_GAP}" rx="4" '
        f'fill="{paper}"/>'
        f"{_text(x + width / 2, y + 19, text, 'cell', ink)}</g>\n"
    )


def _flow(drawings: Sequence[Drawing], top: float) -> Drawing:
    """Return the drawings side by side, in rows that are no wider than a picture."""
    y, widest = top, 0.0
    parts = []
    for row in _rows(drawings):
        x = float(_MARGIN)
        for drawing in row:
            parts.append(f'<g transform="translate({x:.1f},{y:.1f})">\n{drawing.body}</g>\n')
            x += drawing.width + _GUTTER
        widest = max(widest, x - _GUTTER - _MARGIN)
        y += max(drawing.height for drawing in row) + _GUTTER
    return Drawing(widest, y - _GUTTER, "".join(parts))


def _rows(drawings: Sequence[Drawing]) -> list[list[Drawing]]:
    """Return the rows: neighbours of one width in rows of equal length, others where there is room."""
    room = _PICTURE_WIDTH - 2 * _MARGIN
    rows: list[list[Drawing]] = []
    for width, group in groupby(drawings, key=lambda drawing: drawing.width):
        alike = list(group)
        if rows and len(alike) == 1 and sum(d.width + _GUTTER for d in rows[-1]) + width <= room:
            rows[-1] += alike
            continue
        fit = max(1, int((room + _GUTTER) // (width + _GUTTER)))
        across = -(-len(alike) // -(-len(alike) // fit))
        rows += [alike[first : first + across] for first in range(0, len(alike), across)]
    return rows


def _captions(blocks: Iterable[Block], top: float, width: float) -> Drawing:
    """Return the concluding paragraphs, wrapped to the width; the height is where they end."""
    y, parts = top, []
    for block in blocks:
        if isinstance(block, Text) and block.style in _CAPTIONS:
            for line in textwrap.wrap(block.text, int((width - 2 * _MARGIN) / 7.2)):
                y += _CAPTION_HEIGHT
                parts.append(_text(_MARGIN, y, line, "caption", _CAPTIONS[block.style]))
    return Drawing(width, y, "".join(parts))


def _text(x: float, y: float, text: str, kind: str, fill: str = "currentColor") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" {_KINDS[kind]} fill="{fill}" '
        f'xml:space="preserve">{escape(text)}</text>\n'
    )
