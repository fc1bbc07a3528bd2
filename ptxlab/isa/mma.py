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

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ptxlab.errors import UsageError
from ptxlab.isa.numbers import Numbers, decode, encode
from ptxlab.isa.registers import Ints, RegisterMap, Where
from ptxlab.isa.types import BITS

_INT8, _INT4, _FP8 = ("s8", "u8"), ("s4", "u4"), ("e4m3", "e5m2")
_LAYOUTS = ("row.col", "row.row", "col.col", "col.row")


class AnyForm(Protocol):
    """What dense and sparse forms share as far as they are looked up by their names."""

    @property
    def shape(self) -> str: ...  # noqa: D102
    @property
    def a(self) -> str: ...  # noqa: D102
    @property
    def first(self) -> str: ...  # noqa: D102
    @property
    def ptx(self) -> str: ...  # noqa: D102
    def runs_on(self, arch: str) -> bool: ...  # noqa: D102


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
    def matrices(self) -> int:
        """How many products one instruction makes."""
        return 4 if self.volta else 1

    @property
    def flop(self) -> int:
        """Operations of one instruction: a multiplication and an addition for each m, n and k."""
        return 2 * self.m * self.n * self.k * self.matrices

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
    def first(self) -> str:
        """The name of that architecture."""
        return f"sm_{self.minimum}"

    def runs_on(self, arch: str) -> bool:
        """Say whether an architecture has it."""
        return generation(arch) >= self.minimum

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

    @property
    def maps(self) -> dict[str, RegisterMap]:
        """The maps of A, B, C and D."""
        return {"A": self.a_map, "B": self.b_map, "C": self.c_map, "D": self.c_map}

    @property
    def extents(self) -> dict[str, tuple[int, int]]:
        """Rows and columns of A, B, C and D."""
        return {"A": (self.m, self.k), "B": (self.k, self.n), "C": (self.m, self.n), "D": (self.m, self.n)}

    def multiply(self, a: Numbers, b: Numbers, c: Numbers) -> Numbers:
        """Return D for numbers whose products and sums are exact, any number of them at once.

        Shapes end in (m, k), (k, n) and (m, n). Of b1 the product is the number of ones in A and B, or
        in A xor B.
        """
        product = a @ b
        if self.op == "xor":
            product = a.sum(axis=-1)[..., :, None] + b.sum(axis=-2)[..., None, :] - 2 * product
        return np.asarray(product + c)


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


def register_count(where: RegisterMap) -> int:
    """Return how many registers of each lane an operand takes."""
    return 1 + int(where.register.max())


def element_places(where: RegisterMap) -> tuple[Ints, Ints, Ints]:
    """Return matrix, row and column of each entry, to index an array of shape [..., matrices, rows, cols]."""
    row, col = where.place["row"], where.place["col"]
    return where.place.get("matrix", np.zeros_like(row)), row, col


def to_registers(where: RegisterMap, numbers: Numbers, dtype: str) -> NDArray[np.unsignedinteger[Any]]:
    """Return the registers, shape [..., 32, registers], of operands of shape [..., matrices, rows, cols]."""
    words = encode(numbers[(..., *element_places(where))], dtype)
    packed = np.zeros((*words.shape[:-1], 32, register_count(where)), dtype=np.uint64)
    for slot in range(1 + int(where.slot.max())):
        own = where.slot == slot  # one entry of each register: no two of them meet below
        packed[..., where.lane[own], where.register[own]] |= words[..., own] << np.uint64(slot * where.bits)
    return packed.astype(where.word)


def from_registers(where: RegisterMap, registers: NDArray[Any], dtype: str) -> Numbers:
    """Return the numbers, shape [..., entries], that registers of shape [..., 32, registers] hold."""
    words = registers[..., where.lane, where.register].astype(np.uint64)
    shifted = words >> (where.slot * where.bits).astype(np.uint64)
    return decode(shifted & np.uint64((1 << where.bits) - 1), dtype)


def find_form(
    forms: Iterable[AnyForm], arch: str, *, shape: str, a: str, b: str, acc: str, op: str = "", layout: str
) -> Any:
    """Return the form with these names.

    Raises:
        UsageError: there is none, or the architecture is older than it; the message holds the reason, the
            legal set and the lowest architecture.

    """
    known = list(forms)
    wanted = {"a": a, "shape": shape, "b": b, "acc": acc, "op": op, "layout": layout}
    for index, (field, value) in enumerate(wanted.items()):
        asked = dict(list(wanted.items())[:index])
        near = [form for form in known if all(getattr(form, k) == v for k, v in asked.items())]
        if not any(getattr(form, field) == value for form in near):
            raise UsageError(f"{_objection(field, value, wanted)}; legal: {_choices(field, near)}")
    (form,) = (form for form in known if all(getattr(form, k) == v for k, v in wanted.items()))
    if not form.runs_on(arch):
        raise _too_old(form, [each for each in known if each.a == a and each.runs_on(arch)], arch, wanted)
    return form


def _too_old(form: AnyForm, legal: list[AnyForm], arch: str, wanted: dict[str, str]) -> UsageError:
    """Return the error for a form that an architecture does not have; ``legal`` are those of its type."""
    or_later = " or later" if form.first[-1].isdigit() else ", or another of its family with all instructions"
    shapes = ", ".join(sorted({each.shape for each in legal})) or "nothing"
    hint = f"--arch {form.first} has it"
    for field in ("op", "acc"):  # the same shape with another of these
        others = {k: v for k, v in wanted.items() if k != field}
        near = [each for each in legal if all(getattr(each, k) == v for k, v in others.items())]
        if near:
            value = getattr(near[0], field)
            shapes, hint = f"{form.shape} with --{field} {value}", f"--{field} {value}, or {hint}"
    return UsageError(
        f"{form.ptx} is illegal on {arch}: it needs {form.first}{or_later}; legal on {arch} for {form.a}: "
        f"{shapes}",
        hint,
    )


def generation(arch: str) -> int:
    """Return the number in an architecture's name: 90 for sm_90a."""
    return int(arch.removeprefix("sm_").rstrip("af"))


def _objection(field: str, value: str, wanted: dict[str, str]) -> str:
    a, shape = wanted["a"], wanted["shape"]
    if field == "a":
        return f"mma has no A of type {value}"
    if field == "shape":
        return f"mma of {a} has no shape {value}"
    what = {
        "b": "takes no B of type",
        "acc": "does not accumulate in",
        "op": "has no --op",
        "layout": "has no",
    }
    return f"mma {shape} of {a} {what[field]} {value}{' layout' if field == 'layout' else ''}"


def _choices(field: str, forms: list[AnyForm]) -> str:
    """Return the values of a field in some forms, each with the lowest architecture that has it."""
    lowest: dict[str, str] = {}
    for form in forms:
        value = getattr(form, field) or "none"
        lowest[value] = min(lowest.get(value, form.first), form.first, key=generation)
    return ", ".join(f"{value} ({first})" for value, first in lowest.items())
