"""Objects of isa/ and layout/ as pictures for notebooks."""

from __future__ import annotations

from functools import singledispatch

from ptxlab.experiments.algebra import LARGEST, described
from ptxlab.isa.registers import RegisterMap
from ptxlab.layout.algebra import Layout
from ptxlab.layout.notation import Composed
from ptxlab.layout.swizzle import Swizzle
from ptxlab.render.blocks import Block, Grid, Text
from ptxlab.render.operands import operand_blocks
from ptxlab.render.svg import draw
from ptxlab.render.views.layout_algebra import evaluated

_LINES = 32
"""Rows and columns of the picture of a swizzle."""


def drawn(thing: object) -> str | None:
    """Return an object as an SVG; None where there is nothing to draw."""
    blocks = _blocks(thing)
    return draw(blocks) if any(isinstance(block, Grid) for block in blocks) else None


@singledispatch
def _blocks(thing: object) -> list[Block]:
    del thing
    return []


@_blocks.register
def _(layout: Layout) -> list[Block]:
    return _blocks(Composed(layout))


@_blocks.register
def _(layout: Composed) -> list[Block]:
    return evaluated({"result": described(layout)}) if layout.layout.size <= LARGEST else []


@_blocks.register
def _(swizzle: Swizzle) -> list[Block]:
    """Draw where chunks go: a row for each value of the bits that are read, a column for each chunk in it."""
    rows, columns = min(_LINES, 1 << swizzle.bits), min(_LINES, 1 << swizzle.shift)
    size, row_size = 1 << swizzle.base, 1 << (swizzle.base + swizzle.shift)
    chunks = [
        [swizzle(row * row_size + column * size) % row_size // size for column in range(columns)]
        for row in range(rows)
    ]
    cells = [[str(chunk) for chunk in row] for row in chunks]
    colours: list[list[int | None]] = [[4 * chunk for chunk in row] for row in chunks]
    title = f"rows of {row_size} offsets, chunks of {size}: which chunk of its row each becomes"
    return [Text(f"Swizzle{swizzle}", "heading"), Grid(title, cells, colours)]


@_blocks.register
def _(where: RegisterMap) -> list[Block]:
    entries = where.entries()
    if not entries or not {"row", "col"} <= set(where.place):
        return []
    rows, cols = (1 + int(where.place[side].max()) for side in ("row", "col"))
    result = {"elements": entries, "shapes": {"elements": {"rows": rows, "cols": cols}}}
    heading = f"{rows} x {cols} elements in the registers of {len(set(where.lane.tolist()))} lanes"
    return [Text(heading, "heading"), *operand_blocks(result, "predicted", ["elements"], full=True)]
