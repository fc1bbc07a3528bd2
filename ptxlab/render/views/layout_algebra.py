"""What ``ptxlab layout eval`` and ``layout explain`` show: a layout drawn, an operation step by step."""

from __future__ import annotations

from typing import Any

from ptxlab.render.blocks import Block, Cell, Grid, Table, Text

_FACTS = ("size", "cosize", "least", "largest", "injective", "coalesced")


def evaluated(document: dict[str, Any]) -> list[Block]:
    """Return the facts, the picture coloured by bank, the map of chunks, and the table."""
    result = document["result"]
    blocks: list[Block] = [
        Text(result["layout"], "heading"),
        Table("", _FACTS, [tuple(result[name] for name in _FACTS)]),
        _offsets(result),
    ]
    if result["banks"]:
        blocks.append(Text("Coloured by bank, with the base at a multiple of 128 bytes.", "faint"))
    if result["chunks"]:
        blocks += _chunks(result["chunks"])
    if result.get("table"):
        rows = [tuple(each.values()) for each in result["table"]]
        blocks.append(Table("every coordinate", tuple(result["table"][0]), rows))
    return [*blocks, Text(result["conclusion"], "conclusion")]


def _offsets(result: dict[str, Any]) -> Grid:
    grid, (rows, columns) = result["grid"], result["grid_shape"]
    shown = (len(grid), len(grid[0]))
    cut = "" if shown == (rows, columns) else f" (the first {shown[0]} x {shown[1]} shown)"
    return Grid(
        f"offsets, {rows} x {columns}{cut}",
        [[str(offset) for offset in row] for row in grid],
        result["banks"] or [[None] * len(row) for row in grid],
        row_names=result["row_names"],
        column_names=result["column_names"],
    )


def _chunks(chunks: list[list[int]]) -> list[Block]:
    """Return the map of chunks; a chunk has the colour of the first of its four banks."""
    legend = (
        "A cell says how many chunks behind the start of its row the chunk lies; then the pattern repeats."
    )
    colours: list[list[int | None]] = [[4 * each for each in row] for row in chunks]
    cells = [[str(each) for each in row] for row in chunks]
    return [Grid("chunks of 16 bytes", cells, colours), Text(legend, "faint")]


def explained(document: dict[str, Any]) -> list[Block]:
    """Return the definition, the steps, the proof and the result."""
    result = document["result"]
    heading = " ".join([result["operation"], *result["arguments"]])
    steps: list[tuple[Cell, ...]] = [(each["step"], each["what"], each["value"]) for each in result["steps"]]
    proof: list[tuple[Cell, ...]] = [(each["what"], each["holds"], each["tried"]) for each in result["proof"]]
    blocks: list[Block] = [Text(heading, "heading"), Text(result["definition"])]
    if steps:
        blocks.append(Table("by hand", ("step", "what", "gives"), steps))
    if proof:
        blocks.append(Table("proof by enumeration", ("claim", "holds", "values tried"), proof))
    blocks += [Text(f"not done: {each['case']}: {each['reason']}", "faint") for each in document["skipped"]]
    blocks += [
        Text(f"FAILED: {each['name']}: {each['detail']}", "bad")
        for each in document["checks"]
        if not each["ok"]
    ]
    return [*blocks, Text(result["conclusion"], "conclusion")]
