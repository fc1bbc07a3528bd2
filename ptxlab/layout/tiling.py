"""Division and product of layouts mode by mode, their modes regrouped; elements of another width.

A tiler is a layout, which tiles the numbers of the other, or a tuple of layouts, one for each mode; modes
beyond the tuple stay whole. Source: the CUTLASS documentation, "CuTe Layout Algebra"; recasting as
cute::upcast and cute::downcast are defined.
"""

from __future__ import annotations

from collections.abc import Callable

from ptxlab.errors import UsageError
from ptxlab.layout import algebra
from ptxlab.layout.algebra import Layout, NoSuchLayoutError, coalesce, joined

Tiler = Layout | tuple[Layout, ...]
_ONE = Layout(1, 0)


def composition(layout: Layout, tiler: Tiler) -> Layout:
    """Return the layout at the tiler's offsets: R(c) = layout(tiler(c)).

    Raises:
        NoSuchLayoutError: as algebra.composition does.

    """
    return _by_mode(algebra.composition, layout, tiler)


def logical_divide(layout: Layout, tiler: Tiler) -> Layout:
    """Return each mode as (within a tile, which tile).

    Raises:
        NoSuchLayoutError: as algebra.logical_divide does.

    """
    return _by_mode(algebra.logical_divide, layout, tiler)


def zipped_divide(layout: Layout, tiler: Tiler) -> Layout:
    """Return ((within a tile, of each mode), (which tile, of each mode)).

    Raises:
        NoSuchLayoutError: as logical_divide does.

    """
    return _zipped(logical_divide(layout, tiler), tiler)


def tiled_divide(layout: Layout, tiler: Tiler) -> Layout:
    """Return ((within a tile, of each mode), which tile, of each mode ...).

    Raises:
        NoSuchLayoutError: as logical_divide does.

    """
    within, which = zipped_divide(layout, tiler).modes
    return joined([within, *which.modes])


def flat_divide(layout: Layout, tiler: Tiler) -> Layout:
    """Return (within a tile, of each mode ..., which tile, of each mode ...).

    Raises:
        NoSuchLayoutError: as logical_divide does.

    """
    within, which = zipped_divide(layout, tiler).modes
    return joined([*within.modes, *which.modes])


def logical_product(block: Layout, tiler: Tiler) -> Layout:
    """Return each mode as (within a block, which block).

    Raises:
        NoSuchLayoutError: as algebra.logical_product does.

    """
    return _by_mode(algebra.logical_product, block, tiler)


def zipped_product(block: Layout, tiler: Tiler) -> Layout:
    """Return ((within a block, of each mode), (which block, of each mode)).

    Raises:
        NoSuchLayoutError: as logical_product does.

    """
    return _zipped(logical_product(block, tiler), tiler)


def tiled_product(block: Layout, tiler: Tiler) -> Layout:
    """Return ((within a block, of each mode), which block, of each mode ...).

    Raises:
        NoSuchLayoutError: as logical_product does.

    """
    within, which = zipped_product(block, tiler).modes
    return joined([within, *which.modes])


def blocked_product(block: Layout, tiler: Layout) -> Layout:
    """Return the blocks side by side: each mode is (within a block, which block), coalesced.

    Raises:
        NoSuchLayoutError: as logical_product does.

    """
    return joined([coalesce(joined(pair)) for pair in _pairs(block, tiler)])


def raked_product(block: Layout, tiler: Layout) -> Layout:
    """Return the blocks interleaved: each mode is (which block, within a block), coalesced.

    Raises:
        NoSuchLayoutError: as logical_product does.

    """
    return joined([coalesce(joined(pair[::-1])) for pair in _pairs(block, tiler)])


def upcast(layout: Layout, count: int) -> Layout:
    """Return the layout of elements that are ``count`` of these each.

    Raises:
        UsageError: the count is below 1.
        NoSuchLayoutError: an element would not be whole, or begin inside another, or a stride is negative.

    """
    _check_recast(layout, count)
    inside = sum(
        (min(size, count // step) - 1) * step for size, step in layout.flat_modes() if 0 < step < count
    )
    if inside >= count:
        raise NoSuchLayoutError(f"the modes of {layout} together reach {inside} in an element of {count}")
    return _mode_wise(layout, lambda size, step: _upcast_mode(size, step, count))


def downcast(layout: Layout, count: int) -> Layout:
    """Return the layout of elements ``count`` of which make one of these.

    Raises:
        UsageError: the count is below 1.
        NoSuchLayoutError: no mode, or more than one, has stride 1, or a stride is negative.

    """
    _check_recast(layout, count)
    if count > 1 and [step for _, step in layout.flat_modes()].count(1) != 1:
        raise NoSuchLayoutError(f"{layout} has not one mode of stride 1, which is the one to lengthen")
    return _mode_wise(layout, lambda size, step: (size * count, 1) if step == 1 else (size, step * count))


def recast(layout: Layout, from_bits: int, to_bits: int) -> Layout:
    """Return the layout of the same memory in elements of another width.

    Raises:
        UsageError: a width is below 1.
        NoSuchLayoutError: as upcast and downcast do, or neither width divides the other.

    """
    if min(from_bits, to_bits) < 1:
        raise UsageError(f"elements of {min(from_bits, to_bits)} bits; legal: at least 1")
    if to_bits % from_bits == 0:
        return upcast(layout, to_bits // from_bits)
    if from_bits % to_bits == 0:
        return downcast(layout, from_bits // to_bits)
    raise NoSuchLayoutError(f"elements of {from_bits} and {to_bits} bits: neither divides the other")


def by_mode(layout: Layout, tiler: tuple[Layout, ...]) -> list[tuple[Layout, Layout | None]]:
    """Return each mode with its tiler, None for those beyond the tuple.

    Raises:
        UsageError: there are more tilers than modes.

    """
    if len(tiler) > layout.rank:
        raise UsageError(f"{len(tiler)} tilers for the {layout.rank} modes of {layout}")
    return list(zip(layout.modes, [*tiler, *[None] * (layout.rank - len(tiler))], strict=True))


def _by_mode(operation: Callable[[Layout, Layout], Layout], layout: Layout, tiler: Tiler) -> Layout:
    if isinstance(tiler, Layout):
        return operation(layout, tiler)
    return joined([mode if of is None else operation(mode, of) for mode, of in by_mode(layout, tiler)])


def _zipped(layout: Layout, tiler: Tiler) -> Layout:
    """Return the first parts of all tiled modes as one mode, and all else as another."""
    if isinstance(tiler, Layout):
        return layout
    tiled = [mode.modes for mode in layout.modes[: len(tiler)]]
    rest = layout.modes[len(tiler) :]
    return joined([joined([within for within, _ in tiled]), joined([*(which for _, which in tiled), *rest])])


def _pairs(block: Layout, tiler: Layout) -> list[tuple[Layout, Layout]]:
    """Return (within a block, which block) for each mode; the lower rank is filled up with 1:0."""
    rank = max(block.rank, tiler.rank)
    full = (joined([*each.modes, *[_ONE] * (rank - each.rank)]) for each in (block, tiler))
    within, which = algebra.logical_product(*full).modes
    return list(zip(within.modes, which.modes, strict=True))


def _upcast_mode(size: int, step: int, count: int) -> tuple[int, int]:
    if step == 0:
        return size, 0
    if step % count and count % step:
        raise NoSuchLayoutError(f"a stride of {step} and elements of {count}: neither divides the other")
    per_element = max(1, count // step)
    if size % per_element and per_element % size:
        raise NoSuchLayoutError(f"{size} values, {step} apart, are not whole elements of {count}")
    return max(1, size // per_element), max(1, step // count)


def _mode_wise(layout: Layout, change: Callable[[int, int], tuple[int, int]]) -> Layout:
    """Return the layout with every innermost mode changed."""
    if isinstance(layout.shape, int) and isinstance(layout.stride, int):
        return Layout(*change(layout.shape, layout.stride))
    return joined([_mode_wise(mode, change) for mode in layout.modes])


def _check_recast(layout: Layout, count: int) -> None:
    if count < 1:
        raise UsageError(f"{count} elements in one; legal: at least 1")
    if any(step < 0 for _, step in layout.flat_modes()):
        raise NoSuchLayoutError(f"{layout} has a negative stride")
