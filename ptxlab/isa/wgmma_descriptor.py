"""The 64-bit matrix descriptor of wgmma: its fields, the bytes of shared memory it stands for, its mistakes.

Stored in units of 16 bytes: start address in bits 0-13, leading byte offset (LBO) in 16-29, stride byte
offset (SBO) in 32-45. Bits 49-51 hold the base offset, bits 62-63 the swizzle: 0 none, 1 128B, 2 64B, 3 32B.

Memory is made of core matrices of 8 rows of 16 bytes. With T elements in 16 bytes, and a swizzle of S bytes
that XORs address bits 4.. with bits 7..:

    K-major, none:      rows 16 bytes apart, SBO to the next 8 rows, LBO to the next T columns
    K-major, swizzled:  rows S bytes apart, SBO to the next 8 rows, the next T columns 16 bytes on; no LBO
    MN-major, none:     k 16 bytes apart, SBO to the next 8 rows, LBO to the next 8 of k
    MN-major, swizzled: k S bytes apart, SBO to the next 8 of k, LBO to the next S bytes of rows

A row is an m of A and an n of B. Source: PTX ISA, "Asynchronous warpgroup-level matrix shared memory layout"
and "Matrix descriptor format"; proven on silicon by the recordings of the wgmma probe.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ptxlab.errors import UsageError
from ptxlab.isa.expressions import over, total
from ptxlab.isa.registers import Ints

UNIT = 16
"""Bytes that the fields count in."""

SHARED_BYTES = 232_448
"""Shared memory that a block can have on sm_90. Source: CUDA programming guide, compute capability 9.0."""

MODES = {"none": 0, "128B": 1, "64B": 2, "32B": 3}
"""The swizzle as bits 62-63 hold it."""

SPANS = {"none": 16, "32B": 32, "64B": 64, "128B": 128}
"""Bytes of a row (K-major) or of a k (MN-major) that lie together."""

_FIELDS = {"start": (0, 14), "LBO": (16, 14), "SBO": (32, 14), "base offset": (49, 3), "swizzle": (62, 2)}
_RESERVED = ~sum(((1 << width) - 1) << low for low, width in _FIELDS.values()) & (1 << 64) - 1
_REACH = (1 << 14) * UNIT  # the first number of bytes that a field cannot hold


@dataclass(frozen=True)
class Descriptor:
    """A descriptor with its addresses in bytes."""

    start: int
    lbo: int
    sbo: int
    swizzle: str
    base_offset: int = 0

    @property
    def word(self) -> int:
        """The 64 bits.

        Raises:
            UsageError: a number of bytes is no multiple of 16, or too large for its field.

        """
        for name, value in (("start address", self.start), ("LBO", self.lbo), ("SBO", self.sbo)):
            if value % UNIT or not 0 <= value < _REACH:
                raise UsageError(
                    f"{name} of {value} bytes; legal: multiples of {UNIT} from 0 to {_REACH - UNIT}, "
                    "which the descriptor stores shifted right by 4"
                )
        low = self.start // UNIT | self.lbo // UNIT << 16 | self.sbo // UNIT << 32
        return low | self.base_offset << 49 | MODES[self.swizzle] << 62

    @classmethod
    def of(cls, word: int) -> Descriptor:
        """Return what 64 bits stand for."""
        stored = _stored(word)
        mode = next(name for name, bits in MODES.items() if bits == stored["swizzle"])
        start, lbo, sbo = (stored[name] * UNIT for name in ("start", "LBO", "SBO"))
        return cls(start, lbo, sbo, mode, stored["base offset"])

    def addresses(self, rows: int, k: int, bits: int, major: str) -> Ints:
        """Return the byte address of each element that one wgmma reads, shape [rows, k].

        Args:
            rows: m of A, or n of B.
            k: of one instruction.
            bits: of an element.
            major: "K" or "MN".

        """
        row, col = np.indices((rows, k), dtype=np.int64)
        span = SPANS[self.swizzle]
        if major == "K":
            inside, outer = col * bits // 8, row
            column_step = self.lbo if self.swizzle == "none" else UNIT
            linear = outer % 8 * span + outer // 8 * self.sbo + inside // UNIT * column_step + inside % UNIT
        else:
            inside, outer = row * bits // 8, col
            row_step, k_step = (self.sbo, self.lbo) if self.swizzle == "none" else (self.lbo, self.sbo)
            linear = outer % 8 * span + outer // 8 * k_step + inside // span * row_step + inside % span
        return swizzled(self.start + linear, self.swizzle)


def swizzled(address: Ints, swizzle: str) -> Ints:
    """Return where the byte of this address lies: bits 4.. XORed with bits 7.., of absolute addresses."""
    return address ^ (address >> 3 & (SPANS[swizzle] - UNIT))


@dataclass(frozen=True)
class SharedOperand:
    """How a whole operand, of any length along K, lies in shared memory for wgmma to read it in steps.

    Attributes:
        start: byte address of its first element, a multiple of 1024.
        rows: m of A, or n of B: a multiple of 8.
        k: elements along K.
        bits: of an element.
        major: "K" or "MN".
        swizzle: none, 32B, 64B or 128B.

    """

    start: int
    rows: int
    k: int
    bits: int
    major: str
    swizzle: str

    @property
    def uses_lbo(self) -> bool:
        """Whether the instruction looks at LBO."""
        return self.major == "MN" or self.swizzle == "none"

    @property
    def lbo(self) -> int:
        """Leading byte offset; of K-major swizzled operands 16, which is not looked at."""
        span = SPANS[self.swizzle]
        if self.swizzle == "none":
            return self.rows * UNIT
        return UNIT if self.major == "K" else self.k * span

    @property
    def sbo(self) -> int:
        """Stride byte offset: eight lines of a span."""
        return 8 * SPANS[self.swizzle]

    @property
    def nbytes(self) -> int:
        """Bytes from the start to the end of the last span."""
        span = SPANS[self.swizzle]
        if self.major == "K":
            return -(-self.k * self.bits // 8 // span) * span * self.rows
        return -(-self.rows * self.bits // 8 // span) * span * self.k

    def descriptor(self, row: int, k: int) -> Descriptor:
        """Return the descriptor for a wgmma that begins at this row and k (multiples of 8)."""
        span = SPANS[self.swizzle]
        along, across = (k, row) if self.major == "K" else (row, k)
        inside = along * self.bits // 8
        lines = self.rows if self.major == "K" else self.k
        if self.swizzle == "none" and self.major == "MN":
            offset = row // 8 * self.sbo + k // 8 * self.lbo
        else:
            offset = inside // span * lines * span + across * span + inside % span
        return Descriptor(self.start + offset, self.lbo, self.sbo, self.swizzle)

    def formula(self, outer: str, k: str) -> str:
        """Return the byte of an element, counted from the start, as an expression that a test evaluates.

        Args:
            outer: what m of A, or n of B, is called.
            k: what k is called.

        """
        span, size, per_unit = SPANS[self.swizzle], self.bits // 8, 8 * UNIT // self.bits
        (along, length), (across, lines) = (k, self.k), (outer, self.rows)
        if self.major == "MN":
            (along, length), (across, lines) = (across, lines), (along, length)
        inside = (size, f"{along} % {per_unit}", per_unit)
        if self.swizzle == "none" and self.major == "MN":
            units = (8 * UNIT, f"{along} // 8", length // 8), (self.lbo, f"{across} // 8", lines // 8)
            return total(*units, (UNIT, f"{across} % 8", 8), inside)
        atoms = -(-length * size // span)
        unit = f"{along} // {per_unit}{f' % {span // UNIT}' if atoms > 1 else ''}"
        swizzle = f"{over(across, 128 // span)} % {span // UNIT}"
        return total(
            (lines * span, f"{along} // {span // size}", atoms),
            (span, across, lines),
            (UNIT, f"{unit} ^ {swizzle}", span // UNIT),
            inside,
        )


def fields(word: int) -> list[dict[str, int | str]]:
    """Return the fields of a descriptor: where each lies, what is stored, what it means."""
    stored, meant = _stored(word), Descriptor.of(word)
    return [
        {
            "field": name,
            "bits": f"{low}-{low + width - 1}",
            "stored": stored[name],
            "bytes": stored[name] * UNIT if name in ("start", "LBO", "SBO") else "",
            "is": meant.swizzle if name == "swizzle" else "",
        }
        for name, (low, width) in _FIELDS.items()
    ]


def lint(word: int, *, rows: int, k: int, bits: int, major: str) -> list[str]:
    """Return what is wrong with a descriptor for an operand of this shape, or []."""
    found = Descriptor.of(word)
    used = _used(found, rows, bits, major)
    problems = [*_reserved(word), *_strides(found, used, k), *_alignment(found, major)]
    last = int(found.addresses(rows, k, bits, major).max()) + bits // 8
    if last > SHARED_BYTES:
        problems.append(f"it reaches byte {last}, shared memory has {SHARED_BYTES}: forgot >>4?")
    return problems


def _stored(word: int) -> dict[str, int]:
    return {name: word >> low & (1 << width) - 1 for name, (low, width) in _FIELDS.items()}


def _reserved(word: int) -> list[str]:
    extra = word & _RESERVED
    if not extra:
        return []
    places = ", ".join(str(bit) for bit in range(64) if extra >> bit & 1)
    other = "; tcgen05 has its version there, is this one of its descriptors?" if extra >> 46 & 3 else ""
    return [f"reserved bits are set: {places}{other}"]


def _used(found: Descriptor, rows: int, bits: int, major: str) -> list[tuple[str, int]]:
    """Return the strides that matter, with their names: some operands have nothing to step over."""
    if major == "K":
        one, swizzled_too = rows <= 8, False
    else:
        one, swizzled_too = rows * bits // 8 <= SPANS[found.swizzle], True
    lbo, sbo = ("LBO", found.lbo), ("SBO", found.sbo)
    if found.swizzle == "none":
        return [lbo] if one else [lbo, sbo]
    along = [lbo] if swizzled_too and not one else []
    return along if major == "K" and one else [*along, sbo]


def _strides(found: Descriptor, used: list[tuple[str, int]], k: int) -> list[str]:
    """Say which strides make core matrices overlap or miss the swizzle, and which look 16 times too long."""
    least, plain = 8 * SPANS[found.swizzle], found.swizzle == "none"
    problems = []
    for name, value in used:
        if value in _unshifted(found, used, k).get(name, ()):
            problems.append(f"{name} = {value} B, expected {value // UNIT}: forgot >>4?")
        elif value < least or value % (UNIT if plain else least):
            rule = "at least" if plain else "a multiple of"
            problems.append(f"{name} = {value} B, expected {rule} {least}")
    return problems


def _unshifted(found: Descriptor, used: list[tuple[str, int]], k: int) -> dict[str, tuple[int, ...]]:
    """Return the strides that look like bytes stored as they are.

    Without a swizzle one of the two strides is the 128 bytes of a core matrix, or somewhat more.
    """
    span = SPANS[found.swizzle]
    if found.swizzle != "none":
        return {"SBO": (UNIT * 8 * span,), "LBO": (UNIT * k * span,)}
    both = len(used) == 2 and min(value for _, value in used) >= UNIT * 8 * span
    return {name: (value,) for name, value in used} if both else {}


def _alignment(found: Descriptor, major: str) -> list[str]:
    """Say when the start lies among the lines of a swizzle atom: only steps along a line may be added."""
    span = SPANS[found.swizzle]
    line = found.start % (8 * span) // span
    if found.swizzle == "none" or not line or found.base_offset:
        return []
    what = "row" if major == "K" else "k"
    legal = f"expected a multiple of {8 * span}, or a base offset"
    return [f"start address {found.start} is {what} {line} of a swizzle atom; {legal}"]
