"""The layout algebra against its definitions, by enumeration, and against published examples."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ptxlab.errors import UsageError
from ptxlab.layout import algebra
from ptxlab.layout.algebra import IntTuple, Layout, NoSuchLayoutError
from ptxlab.layout.notation import parse_layout

SIZES = st.integers(1, 6)


def nested(leaf: st.SearchStrategy[int]) -> st.SearchStrategy[IntTuple]:
    """Numbers in tuples in tuples."""
    return st.recursive(leaf, lambda part: st.lists(part, min_size=1, max_size=3).map(tuple), max_leaves=4)


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """Any small layout."""
    shape = draw(nested(SIZES))
    assume(algebra.product(shape) <= 300)
    steps = iter(draw(st.lists(st.integers(0, 12), min_size=8, max_size=8)))

    def stride(part: IntTuple) -> IntTuple:
        return next(steps) if isinstance(part, int) else tuple(map(stride, part))

    return Layout(shape, stride(shape))


@st.composite
def compact(draw: st.DrawFn) -> Layout:
    """A layout without gaps, its modes in any order."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    order = draw(st.permutations(range(len(sizes))))
    steps, reached = [0] * len(sizes), 1
    for mode in order:
        steps[mode] = reached
        reached *= sizes[mode]
    return Layout(tuple(sizes), tuple(steps))


def test_the_text_says_what_the_layout_does() -> None:
    """(4,(2,2)):(1,(4,8)) at (1,(0,1)) is 1 + 8."""
    layout = parse_layout("(4,(2,2)):(1,(4,8))").layout
    assert layout(1, (0, 1)) == 9
    assert layout(9) == 9
    assert layout(1, 2) == 9


@given(layouts())
def test_text_and_back(layout: Layout) -> None:
    """What is printed is read as the same layout, and repr is Python that makes it."""
    assert parse_layout(str(layout)).layout == layout
    assert eval(repr(layout), {"Layout": Layout}) == layout  # noqa: S307 - what repr promises


@given(layouts())
def test_offsets_are_the_function(layout: Layout) -> None:
    """The array and the call agree; cosize is one more than the largest."""
    assert layout.offsets().tolist() == [layout(i) for i in range(layout.size)]
    assert layout.cosize == layout.offsets().max() + 1


@given(layouts())
def test_coalesce_keeps_the_function(layout: Layout) -> None:
    """And has no mode that could be merged with its neighbour."""
    simple = algebra.coalesce(layout)
    assert simple.offsets().tolist() == layout.offsets().tolist()
    modes = simple.flat_modes()
    assert all(size > 1 for size, _ in modes) or simple == Layout(1, 0)
    assert all(b[1] != a[0] * a[1] for a, b in itertools.pairwise(modes))


@given(layouts(), layouts())
def test_composition_is_one_after_the_other(outer: Layout, inner: Layout) -> None:
    """R(c) = outer(inner(c)) for every c, wherever it exists."""
    try:
        result = algebra.composition(outer, inner)
    except NoSuchLayoutError:
        assume(False)
        return
    assert result.offsets().tolist() == [outer(int(each)) for each in inner.offsets()]


@given(compact(), st.lists(st.integers(1, 4), min_size=1, max_size=3), st.data())
def test_a_composition_that_carries_is_never_answered_wrongly(
    outer: Layout, sizes: list[int], data: st.DataObject
) -> None:
    """Inner layouts that stay inside the outer one: the answer is the definition's, or there is none."""
    steps = [data.draw(st.integers(0, max(1, outer.size // size))) for size in sizes]
    inner = Layout(tuple(sizes), tuple(steps))
    assume(inner.cosize <= outer.size)
    try:
        result = algebra.composition(outer, inner)
    except NoSuchLayoutError:
        return
    assert result.offsets().tolist() == outer.offsets()[inner.offsets()].tolist()
    assert algebra.compatible(inner.shape, result.shape)


@given(layouts())
def test_a_number_and_its_coordinate_are_the_same_place(layout: Layout) -> None:
    """Taken apart with the first mode fastest."""
    for number in range(layout.size):
        assert layout(algebra.coordinate_of(number, layout.shape)) == layout(number)


def test_compatible_shapes() -> None:
    """24 takes coordinates of anything with 24 values, and (4,6) of what nests deeper in its modes."""
    for coarse, fine, holds in (
        (24, (4, 6), True),
        ((4, 6), ((2, 2), 6), True),
        ((4, 6), 24, False),
        (24, 32, False),
        ((4, 6), (6, 4), False),
        (((2, 2), 6), (4, 6), False),
    ):
        assert algebra.compatible(coarse, fine) is holds


@given(compact(), st.integers(1, 4))
def test_complement_fills_the_gaps(layout: Layout, stretch: int) -> None:
    """The layout and its complement together take every offset up to the cotarget once."""
    spread = Layout(layout.shape, tuple(stretch * step for step in algebra.flatten(layout.stride)))
    cotarget = 2 * spread.cosize
    rest = algebra.complement(spread, cotarget)
    both = algebra.joined([spread, rest])
    assert both.injective
    assert set(range(cotarget)) <= set(both.offsets().tolist())
    assert rest.offsets().tolist() == sorted(rest.offsets().tolist())


@given(layouts())
def test_the_right_inverse_undoes_from_the_right(layout: Layout) -> None:
    """layout(R(i)) = i, for every i below R's size."""
    inverse = algebra.right_inverse(layout)
    assert [layout(int(each)) for each in inverse.offsets()] == list(range(inverse.size))


@given(compact())
def test_the_inverses_of_a_layout_without_gaps_agree(layout: Layout) -> None:
    """Left and right inverse are one, and whole."""
    left, right = algebra.left_inverse(layout), algebra.right_inverse(layout)
    assert [left(int(each)) for each in layout.offsets()] == list(range(layout.size))
    assert right.size == layout.size


@given(compact(), compact())
def test_the_product_repeats_the_block(block: Layout, tiler: Layout) -> None:
    """The first mode is the block; the second leads to blocks that do not overlap."""
    result = algebra.logical_product(block, tiler)
    assert result.modes[0] == block
    assert result.injective


PUBLISHED = [
    (algebra.coalesce(Layout((2, (1, 6)), (1, (6, 2)))), "12:1"),
    (algebra.composition(Layout((6, 2), (8, 2)), Layout((4, 3), (3, 1))), "((2,2),3):((24,2),8)"),
    (algebra.composition(Layout((3, 6, 2, 8), (5, 7, 11, 13)), Layout(16, 9)), "(2,2,4):(21,11,13)"),
    (algebra.composition(Layout(20, 2), Layout((5, 4), (4, 1))), "(5,4):(8,2)"),
    (algebra.composition(Layout((10, 2), (16, 4)), Layout((5, 4), (1, 5))), "(5,(2,2)):(16,(80,4))"),
    (algebra.complement(Layout(4, 1), 24), "6:4"),
    (algebra.complement(Layout(6, 4), 24), "4:1"),
    (algebra.complement(Layout((4, 6), (1, 4)), 24), "1:0"),
    (algebra.complement(Layout((2, 4), (1, 6)), 24), "3:2"),
    (algebra.complement(Layout(4, 2), 24), "(2,3):(1,8)"),
    (algebra.complement(Layout((2, 2), (1, 6)), 24), "(3,2):(2,12)"),
    (algebra.logical_divide(Layout((4, 2, 3), (2, 1, 8)), Layout(4, 2)), "((2,2),(2,3)):((4,1),(2,8))"),
    (algebra.logical_product(Layout((2, 2), (4, 1)), Layout(6, 1)), "((2,2),(2,3)):((4,1),(2,8))"),
]
"""Source: the examples of the CUTLASS documentation, "CuTe Layout Algebra"."""


@pytest.mark.parametrize(("result", "published"), PUBLISHED)
def test_published_examples(result: Layout, published: str) -> None:
    """The documentation's own numbers."""
    assert str(result) == published


@pytest.mark.parametrize(
    ("outer", "inner", "why"),
    [
        (Layout((4, 6), (1, 8)), Layout(4, 3), "neither divides"),
        (Layout((4, 6), (1, 8)), Layout(6, 1), "do not divide 6"),
        (Layout(8, 1), Layout(4, 3), "ends at 7"),
        (Layout((4, 2), (1, 10)), Layout((3, 2), (1, 2)), "together reach 4 in a mode of 4"),
        (Layout(8, 1), Layout((8, 2), (1, 1)), "together reach 8 in a mode of 8"),
        (Layout(8, 1), Layout(2, -1), "negative stride"),
    ],
)
def test_a_composition_that_does_not_exist_says_why(outer: Layout, inner: Layout, why: str) -> None:
    """The condition that fails is named."""
    with pytest.raises(NoSuchLayoutError, match=why):
        algebra.composition(outer, inner)


@pytest.mark.parametrize(
    ("outer", "inner", "result"),
    [
        (Layout(10, 1), Layout(3, 3), "3:3"),
        (Layout((4, 10), (1, 8)), Layout((4, 3), (1, 12)), "(4,3):(1,24)"),
        (Layout((2, 7), (1, 16)), Layout(3, 4), "3:32"),
        (Layout((10, 4), (1, 100)), Layout(3, 3), "3:3"),
    ],
)
def test_nothing_divides_the_mode_in_which_a_walk_ends(outer: Layout, inner: Layout, result: str) -> None:
    """A walk that never leaves a mode has one stride there, whatever the sizes."""
    assert str(algebra.composition(outer, inner)) == result


@given(layouts(), st.integers(1, 12), st.integers(1, 12))
def test_a_walk_exists_wherever_cute_has_it(outer: Layout, size: int, step: int) -> None:
    """Divisibility is asked of every mode but the last, as in CuTe's composition of one mode."""
    assume((size - 1) * step < outer.size)
    modes = algebra.coalesce(outer).flat_modes()
    rest, apart = size, step
    for mode, _ in modes[:-1]:
        assume(mode % apart == 0 or apart % mode == 0)
        here = min(rest, -(-mode // apart))
        assume(rest % here == 0)
        rest, apart = rest // here, -(-apart // mode)
    found = algebra.composition(outer, Layout(size, step))
    assert found.offsets().tolist() == [outer(i * step) for i in range(size)]


def test_tiles_that_do_not_divide_reach_past_the_end() -> None:
    """The layout goes on as its last mode does: 10 values in pairs 3 apart are 12."""
    assert str(algebra.logical_divide(Layout(10, 1), Layout(2, 3))) == "(2,(3,2)):(3,(1,6))"
    assert str(algebra.logical_divide(Layout(10, 1), Layout(4, 1))) == "(4,3):(1,4)"
    with pytest.raises(NoSuchLayoutError, match="ends at 9"):
        algebra.logical_divide(Layout(10, 1), Layout(16, 1))


def test_whole_numbers_of_any_kind_are_python_s() -> None:
    """Lists become tuples and numpy's numbers Python's, in the layout and where it is called."""
    shape: Any = [4, np.int64(8)]
    rows = Layout(shape, (np.int32(8), 1))  # type: ignore[arg-type]
    assert rows == Layout((4, 8), (8, 1))
    assert str(rows) == "(4,8):(8,1)"
    assert rows(np.int64(3)) == rows(3) == 24
    assert rows([1, np.int64(2)]) == rows(1, 2) == 10
    assert type(rows(np.int64(3))) is int
    assert algebra.packed([4, [2, 2]]) == Layout((4, (2, 2)), (1, (4, 8)))  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", ["4", 4.0, None, (4, "8")])
def test_what_is_no_whole_number_is_refused(wrong: object) -> None:
    """As a shape, as a stride and as a coordinate."""
    given: Any = wrong
    for build in (lambda: Layout(given, 1), lambda: Layout(4, given), lambda: Layout(4, 1)(given)):
        with pytest.raises(UsageError, match="neither a whole number nor a tuple of such"):
            build()


def test_offsets_beyond_any_memory_are_refused() -> None:
    """Numpy's integers would wrap."""
    for source in ("1048576:1099511627776", "(4,4):(1,-999999999999)", "9999999999999 o 4"):
        with pytest.raises(UsageError, match=r"column 1: .* too large"):
            parse_layout(source)


def test_a_layout_that_overlaps_has_no_complement() -> None:
    """(4,8):(1,5) has gaps that no layout fills; 4:0 is not injective."""
    for layout in (Layout((4, 8), (1, 5)), Layout(4, 0)):
        with pytest.raises(NoSuchLayoutError, match="stride"):
            algebra.complement(layout, 100)


def test_a_swizzle_of_bytes_under_a_layout_of_halves() -> None:
    """The 32-byte mode swaps the two chunks of rows 4 to 7, and of those alone."""
    atom = parse_layout("Sw<1,4,3> o smem_ptr[16b](unset) o (64,16):(16,1)")
    chunks = atom.offsets().reshape(16, 64).T[:8, ::8] // 8 % 2
    assert chunks.tolist() == [[0, 1]] * 4 + [[1, 0]] * 4
    assert str(parse_layout(str(atom))) == str(atom)


@pytest.mark.parametrize(
    ("source", "column"),
    [("(4,8:(1,4)", 5), ("(4,8):(1,x)", 10), ("(4,8):(1,4) x", 13), ("Sw<3,4 o 4", 8), ("", 1),
     ("(4,0):(1,2)", 1), ("Sw<3,3,1> o 4:1", 3), ("Sw<60,60,60> o 64:1", 3),
     ("Sw<3,62,3> o 8:1", 3), ("Sw<3,4,3> o smem_ptr[7b] o 4", 22)],
)  # fmt: skip
def test_malformed_text_is_told_with_its_column(source: str, column: int) -> None:
    """Counted from 1, as editors do."""
    with pytest.raises(UsageError, match=rf"column {column}:"):
        parse_layout(source)


def test_offsets_of_a_large_layout_are_found_at_once() -> None:
    """A million elements, by numpy."""
    assert np.array_equal(Layout((1024, 1024), (1024, 1)).offsets()[:3], [0, 1024, 2048])
