"""Objects of isa/ and layout/ as pictures for notebooks."""

from __future__ import annotations

from functools import singledispatch

from ptxlab.experiments.algebra import LARGEST, described, worked
from ptxlab.experiments.swizzle import chunks_picture
from ptxlab.isa.mbarrier import Trace
from ptxlab.isa.registers import RegisterMap
from ptxlab.layout.algebra import Layout
from ptxlab.layout.notation import Composed
from ptxlab.layout.operations import Explanation
from ptxlab.layout.swizzle import Swizzle
from ptxlab.render.blocks import Block, Grid, Text, meant_for
from ptxlab.render.blocks import drawn as drawn_grid
from ptxlab.render.operands import operand_blocks
from ptxlab.render.svg import draw
from ptxlab.render.views.layout_algebra import evaluated, explained

_PHASE = 4  # colours of neighbouring numbers differ in lightness, every fourth in hue


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
def _(done: Explanation) -> list[Block]:
    return meant_for(explained({"result": worked(done), "skipped": [], "checks": []}), "picture")


@_blocks.register
def _(swizzle: Swizzle) -> list[Block]:
    return [Text(f"Swizzle{swizzle}", "heading"), drawn_grid(chunks_picture(swizzle))]


@_blocks.register
def _(trace: Trace) -> list[Block]:
    rows = trace.rows()
    names = ("completed", "parity", "pending", "tx", "wait")
    grid = Grid(
        "the barrier after each step, coloured by phase",
        [[str(row[name]) for row in rows] for name in names],
        [[_PHASE * row["completed"] for row in rows]] * len(names),
        ["phases complete", "parity", "arrivals pending", "tx: bytes pending", "the wait"],
        [str(row["step"]) for row in rows],
    )
    told = [Text(f"Then {trace.broken}.", "bad")] if trace.broken else []
    return [Text("What a trace of an mbarrier does", "heading"), grid, *told] if rows else []


@_blocks.register
def _(where: RegisterMap) -> list[Block]:
    entries = where.entries()
    if not entries or not {"row", "col"} <= set(where.place):
        return []
    rows, cols = (1 + int(where.place[side].max()) for side in ("row", "col"))
    result = {"elements": entries, "shapes": {"elements": {"rows": rows, "cols": cols}}}
    heading = f"{rows} x {cols} elements in the registers of {len(set(where.lane.tolist()))} lanes"
    return [Text(heading, "heading"), *operand_blocks(result, "predicted", ["elements"], full=True)]
