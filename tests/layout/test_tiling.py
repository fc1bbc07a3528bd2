"""Division, product and recasting mode by mode, by enumeration and against published examples."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxlab.errors import UsageError
from ptxlab.layout import algebra, tiling
from ptxlab.layout.algebra import Layout, NoSuchLayoutError, joined
from ptxlab.layout.tiling import Tiler

A = Layout((9, (4, 8)), (59, (13, 1)))
TILER = (Layout(3, 3), Layout((2, 4), (1, 8)))
BLOCK, GRID = Layout((2, 5), (5, 1)), Layout((3, 4), (1, 3))

PUBLISHED = [
    (
        tiling.composition(Layout((12, (4, 8)), (59, (13, 1))), (Layout(3, 4), Layout(8, 2))),
        "(3,(2,4)):(236,(26,1))",
    ),
    (
        tiling.composition(Layout((12, (4, 8)), (59, (13, 1))), (Layout(3, 1), Layout(8, 1))),
        "(3,(4,2)):(59,(13,1))",
    ),
    (tiling.composition(A, TILER), "(3,(2,4)):(177,(13,2))"),
    (tiling.zipped_divide(A, TILER).modes[0], "(3,(2,4)):(177,(13,2))"),
]
"""Source: the examples of the CUTLASS documentation, "CuTe Layout Algebra"."""


@pytest.mark.parametrize(("result", "published"), PUBLISHED)
def test_published_examples(result: Layout, published: str) -> None:
    """The documentation's own numbers."""
    assert str(result) == published


def test_the_forms_of_a_divide_are_shaped_as_published() -> None:
    """A 9 x 32 layout in tiles of 3 x 8: ((3,3),(8,4)) and ((3,8),(3,4))."""
    sizes = [[part.size for part in mode.modes] for mode in tiling.logical_divide(A, TILER).modes]
    assert sizes == [[3, 3], [8, 4]]
    zipped = tiling.zipped_divide(A, TILER)
    assert [[part.size for part in mode.modes] for mode in zipped.modes] == [[3, 8], [3, 4]]
    assert [mode.size for mode in tiling.tiled_divide(A, TILER).modes] == [24, 3, 4]
    assert [mode.size for mode in tiling.flat_divide(A, TILER).modes] == [3, 8, 3, 4]


@st.composite
def tilings(draw: st.DrawFn) -> tuple[Layout, tuple[Layout, ...]]:
    """A layout without gaps of one to three modes, and for some of them a tile that divides it."""
    sizes = draw(st.lists(st.sampled_from([2, 4, 6, 8, 12]), min_size=1, max_size=3))
    layout = algebra.packed(tuple(sizes))
    tiles = [draw(st.sampled_from([n for n in range(1, size + 1) if size % n == 0])) for size in sizes]
    return layout, tuple(Layout(tile, 1) for tile in tiles[: draw(st.integers(1, len(tiles)))])


@given(tilings())
def test_a_divide_keeps_every_element_and_its_tile(asked: tuple[Layout, tuple[Layout, ...]]) -> None:
    """Tile by tile: the element at (within, which) is the layout's at which * tile + within."""
    layout, tiler = asked
    zipped = tiling.zipped_divide(layout, tiler)
    within, which = zipped.modes
    tiles = [tile.size for tile in tiler]
    for inner in range(within.size):
        for outer in range(which.size):
            near = algebra.flatten(algebra.coordinate_of(inner, tuple(tiles)))
            counts = [mode.size // tile for mode, tile in zip(layout.modes, tiles, strict=False)]
            counts += [mode.size for mode in layout.modes[len(tiles) :]]
            far = algebra.flatten(algebra.coordinate_of(outer, tuple(counts)))
            place = [f * t + n for f, t, n in zip(far, tiles, near, strict=False)] + list(far[len(tiles) :])
            assert zipped(inner, outer) == layout(*place)
    for other in (tiling.logical_divide, tiling.tiled_divide, tiling.flat_divide):
        assert sorted(other(layout, tiler).offsets()) == sorted(layout.offsets())


def test_products_of_rows_in_columns() -> None:
    """A 2 x 5 block, rows first, in a 3 x 4 grid, columns first: element and block by their coordinates."""
    blocked, raked = tiling.blocked_product(BLOCK, GRID), tiling.raked_product(BLOCK, GRID)
    assert str(blocked) == "(6,(5,4)):(5,(1,30))"
    assert str(raked) == "((3,2),(4,5)):((10,5),(30,1))"
    for i, j in np.ndindex(2, 5):
        for p, q in np.ndindex(3, 4):
            wanted = BLOCK(i, j) + 10 * GRID(p, q)
            assert blocked(i + 2 * p, j + 5 * q) == wanted
            assert raked(p + 3 * i, q + 4 * j) == wanted


def test_a_product_fills_up_the_lower_rank() -> None:
    """A vector repeated over a matrix, and a matrix over a vector."""
    assert tiling.blocked_product(Layout(4, 1), Layout((2, 3), (1, 2))).size == 24
    assert str(tiling.blocked_product(Layout((2, 2), (1, 2)), Layout(3, 1))) == "((2,3),2):((1,4),2)"


@given(st.lists(st.sampled_from([1, 2, 4]), min_size=1, max_size=3), st.sampled_from([1, 2, 4]))
def test_a_zipped_product_is_block_and_grid(sizes: list[int], count: int) -> None:
    """Mode by mode: the first part is the block's mode, and the second begins where it ends."""
    block = joined([Layout(size, 1) for size in sizes])
    tiler: Tiler = tuple(Layout(count, 1) for _ in sizes)
    within, which = tiling.zipped_product(block, tiler).modes
    assert within == block
    assert which.flat_modes() == [(count, size if count > 1 else 0) for size in sizes]
    flat = tiling.tiled_product(block, tiler)
    assert flat.modes == (within, *which.modes)


@given(
    st.permutations([0, 1, 2]),
    st.lists(st.sampled_from([1, 2, 4, 8]), min_size=3, max_size=3),
    st.sampled_from([1, 2, 4, 8]),
)
def test_recasting_is_the_same_memory(order: list[int], sizes: list[int], count: int) -> None:
    """Wider elements hold what the narrower ones did, and narrower ones are as many as fit."""
    steps, reached = [0, 0, 0], 1
    for mode in order:
        steps[mode], reached = reached, reached * sizes[mode]
    layout = Layout(tuple(sizes), tuple(steps))
    try:
        wide = tiling.upcast(layout, count)
        assert np.array_equal(np.unique(wide.offsets()), np.unique(layout.offsets() // count))
        narrow = tiling.downcast(layout, count)
        assert narrow.size == count * layout.size
        assert np.array_equal(np.unique(narrow.offsets() // count), np.unique(layout.offsets()))
        assert tiling.upcast(narrow, count) == layout
    except NoSuchLayoutError:
        return


def test_recasts_between_types() -> None:
    """64 x 16 halves are 64 x 8 floats and 64 x 32 bytes; 24-bit elements are neither."""
    halves = Layout((64, 16), (16, 1))
    assert str(tiling.recast(halves, 16, 32)) == "(64,8):(8,1)"
    assert str(tiling.recast(halves, 16, 8)) == "(64,32):(32,1)"
    assert tiling.recast(halves, 16, 16) == halves
    assert str(tiling.upcast(Layout((32, (32, 4)), (32, (1, 1024))), 16)) == "(32,(2,4)):(2,(1,64))"


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (lambda: tiling.recast(Layout(4, 1), 16, 24), "neither divides"),
        (lambda: tiling.upcast(Layout((4, 3), (1, 6)), 4), "a stride of 6 and elements of 4"),
        (lambda: tiling.upcast(Layout((2, 2), (1, 1)), 2), "together reach 2 in an element of 2"),
        (lambda: tiling.upcast(Layout(6, 1), 4), "not whole elements"),
        (lambda: tiling.upcast(Layout(4, -1), 2), "negative stride"),
        (lambda: tiling.downcast(Layout(4, 2), 2), "stride 1"),
        (lambda: tiling.logical_divide(Layout((10, 2), (1, 16)), Layout(4, 1)), "neither divides"),
    ],
)
def test_what_does_not_exist_says_why(asked: Callable[[], Layout], why: str) -> None:
    """The condition that fails is named."""
    with pytest.raises(NoSuchLayoutError, match=why):
        asked()


def test_wrong_use_is_no_missing_layout() -> None:
    """More tilers than modes, and widths below 1."""
    for asked in (
        lambda: tiling.logical_divide(Layout(8, 1), (Layout(2, 1), Layout(2, 1))),
        lambda: tiling.upcast(Layout(8, 1), 0),
        lambda: tiling.recast(Layout(8, 1), 0, 8),
    ):
        with pytest.raises(UsageError) as caught:
            asked()
        assert not isinstance(caught.value, NoSuchLayoutError)
