"""The 64-bit matrix descriptor of wgmma: its fields, the bytes of shared memory it stands for, its mistakes.

Stored in units of 16 bytes: start address in bits 0-13, leading byte offset (LBO) in 16-29, stride byte
offset (SBO) in 32-45. Bits 49-51 hold the base offset, bits 62-63 the swizzle: 0 none, 1 128B, 2 64B, 3 32B.
Another instruction whose descriptors stand for memory in the same way has a Format of its own.

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

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Self

import numpy as np

from ptxlab.errors import UsageError
from ptxlab.isa.expressions import over, total
from ptxlab.isa.registers import Ints

UNIT = 16
"""Bytes that the fields count in."""

SHARED_BYTES = 232_448
"""Shared memory that a block can have on sm_90. Source: CUDA programming guide, compute capability 9.0."""


@dataclass(frozen=True)
class Atom:
    """What a swizzle permutes.

    Attributes:
        span: bytes of a row (K-major) or of a k (MN-major) that lie together.
        lines: how many of them.
        unit: bytes that stay together.

    """

    span: int
    lines: int = 8
    unit: int = UNIT


ATOMS = {
    "none": Atom(16), "32B": Atom(32), "64B": Atom(64), "128B": Atom(128), "128B_base32B": Atom(128, 4, 32),
}  # fmt: skip


@dataclass(frozen=True)
class Format:
    """Where the fields of a kind of descriptor lie.

    Attributes:
        places: field -> its lowest bit and its width; every other bit is reserved and zero.
        modes: swizzle -> how the field "swizzle" holds it.
        fixed: fields that hold the same in every descriptor.

    """

    places: Mapping[str, tuple[int, int]]
    modes: Mapping[str, int]
    fixed: Mapping[str, int] = field(default_factory=dict)

    def word(self, held: Mapping[str, int]) -> int:
        """Return the descriptor whose fields hold these numbers."""
        return sum(value << self.places[name][0] for name, value in {**held, **self.fixed}.items())

    def stored(self, word: int) -> dict[str, int]:
        """Return what each field of a descriptor holds."""
        return {name: word >> low & (1 << width) - 1 for name, (low, width) in self.places.items()}

    def swizzle(self, word: int) -> str:
        """Return the name of the swizzle, or "" where its bits stand for none."""
        bits = self.stored(word)["swizzle"]
        return next((name for name, mode in self.modes.items() if mode == bits), "")


HOPPER = Format(
    {"start": (0, 14), "LBO": (16, 14), "SBO": (32, 14), "base offset": (49, 3), "swizzle": (62, 2)},
    {"none": 0, "128B": 1, "64B": 2, "32B": 3},
)

SPANS = {swizzle: ATOMS[swizzle].span for swizzle in ("none", "32B", "64B", "128B")}
"""Bytes of a row (K-major) or of a k (MN-major) that lie together."""

_REACH = (1 << 14) * UNIT  # the first number of bytes that a field cannot hold


@dataclass(frozen=True)
class Descriptor:
    """A descriptor with its addresses in bytes."""

    FORMAT: ClassVar[Format] = HOPPER

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
        held = {
            "start": self.start // UNIT, "LBO": self.lbo // UNIT, "SBO": self.sbo // UNIT,
            "base offset": self.base_offset, "swizzle": self.FORMAT.modes[self.swizzle],
        }  # fmt: skip
        return self.FORMAT.word(held)

    @classmethod
    def of(cls, word: int) -> Self:
        """Return what 64 bits stand for.

        Raises:
            UsageError: the bits of the swizzle stand for none.

        """
        stored, swizzle = cls.FORMAT.stored(word), cls.FORMAT.swizzle(word)
        if not swizzle:
            legal = ", ".join(f"{bits} {name}" for name, bits in cls.FORMAT.modes.items())
            raise UsageError(f"swizzle mode {stored['swizzle']} stands for nothing; legal: {legal}")
        start, lbo, sbo = (stored[name] * UNIT for name in ("start", "LBO", "SBO"))
        return cls(start, lbo, sbo, swizzle, stored["base offset"])

    def addresses(self, rows: int, k: int, bits: int, major: str) -> Ints:
        """Return the byte address of each element that one wgmma reads, shape [rows, k].

        Args:
            rows: m of A, or n of B.
            k: of one instruction.
            bits: of an element.
            major: "K" or "MN".

        """
        row, col = np.indices((rows, k), dtype=np.int64)
        span, lines = ATOMS[self.swizzle].span, ATOMS[self.swizzle].lines
        if major == "K":
            inside, outer = col * bits // 8, row
            column_step = self.lbo if self.swizzle == "none" else UNIT
            inner = inside // UNIT * column_step + inside % UNIT
            linear = outer % lines * span + outer // lines * self.sbo + inner
        else:
            inside, outer = row * bits // 8, col
            row_step, k_step = (self.sbo, self.lbo) if self.swizzle == "none" else (self.lbo, self.sbo)
            linear = (
                outer % lines * span + outer // lines * k_step + inside // span * row_step + inside % span
            )
        return swizzled(self.start + linear, self.swizzle)


def swizzled(address: Ints, swizzle: str) -> Ints:
    """Return where the byte of this address lies: the units of a line XORed with its number in the atom.

    Those of 16 bytes: bits 4.. XORed with bits 7.., of absolute addresses; those of 32: bits 5, 6 with 7, 8.
    """
    atom = ATOMS[swizzle]
    return address ^ (address // (128 // atom.unit) & (atom.span - atom.unit))


@dataclass(frozen=True)
class SharedOperand:
    """How a whole operand, of any length along K, lies in shared memory for wgmma to read it in steps.

    Attributes:
        start: byte address of its first element, a multiple of 1024.
        rows: m of A, or n of B: a multiple of 8.
        k: elements along K.
        bits: of an element.
        major: "K" or "MN".
        swizzle: a name of ATOMS; 128B_base32B is MN-major.

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
        if self.swizzle == "none":
            return self.rows * UNIT
        return UNIT if self.major == "K" else self.k * ATOMS[self.swizzle].span

    @property
    def sbo(self) -> int:
        """Stride byte offset: the lines of an atom."""
        return ATOMS[self.swizzle].lines * ATOMS[self.swizzle].span

    @property
    def nbytes(self) -> int:
        """Bytes from the start to the end of the last span."""
        span = ATOMS[self.swizzle].span
        if self.major == "K":
            return -(-self.k * self.bits // 8 // span) * span * self.rows
        return -(-self.rows * self.bits // 8 // span) * span * self.k

    def descriptor(self, row: int, k: int) -> Descriptor:
        """Return the descriptor for a wgmma that begins at this row and k (multiples of 8)."""
        span = ATOMS[self.swizzle].span
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


def fields(word: int, kind: type[Descriptor] = Descriptor) -> list[dict[str, int | str]]:
    """Return the fields of a descriptor: where each lies, what is stored, what it means."""
    stored = kind.FORMAT.stored(word)
    meant = kind.FORMAT.swizzle(word) or "nothing"
    return [
        {
            "field": name,
            "bits": f"{low}-{low + width - 1}" if width > 1 else str(low),
            "stored": stored[name],
            "bytes": stored[name] * UNIT if name in ("start", "LBO", "SBO") else "",
            "is": meant if name == "swizzle" else "",
        }
        for name, (low, width) in kind.FORMAT.places.items()
    ]


def lint(word: int, *, rows: int, k: int, bits: int, major: str) -> list[str]:
    """Return what is wrong with a descriptor for an operand of this shape, or []."""
    other = "; tcgen05 has its version there, is this one of its descriptors?" if word >> 46 & 3 else ""
    reserved = [f"{each}{other}" for each in reserved_bits(word, HOPPER)]
    return reserved + mistakes(Descriptor.of(word), rows=rows, k=k, bits=bits, major=major)


def mistakes(found: Descriptor, *, rows: int, k: int, bits: int, major: str) -> list[str]:
    """Return what is wrong with the addresses of a descriptor for an operand of this shape, or []."""
    used = _used(found, rows, bits, major)
    problems = [*_strides(found, used, k), *_alignment(found, major)]
    last = int(found.addresses(rows, k, bits, major).max()) + -(-bits // 8)
    if last > SHARED_BYTES:
        problems.append(f"it reaches byte {last}, shared memory has {SHARED_BYTES}: forgot >>4?")
    return problems


def reserved_bits(word: int, form: Format) -> list[str]:
    """Return what is wrong with the bits of a descriptor that belong to no field, or []."""
    fields_ = sum(((1 << width) - 1) << low for low, width in form.places.values())
    places = [str(bit) for bit in range(64) if (word & ~fields_) >> bit & 1]
    return [f"reserved bits are set: {', '.join(places)}"] if places else []


def _used(found: Descriptor, rows: int, bits: int, major: str) -> list[tuple[str, int]]:
    """Return the strides that matter, with their names: some operands have nothing to step over."""
    if major == "K":
        one, swizzled_too = rows <= 8, False
    else:
        one, swizzled_too = rows * bits // 8 <= ATOMS[found.swizzle].span, True
    lbo, sbo = ("LBO", found.lbo), ("SBO", found.sbo)
    if found.swizzle == "none":
        return [lbo] if one else [lbo, sbo]
    along = [lbo] if swizzled_too and not one else []
    return along if major == "K" and one else [*along, sbo]


def _strides(found: Descriptor, used: list[tuple[str, int]], k: int) -> list[str]:
    """Say which strides make core matrices overlap or miss the swizzle, and which look 16 times too long."""
    atom, plain = ATOMS[found.swizzle], found.swizzle == "none"
    least = atom.lines * atom.span
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
    span, lines = ATOMS[found.swizzle].span, ATOMS[found.swizzle].lines
    line = found.start % (lines * span) // span
    if found.swizzle == "none" or not line or found.base_offset:
        return []
    what = "row" if major == "K" else "k"
    legal = f"expected a multiple of {lines * span}, or a base offset"
    return [f"start address {found.start} is {what} {line} of a swizzle atom; {legal}"]
