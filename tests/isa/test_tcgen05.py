"""Tensor memory: who reaches which cell, and what copies and shifts do."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from ptxlab.errors import UsageError
from ptxlab.isa import tcgen05
from ptxlab.isa.tcgen05 import COPIES, MoveForm, check_move, formulas, loaded, move_forms, stored

FORMS = list(move_forms())

CUTLASS: dict[str, Callable[[int, int], int]] = {
    "16x64b": lambda t, r: 16 * (t % 2) + t // 2 % 2 + 2 * (t // 4) + 32 * r,
    "16x128b": lambda t, r: t % 4 + 4 * (t // 4) + 32 * (r % 2) + 64 * (r // 2),
    "16x256b": lambda t, r: 2 * (t % 4) + 8 * (t // 4) + r % 2 + 64 * (r // 2 % 2) + 128 * (r // 4),
}  # fmt: skip
"""What the strides of CUTLASS's atoms say: the cell of a thread's value, counted row by row per repetition.

Its layouts are in bits: 16dp64b has (2,2,8):(512,32,64) for threads and 1024 for repetitions, and so on.
"""


def test_every_form_is_there() -> None:
    """Five shapes, up to 128 registers, plain and packed, load and store."""
    assert len(FORMS) == 2 * 2 * (8 + 8 + 7 + 6 + 8)
    assert max(form.registers for form in FORMS) == 128


@pytest.mark.parametrize("form", FORMS, ids=lambda form: f"{form.ptx}")
def test_a_warp_touches_each_cell_once(form: MoveForm) -> None:
    """Every cell of its lanes and columns has one slot of one register, as the closed form says."""
    where = form.map
    cells = set(zip(where.place["row"].tolist(), where.place["col"].tolist(), strict=True))
    wide = form.columns - form.split if form.shape != "16x32bx2" else 2 * (form.columns - form.split)
    assert len(cells) == len(where.lane) == form.lanes * wide
    closed = formulas(form)
    given = {"lane": where.lane, "register": where.register, "slot": where.slot}
    for names, known in (
        (("row", "col"), given),
        (("lane", "register", "slot"), dict(where.place)),
    ):
        for name in names:
            answer = (given | dict(where.place))[name]
            np.testing.assert_array_equal(eval(closed[name], {}, dict(known)), answer)  # noqa: S307


@pytest.mark.parametrize("shape", CUTLASS)
def test_the_maps_equal_those_of_cutlass(shape: str) -> None:
    """Cell for cell, for two repetitions."""
    where = MoveForm("ld", shape, 2).map
    one = {"16x64b": 2, "16x128b": 4, "16x256b": 8}[shape]
    row, col = where.place["row"], where.place["col"]
    cell = col % one + one * row + 16 * one * (col // one)
    expected = [CUTLASS[shape](t, r) for t, r in zip(where.lane, where.register, strict=True)]
    np.testing.assert_array_equal(cell, expected)


def test_places_by_hand() -> None:
    """Some of the figures' cells."""
    held = {
        (shape, each["lane"], each["register"]): (each["row"], each["col"])
        for shape in tcgen05.PER_NUM
        for each in MoveForm("ld", shape, 2, split=2).map.entries()
    }
    assert held["32x32b", 7, 1] == (7, 1)
    assert held["16x64b", 1, 0] == (8, 0)
    assert held["16x64b", 2, 1] == (0, 3)
    assert held["16x128b", 5, 1] == (9, 1)
    assert held["16x256b", 5, 2] == (9, 2)
    assert held["16x32bx2", 20, 1] == (4, 3)


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("shape", tcgen05.PER_NUM)
def test_a_store_is_the_inverse_of_a_load(shape: str, *, pack: bool) -> None:
    """What four warps store is what they load again, each in its own quarter, and no other cell changes."""
    split = 8 if shape == "16x32bx2" else 0
    load, store = (MoveForm(op, shape, 4, pack, split) for op in ("ld", "st"))
    before = np.full((128, 64), 0xFFFFFFFF, dtype=np.uint32)
    given = np.arange(4 * 32 * load.registers, dtype=np.uint32).reshape(4, 32, -1)
    after = stored(before, store, given)
    np.testing.assert_array_equal(loaded(after, load), given)
    changed = np.argwhere(after != before)
    rows = set((changed[:, 0] % 32).tolist())
    assert rows <= set(range(load.lanes))


def test_packing_takes_the_low_halves_of_two_columns() -> None:
    """The first column's in the low half of the register."""
    memory = np.zeros((128, 2), dtype=np.uint32)
    memory[5] = (0xAAAA1111, 0xBBBB2222)
    assert loaded(memory, MoveForm("ld", "32x32b", 1, pack=True))[0, 5, 0] == 0x22221111


@pytest.mark.parametrize(
    ("form", "lane", "words"),
    [(MoveForm("ld", "16x256b", 64), 0, "legal: x1, x2, x4, x8, x16, x32"),
     (MoveForm("st", "8x8", 1), 0, "legal: 32x32b"),
     (MoveForm("ld", "32x32b", 3), 0, "has no x3"), (MoveForm("ld", "32x32b", 1), 16, "legal: 0"),
     (MoveForm("ld", "16x64b", 1), 8, "legal: 0 or 16"),
     (MoveForm("ld", "16x64b", 1, split=4), 0, "only 16x32bx2"),
     (MoveForm("ld", "16x32bx2", 4, split=2), 0, "legal: 4 to 508")],
)  # fmt: skip
def test_illegal_moves_name_the_legal_set(form: MoveForm, lane: int, words: str) -> None:
    """The value and what would be legal."""
    with pytest.raises(UsageError, match=words):
        check_move(form, lane)


@pytest.mark.parametrize("columns", [0, 16, 33, 48, 96, 1024])
def test_columns_are_a_power_of_two(columns: int) -> None:
    """From 32 to 512."""
    with pytest.raises(UsageError, match="legal: 32, 64, 128, 256, 512"):
        tcgen05.check_columns(columns)


@pytest.mark.parametrize("used", [1, 32, 33, 200, 512])
def test_an_allocation_holds_what_is_used(used: int) -> None:
    """And is one that can be made."""
    columns = tcgen05.allocation(used)
    tcgen05.check_columns(columns)
    assert columns >= used > (0 if columns == 32 else columns // 2)


def test_an_address_is_lane_and_column() -> None:
    """Sixteen bits each."""
    assert tcgen05.address(96, 7) == 0x600007


@pytest.mark.parametrize(
    ("shape", "row", "lanes"),
    [("128x256b", 100, [100]), ("128x128b", 3, [3]), ("4x256b", 3, [96]),
     ("64x128b.warpx2::02_13", 40, [40, 104]),
     ("64x128b.warpx2::01_23", 40, [72, 104]), ("32x128b.warpx4", 5, [5, 37, 69, 101])],
)  # fmt: skip
def test_where_a_copied_row_goes(shape: str, row: int, lanes: list[int]) -> None:
    """To one lane, or to one in each of the warps that share it."""
    assert COPIES[shape].lanes[row].tolist() == lanes


@pytest.mark.parametrize("shape", COPIES)
def test_no_lane_receives_two_rows(shape: str) -> None:
    """And the bytes of the shape's name are what is copied."""
    form = COPIES[shape]
    rows, bits = map(int, re.findall(r"\d+", shape)[:2])
    assert (form.rows, 8 * form.nbytes) == (rows, bits)
    assert len(set(form.lanes.ravel().tolist())) == form.lanes.size


def test_a_shift_moves_one_quarter_by_one_lane() -> None:
    """Eight columns of it; the last lane and all else stay."""
    before = np.arange(128 * 16, dtype=np.uint32).reshape(128, 16)
    after = tcgen05.shifted(before)
    np.testing.assert_array_equal(after[:31, :8], before[1:32, :8])
    np.testing.assert_array_equal(after[31:], before[31:])
    np.testing.assert_array_equal(after[:, 8:], before[:, 8:])
