"""Results as operands of the next product: the recipe, carried out on real registers, makes the fragment."""

from __future__ import annotations

import numpy as np
import pytest

from ptxlab.isa.mma import a_map, b_map, c_map
from ptxlab.isa.registers import RegisterMap
from ptxlab.isa.wgmma import WgmmaForm
from ptxlab.layout.reuse import k_order, recipe

D = WgmmaForm(64, "bf16", "bf16", "f32", a_in_registers=True)
PAIRS = {
    "f32 -> f16": (c_map(16, 32), a_map(16, 16, 16)),
    "f16 -> f16": (c_map(16, 16), a_map(16, 16, 16)),
    "s32 -> s8": (c_map(16, 32), a_map(16, 32, 8)),
    "s32 -> s4": (c_map(16, 32), a_map(16, 64, 4)),
    "f32 -> tf32": (c_map(16, 32), a_map(16, 8, 32)),
    "f64 -> f64": (c_map(16, 64), a_map(16, 16, 64)),
    "wgmma f32 -> bf16": (D.d_map.of_warp, D.a_map.of_warp),
}
LOCAL = ("f32 -> f16", "f16 -> f16", "wgmma f32 -> bf16")


def columns(where: RegisterMap) -> int:
    """How many columns a map has."""
    return 1 + int(where.place["col"].max())


@pytest.mark.parametrize("name", PAIRS)
def test_following_the_recipe_makes_the_fragment(name: str) -> None:
    """Every slot of every lane of A then holds the element that stands there in this order of k."""
    result, operand = PAIRS[name]
    order = k_order(result, operand, "col")
    assert order is not None
    assert sorted(order) == list(range(len(order)))
    assert (order == sorted(order)) == (name in LOCAL)
    of_result = {
        (lane, register, slot): (row, col)
        for lane, register, slot, row, col in zip(
            result.lane, result.register, result.slot, result.place["row"], result.place["col"], strict=True
        )
    }
    parts = {(part.tile, part.register, part.slot): part for part in recipe(result, operand, "col", order)}
    for tile in range(len(order) // columns(operand)):
        for lane, register, slot, row, col in zip(
            operand.lane, operand.register, operand.slot, operand.place["row"], operand.place["col"],
            strict=True,
        ):  # fmt: skip
            part = parts[tile, register, slot]
            taken = of_result[lane, part.from_register, part.from_slot]
            assert taken[0] == row
            assert part.from_tile * columns(result) + taken[1] == order[tile * columns(operand) + col]


def test_where_no_order_helps() -> None:
    """C's rows are spread over groups of lanes, B's over the lanes of a group."""
    assert k_order(c_map(16, 32), b_map(16, 16), "row") is None


def test_a_recipe_that_differs_from_lane_to_lane_is_none() -> None:
    """An order that is not the one of the lanes makes them take what others hold."""
    result, operand = PAIRS["f32 -> f16"]
    assert recipe(result, operand, "col", [*range(2, 16), 0, 1]) == []
    upside_down = RegisterMap(
        operand.lane,
        operand.register,
        operand.slot,
        {
            "row": operand.place["row"],
            "col": np.where(operand.lane == 0, operand.place["col"] ^ 1, operand.place["col"]),
        },
        16,
    )
    assert recipe(result, upside_down, "col", list(range(16))) == []
