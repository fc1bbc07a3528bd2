"""Which swizzle of a tile is free of bank conflicts? Every candidate is tried, the smallest first.

A tile is read or written once by a list of warp instructions; the cost of a layout is the sum of their
wavefronts. Several such passes may share a tile, and one swizzle must serve them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ptxlab.layout.banks import BANKS, OFF, WORD_BYTES, Access, conflicts, count, phases
from ptxlab.layout.swizzle import MODES, Swizzle

SPANS = {name: int(name.removesuffix("B")) for name, (bits, _, _) in MODES.items() if bits}
"""Bytes of a row in each mode of TMA and wgmma that moves something."""

VECTOR_BYTES = 16
"""What cp.async, TMA and ldmatrix move in one piece: a swizzle must keep it whole and aligned."""

MOST_PADDING = BANKS * WORD_BYTES
"""Bytes: more padding meets the same banks again."""

_SAMPLE = 16
"""Instructions that are looked at first: most candidates fail on one of them."""

_ALL = slice(None)

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
        sources: where in global memory the lanes copy from, of the shape of ``offsets``; None where that
            makes no difference.

    """

    access: Access
    offsets: Ints
    modes: bool = False
    name: str = ""
    sources: Ints | None = None

    @property
    def ideal(self) -> int:
        """Wavefronts of all instructions when nothing conflicts."""
        return int(self._floor(_ALL).sum())

    def cost(self, place: Place) -> int:
        """Return the wavefronts of all instructions."""
        return int(self.counts(place).sum())

    def conflicts(self, place: Place) -> Ints:
        """Return the wavefronts of each instruction beyond what it needs; no other makes up for them."""
        return self._conflicts(_ALL, place)

    def worst(self, place: Place) -> int:
        """Return the wavefronts of the instruction that takes the most."""
        return int(self.counts(place).max(initial=0))

    def counts(self, place: Place) -> Ints:
        """Return the wavefronts of each instruction."""
        return self._counts(_ALL, place)

    def is_clean(self, place: Place) -> bool:
        """Say whether no instruction conflicts."""
        return not self.first_conflicts(place) and not self._conflicts(slice(_SAMPLE, None), place).any()

    def first_conflicts(self, place: Place) -> int:
        """Return the conflicts of the first instructions."""
        return int(self._conflicts(slice(None, _SAMPLE), place).sum())

    def uses_once(self, nbytes: int) -> bool:
        """Say whether the instructions use each byte of a tile of ``nbytes`` just once."""
        used = np.sort(self.offsets[self.offsets != OFF])
        return np.array_equal(used, np.arange(0, nbytes, self.access.bytes_per_lane))

    def _counts(self, some: slice, place: Place) -> Ints:
        sources = None if self.sources is None else self.sources[some]
        return count(self.access, self._placed(some, place), sources)

    def _conflicts(self, some: slice, place: Place) -> Ints:
        if self.access.by_line:
            return np.asarray((self._counts(some, place) - self._floor(some)).clip(0))
        return conflicts(self.access, self._placed(some, place))

    def _placed(self, some: slice, place: Place) -> Ints:
        offsets = self.offsets[some]
        return np.where(offsets == OFF, OFF, place(offsets))

    def _floor(self, some: slice) -> Ints:
        """Return what no placement can better: the phases, or the lines that are copied from."""
        if self.sources is None:
            return phases(self.access, self.offsets[some])
        return count(self.access, self.sources[some])


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

    def conflicts(self, place: Place) -> int:
        """Return the conflicts of all passes."""
        return sum(int(each.conflicts(place).sum()) for each in self.passes)

    def is_clean(self, place: Place) -> bool:
        """Say whether no instruction of any pass conflicts."""
        return all(each.is_clean(place) for each in self.passes)

    def padded(self, padding: int) -> Place:
        """Return where bytes lie with so many bytes of padding after each row."""
        return lambda offsets: offsets + offsets // self.row_bytes * padding

    def panel_bytes(self, mode: str) -> int:
        """Return how far two panels are apart: the base of each is aligned to the period of the mode."""
        period = Swizzle(*MODES[mode]).period
        return -(-self.rows * SPANS[mode] // period) * period

    def panelled(self, mode: str) -> Place:
        """Return where bytes lie in panels: boxes of that mode, each of one span of every row."""
        span, swizzle, size = SPANS[mode], Swizzle(*MODES[mode]), self.panel_bytes(mode)

        def place(offsets: Ints) -> Ints:
            row, byte = np.divmod(offsets, self.row_bytes)
            panel, inner = np.divmod(byte, span)
            return np.asarray(panel * size + swizzle(row * span + inner))

        return place


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

    A mode has rows of as many bytes as its name says: a box cannot be wider, and the rows of a narrower one
    lie so many bytes apart, as no tile of rows without gaps does.
    """
    return next((name for name, span in SPANS.items() if _is(name, swizzle) and row_bytes == span), None)


def _is(mode: str, swizzle: Swizzle) -> bool:
    return MODES[mode] == swizzle.parameters


def stays_inside(swizzle: Swizzle, nbytes: int, unit: int = VECTOR_BYTES) -> bool:
    """Say whether every unit of a tile of ``nbytes`` stays inside the tile."""
    if nbytes % swizzle.period == 0:
        return True
    return bool((swizzle(np.arange(0, nbytes, unit, dtype=np.int64)) < nbytes).all())


def panel_mode(traffic: Traffic) -> str | None:
    """Return the mode of which panels side by side make up the tile without conflicts, the widest first."""
    names = (name for name in reversed(SPANS) if traffic.row_bytes % SPANS[name] == 0)
    return next((name for name in names if traffic.is_clean(traffic.panelled(name))), None)


def least_padding(traffic: Traffic, unit: int) -> int | None:
    """Return the least bytes of padding after each row without conflicts, in multiples of ``unit``.

    None where no padding up to the width of all banks (128 bytes) helps.
    """
    return next((p for p in range(0, MOST_PADDING + 1, unit) if traffic.is_clean(traffic.padded(p))), None)


def alignment(passes: Sequence[Pass]) -> int:
    """Return the bytes to a multiple of which every address of these passes is aligned."""
    return max(each.access.bytes_per_lane for each in passes)
