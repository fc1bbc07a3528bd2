"""Which swizzle of a tile is free of bank conflicts? Every candidate is tried, the smallest first.

A tile is read or written once by a list of warp instructions; the cost of a layout is the sum of their
wavefronts. Several such passes may share a tile, and one swizzle must serve them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ptxlab.layout.banks import OFF, Access, count, phases
from ptxlab.layout.swizzle import MODES, Swizzle

VECTOR_BYTES = 16
"""What cp.async, TMA and ldmatrix move in one piece: a swizzle must keep it whole and aligned."""

_SAMPLE = 16
"""Instructions that are looked at first: most candidates fail on one of them."""

Ints = NDArray[np.int64]
Place = Callable[[Ints], Ints]
"""Where the bytes at some offsets of the plain tile lie."""


@dataclass(frozen=True)
class Pass:
    """The warp instructions that read or write a tile once.

    Attributes:
        access: their class.
        offsets: the byte offset of every lane in the tile without swizzle and padding, [instruction, lane];
            banks.OFF for a lane that takes no part. No instruction at all is a pass that meets no banks.
        modes: whether just the swizzles of MODES are possible (TMA writes it, or wgmma reads it).
        name: how it was asked for.

    """

    access: Access
    offsets: Ints
    modes: bool = False
    name: str = ""

    @property
    def ideal(self) -> int:
        """Wavefronts of all instructions when nothing conflicts."""
        return int(phases(self.access, self.offsets).sum())

    def cost(self, place: Place) -> int:
        """Return the wavefronts of all instructions."""
        return int(self._counts(self.offsets, place).sum())

    def worst(self, place: Place) -> int:
        """Return the wavefronts of the instruction that takes the most."""
        return int(self._counts(self.offsets, place).max(initial=0))

    def is_clean(self, place: Place) -> bool:
        """Say whether no instruction conflicts."""
        return all(
            bool((self._counts(some, place) <= phases(self.access, some)).all())
            for some in (self.offsets[:_SAMPLE], self.offsets[_SAMPLE:])
        )

    def _counts(self, offsets: Ints, place: Place) -> Ints:
        return count(self.access, np.where(offsets == OFF, OFF, place(offsets)))


@dataclass(frozen=True)
class Traffic:
    """A tile in shared memory and all that reads and writes it.

    Attributes:
        rows: of the tile as it lies in memory.
        row_bytes: bytes of one.
        passes: each reads or writes the whole tile.

    """

    rows: int
    row_bytes: int
    passes: tuple[Pass, ...]

    @property
    def nbytes(self) -> int:
        """Size of the tile."""
        return self.row_bytes * self.rows

    @property
    def ideal(self) -> int:
        """Wavefronts of all passes when nothing conflicts."""
        return sum(each.ideal for each in self.passes)

    @property
    def modes(self) -> bool:
        """Whether just the swizzles of MODES are possible."""
        return any(each.modes for each in self.passes)

    def cost(self, place: Place) -> int:
        """Return the wavefronts of all passes; the byte at ``offset`` lies at ``place(offset)``."""
        return sum(each.cost(place) for each in self.passes)

    def is_clean(self, place: Place) -> bool:
        """Say whether no instruction of any pass conflicts."""
        return all(each.is_clean(place) for each in self.passes)

    def padded(self, padding: int) -> Place:
        """Return where bytes lie with so many bytes of padding after each row."""
        return lambda offsets: offsets + offsets // self.row_bytes * padding


def plain(offsets: Ints) -> Ints:
    """Return where bytes lie in a tile without swizzle and padding."""
    return offsets


def solve(traffic: Traffic, unit: int = VECTOR_BYTES) -> Swizzle | None:
    """Return the smallest swizzle of byte offsets without conflicts, least B first, then M, then S.

    <0,0,0> means that none is needed; None that no swizzle that keeps ``unit`` bytes together helps.
    """
    if traffic.is_clean(plain):
        return Swizzle(0, 0, 0)
    return next((each for each in candidates(traffic, unit) if traffic.is_clean(each)), None)


def candidates(traffic: Traffic, unit: int = VECTOR_BYTES) -> Iterator[Swizzle]:
    """Yield every swizzle that keeps units whole and maps the tile onto itself."""
    least = unit.bit_length() - 1
    highest = reach(traffic.nbytes)
    for bits in range(1, highest - least + 1):
        for base in range(least, highest - bits + 1):
            for shift in range(bits, highest - base - bits + 1):
                swizzle = Swizzle(bits, base, shift)
                if traffic.modes and fitting_mode(swizzle, traffic.row_bytes) is None:
                    continue
                if stays_inside(swizzle, traffic.nbytes, unit):
                    yield swizzle


def reach(nbytes: int) -> int:
    """Return how many bits the offsets in a tile have; a swizzle's period must not need more."""
    return (nbytes - 1).bit_length()


def fitting_mode(swizzle: Swizzle, row_bytes: int) -> str | None:
    """Return the mode in which TMA writes such a tile, or None.

    A mode's box has rows of at most as many bytes as its name says, so a wider tile is none of its.
    """
    names = (name for name, p in MODES.items() if swizzle.bits and p == swizzle.parameters)
    return next((name for name in names if row_bytes <= int(name.removesuffix("B"))), None)


def stays_inside(swizzle: Swizzle, nbytes: int, unit: int = VECTOR_BYTES) -> bool:
    """Say whether every unit of a tile of ``nbytes`` stays inside the tile."""
    if nbytes % swizzle.period == 0:
        return True
    return bool((swizzle(np.arange(0, nbytes, unit, dtype=np.int64)) < nbytes).all())


def least_padding(traffic: Traffic, unit: int) -> int | None:
    """Return the least bytes of padding after each row without conflicts, in multiples of ``unit``.

    None where no padding up to the width of all banks (128 bytes) helps.
    """
    return next((p for p in range(0, 129, unit) if traffic.is_clean(traffic.padded(p))), None)


def alignment(passes: Sequence[Pass]) -> int:
    """Return the bytes to a multiple of which every address of these passes is aligned."""
    return max(each.access.bytes_per_lane for each in passes)
