"""The matrices of a record as one picture that needs nothing but a browser, the same every time."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate, groupby, pairwise

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
_TITLE_LETTER = 13.5  # no less than the mean width of a letter of the picture's title
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
_BLOCK = 8  # rows and columns of the matrices that instructions are made of
_BLOCK_GAP = 6  # between them
_FRAME = 3  # width of the frame around the marked cell
DARK = """.empty { fill: #2a2f37; } .on-empty { fill: #d5d9df; } .halo { stroke: #15181d; }"""
"""How what has no colour of its own looks on a dark page."""

_DARK_PICTURE = (
    "<style>@media (prefers-color-scheme: dark) { svg { color: #e6e8eb; } .page { fill: #15181d; } "
    f"{DARK} .plain {{ fill: #b9bec6; }} .conclusion {{ fill: #f2f3f5; }} .good {{ fill: #5fd38d; }} "
    ".bad { fill: #ff8a80; } .warning { fill: #f0b429; } }</style>\n"
)
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
        f"<title>{escape(title)}</title>\n{_DARK_PICTURE}"
        f'<rect class="page" width="100%" height="100%" fill="#ffffff"/>\n'
        f"{_text(_MARGIN, _MARGIN + 14, title, 'picture title')}"
        f"{flow.body}{captions.body}</svg>\n"
    )


def pieces(grid: Grid) -> list[Grid]:
    """Return a matrix, or blocks of its columns that are no wider than a picture."""
    cell, left = _sizes(grid)
    return grid.cut(max(1, int((_PICTURE_WIDTH - 2 * _MARGIN - left) / (cell + _BLOCK_GAP / _BLOCK))))


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
    xs, ys = _edges(column_names, left, cell), _edges(row_names, top, _CELL_HEIGHT)
    keys = grid.named_keys()
    parts = [_text(left, 16, grid.title, "title")]
    for x, name in zip(xs, column_names, strict=False):
        parts.append(_text(x + cell / 2, top - 6, name, "column"))
    for number, (y, name) in enumerate(zip(ys, row_names, strict=False)):
        parts.append(_text(left - 8, y + 19, name, "row"))
        for column, text in enumerate(grid.cells[number]):
            tip = f"{grid.title}: row {name}, column {column_names[column]}"
            of = grid.colours[number][column], keys[number][column]
            parts.append(_cell((xs[column], y, cell), text, of, tip))
    if grid.marked and 0 <= grid.marked[1] < len(column_names):
        parts.append(_frame(xs[grid.marked[1]], ys[grid.marked[0]], cell))
    return Drawing(max(xs[-1], left + 8.2 * len(grid.title)), ys[-1], "".join(parts))


def _edges(names: Sequence[str], first: float, size: float) -> list[float]:
    """Return where each row or column begins, and where the last ends: 8x8 blocks stand a little apart."""
    numbers = [re.match(r"(?:w\d+ )*(\d+)", name) for name in names]
    blocks = [int(found[1]) // _BLOCK if found else 0 for found in numbers]
    breaks = [last != this for last, this in pairwise(blocks)]
    gap = 0 if all(breaks) else _BLOCK_GAP
    shifts = accumulate((gap * apart for apart in breaks), initial=0)
    starts = [first + number * size + shift for number, shift in enumerate(shifts)][: len(names)]
    return [*starts, (starts[-1] if starts else first - size) + size]


def _frame(x: float, y: float, width: float) -> str:
    """Return the frame of the cell that a picture is about."""
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{_CELL_HEIGHT}" rx="5" fill="none"'
    return (
        f'<rect class="halo" {place} stroke="#ffffff" stroke-width="{_FRAME + 4}"/>'
        f'<rect class="frame" {place} stroke="currentColor" stroke-width="{_FRAME}"/>\n'
    )


def _cell(spot: tuple[float, float, float], text: str, of: tuple[int | None, str | None], tip: str) -> str:
    """Return a cell at x, y with a width.

    ``data-n`` is the number that it is coloured by, ``data-key`` the name of what it belongs to.
    """
    x, y, width = spot
    number, key = of
    paper, ink, data, kinds = "#f1f1f1", "#1a1a1a", "", (' class="empty"', ' class="on-empty"')
    if number is not None:
        paper, ink, data, kinds = colour(number).paper, colour(number).ink, f' data-n="{number}"', ("", "")
    if key is not None:
        data += f' data-key="{escape(key)}"'
    return (
        f"<g{data}><title>{escape(tip)}: {escape(text)}</title>"
        f'<rect{kinds[0]} x="{x + _CELL_GAP / 2:.1f}" y="{y + _CELL_GAP / 2:.1f}" '
        f'width="{width - _CELL_GAP:.1f}" height="{_CELL_HEIGHT - _CELL_GAP}" rx="4" '
        f'fill="{paper}"/>'
        f"{_text(x + width / 2, y + 19, text, 'cell', ink, kinds[1])}</g>\n"
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
                kind = f' class="{block.style}"'
                parts.append(_text(_MARGIN, y, line, "caption", _CAPTIONS[block.style], kind))
    return Drawing(width, y, "".join(parts))


def _text(x: float, y: float, text: str, kind: str, fill: str = "currentColor", attributes: str = "") -> str:
    return (
        f'<text{attributes} x="{x:.1f}" y="{y:.1f}" {_KINDS[kind]} fill="{fill}" '
        f'xml:space="preserve">{escape(text)}</text>\n'
    )
