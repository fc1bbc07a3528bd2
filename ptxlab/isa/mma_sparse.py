"""mma.sp: mma.sync whose A has half its elements zero, and holds only the others.

A is stored with K / 2 columns, in the fragment of a dense A of that width. Each row of the full matrix is cut
into chunks, and four bits of metadata say which half of a chunk is stored:

    type            chunk      stored    the four bits: two indices i0 < i1 of two bits, i0 | i1 << 2
    f16 bf16 8-bit  4 columns  2         stored element e is column i_e of the chunk
    4-bit           8 columns  4         pairs: element e is column 2 * i_(e // 2) + e % 2
    tf32            2 columns  1         0b0100 for column 0, 0b1110 for column 1

Metadata is one register of a lane: eight slots of four bits. With g = lane // 4, and t counting the lanes
of a group of four that the selector names:

    f16 bf16 tf32: slot s is row g + 8 * (s // 4), chunk 4t + s % 4
    8- and 4-bit:  slot s is row g + 8 * (t % 2), chunk 8 * (t // 2) + s

Source: PTX ISA, "Sparse matrix storage" and "Matrix fragments for sparse mma.m16n8k16" and its sisters;
proven on silicon by the mma probe's recordings.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ptxlab.isa.mma import a_map, b_map, c_map, generation
from ptxlab.isa.numbers import Numbers
from ptxlab.isa.registers import Ints, RegisterMap
from ptxlab.isa.types import BITS

SLOTS = 8  # of four bits, in a register of metadata
LOWER, UPPER = 0b0100, 0b1110  # the first and the second half of a chunk is stored
_NIBBLES = (0b0100, 0b1000, 0b1001, 0b1100, 0b1101, 0b1110)
_CHUNK = {32: 2, 16: 4, 8: 4, 4: 8}
_FP8 = ("e4m3", "e5m2")
_FP8_INTO_F16 = ("sm_120a", "sm_120f", "sm_121a", "sm_121f")
"""Who accumulates 8-bit floats in f16. Source: ptxas 13.5, which refuses it for all others."""


@dataclass(frozen=True)
class SparseForm:
    """One form of mma.sp; attributes as those of MmaForm.

    Attributes:
        m, n, k: the shape; k counts the columns of the full A.
        a, b: types of A's and B's elements.
        acc: type of C and D.
        selector: which lanes of each group of four supply metadata.

    """

    m: int
    n: int
    k: int
    a: str
    b: str
    acc: str
    selector: int = 0
    op: str = ""
    layout: str = "row.col"
    matrices: int = 1

    @property
    def shape(self) -> str:
        """m16n8k32 and the like."""
        return f"m{self.m}n{self.n}k{self.k}"

    @property
    def first(self) -> str:
        """The lowest architecture that has it. Source: PTX ISA, mma.sp, "Target ISA Notes"."""
        if self.a not in _FP8:
            return "sm_80"
        return _FP8_INTO_F16[0] if self.acc == "f16" else "sm_89"

    def runs_on(self, arch: str) -> bool:
        """Say whether an architecture has it."""
        if self.first in _FP8_INTO_F16:
            return arch in _FP8_INTO_F16
        return generation(arch) >= generation(self.first)

    @property
    def ptx(self) -> str:
        """The instruction's text up to its operands.

        Metadata in order of the indices is all that anyone has; to say so spares sm_100 and later the
        code that would put it in order.
        """
        types = f"{self.acc}.{self.a}.{self.b}.{self.acc}"
        return f"mma.sp::ordered_metadata.sync.aligned.{self.shape}.{self.layout}.{types}"

    @property
    def flop(self) -> int:
        """Operations of one instruction, the zeros of A counted as they are by the shape."""
        return 2 * self.m * self.n * self.k

    @property
    def chunk(self) -> int:
        """Columns of the full A that four bits of metadata stand for."""
        return _CHUNK[BITS[self.a]]

    @property
    def unit(self) -> int:
        """Stored elements that share an index: 4-bit ones come in pairs."""
        return max(1, self.chunk // 4)

    @property
    def contributors(self) -> int:
        """How many lanes of each group of four supply metadata."""
        return self.k // self.chunk // 4

    @property
    def selectors(self) -> range:
        """The legal selectors: each names other lanes."""
        return range(4 // self.contributors)

    @property
    def nibbles(self) -> tuple[int, ...]:
        """The legal values of four bits of metadata."""
        return (LOWER, UPPER) if self.chunk == 2 else _NIBBLES

    @property
    def a_map(self) -> RegisterMap:
        """Who holds which stored element of A: place has "row" (m) and "col" (of K / 2)."""
        return a_map(self.m, self.k // 2, BITS[self.a])

    @property
    def b_map(self) -> RegisterMap:
        """Who holds which element of B, which is dense: place has "row" (k) and "col" (n)."""
        return b_map(self.k, BITS[self.b])

    @property
    def c_map(self) -> RegisterMap:
        """Who holds which element of C and of D: place has "row" (m) and "col" (n)."""
        return c_map(self.m, BITS[self.acc])

    @property
    def e_map(self) -> RegisterMap:
        """Who holds the metadata: place has "row" (m) and "col" (the chunk); idle lanes have no entry."""
        lane, slot = (axis.ravel() for axis in np.indices((32, SLOTS), dtype=np.int64))
        member = lane % 4 - self.selector * self.contributors
        used = (member >= 0) & (member < self.contributors)
        lane, slot, member = lane[used], slot[used], member[used]
        if BITS[self.a] >= 16:
            row, chunk = lane // 4 + 8 * (slot // 4), 4 * member + slot % 4
        else:
            row, chunk = lane // 4 + 8 * (member % 2), SLOTS * (member // 2) + slot
        return RegisterMap(lane, np.zeros_like(lane), slot, {"row": row, "col": chunk}, 4)

    @property
    def maps(self) -> dict[str, RegisterMap]:
        """The maps of A, B, C, D and E."""
        return {"A": self.a_map, "B": self.b_map, "C": self.c_map, "D": self.c_map, "E": self.e_map}

    @property
    def extents(self) -> dict[str, tuple[int, int]]:
        """Rows and columns: of A those stored, of E chunks."""
        return {
            "A": (self.m, self.k // 2), "B": (self.k, self.n), "C": (self.m, self.n), "D": (self.m, self.n),
            "E": (self.m, self.k // self.chunk),
        }  # fmt: skip

    def metadata(self, nibbles: Ints) -> NDArray[np.uint32]:
        """Return the metadata registers, shape [..., 32], of four bits for each row and chunk.

        Lanes that supply none hold the upper half of everything: legal, and another answer if it were read.
        """
        where = self.e_map
        taken = nibbles[..., where.place["row"], where.place["col"]] << (4 * where.slot)
        registers = np.full((*nibbles.shape[:-2], 32), UPPER * 0x11111111, dtype=np.int64)
        registers[..., np.unique(where.lane)] = 0
        for slot in range(SLOTS):
            own = where.slot == slot
            registers[..., where.lane[own]] |= taken[..., own]
        return registers.astype(np.uint32)

    def nibbles_of(self, metadata: NDArray[np.uint32]) -> Ints:
        """Return the four bits for each row and chunk, shape [..., m, chunks], out of metadata registers."""
        where = self.e_map
        nibbles = np.zeros((*metadata.shape[:-1], *self.extents["E"]), dtype=np.int64)
        bits = metadata[..., where.lane].astype(np.int64) >> (4 * where.slot)
        nibbles[..., where.place["row"], where.place["col"]] = bits & 0xF
        return nibbles

    def index_bits(self, row: int, col: int) -> tuple[int, int, int]:
        """Return what says where a stored element of A belongs.

        Returns:
            The lane whose metadata it is, the first of the chunk's four bits there, and the first of the two
            that are the element's index (of tf32 all four are).

        """
        where, kept = self.e_map, self.chunk // 2
        chunk, element = divmod(col, kept)
        (at,) = np.flatnonzero((where.place["row"] == row) & (where.place["col"] == chunk))
        first = 4 * int(where.slot[at])
        return int(where.lane[at]), first, first + 2 * (element // self.unit)

    def logical_columns(self, nibbles: Ints) -> Ints:
        """Return the column of the full A of each stored element, shape [..., m, k / 2]."""
        kept = self.chunk // 2
        column = np.arange(self.k // 2)
        chunk, element = column // kept, column % kept
        index = nibbles[..., chunk] >> (2 * (element // self.unit)) & 3
        return np.asarray(chunk * self.chunk + index * self.chunk // 4 + element % self.unit)

    def expand(self, stored: Numbers, nibbles: Ints) -> Numbers:
        """Return the full A, shape [..., 1, m, k], of what is stored, shape [..., 1, m, k / 2]."""
        full = np.zeros((*stored.shape[:-1], self.k), dtype=stored.dtype)
        columns = np.broadcast_to(self.logical_columns(nibbles)[..., None, :, :], stored.shape)
        np.put_along_axis(full, columns, stored, axis=-1)
        return full


def sparse_forms() -> Iterator[SparseForm]:
    """Yield every form, with every selector."""
    for form in _shapes():
        for selector in form.selectors:
            yield SparseForm(form.m, form.n, form.k, form.a, form.b, form.acc, selector)


def _shapes() -> Iterator[SparseForm]:
    for k in (16, 32):
        yield from (SparseForm(16, 8, k, "f16", "f16", acc) for acc in ("f16", "f32"))
        yield SparseForm(16, 8, k, "bf16", "bf16", "f32")
    yield from (SparseForm(16, 8, k, "tf32", "tf32", "f32") for k in (8, 16))
    for types, ks in ((("s8", "u8"), (32, 64)), (("s4", "u4"), (64, 128))):
        yield from (SparseForm(16, 8, k, a, b, "s32") for k in ks for a in types for b in types)
    yield from (SparseForm(16, 8, 64, a, b, acc) for acc in ("f32", "f16") for a in _FP8 for b in _FP8)
