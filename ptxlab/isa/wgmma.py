"""wgmma: four warps multiply A[64, k] by B[k, n]; which forms exist, and who holds what.

With warp 0..3, g = lane // 4, t = lane % 4, element i of a thread's accumulators is D's row
16 * warp + g + 8 * (i // 2 % 2), column 8 * (i // 4) + 2t + i % 2. A in registers is A of mma.sync's m16
shape, 16 rows a warp. B is always in shared memory. Source: PTX ISA, "Register fragments and shared memory
matrix layouts" of wgmma.mma_async; proven on silicon by the recordings of the wgmma probe.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ptxlab.errors import UsageError
from ptxlab.isa.expressions import over, total
from ptxlab.isa.mma import a_map
from ptxlab.isa.mma_formulas import factor
from ptxlab.isa.numbers import Numbers, Words, encode, is_integer
from ptxlab.isa.registers import Ints, RegisterMap
from ptxlab.isa.types import BITS

M = 64
"""Rows of A and D."""

WARPS = 4
ACCUMULATORS = {
    "f16": ("f32", "f16"), "bf16": ("f32",), "tf32": ("f32",),
    "e4m3": ("f32", "f16"), "e5m2": ("f32", "f16"), "s8": ("s32",), "u8": ("s32",),
}  # fmt: skip
"""Type of A -> the types that D can have, the usual one first."""

_FLOAT8 = ("e4m3", "e5m2")
_HALVES = ("f16", "bf16")
_NAN = {"f32": 0x7FFFFFFF, "f16": 0x7FFF}  # what tensor cores write; no recording holds one
_INTEGER_N = (8, 16, 24, *range(32, 257, 16))
_ATOM = re.compile(
    r"(?:SM90_|(?:(?:SM90::)?GMMA::)?MMA_)(\d+)x(\d+)x(\d+)_(F16|F32|S32)([A-Z0-9]+)_(SS|RS)(?:_TN)?"
)
_TRANSPOSE = (
    "write the operand to shared memory K-contiguous (K-major), or transpose it there beforehand: "
    "only 16-bit types are transposed by wgmma"
)


@dataclass(frozen=True)
class WgmmaForm:
    """One form: D[64, n] = A[64, k] x B[k, n], and what D held before.

    Attributes:
        n: columns of B and D.
        a, b: types of A and B; they may differ among 8-bit floats and among 8-bit integers.
        acc: type of D.
        a_in_registers: whether A comes in registers; B never does.
        a_major, b_major: "K" or "MN": along which axis elements are contiguous in shared memory.

    """

    n: int
    a: str
    b: str
    acc: str
    a_in_registers: bool = False
    a_major: str = "K"
    b_major: str = "K"

    @property
    def k(self) -> int:
        """Columns of A: 32 bytes of elements."""
        return 256 // BITS[self.a]

    @property
    def registers(self) -> int:
        """Registers of D in each thread."""
        return self.n * BITS[self.acc] // 64

    @property
    def ptx(self) -> str:
        """The instruction's text up to its operands."""
        return f"wgmma.mma_async.sync.aligned.m64n{self.n}k{self.k}.{self.acc}.{self.a}.{self.b}"

    @property
    def sass(self) -> str:
        """The opcode that ptxas 13 makes of it (seen in the disassembly of the wgmma probe)."""
        if is_integer(self.a):
            family, types = "IGMMA", [self.a, self.b]
        elif self.a in _FLOAT8:
            family, types = "QGMMA", [self.acc, self.a, self.b]
        else:
            family, types = "HGMMA", [self.acc] if self.a == "f16" else [self.acc, self.a]
        return f"{family}.64x{self.n}x{self.k}." + ".".join(types).upper()

    @property
    def d_map(self) -> WarpgroupMap:
        """Who holds which element of D: row m, column n."""
        width = 32 // BITS[self.acc]
        warp, lane, register, slot = np.indices((WARPS, 32, self.registers, width), dtype=np.int64)
        i = register * width + slot
        row = 16 * warp + lane // 4 + 8 * (i // 2 % 2)
        return WarpgroupMap(row, 8 * (i // 4) + 2 * (lane % 4) + i % 2, BITS[self.acc])

    @property
    def a_map(self) -> WarpgroupMap:
        """Who holds which element of A, where it comes in registers: row m, column k."""
        of_warp = a_map(16, self.k, BITS[self.a])
        shape = (WARPS, 32, 4, 32 // BITS[self.a])
        row = of_warp.place["row"] + 16 * np.arange(WARPS)[:, None]
        col = np.broadcast_to(of_warp.place["col"], row.shape)
        return WarpgroupMap(row.reshape(shape), col.reshape(shape), BITS[self.a])


@dataclass(frozen=True)
class WarpgroupMap:
    """The elements that the 128 threads of a warpgroup hold.

    Attributes:
        row, col: the element's place, shape [warp, lane, register, slot].
        bits: the width of a slot.

    """

    row: Ints
    col: Ints
    bits: int

    @property
    def of_warp(self) -> RegisterMap:
        """What the first warp holds; the others hold the same of the rows below."""
        lane, register, slot = (axis.ravel() for axis in np.indices(self.row.shape[1:], dtype=np.int64))
        place = {"row": self.row[0].ravel(), "col": self.col[0].ravel()}
        return RegisterMap(lane, register, slot, place, self.bits)

    def entries(self, values: Ints | None = None, warpgroup: int | None = None) -> list[dict[str, int]]:
        """Return the flat list that JSON documents hold.

        Args:
            values: what stands at each row and column; it becomes "value".
            warpgroup: which of several, each with 64 rows of its own, which are counted on through them.

        """
        row = self.row + M * (warpgroup or 0)
        columns = [column.ravel().tolist() for column in (*np.indices(self.row.shape), row, self.col)]
        group = {} if warpgroup is None else {"warpgroup": warpgroup}
        found = [
            {**group, "warp": warp, "lane": lane, "register": register, "slot": slot, "row": m, "col": n}
            for warp, lane, register, slot, m, n in zip(*columns, strict=True)
        ]
        if values is not None:
            for entry, value in zip(found, values[row, self.col].ravel().tolist(), strict=True):
                entry["value"] = value
        return found

    def pack(self, matrix: Words) -> NDArray[np.uint32]:
        """Return registers [..., warp, lane, register] that hold the bits of matrices [..., row, col]."""
        slots = matrix[..., self.row, self.col] << self._shifts
        return np.asarray(np.bitwise_or.reduce(slots, axis=-1).astype(np.uint32))

    def unpack(self, registers: NDArray[np.uint32]) -> Words:
        """Return the matrices [..., row, col] whose bits these registers hold."""
        slots = registers[..., None].astype(np.uint64) >> self._shifts
        shape = (*registers.shape[:-3], int(self.row.max()) + 1, int(self.col.max()) + 1)
        matrix = np.zeros(shape, dtype=np.uint64)
        matrix[..., self.row, self.col] = slots & np.uint64((1 << self.bits) - 1)
        return matrix

    @property
    def _shifts(self) -> Words:
        return np.arange(self.row.shape[-1], dtype=np.uint64) * np.uint64(self.bits)


def formulas(form: WgmmaForm) -> dict[str, dict[str, str]]:
    """Return D's map, and A's where it lives in registers, as expressions that a test evaluates.

    Names: warp, lane, register, slot on one side; row, col on the other; // is floor division.
    """
    packed, blocks = form.acc == "f16", form.n // 8
    own = 2 if packed else 4  # registers of eight columns
    half = over("register", own // 2)
    found = {
        "D": {
            "row": total(
                (16, "warp", WARPS), (1, "lane // 4", 8), (8, f"{half} % 2" if blocks > 1 else half, 2)
            ),
            "col": total(
                (8, f"register // {own}", blocks),
                (2, "lane % 4", 4),
                (1, "slot" if packed else "register % 2", 2),
            ),
            "lane": total((4, "row % 8", 8), (1, "col % 8 // 2" if blocks > 1 else "col // 2", 4)),
            "register": total(
                (own, "col // 8", blocks), (own // 2, "row % 16 // 8", 2), (1, "col % 2", 1 if packed else 2)
            ),
            "slot": "col % 2" if packed else "0",
        }
    }
    if form.a_in_registers:
        of_warp = factor("row", "col", BITS[form.a], high=2, registers=4)
        found["A"] = of_warp | {
            "row": total((16, "warp", WARPS), (1, of_warp["row"], M)),
            "register": of_warp["register"].replace("row // 8", "row % 16 // 8"),
        }
    return {name: {**each, "warp": "row // 16"} for name, each in found.items()}


def legal_n(dtype: str) -> tuple[int, ...]:
    """Return the values of n that a type has. Source: PTX ISA, wgmma.mma_async, shapes by type."""
    return _INTEGER_N if is_integer(dtype) else tuple(range(8, 257, 8))


def parse_form(shape: str, form: WgmmaForm) -> WgmmaForm:
    """Return the form with the n of a shape such as m64n256k16 ("": n is 64).

    Raises:
        UsageError: the shape is none of this type's.

    """
    if not shape:
        return form
    numbers = re.fullmatch(r"m(\d+)n(\d+)k(\d+)", shape)
    m, n, k = map(int, numbers.groups()) if numbers else (0, 0, 0)
    if (m, k) != (M, form.k) or n not in legal_n(form.a):
        steps = "8, 16, 24, 32 and then steps of 16 to 256" if is_integer(form.a) else "8 to 256, steps of 8"
        hint = "take the next larger N and leave its last columns unused" if (m, k) == (M, form.k) else ""
        raise UsageError(
            f"wgmma of {form.a} has no shape {shape}; legal: m64nNk{form.k} with N of {steps}", hint
        )
    return WgmmaForm(n, form.a, form.b, form.acc, form.a_in_registers, form.a_major, form.b_major)


def check_form(form: WgmmaForm, arch: str) -> None:
    """Say why a form is illegal on an architecture, if it is.

    Raises:
        UsageError: with the reason, the legal set, and the way out as its hint.

    """
    if arch != "sm_90a":
        raise UsageError(f"wgmma exists only on sm_90a, and not on {arch}", _elsewhere(arch))
    if form.a not in ACCUMULATORS:
        raise UsageError(f"wgmma has no type {form.a}; legal: {', '.join(ACCUMULATORS)}")
    family = next(each for each in (_FLOAT8, ("s8", "u8"), (form.a,)) if form.a in each)
    if form.b not in family:
        raise UsageError(f"wgmma does not multiply {form.a} by {form.b}; legal: {' or '.join(family)}")
    if form.acc not in ACCUMULATORS[form.a]:
        legal = " or ".join(ACCUMULATORS[form.a])
        hint = "only f16 and 8-bit floats can accumulate in f16" if form.acc == "f16" else ""
        raise UsageError(f"wgmma of {form.a} does not accumulate in {form.acc}; legal: {legal}", hint)
    if form.a_in_registers and form.a_major != "K":
        raise UsageError("A in registers has no major; legal: --major K", "--major-b MN is B's")
    if "MN" in (form.a_major, form.b_major) and form.a not in _HALVES:
        which = "A" if form.a_major == "MN" else "B"
        raise UsageError(
            f"{which} cannot be MN-major: wgmma of {form.a} reads shared memory K-major alone; "
            f"legal MN-major: {', '.join(_HALVES)}",
            _TRANSPOSE,
        )


def _elsewhere(arch: str) -> str:
    """Return what to do on an architecture without wgmma."""
    number = int(arch.strip("sm_af"))
    if number == 90:
        return (
            "--arch sm_90a: its instructions are in no plain sm_90 or compute_90 code, drop that from a list"
        )
    if 100 <= number < 120:
        return f"{arch} has tcgen05.mma, whose accumulators lie in tensor memory; mma.sync works there too"
    return f"{arch} has mma.sync: ptxlab probe mma --arch {arch}"


def parse_atom(name: str) -> tuple[str, WgmmaForm]:
    """Return the shape and the form that the name of a CUTLASS atom stands for.

    SM90_64x256x16_F32BF16BF16_SS is what CUTLASS calls it; the struct behind it, MMA_64x256x16_F32BF16BF16_SS
    in SM90::GMMA, and a name with D's type once more (..._F32BF16BF16F32_SS) mean the same.

    Raises:
        UsageError: it is no such name.

    """
    found = _ATOM.fullmatch(name)
    types = "|".join(each.upper() for each in ACCUMULATORS)
    parts = re.fullmatch(rf"({types})({types})(F16|F32|S32)?", found[5]) if found else None
    if not found or not parts or parts[3] not in (None, found[4]):
        raise UsageError(
            f"'{name}' is no wgmma atom of CUTLASS; legal: SM90_64xNxK_DAB_SS or _RS, such as "
            "SM90_64x256x16_F32BF16BF16_SS or SM90_64x64x32_S32S8U8_RS_TN"
        )
    a, b = parts[1].lower(), parts[2].lower()
    form = WgmmaForm(int(found[2]), a, b, found[4].lower(), a_in_registers=found[6] == "RS")
    return f"m{found[1]}n{found[2]}k{found[3]}", form


def explain_atom(name: str) -> str:
    """Return what each field of the name of a CUTLASS atom means; raises as parse_atom does."""
    shape, form = parse_atom(name)
    where = "A from registers, B" if form.a_in_registers else "A and B both"
    letters = "RS" if form.a_in_registers else "SS"
    majors = (
        "TN: both K-major, as these types must be"
        if name.endswith("_TN")
        else "the majors are template arguments: --major and --major-b"
    )
    return (
        f"{name} is {shape}: D is {form.acc}, A {form.a}, B {form.b}; {letters}: {where} from shared memory; "
        f"{majors}."
    )


def accumulator_bits(values: Numbers, acc: str) -> Words:
    """Return D's bits: exact results as they are, NaN as the one that tensor cores write."""
    if is_integer(acc):
        return encode(values, acc)
    lost = np.isnan(values)
    return np.where(lost, np.uint64(_NAN[acc]), encode(np.where(lost, 0.0, values), acc))
