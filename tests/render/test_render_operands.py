"""Pictures and tables of operands: an element a cell, a register a cell, several matrices, several warps."""

from __future__ import annotations

from typing import Any

from ptxlab.isa.mma import a_map, b_map, c_map
from ptxlab.isa.registers import RegisterMap
from ptxlab.render.blocks import Grid, Table
from ptxlab.render.operands import formula_table, operand_blocks


def result(rows: int, cols: int, **maps: RegisterMap) -> dict[str, Any]:
    """A result that holds these maps, all of one extent."""
    shapes = {name: {"rows": rows, "cols": cols} for name in maps}
    return {"shapes": shapes, **{name: where.entries() for name, where in maps.items()}}


def test_short_sides_show_elements() -> None:
    """Lane, register and slot; coloured by lane."""
    blocks = operand_blocks(result(16, 16, A=a_map(16, 16, 16)), "predicted")
    grid, table = (next(b for b in blocks if isinstance(b, kind)) for kind in (Grid, Table))
    assert isinstance(grid, Grid)
    assert (grid.cells[9][3], grid.colours[9][3]) == ("5 r1b", 5)
    assert isinstance(table, Table)
    assert table.columns == ("lane", "r0", "r1", "r2", "r3")
    assert table.rows[5] == (5, "1,2  1,3", "9,2  9,3", "1,10  1,11", "9,10  9,11")


def test_long_sides_show_registers() -> None:
    """A row of 32 bytes, four to a cell; a column of them likewise."""
    grid = operand_blocks(result(16, 32, A=a_map(16, 32, 8)), "")[0]
    assert isinstance(grid, Grid)
    assert grid.column_names[:2] == ["0-3", "4-7"]
    assert grid.cells[9][5] == "5 r3"
    blocks = operand_blocks(result(32, 8, B=b_map(32, 8)), "")
    grid, table = blocks[0], blocks[2]
    assert isinstance(grid, Grid)
    assert grid.row_names[5] == "20-23"
    assert grid.cells[5][1] == "5 r1"
    assert isinstance(table, Table)
    assert table.rows[5] == (5, "4-7,1", "20-23,1")


def test_c_and_d_are_drawn_once() -> None:
    """Unless they differ; what was measured is no difference."""
    where = c_map(16, 32)
    both = result(16, 8, C=where, D=where)
    for entry in both["D"]:
        entry["value"] = 1
    assert [b.title for b in operand_blocks(both, "") if isinstance(b, Grid)] == ["C and D, 16 x 8"]
    both["D"][0]["row"] = 15
    titles = [b.title for b in operand_blocks(both, "") if isinstance(b, Grid)]
    assert titles == ["C, 16 x 8", "D, 16 x 8"]


def test_warps_and_large_matrices() -> None:
    """Warps have names, and what is cut off is said."""
    entries = [
        {"warp": warp, "lane": e["lane"], "register": 4 * tile + e["register"], "slot": 0,
         "row": 16 * warp + e["row"], "col": 8 * tile + e["col"]}
        for warp in range(2) for tile in range(16) for e in c_map(16, 32).entries()
    ]  # fmt: skip
    blocks = operand_blocks({"shapes": {"D": {"rows": 32, "cols": 128}}, "D": entries}, "")
    grid, table = blocks[0], blocks[2]
    assert isinstance(grid, Grid)
    assert grid.title == "D, 32 x 128 (rows 0-31, columns 0-63 shown)"
    assert grid.cells[17][2] == "w1:5 r0"
    assert isinstance(table, Table)
    assert table.title.endswith("r0 to r15 of 64")
    assert table.columns[:3] == ("warp", "lane", "r0")


def test_no_operands_no_blocks() -> None:
    """A result of another kind, or a lane that holds nothing."""
    assert operand_blocks({"registers": []}, "") == []
    assert operand_blocks({"E": [], "shapes": {"E": {"rows": 16, "cols": 4}}}, "") == []


def test_formulas_of_one_or_many_operands() -> None:
    """Two columns for a single map, one for each operand otherwise."""
    assert formula_table({"row": "lane"}).rows == [("row", "lane")]
    table = formula_table({"A": {"row": "x", "logical_col": "y"}, "C": {"row": "z"}, "D": {"row": "z"}})
    assert table.columns == ("", "A", "C and D")
    assert table.rows == [("row", "x", "z"), ("logical_col", "y", None)]
