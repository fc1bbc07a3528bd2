"""What ``ptxlab layout eval`` and ``layout explain`` show: a layout drawn, an operation step by step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ptxlab.render.blocks import FILES, SCREEN, Block, Cell, Grid, Medium, Table, Text

_LISTS: tuple[Medium, ...] = ("table", "csv", "md")
"""Where steps are listed; a picture draws them."""

_CORNER = 16
"""Rows and columns of a layout that a terminal shows."""

_FACTS = ("size", "cosize", "least", "largest", "injective", "coalesced")


def evaluated(document: dict[str, Any]) -> list[Block]:
    """Return the facts, the picture coloured by bank, the map of chunks, and the table."""
    result = document["result"]
    blocks: list[Block] = [
        Text(result["layout"], "heading"),
        Text(result["conclusion"], "conclusion"),
        Table("", _FACTS, [tuple(result[name] for name in _FACTS)]),
        *_drawn_whole(result),
    ]
    if result["banks"]:
        blocks.append(Text("Coloured by bank, with the base at a multiple of 128 bytes.", "faint"))
    if result["chunks"]:
        blocks += _chunks(result["chunks"])
    if result.get("table"):
        rows = [tuple(each.values()) for each in result["table"]]
        blocks.append(Table("every coordinate", tuple(result["table"][0]), rows))
    return blocks


def _drawn_whole(result: dict[str, Any]) -> list[Block]:
    """Return the layout as a matrix; of a large one a corner for a terminal, with a note."""
    whole = _offsets("offsets", result)
    if len(whole.cells) * len(whole.cells[0]) <= _CORNER * _CORNER:
        return [whole]
    left_out = "Left out here: --svg FILE and --html FILE draw more of it, --table lists all of it."
    corner = _offsets("offsets", result, _CORNER)
    return [replace(whole, media=FILES), replace(corner, media=SCREEN), Text(left_out, "faint", SCREEN)]


def _offsets(title: str, result: dict[str, Any], most: int | None = None) -> Grid:
    """Return a layout as a matrix; without banks, cells of one offset have one colour.

    Args:
        title: what its title begins with.
        result: what it is of.
        most: rows and columns that are shown at most.

    """
    rows, columns = result["grid_shape"]
    grid, banks = ([row[:most] for row in (result[name] or [])[:most]] for name in ("grid", "banks"))
    shown = (len(grid), len(grid[0]))
    cut = "" if shown == (rows, columns) else f" (the first {shown[0]} x {shown[1]} shown)"
    return Grid(
        f"{title}, {rows} x {columns}{cut}",
        [[str(offset) for offset in row] for row in grid],
        banks or grid,
        row_names=result["row_names"][:most],
        column_names=result["column_names"][:most],
        keys=_keys("bank" if banks else "offset", banks or grid),
    )


def _keys(of: str, numbers: list[list[int]]) -> list[list[str | None]]:
    """Return names for what cells of several pictures have in common."""
    return [[f"{of} {number}" for number in row] for row in numbers]


def _chunks(chunks: list[list[int]]) -> list[Block]:
    """Return the map of chunks; a chunk has the colour of the first of its four banks."""
    legend = (
        "A cell says how many chunks behind the start of its row the chunk lies; then the pattern repeats."
    )
    colours: list[list[int | None]] = [[4 * each for each in row] for row in chunks]
    cells = [[str(each) for each in row] for row in chunks]
    return [Grid("chunks of 16 bytes", cells, colours), Text(legend, "faint")]


def _drawn(pictures: list[dict[str, Any]]) -> list[Block]:
    """Draw operands and result; the offsets of B are no places in memory and have no colour."""
    grids: list[Block] = []
    for each in pictures:
        grid = _offsets(f"{each['name']} = {each['layout']}", each)
        if each["name"].startswith("B"):
            grid = replace(grid, colours=[[None] * len(row) for row in grid.cells], keys=[])
        grids.append(replace(grid, media=("picture",)))
    legend = (
        "Cells of one offset have one colour, of which there are 32; where B is drawn, its offsets count "
        "coordinates of A."
    )
    return [*grids, Text(legend, media=("picture",))] if grids else []


def _by_hand(steps: list[dict[str, Any]]) -> Grid:
    """Draw the steps: what is done is the name of the row."""
    return Grid(
        "by hand",
        [[each["value"]] for each in steps],
        [[None] for _ in steps],
        row_names=[f"{each['step']}  {each['what']}" for each in steps],
        column_names=["gives"],
        media=("picture",),
    )


def explained(document: dict[str, Any]) -> list[Block]:
    """Return the definition, the steps, the proof and the result."""
    result = document["result"]
    heading = " ".join([result["operation"], *result["arguments"]])
    steps: list[tuple[Cell, ...]] = [(each["step"], each["what"], each["value"]) for each in result["steps"]]
    proof: list[tuple[Cell, ...]] = [(each["what"], each["holds"], each["tried"]) for each in result["proof"]]
    blocks: list[Block] = [
        Text(heading, "heading"),
        Text(result["conclusion"], "conclusion"),
        Text(result["definition"]),
    ]
    blocks += _drawn(result["pictures"])
    if steps:
        blocks += [_by_hand(result["steps"]), Table("by hand", ("step", "what", "gives"), steps, _LISTS)]
    if proof:
        blocks.append(Table("proof by enumeration", ("claim", "holds", "values tried"), proof))
    blocks += [Text(f"not done: {each['case']}: {each['reason']}", "faint") for each in document["skipped"]]
    blocks += [
        Text(f"FAILED: {each['name']}: {each['detail']}", "bad")
        for each in document["checks"]
        if not each["ok"]
    ]
    return blocks
