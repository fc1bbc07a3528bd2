"""mma.sync: who holds which element of A, B, C and D, and what the instruction computes.

One closed form serves every dense shape but Volta's m8n8k4 of f16. With g = lane // 4, t = lane % 4 and w the
elements in a register (32 bits; of f64 one in 64), register r, slot e:

    A: row g + 8 * (r % R), column (r // R) * 4w + t * w + e, where R = M / 8
    B: row r * 4w + t * w + e, column g
    C, D, element i = r * w + e: row g + 8 * (i // 2), column 2t + i % 2

Source: PTX ISA, "Matrix fragments for mma.m8n8k4" and its sisters; proven on silicon by the recordings of the
mma probe.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ptxlab.isa.registers import Ints, RegisterMap, Where
from ptxlab.isa.types import BITS

_INT8, _INT4, _FP8 = ("s8", "u8"), ("s4", "u4"), ("e4m3", "e5m2")
_LAYOUTS = ("row.col", "row.row", "col.col", "col.row")


@dataclass(frozen=True)
class MmaForm:
    """One dense form: D[m, n] = A[m, k] x B[k, n] + C[m, n].

    Attributes:
        m, n, k: the shape.
        a, b: types of A's and B's elements; they may differ among integers and among 8-bit floats.
        acc: type of C and D.
        op: "xor" or "and" for b1, whose product is the number of ones; "" otherwise.
        layout: "row.col" but for m8n8k4 of f16, which takes all four.

    """

    m: int
    n: int
    k: int
    a: str
    b: str
    acc: str
    op: str = ""
    layout: str = "row.col"

    @property
    def shape(self) -> str:
        """m16n8k16 and the like."""
        return f"m{self.m}n{self.n}k{self.k}"

    @property
    def volta(self) -> bool:
        """Whether four groups of eight lanes each multiply matrices of their own."""
        return self.shape == "m8n8k4" and self.a == "f16"

    @property
    def minimum(self) -> int:
        """The lowest architecture that has it. Source: PTX ISA, mma, "Target ISA Notes"."""
        if self.a in _FP8:
            return 89
        if self.a == "f64":
            return 80 if self.m == 8 else 90
        first = (
            self.volta
            or self.shape in ("m8n8k16", "m8n8k32")
            or (self.shape == "m16n8k8" and self.a == "f16")
        )
        return 75 if first or (self.shape == "m8n8k128" and self.op == "xor") else 80

    @property
    def ptx(self) -> str:
        """The instruction's text up to its operands."""
        types = f"{self.acc}.{self.a}.{self.b}.{self.acc}"
        tail = f".{self.op}.popc" if self.op else ""
        return f"mma.sync.aligned.{self.shape}.{self.layout}.{types}{tail}"

    @property
    def a_map(self) -> RegisterMap:
        """Who holds which element of A: place has "row" (m) and "col" (k); of Volta's, "matrix" too."""
        return volta_map("A", self) if self.volta else a_map(self.m, self.k, BITS[self.a])

    @property
    def b_map(self) -> RegisterMap:
        """Who holds which element of B: place has "row" (k) and "col" (n)."""
        return volta_map("B", self) if self.volta else b_map(self.k, BITS[self.b])

    @property
    def c_map(self) -> RegisterMap:
        """Who holds which element of C and of D: place has "row" (m) and "col" (n)."""
        return volta_map("C", self) if self.volta else c_map(self.m, BITS[self.acc])


def dense_forms() -> Iterator[MmaForm]:
    """Yield every dense form that PTX lists, the types with sub-byte containers of sm_120a left out."""
    for layout in _LAYOUTS:
        yield from (MmaForm(8, 8, 4, "f16", "f16", acc, layout=layout) for acc in ("f16", "f32"))
    for k in (8, 16):
        yield from (MmaForm(16, 8, k, "f16", "f16", acc) for acc in ("f16", "f32"))
        yield MmaForm(16, 8, k, "bf16", "bf16", "f32")
    yield from (MmaForm(16, 8, k, "tf32", "tf32", "f32") for k in (4, 8))
    yield from (MmaForm(m, 8, k, "f64", "f64", "f64") for m, k in ((8, 4), (16, 4), (16, 8), (16, 16)))
    for types, ks in ((_INT8, (16, 16, 32)), (_INT4, (32, 32, 64))):
        for m, k in zip((8, 16, 16), ks, strict=True):
            yield from (MmaForm(m, 8, k, a, b, "s32") for a in types for b in types)
    for m, k in ((8, 128), (16, 128), (16, 256)):
        yield from (MmaForm(m, 8, k, "b1", "b1", "s32", op) for op in ("xor", "and"))
    for k in (16, 32):
        yield from (MmaForm(16, 8, k, a, b, acc) for a in _FP8 for b in _FP8 for acc in ("f16", "f32"))


def a_map(m: int, k: int, bits: int) -> RegisterMap:
    """Return who holds which element of A (row = m, col = k); ``bits`` is the size of an element."""
    blocks, width = m // 8, max(1, 32 // bits)

    def element(lane: Ints, register: Ints, slot: Ints) -> Where:
        row = lane // 4 + 8 * (register % blocks)
        col = register // blocks * 4 * width + lane % 4 * width + slot
        return {"row": row, "col": col}

    return RegisterMap.of(blocks * k // (4 * width), width, bits, element)


def b_map(k: int, bits: int) -> RegisterMap:
    """Return who holds which element of B, k x 8 (row = k, col = n)."""
    width = max(1, 32 // bits)

    def element(lane: Ints, register: Ints, slot: Ints) -> Where:
        return {"row": register * 4 * width + lane % 4 * width + slot, "col": lane // 4}

    return RegisterMap.of(k // (4 * width), width, bits, element)


def c_map(m: int, bits: int) -> RegisterMap:
    """Return who holds which element of C and of D, m x 8."""
    width = max(1, 32 // bits)

    def element(lane: Ints, register: Ints, slot: Ints) -> Where:
        index = register * width + slot
        return {"row": lane // 4 + 8 * (index // 2), "col": 2 * (lane % 4) + index % 2}

    return RegisterMap.of(m // 4 // width, width, bits, element)


def volta_map(operand: str, form: MmaForm) -> RegisterMap:
    """Return who holds which element of an operand of m8n8k4 of f16.

    Four matrices a warp: "matrix" q belongs to lanes 4q..4q+3 and 4q+16..4q+19. With h = 4 for lanes from 16
    up and i the element: A by rows (lane % 4 + h, i), by columns (i % 4 + h, lane % 4); B by columns
    (i, lane % 4 + h), by rows (lane % 4, i % 4 + h); C of f16 (lane % 4 + h, i), of f32 row
    (lane & 1) + (i & 2) + h, column (i & 4) + (lane & 2) + (i & 1).
    """
    a_order, b_order = form.layout.split(".")

    def element(lane: Ints, register: Ints, slot: Ints) -> Where:
        i = register * (1 if operand == "C" and form.acc == "f32" else 2) + slot
        low, high = lane % 4, 4 * (lane // 16)
        if operand == "A":
            row, col = (low + high, i) if a_order == "row" else (i % 4 + high, low)
        elif operand == "B":
            row, col = (i, low + high) if b_order == "col" else (low, i % 4 + high)
        elif form.acc == "f16":
            row, col = low + high, i
        else:
            row, col = (lane & 1) + (i & 2) + high, (i & 4) + (lane & 2) + (i & 1)
        return {"matrix": lane % 16 // 4, "row": row, "col": col}

    if operand == "C":
        return RegisterMap.of(8, 1, 32, element) if form.acc == "f32" else RegisterMap.of(4, 2, 16, element)
    return RegisterMap.of(2, 2, 16, element)
