"""What TMA moves where: boxes, swizzles, edges, interleaved tensors, im2col, as an H200 answered."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from ptxlab.errors import UsageError
from ptxlab.isa import tma
from ptxlab.isa.tensor_map import SIZES, SPANS, Corners, TensorMap, packed
from ptxlab.isa.tma_data import Chunk, chunks, numbered, operands
from ptxlab.layout.swizzle import MODES, Swizzle


def tensor(shape: tuple[int, ...], box: tuple[int, ...], dtype: str = "f16", **more: Any) -> TensorMap:
    """A map of a tensor without gaps."""
    steps = more.pop("element_strides", (1,) * len(shape))
    strides = more.pop("strides", packed(shape, SIZES[dtype]))
    return TensorMap(dtype, shape, strides, box, steps, address=1 << 30, **more)


def loaded(m: TensorMap, start: tuple[int, ...], *, room: int = 0, **more: Any) -> np.ndarray[Any, Any]:
    """Shared memory after a load of numbered elements into zeros, as elements."""
    memory = numbered(m.dtype, 1 << 16)
    image = np.zeros(room or tma.room(m), dtype=np.uint8)
    return tma.load(m, memory, start, image, 0, **more).view(f"u{SIZES[m.dtype]}")


def test_a_box_lies_row_by_row() -> None:
    """The coordinates are innermost first: column 8, row 3."""
    found = loaded(tensor((10, 32), (2, 8)), (8, 3)).reshape(2, 8)
    np.testing.assert_array_equal(found, np.arange(2)[:, None] * 32 + np.arange(8) + 3 * 32 + 8 + 1)


def test_elements_outside_are_filled_on_every_side() -> None:
    """Zeros, or the NaN that an H200 wrote: 7ff7 in each 16 bits."""
    m = tensor((4, 16), (6, 24), oob="nan")
    found = loaded(m, (-8, -1)).reshape(6, 24)
    assert (found[0] == 0x7FF7).all()
    assert (found[5] == 0x7FF7).all()
    assert (found[:, :8] == 0x7FF7).all()
    np.testing.assert_array_equal(found[1:5, 8:].ravel(), np.arange(1, 65))
    assert not loaded(dataclasses.replace(m, oob="zero"), (-8, -1)).reshape(6, 24)[0].any()
    wide = tensor((4, 8), (4, 8), "f32", oob="nan")
    assert set(loaded(wide, (8, 0)).tolist()) == {0x7FF77FF7}


def test_the_barrier_counts_the_whole_box() -> None:
    """Elements outside the tensor included: 64 x 64, of which 36 x 36 lie inside."""
    m = tensor((100, 100), (64, 64), "f32")
    assert tma.box_bytes(m) == 64 * 64 * 4
    assert tma.inside_bytes(m, (64, 64)) == 36 * 36 * 4


@pytest.mark.parametrize("mode", list(SPANS))
def test_a_swizzle_is_the_xor_of_its_mode_at_every_byte(mode: str) -> None:
    """TMA's modes are those of the layout algebra, on addresses."""
    span = SPANS[mode] or 128
    m = tensor((8192 // span, span), (8192 // span, span), "u8", swizzle=mode)
    linear = np.arange(8192, dtype=np.int64)
    expected = Swizzle(*MODES[mode])(linear)
    np.testing.assert_array_equal(tma.places(m, 0).ravel(), expected)


@pytest.mark.parametrize(
    ("mode", "base", "moved", "of"),
    [
        ("128B", 128, 64, 64), ("128B", 256, 64, 64), ("128B", 512, 64, 64), ("128B", 1024, 0, 64),
        ("64B", 128, 32, 32), ("64B", 256, 32, 32), ("64B", 512, 0, 32), ("32B", 128, 16, 16),
        ("32B", 256, 0, 16),
    ],
)  # fmt: skip
def test_the_swizzle_takes_the_bits_of_the_address(mode: str, base: int, moved: int, of: int) -> None:
    """A box in the middle of the pattern is permuted; from 1024, 512 and 256 on it is not."""
    m = tensor((64, 64), (8, SPANS[mode] // 2), swizzle=mode)
    assert tma.moved_chunks(m, base) == (moved, of)


def test_short_rows_under_a_swizzle_are_as_far_apart_as_the_span() -> None:
    """And the rest of the span is left alone and not counted."""
    m = tensor((8, 64), (8, 8), swizzle="64B")
    assert (tma.room(m), tma.box_bytes(m)) == (8 * 64, 8 * 16)
    found = loaded(m, (0, 0)).reshape(8, 4, 8)[:, :, 0]  # first elements of the four chunks of each row
    for row, chunks_of_row in enumerate(found.tolist()):
        expected = [0] * 4
        expected[row // 2] = row * 64 + 1
        assert chunks_of_row == expected


def test_element_strides_thin_the_box_out_and_not_its_rows() -> None:
    """ceil(7 / 3) rows; the innermost stride does nothing without interleave."""
    m = tensor((20, 16), (7, 16), element_strides=(3, 2))
    assert tma.counts(m) == (3, 16)
    np.testing.assert_array_equal(loaded(m, (0, 2)).reshape(3, 16)[:, 0], np.array([2, 5, 8]) * 16 + 1)


@pytest.mark.parametrize(
    ("dtype", "columns", "beyond"), [("u8", 466, 14), ("u16", 470, 2), ("s32", 466, 2), ("f16", 464, 0)]
)
def test_a_store_clips_at_16_bytes(dtype: str, columns: int, beyond: int) -> None:
    """Into a parent of 512 columns filled with 7: what is overwritten behind the tensor."""
    size = SIZES[dtype]
    m = tensor((32, columns), (8, 128), dtype, strides=(512 * size,))
    parent = np.full(32 * 512 * size, 7, dtype=np.uint8)
    image = np.full(tma.room(m), 9, dtype=np.uint8)
    after = tma.store(m, parent, (384, 28), image, 0).reshape(32, 512, size)[:, :, 0]
    assert (after[28:, 384:columns] == 9).all()
    assert (after[28:, columns:] == 9).sum() == 4 * beyond
    assert (after[:28] == 7).all()


@pytest.mark.parametrize(
    ("start", "legal"), [((8, 0), True), ((-8, -3), True), ((4, 0), False), ((-5, 0), False)]
)
def test_rows_begin_at_16_bytes(start: tuple[int, ...], legal: bool) -> None:
    """An H200 took others for an illegal instruction, in loads too."""
    m = tensor((64, 64), (8, 8))
    if legal:
        tma.check_start(m, start, store=False)
    else:
        with pytest.raises(UsageError, match="legal: multiples of 16 B, so of 8 f16 elements, below 0 too"):
            tma.check_start(m, start, store=False)


@pytest.mark.parametrize("start", [(-16, 0), (0, -3)])
def test_a_store_begins_inside(start: tuple[int, ...]) -> None:
    """Below 0 an H200 ended the kernel."""
    with pytest.raises(UsageError, match="legal: 0 and more"):
        tma.check_start(tensor((64, 64), (8, 8)), start, store=True)


def test_tf32_is_rounded_on_its_way_in() -> None:
    """To nearest even, NaN to 7fffe000, infinities kept; subnormal numbers too, ftz in the name or not."""
    given = np.array([0x3F800FFF, 0x3F801000, 0x3F803000, 0x7F7FFFFF, 0xFF800000, 0xFFC12345, 0x00001001, 1])
    wanted = [0x3F800000, 0x3F800000, 0x3F804000, 0x7F800000, 0xFF800000, 0x7FFFE000, 0x00002000, 0]
    for dtype in ("tf32", "tf32_ftz"):
        m = tensor((1, 8), (1, 8), dtype)
        memory = given.astype(np.uint32).view(np.uint8)
        found = tma.load(m, memory, (0, 0), np.zeros(32, dtype=np.uint8), 0)
        assert found.view(np.uint32).tolist() == wanted


SLICED = (5, 6, 64)
"""An interleaved tensor as an H200 was given it: rows of 224 bytes, 6 of them an image of 1344."""


def runs(m: TensorMap, start: tuple[int, ...]) -> list[tuple[int, str | int, int]]:
    """Where in shared memory runs begin, which byte of the tensor each comes from (or "fill"), how long."""
    where, inside = tma.elements(m, start)
    unit = tma.unit_bytes(m)
    found: list[tuple[int, str | int, int]] = []
    for i, (offset, ok) in enumerate(zip(where.ravel().tolist(), inside.ravel().tolist(), strict=True)):
        source = offset if ok else "fill"
        if found and (
            source == found[-1][1] == "fill"
            or (ok and found[-1][1] != "fill" and int(found[-1][1]) + found[-1][2] == offset)
        ):
            found[-1] = (*found[-1][:2], found[-1][2] + unit)
        else:
            found.append((i * unit, source, unit))
    return found


@pytest.mark.parametrize(
    ("interleave", "box", "start", "steps", "measured"),
    [
        ("16B", (1, 1, 8), (0, 0, 0), (1, 1, 1), [(0, 0, 128)]),
        ("16B", (1, 32, 8), (0, 0, 0), (1, 1, 1), [(0, 0, 128)]),
        ("16B", (3, 1, 8), (0, 0, 0), (1, 1, 1), [(0, 0, 128), (128, 1344, 128), (256, 2688, 128)]),
        ("16B", (1, 8, 8), (1, 0, 0), (1, 1, 1), [(0, 16, 128)]),
        ("16B", (1, 8, 8), (0, 8, 0), (1, 1, 1), [(0, "fill", 128)]),
        ("16B", (1, 8, 8), (3, 3, 2), (1, 1, 1), [(0, 3408, 128)]),
        ("16B", (2, 16, 8), (-1, 0, 0), (1, 1, 1),
         [(0, "fill", 16), (16, 0, 112), (128, "fill", 16), (144, 1344, 112)]),
        ("16B", (2, 16, 8), (60, 0, 0), (1, 1, 1),
         [(0, 960, 64), (64, "fill", 64), (128, 2304, 64), (192, "fill", 64)]),
        ("16B", (2, 16, 8), (0, 0, 4), (1, 1, 1), [(0, 5376, 128), (128, "fill", 128)]),
        ("16B", (2, 16, 16), (0, 0, 0), (1, 2, 1), [(0, 0, 256), (256, 1344, 256)]),
        ("16B", (2, 16, 16), (0, 0, 0), (2, 1, 1), [(0, 0, 256)]),
        ("16B", (1, 16, 5), (0, 0, 0), (1, 1, 3), [(0, 0, 16), (16, 48, 16)]),
        ("32B", (2, 1, 8), (0, 0, 0), (1, 1, 1), [(0, 0, 256), (256, 1344, 256)]),
        ("32B", (1, 8, 8), (3, 3, 2), (1, 1, 1), [(0, 3456, 256)]),
        ("32B", (2, 16, 8), (60, 0, 0), (1, 1, 1),
         [(0, 1920, 128), (128, "fill", 128), (256, 3264, 128), (384, "fill", 128)]),
    ],
)  # fmt: skip
def test_interleaved_tensors_move_slices(
    interleave: str,
    box: tuple[int, ...],
    start: tuple[int, ...],
    steps: tuple[int, ...],
    measured: list[tuple[int, str | int, int]],
) -> None:
    """As an H200 did: dimension 0 in slices, one of the second outermost dimension, its bytes counted."""
    m = tensor(SLICED, box, strides=(1344, 224), element_strides=steps, interleave=interleave)
    assert runs(m, start) == measured
    assert tma.box_bytes(m) == sum(length for *_, length in measured)


def test_interleaved_tensors_of_four_dimensions() -> None:
    """The third dimension is the one that is taken once: 2 images of 8 rows, of which 3 lie inside."""
    m = tensor((2, 3, 4, 64), (2, 2, 8, 8), strides=(2688, 896, 224), interleave="16B")
    rows: list[tuple[int, str | int, int]] = [(0, 1136, 128), (128, 1360, 128), (256, 1584, 128)]
    more: list[tuple[int, str | int, int]] = [(1024, 3824, 128), (1152, 4048, 128), (1280, 4272, 128)]
    assert runs(m, (1, 1, 1, 0)) == [*rows, (384, "fill", 640), *more, (1408, "fill", 640)]


def pixels(found: np.ndarray[Any, Any], shape: tuple[int, ...], channels: int) -> list[Any]:
    """The (image, row, column) that each pixel of a column comes from, or None for a fill."""
    first = found.reshape(-1, channels)[:, 0].astype(int)
    return [
        None if each == 0x7FF7 else tuple(int(i) for i in np.unravel_index(each - 1, shape)[:-1])
        for each in first
    ]


def test_an_im2col_column_goes_through_the_bounding_box() -> None:
    """Strides keep the start's phase until a dimension begins anew; offsets are added at the end."""
    shape = (2, 6, 7, 32)
    m = tensor(shape, (9, 16), element_strides=(1, 2, 3, 1), oob="nan", corners=Corners((-1, -1), (1, 1)))
    found = loaded(m, (0, 0, 1, 0), offsets=(0, 1))
    row2 = [(0, 2, 0), (0, 2, 3), (0, 2, 6)]
    row4 = [None, (0, 4, 2), (0, 4, 5)]  # column -1 lies in the box, and outside the tensor
    assert pixels(found, shape, 16) == [*row2, *row4, None, None, None]


def test_an_im2col_column_begins_in_the_bounding_box() -> None:
    """An H200 took others for an illegal instruction."""
    m = tensor((2, 6, 7, 32), (24, 16), corners=Corners((-1, -1), (-1, -1)))
    tma.check_start(m, (0, 5, -1, 0), store=False)
    for start, dimension in (((0, 6, 0, 0), 1), ((0, 0, -2, 0), 2)):
        with pytest.raises(
            UsageError, match=f"of dimension {dimension} lies outside the bounding box; legal: -1 to"
        ):
            tma.check_start(m, start, store=False)


def test_chunks_are_told_from_what_lies_there() -> None:
    """Row, chunk and address of each; those outside the tensor have neither."""
    m = tensor((4, 32), (4, 64), swizzle="128B")
    memory = numbered("f16", 256)
    image = tma.load(m, memory, (0, 2), np.full(512, 0xA5, dtype=np.uint8), 0)
    found = chunks(m, image, 0, memory, (0, 2), ())
    assert found[0] == Chunk(0, 0, 0)
    assert Chunk(128 + 16, 1, 0) in found
    assert [each.row for each in found if each.address >= 256] == [None] * 16


def test_numbers_tell_elements_apart() -> None:
    """No 16 bytes of a tensor are like others, of any type; a reduction's operands differ, too."""
    for dtype in SIZES:
        lines = numbered(dtype, 4096).reshape(-1, 16)
        assert len({each.tobytes() for each in lines}) == len(lines)
    for dtype in ("u32", "s64", "f16", "bf16", "f32"):
        first, second = (operands(dtype, 256, series) for series in (1, 2))
        assert (first != second).any()
