"""Which swizzle of a tile is free of bank conflicts? Every candidate is tried, the smallest first.

A tile is read once by a list of warp instructions; the cost of a layout is the sum of their wavefronts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ptxlab.layout.banks import Access, wavefronts
from ptxlab.layout.swizzle import Swizzle

VECTOR_BYTES = 16
"""What cp.async, TMA and ldmatrix move in one piece: a swizzle must keep it whole and aligned."""


@dataclass(frozen=True)
class Reads:
    """The warp instructions that read a tile once.

    Attributes:
        access: their class.
        instructions: for each the byte offset of every lane in the tile without swizzle and padding.
        row_bytes: bytes of a row of the tile as it lies in memory.
        rows: how many there are.

    """

    access: Access
    instructions: tuple[tuple[int, ...], ...]
    row_bytes: int
    rows: int

    @property
    def nbytes(self) -> int:
        """Size of the tile."""
        return self.row_bytes * self.rows

    @property
    def ideal(self) -> int:
        """Wavefronts of all instructions when nothing conflicts."""
        return self.access.ideal * len(self.instructions)


def cost(reads: Reads, place: Callable[[int], int]) -> int:
    """Return the wavefronts of reading the tile once; the byte at ``offset`` lies at ``place(offset)``."""
    return sum(
        wavefronts(reads.access, [place(offset) for offset in offsets]).wavefronts
        for offsets in reads.instructions
    )


def is_clean(reads: Reads, place: Callable[[int], int]) -> bool:
    """Say whether no instruction conflicts; the first that does decides."""
    return all(
        wavefronts(reads.access, [place(offset) for offset in offsets]).wavefronts == reads.access.ideal
        for offsets in reads.instructions
    )


def solve(reads: Reads) -> Swizzle | None:
    """Return the smallest swizzle of byte offsets without conflicts, least B first, then M, then S.

    <0,0,0> means that none is needed; None that no swizzle of whole 16-byte vectors helps.
    """
    if is_clean(reads, lambda offset: offset):
        return Swizzle(0, 0, 0)
    return next((each for each in candidates(reads) if is_clean(reads, each)), None)


def candidates(reads: Reads) -> Iterator[Swizzle]:
    """Yield every swizzle that keeps vectors whole and maps the tile onto itself."""
    least = VECTOR_BYTES.bit_length() - 1
    highest = (reads.nbytes - 1).bit_length()
    for bits in range(1, highest - least + 1):
        for base in range(least, highest - bits + 1):
            for shift in range(bits, highest - base + 1):
                swizzle = Swizzle(bits, base, shift)
                if stays_inside(swizzle, reads.nbytes):
                    yield swizzle


def stays_inside(swizzle: Swizzle, nbytes: int) -> bool:
    """Say whether every vector of a tile of ``nbytes`` stays inside the tile."""
    if nbytes % swizzle.period == 0:
        return True
    return all(swizzle(offset) < nbytes for offset in range(0, nbytes, VECTOR_BYTES))


def least_padding(reads: Reads, unit: int) -> int | None:
    """Return the least bytes of padding after each row without conflicts, in multiples of ``unit``.

    None where no padding up to the width of all banks (128 bytes) helps.
    """

    def padded(padding: int) -> Callable[[int], int]:
        return lambda offset: offset + offset // reads.row_bytes * padding

    return next((p for p in range(0, 129, unit) if is_clean(reads, padded(p))), None)
