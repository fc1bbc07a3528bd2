"""Pictures and tables of operands: an element a cell, a register a cell, several matrices, several warps."""

from __future__ import annotations

from typing import Any, TypeVar

from ptxlab.isa.mma import a_map, b_map, c_map
from ptxlab.isa.registers import RegisterMap
from ptxlab.render.blocks import FILES, Block, Grid, Medium, Table, Text, meant_for
from ptxlab.render.operands import formula_table, operand_blocks

Kind = TypeVar("Kind", Text, Table, Grid)


def result(rows: int, cols: int, **maps: RegisterMap) -> dict[str, Any]:
    """A result that holds these maps, all of one extent."""
    shapes = {name: {"rows": rows, "cols": cols} for name in maps}
    return {"shapes": shapes, **{name: where.entries() for name, where in maps.items()}}


def shown(blocks: list[Block], kind: type[Kind], medium: Medium = "table") -> list[Kind]:
    """The blocks of a kind that are shown there."""
    return [block for block in meant_for(blocks, medium) if isinstance(block, kind)]


def of_warps(warps: int, tiles: int) -> dict[str, Any]:
    """D of so many warps, each of 16 rows and of as many 16 x 8 tiles side by side."""
    entries = [
        {"warp": warp, "lane": e["lane"], "register": 4 * tile + e["register"], "slot": 0,
         "row": 16 * warp + e["row"], "col": 8 * tile + e["col"]}
        for warp in range(warps) for tile in range(tiles) for e in c_map(16, 32).entries()
    ]  # fmt: skip
    return {"shapes": {"D": {"rows": 16 * warps, "cols": 8 * tiles}}, "D": entries}


def test_short_sides_show_elements() -> None:
    """Lane, register and slot; coloured by lane."""
    blocks = operand_blocks(result(16, 16, A=a_map(16, 16, 16)), "predicted", full=True)
    (grid,), (table,) = shown(blocks, Grid), shown(blocks, Table)
    assert (grid.cells[9][3], grid.colours[9][3]) == ("5 r1b", 5)
    assert table.columns == ("lane", "r0", "r1", "r2", "r3")
    assert table.rows[5] == (5, "1,2  1,3", "9,2  9,3", "1,10  1,11", "9,10  9,11")


def test_long_sides_show_registers() -> None:
    """A row of 32 bytes, four to a cell; a column of them likewise."""
    (grid,) = shown(operand_blocks(result(16, 32, A=a_map(16, 32, 8)), ""), Grid)
    assert grid.column_names[:2] == ["0-3", "4-7"]
    assert grid.cells[9][5] == "5 r3"
    blocks = operand_blocks(result(32, 8, B=b_map(32, 8)), "", full=True)
    (grid,), (table,) = shown(blocks, Grid), shown(blocks, Table)
    assert grid.row_names[5] == "20-23"
    assert grid.cells[5][1] == "5 r1"
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


def test_registers_of_every_lane_are_for_files_or_who_asks() -> None:
    """A terminal gets them with --full, or with --lane, those of the lane."""
    one = result(16, 16, A=a_map(16, 16, 16))
    assert shown(operand_blocks(one, ""), Table) == []
    for medium in FILES:
        assert len(shown(operand_blocks(one, ""), Table, medium)[0].rows) == 32
    of_lane = one | {"A": [entry for entry in one["A"] if entry["lane"] == 5]}
    (table,) = shown(operand_blocks(of_lane, "", lane=5), Table)
    assert [row[0] for row in table.rows] == [5]


def test_a_terminal_shows_the_core_of_a_large_matrix() -> None:
    """The first warp's rows and eight columns, which repeat; files draw all of it; so does --full."""
    blocks = operand_blocks(of_warps(2, 8), "")
    (core,), (whole,) = shown(blocks, Grid), shown(blocks, Grid, "picture")
    assert core.title == "D, 32 x 64 (rows 0-15, columns 0-7 shown)"
    assert (len(core.cells), len(core.cells[0])) == (16, 8)
    assert (len(whole.cells), len(whole.cells[0])) == (32, 64)
    assert (whole.row_names[17], whole.cells[17][58]) == ("w1 17", "5 r28")
    assert core.row_names[9] == "w0 9"
    (full,) = shown(operand_blocks(of_warps(2, 8), "", full=True), Grid)
    assert full.cells == whole.cells
    (table,) = shown(blocks, Table, "csv")
    assert table.columns == ("warp", "lane", *(f"r{register}" for register in range(32)))


def test_what_is_cut_off_in_files_is_said() -> None:
    """64 columns are drawn; the table of registers has the others."""
    blocks = operand_blocks(of_warps(1, 16), "")
    assert shown(blocks, Grid, "picture")[0].title == "D, 16 x 128 (rows 0-15, columns 0-63 shown)"
    assert shown(blocks, Table, "picture")[0].columns[-1] == "r63"


def test_one_lane_of_a_large_matrix_is_a_table() -> None:
    """Not a picture with hardly anything on it."""
    large = of_warps(4, 8)
    of_lane = large | {"D": [entry for entry in large["D"] if entry["lane"] == 5]}
    blocks = operand_blocks(of_lane, "", lane=5)
    assert not any(isinstance(block, Grid) for block in blocks)
    assert [row[:3] for row in shown(blocks, Table)[0].rows] == [
        (warp, 5, f"{16 * warp + 1},2") for warp in range(4)
    ]


def test_warpgroups_have_warps_of_their_own() -> None:
    """Warp 1 of the second warpgroup is the sixth."""
    two = of_warps(1, 1)
    second = [entry | {"warp": 1, "warpgroup": 1, "row": entry["row"] + 16} for entry in two["D"]]
    both = {"shapes": {"D": {"rows": 32, "cols": 8}}, "D": two["D"] + second}
    (grid,) = shown(operand_blocks(both, "", full=True), Grid)
    assert grid.row_names[16] == "w5 16"


def test_of_several_copies_the_first_is_drawn() -> None:
    """r4-r7 hold again what r0-r3 hold, which is said."""
    where = a_map(16, 16, 16)
    entries = where.entries()
    entries += [entry | {"register": entry["register"] + 4} for entry in where.entries()]
    blocks = operand_blocks({"shapes": {"A": {"rows": 16, "cols": 16}}, "A": entries}, "")
    (grid,) = shown(blocks, Grid)
    assert grid.cells[9][3] == "5 r1b"
    assert "A: r4-r7 repeat r0-r3; the picture shows r0-r3." in [text.text for text in shown(blocks, Text)]


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
