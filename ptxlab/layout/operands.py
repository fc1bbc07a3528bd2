"""Operands of mma that show where their elements act: what is multiplied, and what the products tell.

Each experiment is one multiplication. Elements of A carry their own index while B has a single one in each
column, so that a column of D is a column of A; B and C are shown likewise. Types too narrow for an index show
a few of its bits at a time. Registers given in a wrong order are so where their operand is shown, and in the
products of random integers: an operand that selects is given as it should be, for a fault of one would look
like a fault of the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxlab.isa.mma import MmaForm, element_places, from_registers
from ptxlab.isa.mma_sparse import LOWER, SLOTS, UPPER, SparseForm
from ptxlab.isa.registers import RegisterMap

Form = MmaForm | SparseForm
Numbers = NDArray[np.float64]
Indices = NDArray[np.int64]
Metadata = NDArray[np.uint32]

DIGIT_BITS = {
    "f16": 11, "bf16": 8, "tf32": 11, "f32": 24, "f64": 32, "e4m3": 4, "e5m2": 3,
    "s8": 7, "u8": 8, "s4": 3, "u4": 4, "s32": 24, "b1": 1,
}  # fmt: skip
"""Bits of the widest integers that a type holds exactly, from 0 up."""
FACTORS = {
    "f16": (-31, 31), "bf16": (-31, 31), "tf32": (-31, 31), "f64": (-999, 999), "e4m3": (-8, 8),
    "e5m2": (-4, 4), "s8": (-128, 127), "u8": (0, 255), "s4": (-8, 7), "u4": (0, 15), "b1": (0, 1),
}  # fmt: skip
"""Range of random integers whose products sum up exactly in f32."""
FACTORS_F16 = (-3, 3)  # the same where f16 accumulates
ADDENDS = (-99, 99)
PRODUCTS = 1
PRODUCTS_PART = "products"  # the experiments in which all operands are shown at once


@dataclass(frozen=True)
class Bench:
    """The operands of every experiment of a case, and which experiments show what.

    Attributes:
        a, b, c: numbers of shape [experiments, matrices, rows, cols]; of a sparse A those stored.
        e: metadata registers, shape [experiments, 32]; zeros for a dense A.
        parts: what is shown -> the experiments that show it.

    """

    a: Numbers
    b: Numbers
    c: Numbers
    e: Metadata
    parts: dict[str, slice]


@dataclass(frozen=True)
class Code:
    """What the elements of an operand say of themselves: their index, and one bit more that says so.

    ``width`` bits of it are shown at a time, the lowest in plane 0.
    """

    extent: tuple[int, int, int]
    width: int

    @property
    def present(self) -> int:
        """The bit above every index."""
        return 1 << (int(np.prod(self.extent)) - 1).bit_length()

    @property
    def planes(self) -> int:
        """How many elements it takes to show a whole code."""
        return -(-self.present.bit_length() // self.width)

    @property
    def digits(self) -> Numbers:
        """Return what each plane holds, shape [planes, matrices, rows, cols]."""
        codes = self.present | np.arange(np.prod(self.extent)).reshape(self.extent)
        shifts = self.width * np.arange(self.planes).reshape(-1, 1, 1, 1)
        return np.asarray(codes >> shifts & ((1 << self.width) - 1), dtype=np.float64)

    def acting(self, planes: Numbers) -> Indices:
        """Return for each element the flat index at which its code was seen, or -1.

        ``planes`` is what was seen, shape [planes, matrices, rows, cols] of the operand as it acts.
        """
        digits = np.nan_to_num(planes).astype(np.int64) & ((1 << self.width) - 1)
        codes = sum(digits[plane] << (self.width * plane) for plane in range(self.planes))
        at = np.full(int(np.prod(self.extent)), -1, dtype=np.int64)
        found = np.flatnonzero(np.ravel(codes) & self.present)
        at[(np.ravel(codes)[found] & (self.present - 1)) % len(at)] = found
        return at


def code_of(form: Form, operand: str) -> Code:
    """Return what the elements of A, B or C say of themselves."""
    dtype = {"A": form.a, "B": form.b, "C": form.acc}[operand]
    return Code((form.matrices, *form.extents[operand]), DIGIT_BITS[dtype])


Orders = tuple[tuple[int, ...], tuple[int, ...]]
"""Which register of A, and of B, is given as its first, its second and so on; () is the usual order."""

USUAL: Orders = ((), ())


@lru_cache(maxsize=2)  # of one case; those of b1 are large
def bench(form: Form, *, ones: bool = False, orders: Orders = USUAL) -> Bench:
    """Return the operands of every experiment with a form, as the instruction sees them.

    Args:
        form: the form.
        ones: make it the single experiment where every element is 1.
        orders: in which order the registers of A and B are given.

    """
    sections = _ones(form) if ones else _sections(form)
    parts: dict[str, slice] = {}
    first = 0
    for name, section in sections.items():
        parts[name] = slice(first, first + len(section[2]))
        first += len(section[2])
    a, b, c, e = (np.concatenate(arrays) for arrays in zip(*sections.values(), strict=True))
    for operand, numbers, order in zip("AB", (a, b), orders, strict=True):
        for part in (operand, PRODUCTS_PART):
            if order and part in parts:  # all ones are the same in any order
                numbers[parts[part]] = reordered(form.maps[operand], numbers[parts[part]], order)
    return Bench(a, b, c, e, parts)


Section = tuple[Numbers, Numbers, Numbers, Metadata]


def _sections(form: Form) -> dict[str, Section]:
    sections = {"A": _shows_a(form), "B": _shows_b(form), "C": _shows_c(form), PRODUCTS_PART: _products(form)}
    if isinstance(form, SparseForm):
        marks = np.eye(32, dtype=np.uint32) * np.uint32((LOWER ^ UPPER) * 0x11111111)
        slots = np.uint32(LOWER ^ UPPER) << np.arange(0, 4 * SLOTS, 4, dtype=np.uint32)
        every = np.repeat(slots[:, None], 32, axis=1)
        usual = np.uint32(LOWER * 0x11111111)
        sections["metadata lanes"] = _shows_metadata(form, usual ^ marks)
        sections["metadata slots"] = _shows_metadata(form, usual ^ every)
    return sections


def _empty(form: Form, operand: str, count: int) -> Numbers:
    return np.zeros((count, form.matrices, *form.extents[operand]))


def _metadata(form: Form, count: int) -> Metadata:
    """Return metadata that differs from row to row and from chunk to chunk; zeros for a dense A."""
    if not isinstance(form, SparseForm):
        return np.zeros((count, 32), dtype=np.uint32)
    return np.tile(form.metadata(usual_nibbles(form)), (count, 1))


def usual_nibbles(form: SparseForm) -> Indices:
    """Return the four bits of each row and chunk where metadata is not what an experiment is about."""
    row, chunk = np.indices(form.extents["E"])
    legal = np.array(form.nibbles, dtype=np.int64)
    return np.asarray(legal[(row + row // 8 + 5 * chunk) % len(legal)])


def _shows_a(form: Form) -> Section:
    """Column j of D shows column 8 * step + j of A, in each plane and step."""
    digits = code_of(form, "A").digits
    steps = max(1, form.k // form.n)
    b = _empty(form, "B", steps)
    for step, j in np.ndindex(steps, form.n):
        b[step, :, (form.n * step + j) % form.k, j] = 1
    count = len(digits) * steps
    a, b = np.repeat(digits, steps, axis=0), np.tile(b, (len(digits), 1, 1, 1))
    return a, b, _empty(form, "C", count), _metadata(form, count)


def _shows_b(form: Form) -> Section:
    """Row j of D shows row m * step + j of B, in each plane and step."""
    digits = code_of(form, "B").digits
    steps = max(1, form.k // form.m)
    a = _empty(form, "A", steps)
    e = _metadata(form, steps)
    for step in range(steps):
        rows = np.arange(form.m)
        columns = (form.m * step + rows) % form.k
        if isinstance(form, SparseForm):
            # the stored half that holds the column, whichever it is
            chunk, within = columns // form.chunk, columns % form.chunk
            kept = form.chunk // 2
            nibbles = usual_nibbles(form)
            nibbles[rows, chunk] = np.where(within < kept, LOWER, UPPER)
            e[step] = form.metadata(nibbles)
            columns = chunk * kept + within % kept
        a[step, :, rows, columns] = 1
    planes = len(digits)
    return (
        np.tile(a, (planes, 1, 1, 1)), np.repeat(digits, steps, axis=0),
        _empty(form, "C", planes * steps), np.tile(e, (planes, 1)),
    )  # fmt: skip


def _shows_c(form: Form) -> Section:
    """D shows C."""
    digits = code_of(form, "C").digits
    count = len(digits)
    return _empty(form, "A", count), _empty(form, "B", count), digits, _metadata(form, count)


def _products(form: Form) -> Section:
    """Random integers everywhere."""
    sizes = {name: (PRODUCTS, form.matrices, *form.extents[name]) for name in "ABC"}
    ranges = (FACTORS_F16, FACTORS_F16) if form.acc == "f16" else (FACTORS[form.a], FACTORS[form.b])
    a, b = scrambled(sizes["A"], ranges[0], 0), scrambled(sizes["B"], ranges[1], 1)
    e = _metadata(form, PRODUCTS)
    if isinstance(form, SparseForm):
        choice = scrambled((PRODUCTS, *form.extents["E"]), (0, len(form.nibbles) - 1), 3).astype(np.int64)
        e = form.metadata(np.array(form.nibbles, dtype=np.int64)[choice])
    return a, b, scrambled(sizes["C"], ADDENDS, 2), e


def scrambled(shape: tuple[int, ...], bounds: tuple[int, int], salt: int) -> Numbers:
    """Return integers within bounds, the same ones on every machine, that look random."""
    words = (np.arange(np.prod(shape), dtype=np.uint64) + np.uint64(1 + 10007 * salt)) * np.uint64(
        0x9E3779B97F4A7C15
    )
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words ^= words >> np.uint64(27)
    low, high = bounds
    return np.asarray((words % np.uint64(high - low + 1)).astype(np.float64) + low).reshape(shape)


def _shows_metadata(form: SparseForm, e: Metadata) -> Section:
    """Element (row, chunk % 8) of D counts the chunks whose upper half is stored: 1, or 2 from chunk 8 up."""
    a, b = _empty(form, "A", len(e)) + 1, _empty(form, "B", len(e))
    for chunk in range(form.extents["E"][1]):
        b[:, :, chunk * form.chunk + form.chunk // 2, chunk % 8] = 1 << (chunk // 8)
    return a, b, _empty(form, "C", len(e)), e


def _ones(form: Form) -> dict[str, Section]:
    a, b = _empty(form, "A", 1) + 1, _empty(form, "B", 1) + 1
    return {"ones": (a, b, _empty(form, "C", 1), _metadata(form, 1))}


def reordered(where: RegisterMap, numbers: Numbers, order: tuple[int, ...]) -> Numbers:
    """Return an operand as the instruction sees it when its registers are given in another order."""
    moved = np.empty_like(numbers)
    matrix, row, col = (axis.reshape(32, len(order), -1) for axis in element_places(where))
    given = list(order)
    moved[..., matrix, row, col] = numbers[..., matrix[:, given], row[:, given], col[:, given]]
    return moved


def multiply(form: Form, a: Numbers, b: Numbers, c: Numbers, e: Metadata) -> Numbers:
    """Return D for numbers whose products and sums are exact; of a sparse A those stored, and metadata."""
    if isinstance(form, SparseForm):
        return np.asarray(form.expand(a, form.nibbles_of(e)) @ b + c, dtype=np.float64)
    return np.asarray(form.multiply(a, b, c), dtype=np.float64)


def d_numbers(form: Form, lab: Bench, d: NDArray[Any], part: str) -> Numbers:
    """Return D of the experiments of a part, shape [experiments, matrices, m, n], out of all its registers.

    Of b1 and xor: the products of the single ones, which are half of what is missing from the ones of A and
    B together.
    """
    where, own = form.c_map, lab.parts[part]
    numbers = np.empty((own.stop - own.start, form.matrices, form.m, form.n))
    numbers[(..., *element_places(where))] = from_registers(where, d[own], form.acc)
    if form.op != "xor" or part == "C":
        return numbers
    return np.asarray(
        (lab.a[own].sum(axis=-1)[..., :, None] + lab.b[own].sum(axis=-2)[..., None, :] - numbers) / 2
    )


def places_seen(form: Form, lab: Bench, d: NDArray[Any], operand: str) -> Indices:
    """Return where each entry of the map of A, B or C acts, out of all registers of D.

    That is a flat index into the operand (the full A), or -1 where the element was not seen.
    """
    code = code_of(form, operand)
    shown = d_numbers(form, lab, d, operand)
    shown = shown.reshape(code.planes, -1, *shown.shape[1:])
    if operand == "A":  # n columns of A in each step
        acts = np.moveaxis(shown, 1, 3).reshape(code.planes, form.matrices, form.m, -1)[..., : form.k]
    elif operand == "B":  # m rows of B in each step
        acts = np.moveaxis(shown, 1, 2).reshape(code.planes, form.matrices, -1, form.n)[:, :, : form.k]
    else:
        acts = shown[:, 0]
    entries = np.ravel_multi_index(element_places(form.maps[operand]), code.extent)
    return np.asarray(code.acting(acts)[entries])


def own_places(form: Form, operand: str) -> Indices:
    """Return where the model has each entry act, as places_seen does."""
    matrix, row, col = element_places(form.maps[operand])
    rows, cols = form.extents[operand]
    if isinstance(form, SparseForm) and operand == "A":
        col, cols = form.logical_columns(usual_nibbles(form))[row, col], form.k
    return np.asarray((matrix * rows + row) * cols + col)


def metadata_seen(
    form: SparseForm, lab: Bench, d: NDArray[Any]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return whether each lane, and each slot, governs each row and chunk: shape [32 or 8, m, chunks]."""
    chunks = form.extents["E"][1]
    found = []
    for part in ("metadata lanes", "metadata slots"):
        counts = np.nan_to_num(d_numbers(form, lab, d, part)[:, 0]).astype(np.int64)
        bits = np.stack([counts[..., chunk % 8] >> (chunk // 8) & 1 for chunk in range(chunks)], axis=-1)
        found.append(bits.astype(bool))
    return found[0], found[1]
