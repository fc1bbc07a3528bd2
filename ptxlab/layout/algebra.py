"""Layouts as Shape:Stride, and the operations on them.

A layout is a function from coordinates to offsets. ``(4,8):(1,4)`` takes the coordinate (i, j) to 1*i + 4*j,
and the number n, taken apart with the first mode running fastest, to the same. Modes nest: a coordinate
may be a number wherever the shape has a tuple.

Source: the CUTLASS documentation, "CuTe Layouts" and "CuTe Layout Algebra"; the conditions under which an
operation exists are those stated there. The tests hold every operation against its definition, by
enumeration.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from ptxlab.errors import UsageError
from ptxlab.isa.shown import Shown

IntTuple = int | tuple["IntTuple", ...]
Coordinate = SupportsIndex | tuple["Coordinate", ...] | list["Coordinate"]

LARGEST = 1 << 40
"""Of a size or an offset: beyond any memory, and far below where numpy's integers end."""


class NoSuchLayoutError(UsageError):
    """The operation has no result: a condition does not hold, and the message says which."""


@dataclass(frozen=True)
class Layout(Shown):
    """A function from coordinates to offsets.

    Attributes:
        shape: how many values each coordinate has; may nest.
        stride: how far one step along each coordinate leads; nests as the shape does.

    Lists become tuples, and numpy's whole numbers Python's.

    Raises:
        UsageError: something is no whole number, shape and stride do not nest alike, a size is below 1, or
            something is too large.

    """

    shape: IntTuple
    stride: IntTuple

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", whole(self.shape))
        object.__setattr__(self, "stride", whole(self.stride))
        if not _congruent(self.shape, self.stride):
            raise UsageError(f"shape {text(self.shape)} and stride {text(self.stride)} do not nest alike")
        if any(size < 1 for size in flatten(self.shape)):
            raise UsageError(f"shape {text(self.shape)} has a size below 1")
        reach = sum((size - 1) * abs(step) for size, step in self.flat_modes())
        if max(self.size, reach, *(abs(step) for step in flatten(self.stride))) > LARGEST:
            raise UsageError(f"{self} is too large; legal: sizes, strides and offsets up to 2^40")

    def __str__(self) -> str:
        return f"{text(self.shape)}:{text(self.stride)}"

    def __call__(self, *coordinate: Coordinate) -> int:
        """Return the offset of a coordinate: one number, or one (nested) for each mode.

        Raises:
            UsageError: it lies outside of the shape, nests otherwise, or is no whole number.

        """
        given = coordinate[0] if len(coordinate) == 1 else coordinate
        return _offset(whole(given), self.shape, self.stride)

    @property
    def size(self) -> int:
        """How many coordinates there are."""
        return product(self.shape)

    @property
    def cosize(self) -> int:
        """One more than the largest offset."""
        return 1 + sum(max(0, (size - 1) * step) for size, step in self.flat_modes())

    @property
    def rank(self) -> int:
        """How many modes there are at the top."""
        return len(self.shape) if isinstance(self.shape, tuple) else 1

    @property
    def modes(self) -> tuple[Layout, ...]:
        """The modes at the top, each a layout."""
        if isinstance(self.shape, tuple) and isinstance(self.stride, tuple):
            return tuple(itertools.starmap(Layout, zip(self.shape, self.stride, strict=True)))
        return (self,)

    def flat_modes(self) -> list[tuple[int, int]]:
        """Return size and stride of each innermost mode, the fastest first."""
        return list(zip(flatten(self.shape), flatten(self.stride), strict=True))

    def offsets(self) -> NDArray[np.int64]:
        """Return the offset of every number from 0 to size - 1, [size]."""
        found = np.zeros(1, dtype=np.int64)
        for size, step in self.flat_modes():
            found = np.add.outer(np.arange(size) * step, found).reshape(-1)
        return found

    @property
    def injective(self) -> bool:
        """Whether no two coordinates share an offset."""
        return len(np.unique(self.offsets())) == self.size


def whole(value: object) -> IntTuple:
    """Return whole numbers of any kind, in nested tuples or lists, as Python's own in tuples.

    Raises:
        UsageError: something is no whole number.

    """
    if isinstance(value, tuple | list):
        return tuple(map(whole, value))
    try:
        return int(operator.index(value))  # type: ignore[arg-type]  # what it is not, it says
    except TypeError:
        raise UsageError(f"{value!r} is neither a whole number nor a tuple of such") from None


def text(value: IntTuple) -> str:
    """Return a shape or a stride as it is written: ``(4,(2,2))``."""
    if isinstance(value, int):
        return str(value)
    return f"({','.join(map(text, value))})"


def flatten(value: IntTuple) -> tuple[int, ...]:
    """Return the numbers of a nested tuple, from left to right."""
    if isinstance(value, int):
        return (value,)
    return tuple(number for part in value for number in flatten(part))


def coordinate_of(index: int, shape: IntTuple) -> IntTuple:
    """Return the coordinate with this number, nested as the shape is; the first mode runs fastest."""
    digits = []
    for size in flatten(shape):
        index, digit = divmod(index, size)
        digits.append(digit)
    return _like(shape, iter(digits))


def compatible(coarse: IntTuple, fine: IntTuple) -> bool:
    """Whether every coordinate of the first shape is one of the second, which may nest deeper."""
    if isinstance(coarse, int):
        return coarse == product(fine)
    if isinstance(fine, int) or len(coarse) != len(fine):
        return False
    return all(map(compatible, coarse, fine))


def product(value: IntTuple) -> int:
    """Return the product of the numbers of a nested tuple."""
    return math.prod(flatten(value))


def packed(shape: IntTuple) -> Layout:
    """Return the layout of this shape without gaps, the first mode fastest."""
    shape = whole(shape)
    step = itertools.accumulate(flatten(shape), lambda a, b: a * b, initial=1)
    return Layout(shape, _like(shape, step))


def joined(layouts: Sequence[Layout]) -> Layout:
    """Return the layout whose modes are these."""
    return Layout(tuple(each.shape for each in layouts), tuple(each.stride for each in layouts))


def coalesce(layout: Layout) -> Layout:
    """Return the layout with the fewest modes that is the same function of a number."""
    modes: list[tuple[int, int]] = []
    for size, step in layout.flat_modes():
        if size == 1:
            continue
        if modes and modes[-1][0] * modes[-1][1] == step:
            modes[-1] = (modes[-1][0] * size, modes[-1][1])
        else:
            modes.append((size, step))
    return _of_modes(modes)


def composition(outer: Layout, inner: Layout) -> Layout:
    """Return the layout R with R(c) = outer(inner(c)), shaped as ``inner`` is.

    Raises:
        NoSuchLayoutError: a size or a stride of ``inner`` does not divide with the sizes of ``outer``,
            ``inner`` leads out of ``outer``, or its modes together carry from one mode into the next.

    """
    modes = coalesce(outer).flat_modes()
    taken = [taken_by(outer, size, step) for size, step in inner.flat_modes()]
    _refuse_carries(modes, taken, inner)
    parts = (
        _of_modes([(t.values, t.step * modes[t.mode][1]) for t in part if t.values > 1]) for part in taken
    )
    return _shaped(inner.shape, parts)


class Taken(NamedTuple):
    """What a walk takes of one mode: so many values, ``step`` apart."""

    mode: int
    values: int
    step: int


def taken_by(outer: Layout, size: int, step: int) -> list[Taken]:
    """Return what ``size`` values, ``step`` apart, take of each mode of the coalesced ``outer``.

    The modes below the step are skipped over, the one that the step falls into is taken thinned out, and
    those after it whole, until ``size`` values are found. Nothing has to divide the mode in which the walk
    ends, as it never leaves it.

    Raises:
        NoSuchLayoutError: a step or a size does not divide with a mode, or the walk leads out of ``outer``.

    """
    walk = f"{size}:{step}"
    if step < 0:
        raise NoSuchLayoutError(f"{walk} has a negative stride")
    reached = (size - 1) * step
    if reached >= outer.size:
        raise NoSuchLayoutError(f"{walk} reaches {reached}, and {outer} ends at {outer.size - 1}")
    if step == 0:
        return [Taken(0, size, 0)]
    taken: list[Taken] = []
    for mode, (mode_size, _) in enumerate(coalesce(outer).flat_modes()):
        if size == 1:
            break
        if (size - 1) * step < mode_size:
            return [*taken, Taken(mode, size, step)]
        if mode_size % step and step % mode_size:
            raise NoSuchLayoutError(f"a step of {step} and a mode of {mode_size}: neither divides the other")
        here = min(max(mode_size // step, 1), size)
        if size % here:
            raise NoSuchLayoutError(f"{here} values fit into the mode {mode_size}, and do not divide {size}")
        taken.append(Taken(mode, here, step))
        size, step = size // here, max(step // mode_size, 1)
    return taken


def _refuse_carries(modes: list[tuple[int, int]], taken: list[list[Taken]], inner: Layout) -> None:
    """Refuse what the modes of ``inner`` reach together where each alone stays inside a mode."""
    for mode, (size, _) in enumerate(modes):
        reached = sum((t.values - 1) * t.step for part in taken for t in part if t.mode == mode)
        if reached >= size:
            raise NoSuchLayoutError(
                f"the modes of {inner} together reach {reached} in a mode of {size}, which ends at {size - 1}"
            )


def complement(layout: Layout, cotarget: int) -> Layout:
    """Return what fills the gaps of a layout up to ``cotarget``: ordered, and disjoint from it.

    Raises:
        NoSuchLayoutError: the layout is not injective, or its modes overlap.

    """
    modes: list[tuple[int, int]] = []
    filled = 1
    for step, size in sorted((step, size) for size, step in layout.flat_modes() if size > 1):
        modes.append((gap(layout, step, filled), filled))
        filled = step * size
    modes.append((-(-cotarget // filled), filled))
    return coalesce(_of_modes(modes))


def gap(layout: Layout, step: int, filled: int) -> int:
    """Return how many blocks of ``filled`` offsets fit into a stride of a layout.

    Raises:
        NoSuchLayoutError: they do not fill it.

    """
    if step <= 0 or step % filled:
        raise NoSuchLayoutError(f"{layout}: a stride of {step} does not lie beyond a block of {filled}")
    return step // filled


def logical_divide(layout: Layout, tiler: Layout) -> Layout:
    """Return the layout as (within a tile, which tile): composition with the tiler and its complement.

    Where tiles do not divide the layout the last of them reach past its end: the layout goes on there as
    its last mode does, and who uses it leaves those elements out.

    Raises:
        NoSuchLayoutError: as composition and complement do.

    """
    return composition(tiled(layout, tiler), joined([tiler, complement(tiler, layout.size)]))


def tiled(layout: Layout, tiler: Layout) -> Layout:
    """Return the layout, coalesced and its last mode lengthened where whole tiles reach past its end.

    Raises:
        NoSuchLayoutError: the tiler has no complement.

    """
    reach = joined([tiler, complement(tiler, layout.size)]).cosize
    if reach <= layout.size or tiler.cosize > layout.size:
        return layout
    *modes, (size, step) = coalesce(layout).flat_modes()
    before = layout.size // size
    return _of_modes([*modes, (-(-reach // before), step)])


def logical_product(block: Layout, tiler: Layout) -> Layout:
    """Return the layout (within a block, which block) that repeats ``block`` as ``tiler`` says.

    Raises:
        NoSuchLayoutError: as composition and complement do.

    """
    gaps = complement(block, block.size * tiler.cosize)
    return joined([block, composition(gaps, tiler)])


def right_inverse(layout: Layout) -> Layout:
    """Return the largest layout R with layout(R(i)) = i for every i below its size."""
    modes: list[tuple[int, int]] = []
    reached = 1
    for step, size, start in by_stride(coalesce(layout)):
        if size > 1 and step == reached:
            modes.append((size, start))
            reached *= size
    return coalesce(_of_modes(modes))


def by_stride(layout: Layout) -> list[tuple[int, int, int]]:
    """Return stride, size, and the number at which each mode begins to count, the least stride first."""
    flat = layout.flat_modes()
    starts = itertools.accumulate((size for size, _ in flat), lambda a, b: a * b, initial=1)
    return sorted((step, size, start) for (size, step), start in zip(flat, starts, strict=False))


def left_inverse(layout: Layout) -> Layout:
    """Return the layout L with L(layout(i)) = i for every i below the layout's size.

    Raises:
        NoSuchLayoutError: the layout is not injective.

    """
    return right_inverse(joined([layout, complement(layout, layout.cosize)]))


def _of_modes(modes: Sequence[tuple[int, int]]) -> Layout:
    """Return a flat layout; a single mode is no tuple."""
    if not modes:
        return Layout(1, 0)
    if len(modes) == 1:
        return Layout(*modes[0])
    return Layout(tuple(size for size, _ in modes), tuple(step for _, step in modes))


def _shaped(shape: IntTuple, parts: Iterator[Layout]) -> Layout:
    """Return the layout that has the next of the parts wherever the shape has a number."""
    if isinstance(shape, int):
        return next(parts)
    return joined([_shaped(part, parts) for part in shape])


def _congruent(shape: IntTuple, stride: IntTuple) -> bool:
    if isinstance(shape, int) or isinstance(stride, int):
        return isinstance(shape, int) and isinstance(stride, int)
    return len(shape) == len(stride) and all(map(_congruent, shape, stride))


def _like(shape: IntTuple, numbers: Iterator[int]) -> IntTuple:
    """Return the numbers, nested as the shape is."""
    if isinstance(shape, int):
        return next(numbers)
    return tuple(_like(part, numbers) for part in shape)


def _offset(coordinate: IntTuple, shape: IntTuple, stride: IntTuple) -> int:
    if isinstance(coordinate, int):
        if not 0 <= coordinate < product(shape):
            raise UsageError(
                f"coordinate {coordinate} is outside of {text(shape)}; legal: 0 to {product(shape) - 1}"
            )
        offset = 0
        for size, step in zip(flatten(shape), flatten(stride), strict=True):
            coordinate, digit = divmod(coordinate, size)
            offset += digit * step
        return offset
    if isinstance(shape, int) or isinstance(stride, int) or len(coordinate) != len(shape):
        raise UsageError(f"coordinate {coordinate} does not nest as {text(shape)} does")
    return sum(map(_offset, coordinate, shape, stride))
