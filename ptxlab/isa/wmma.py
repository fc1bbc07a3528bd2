"""wmma: how nvcuda::wmma spreads its fragments over the lanes of a warp. PTX leaves that open.

A fragment is operands of mma.sync (see isa.mma) side by side: A blocks of 16 rows, B blocks of 8 columns, C
and D either. m8n32k16 is m32n8k16 with A and B exchanged and every matrix transposed. Where a fragment has
more registers than its elements fill, the elements repeat.
Source: read out of the address arithmetic that ptxas 13.5 makes of wmma.load for sm_75 to sm_120a, which
differ in one case (see WmmaForm.turing); proven on silicon by the recordings of the wmma probe.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np

from ptxlab.isa.expressions import over, total
from ptxlab.isa.mma import a_map, b_map, c_map
from ptxlab.isa.registers import Ints, RegisterMap, Where
from ptxlab.isa.types import BITS

OPERANDS = ("A", "B", "C")
"""The fragments that load_matrix_sync fills; D is laid out as C."""

SUB_BYTE = ("s4", "u4", "b1")
"""Types that CUDA C++ calls experimental; they come as A by rows and B by columns alone."""

_LARGE = ((16, 16, 16), (32, 8, 16), (8, 32, 16))
_SHAPES = {
    "f16": _LARGE, "bf16": _LARGE, "s8": _LARGE, "u8": _LARGE, "tf32": ((16, 16, 8),), "f64": ((8, 8, 4),),
    "s4": ((8, 8, 32),), "u4": ((8, 8, 32),), "b1": ((8, 8, 128),),
}  # fmt: skip
_ACCUMULATORS = {"f16": ("f32", "f16"), "bf16": ("f32",), "tf32": ("f32",), "f64": ("f64",)}
_EXCHANGED = {"A": "B", "B": "A", "row": "col", "col": "row"}


@dataclass(frozen=True)
class WmmaForm:
    """One form: D[m, n] = A[m, k] x B[k, n] + C[m, n].

    Attributes:
        m, n, k: the shape.
        dtype: type of the elements of A and B.
        acc: type of the elements of C and D.
        layout: "row" or "col" of A and of B in memory, such as "row.col".
        op: "xor" or "and" for b1, whose product is the number of ones; "" otherwise.
        turing: whether it is for sm_75, which does not exchange A and B of integers.

    """

    m: int
    n: int
    k: int
    dtype: str
    acc: str
    layout: str = "row.col"
    op: str = ""
    turing: bool = False

    @property
    def shape(self) -> str:
        """m16n16k16 and the like."""
        return f"m{self.m}n{self.n}k{self.k}"

    @property
    def minimum(self) -> int:
        """The lowest architecture known here that has it. Source: PTX ISA, wmma.load, "Target ISA Notes"."""
        return 80 if self.dtype in ("bf16", "tf32", "f64") or self.op == "and" else 75

    @property
    def ptx(self) -> str:
        """The multiplication's text up to its operands."""
        types = f"{self.acc}.{self.dtype}.{self.dtype}.{self.acc}"
        if self.dtype == "f16":
            types = f"{self.acc}.{self.acc}"
        op = f"{self.op}.popc." if self.op else ""
        return f"wmma.mma.{op}sync.aligned.{self.layout}.{self.shape}.{types}"

    @property
    def exchanged(self) -> bool:
        """Whether it is m32n8k16 transposed."""
        return self.n == 32 and not (self.turing and self.acc == "s32")

    def extent(self, operand: str) -> tuple[int, int]:
        """Return the rows and columns of A, B, C or D."""
        return {"A": (self.m, self.k), "B": (self.k, self.n)}.get(operand, (self.m, self.n))

    def dtype_of(self, operand: str) -> str:
        """Return the type of the elements of A, B, C or D."""
        return self.dtype if operand in ("A", "B") else self.acc

    def width(self, operand: str) -> int:
        """Return the elements in one register: 32 bits hold them, of f64 64."""
        return max(1, 32 // BITS[self.dtype_of(operand)])

    def copies(self, operand: str) -> int:
        """Return how often an element is held: A and B of f16 have 16 elements a lane whatever the shape."""
        rows, cols = self.extent(operand)
        return 16 * 32 // (rows * cols) if self.dtype == "f16" and operand in ("A", "B") else 1

    def registers(self, operand: str) -> int:
        """Return the registers of each lane."""
        rows, cols = self.extent(operand)
        return rows * cols * self.copies(operand) // (32 * self.width(operand))

    def product(self, a: Ints, b: Ints, c: Ints) -> Ints:
        """Return D of whole numbers, as long as the types hold every sum exactly."""
        if self.op:
            met = np.bitwise_and if self.op == "and" else np.bitwise_xor
            return np.asarray(met(a[:, :, None], b[None]).sum(axis=1) + c)
        return np.asarray(a @ b + c)


def shapes(dtype: str) -> list[str]:
    """Return the shapes that a type of A and B comes in; none for a type that wmma has not."""
    return [f"m{m}n{n}k{k}" for m, n, k in _SHAPES.get(dtype, ())]


def accumulators(dtype: str) -> tuple[str, ...]:
    """Return the types of C and D that go with a type of A and B, the usual one first."""
    return _ACCUMULATORS.get(dtype, ("s32",))


def layouts(dtype: str) -> tuple[str, ...]:
    """Return the layouts of A and B in memory that a type comes in."""
    return ("row.col",) if dtype in SUB_BYTE else ("row.col", "row.row", "col.row", "col.col")


def forms(*, turing: bool = False) -> Iterator[WmmaForm]:
    """Yield every form; those for sm_75 with ``turing``."""
    for dtype, extents in _SHAPES.items():
        for extent, acc in product(extents, accumulators(dtype)):
            for layout, op in product(layouts(dtype), ("xor", "and") if dtype == "b1" else ("",)):
                yield WmmaForm(*extent, dtype, acc, layout, op, turing)


@cache
def register_map(form: WmmaForm, operand: str) -> RegisterMap:
    """Return who holds which element of A, B, C or D; place has "row" and "col"."""
    if form.exchanged:
        other = register_map(_transposed(form), _EXCHANGED.get(operand, operand))
        place = {_EXCHANGED[axis]: numbers for axis, numbers in other.place.items()}
        return RegisterMap(other.lane, other.register, other.slot, place, other.bits)
    block, axis, size = _block(form, operand)
    registers = 1 + int(block.register.max())
    blocks = form.extent(operand)[axis == "col"] // size or 1

    def element(lane: Ints, register: Ints, slot: Ints) -> Where:
        entry = (lane * registers + register % registers) * width + slot
        place = {name: numbers[entry] for name, numbers in block.place.items()}
        return {**place, axis: place[axis] + size * (register // registers % blocks)}

    width = form.width(operand)
    return RegisterMap.of(form.registers(operand), width, block.bits, element)


@dataclass(frozen=True)
class Part:
    """An operand of mma.sync that is part of a fragment.

    Attributes:
        registers: those of the fragment that hold it, in its order.
        rows, cols: what of the matrix it is.
        name: which operand of which shape.

    """

    registers: range
    rows: range
    cols: range
    name: str


def parts(form: WmmaForm, operand: str) -> Iterator[Part]:
    """Yield the operands of mma.sync that a fragment is made of; its further registers repeat them."""
    own, role = (_transposed(form), _EXCHANGED.get(operand, operand)) if form.exchanged else (form, operand)
    size = 1 + int(_block(own, role)[0].register.max())
    where = register_map(form, operand)
    name = f"{role} of m{min(own.m, 16)}n8k{own.k}{', transposed' if form.exchanged else ''}"
    for first in range(0, form.registers(operand) // form.copies(operand), size):
        of_part = (where.register >= first) & (where.register < first + size)
        rows, cols = (where.place[side][of_part] for side in ("row", "col"))
        yield Part(
            range(first, first + size),
            range(int(rows.min()), int(rows.max()) + 1),
            range(int(cols.min()), int(cols.max()) + 1),
            name,
        )


def _block(form: WmmaForm, operand: str) -> tuple[RegisterMap, str, int]:
    """Return the operand of mma.sync that a fragment repeats, along which axis, and its extent there."""
    high, bits = min(form.m, 16), BITS[form.dtype_of(operand)]
    if operand == "A":
        return a_map(high, form.k, bits), "row", 16
    if operand == "B":
        return b_map(form.k, bits), "col", 8
    return (c_map(high, bits), "row", 16) if form.m == 32 else (c_map(high, bits), "col", 8)


def _transposed(form: WmmaForm) -> WmmaForm:
    return WmmaForm(form.n, form.m, form.k, form.dtype, form.acc, op=form.op)


def formulas(form: WmmaForm, operand: str) -> dict[str, str]:
    """Return the map in closed form, both directions, as expressions that a test evaluates.

    Names: lane, register, slot on one side; row, col on the other; // is floor division. Where registers
    repeat each other, "copy" is which of the registers that hold the element it is, from 0.
    """
    if form.exchanged:
        text = formulas(_transposed(form), _EXCHANGED.get(operand, operand))
        return {_EXCHANGED.get(name, name): _exchanged(each) for name, each in text.items()}
    text = {"A": _formulas_of_a, "B": _formulas_of_b}.get(operand, _formulas_of_c)(form)
    copies = form.copies(operand)
    if copies == 1:
        return text
    apart = form.registers(operand) // copies
    register = total((1, text["register"], apart), (apart, "copy", copies))
    return text | {"register": register, "copy": over("register", apart)}


def _formulas_of_a(form: WmmaForm) -> dict[str, str]:
    width, high, blocks = form.width("A"), min(form.m, 16) // 8, form.m // 16 or 1
    steps = form.k // (4 * width)
    return {
        "row": total((1, "lane // 4", 8), (8, f"register % {high}", high),
                    (16, f"register // {high * steps}", blocks)),
        "col": total((4 * width, f"register // {high} % {steps}", steps), (width, "lane % 4", 4),
                    (1, "slot", width)),
        "lane": total((4, "row % 8", 8), (1, f"col % {4 * width} // {width}", 4)),
        "register": total((high, f"col // {4 * width}", steps), (1, f"row // 8 % {high}", high),
                         (high * steps, "row // 16", blocks)),
        "slot": total((1, f"col % {width}", width)),
    }  # fmt: skip


def _formulas_of_b(form: WmmaForm) -> dict[str, str]:
    width, blocks = form.width("B"), form.n // 8
    steps = form.k // (4 * width)
    return {
        "row": total((4 * width, f"register % {steps}", steps), (width, "lane % 4", 4), (1, "slot", width)),
        "col": total((1, "lane // 4", 8), (8, f"register // {steps} % {blocks}", blocks)),
        "lane": total((4, "col % 8", 8), (1, f"row % {4 * width} // {width}", 4)),
        "register": total((steps, "col // 8", blocks), (1, f"row // {4 * width}", steps)),
        "slot": total((1, f"row % {width}", width)),
    }


def _formulas_of_c(form: WmmaForm) -> dict[str, str]:
    width, high, down, along = form.width("C"), min(form.m, 16) // 8, form.m // 16 or 1, form.n // 8
    index, own = ("register", 2 * high) if width == 1 else ("(2 * register + slot)", 2 * high)
    element = total((1, "col % 2", 2), (2, f"row // 8 % {high}", high), (own, "row // 16", down),
                   (own, "col // 8", along))  # fmt: skip
    return {
        "row": total((1, "lane // 4", 8), (8, f"{index} // 2 % {high}", high),
                    (16, f"{index} // {own}", down)),
        "col": total((2, "lane % 4", 4), (1, f"{index} % 2", 2), (8, f"{index} // {own}", along)),
        "lane": total((4, "row % 8", 8), (1, "col % 8 // 2", 4)),
        "register": element if width == 1 else f"({element}) // {width}",
        "slot": total((1, f"({element}) % {width}", width)),
    }  # fmt: skip


def _exchanged(text: str) -> str:
    return re.sub("row|col", lambda found: _EXCHANGED[found[0]], text)
