"""wmma: the maps of every fragment, their closed formulas, and what they have in common with mma.sync."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from ptxlab.isa.mma import a_map, b_map, c_map
from ptxlab.isa.wmma import (
    OPERANDS,
    WmmaForm,
    accumulators,
    forms,
    formulas,
    parts,
    register_map,
    shapes,
)

FORMS = [form for turing in (False, True) for form in forms(turing=turing) if form.layout == "row.col"]
FRAGMENTS = [pytest.param(form, op, id=f"{form.ptx} {op}") for form in FORMS for op in OPERANDS]


@pytest.mark.parametrize(("form", "operand"), FRAGMENTS)
def test_every_element_is_held_as_often_as_said(form: WmmaForm, operand: str) -> None:
    """Each element stands in as many places as ``copies`` says, and no slot is left over."""
    where = register_map(form, operand)
    held = Counter(zip(where.place["row"].tolist(), where.place["col"].tolist(), strict=True))
    assert set(held) == set(np.ndindex(form.extent(operand)))
    assert set(held.values()) == {form.copies(operand)}
    assert 1 + where.register.max() == form.registers(operand)


@pytest.mark.parametrize(("form", "operand"), FRAGMENTS)
def test_printed_formulas_are_the_map(form: WmmaForm, operand: str) -> None:
    """Each printed formula, evaluated, gives the map in both directions, every copy of an element too."""
    where = register_map(form, operand)
    apart = form.registers(operand) // form.copies(operand)
    names = {"lane": where.lane, "register": where.register, "slot": where.slot, **where.place}
    names["copy"] = where.register // apart
    for name, expression in formulas(form, operand).items():
        value = eval(expression, {}, names)  # noqa: S307 - own text
        assert np.all(value == names[name]), (name, expression)


def test_the_inverse_finds_every_register_that_holds_an_element() -> None:
    """A[0, 0] of m8n32k16 lies in register 0 of lane 0 and, as its copies, in 2, 4 and 6."""
    found = formulas(WmmaForm(8, 32, 16, "f16", "f32"), "A")
    held = register_map(WmmaForm(8, 32, 16, "f16", "f32"), "A").entries()
    places = {each["register"] for each in held if (each["row"], each["col"]) == (0, 0)}
    inverse = {eval(found["register"], {}, {"row": 0, "col": 0, "copy": copy}) for copy in range(4)}  # noqa: S307
    assert inverse == places == {0, 2, 4, 6}


@pytest.mark.parametrize("dtype", ["f16", "bf16", "s8", "u8"])
def test_a_16x16_fragment_is_two_operands_of_mma(dtype: str) -> None:
    """A is A of m16n8k16, B is two B side by side, C two C side by side."""
    form = WmmaForm(16, 16, 16, dtype, accumulators(dtype)[0])
    bits = 8 if dtype[1:] == "8" else 16
    mine = [register_map(form, operand) for operand in OPERANDS]
    for operand, where, one in zip(
        OPERANDS, mine, (a_map(16, 16, bits), b_map(16, bits), c_map(16, 32)), strict=True
    ):
        count = 1 + one.register.max()
        for half in range(1 if operand == "A" else 2):
            own = where.register // count == half
            assert np.array_equal(where.place["row"][own], one.place["row"])
            assert np.array_equal(where.place["col"][own], one.place["col"] + 8 * half)


def test_f16_fragments_by_hand() -> None:
    """Lane 5 of A in m16n16k16: (1,2) (1,3), 8 rows down, 8 columns on, both, and all of it again."""
    rows = register_map(WmmaForm(16, 16, 16, "f16", "f32"), "A")
    held = [
        (r, c)
        for lane, r, c in zip(rows.lane, rows.place["row"], rows.place["col"], strict=True)
        if lane == 5
    ]
    assert held == 2 * [(1, 2), (1, 3), (9, 2), (9, 3), (1, 10), (1, 11), (9, 10), (9, 11)]


def test_turing_keeps_integers_as_they_are() -> None:
    """m8n32k16: lane 1 holds C in pairs along columns on sm_75 if it is s32, along rows everywhere else."""
    first = {
        (dtype, turing): [
            int(register_map(WmmaForm(8, 32, 16, dtype, acc, turing=turing), "C").place[axis][9])
            for axis in ("row", "col")
        ]
        for dtype, acc in (("s8", "s32"), ("f16", "f32"))
        for turing in (False, True)
    }
    assert first == {
        ("s8", False): [3, 0],
        ("s8", True): [0, 3],
        ("f16", False): [3, 0],
        ("f16", True): [3, 0],
    }


def test_types_and_shapes() -> None:
    """What CUDA C++ offers: three shapes for 8 and 16 bits, one for each other type, none for fp8."""
    assert shapes("bf16") == ["m16n16k16", "m32n8k16", "m8n32k16"]
    assert [shapes(dtype) for dtype in ("tf32", "f64", "s4", "b1", "e4m3")] == [
        ["m16n16k8"], ["m8n8k4"], ["m8n8k32"], ["m8n8k128"], [],
    ]  # fmt: skip
    assert len(list(forms())) == (3 * 5 + 1 + 1) * 4 + 2 + 2


@pytest.mark.parametrize(("op", "want"), [("and", [[1, 0], [1, 1]]), ("xor", [[0, 2], [1, 1]])])
def test_one_bit_products(op: str, want: list[list[int]]) -> None:
    """b1 counts the ones of and, or of xor."""
    a, b = np.array([[1, 0], [1, 1]]), np.array([[1, 0], [0, 1]])
    form = WmmaForm(8, 8, 128, "b1", "s32", op=op)
    assert form.product(a, b, np.zeros((2, 2), np.int64)).tolist() == want


@pytest.mark.parametrize("form", list(forms()), ids=lambda form: f"{form.ptx} {form.layout}")
def test_parts_are_operands_of_mma(form: WmmaForm) -> None:
    """Each part's registers hold just its rows and columns; all of them make up the matrix once."""
    for operand in ("A", "B", "C"):
        where = register_map(form, operand)
        covered = np.zeros(form.extent(operand), dtype=int)
        for part in parts(form, operand):
            own = np.isin(where.register, list(part.registers))
            rows, cols = where.place["row"][own], where.place["col"][own]
            assert set(rows.tolist()) == set(part.rows)
            assert set(cols.tolist()) == set(part.cols)
            covered[rows, cols] += 1
        assert (covered == 1).all()
