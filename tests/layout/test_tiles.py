"""Tiles in shared memory, coordinates as data, and what a lane-to-address map selects."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxlab.errors import UsageError
from ptxlab.layout.coordinates import Coordinates
from ptxlab.layout.swizzle import MODES, Swizzle
from ptxlab.layout.tile import Tile, selection, spans

PLAIN = Swizzle(*MODES["none"])


@given(st.integers(1, 24), st.integers(1, 9), st.integers(0, 3), st.sampled_from(sorted(MODES)))
def test_every_chunk_is_found_where_it_was_put(rows: int, chunks: int, gap: int, mode: str) -> None:
    """Offset and chunk_at are inverse, and the image holds every row's bytes."""
    tile = Tile(rows, chunks * 16, (chunks + gap) * 16, Swizzle(*MODES[mode]))
    content = np.random.default_rng(0).integers(0, 255, (rows, chunks * 16), dtype=np.uint8)
    image = tile.image(content, filler=255)
    for row in range(rows):
        for chunk in range(chunks):
            offset = tile.offset(row, chunk)
            assert tile.chunk_at(offset) == (row, chunk)
            assert np.array_equal(image[offset : offset + 16], content[row, chunk * 16 : chunk * 16 + 16])
    assert int((image != 255).sum()) == int((content != 255).sum())


@pytest.mark.parametrize(
    ("row_bytes", "pitch", "swizzle", "words"),
    [(24, 32, PLAIN, "multiples of 16"), (32, 24, PLAIN, "pitch of 24"), (32, 16, PLAIN, "pitch of 16"),
     (32, 32, Swizzle(1, 3, 3), "splits 16-byte chunks")],
)  # fmt: skip
def test_impossible_tiles(row_bytes: int, pitch: int, swizzle: Swizzle, words: str) -> None:
    """A tile that hardware cannot read in 16-byte pieces is refused."""
    with pytest.raises(UsageError, match=words):
        Tile(8, row_bytes, pitch, swizzle)


@given(st.integers(1, 40), st.integers(1, 5), st.sampled_from([4, 6, 8, 16, 32]))
def test_coordinates_survive_packing(rows: int, chunks: int, width: int) -> None:
    """What the planes show, joined, is every element's own row and column, all different."""
    per_chunk = 16 if width in (4, 6) else 128 // width
    code = Coordinates(rows, chunks * per_chunk, width)
    planes = []
    for plane in range(code.planes):
        packed = code.packed(plane, per_chunk).reshape(rows, chunks, 16)
        bits = np.unpackbits(packed, axis=2, bitorder="little")[..., : per_chunk * width]
        digits = bits.reshape(rows, chunks * per_chunk, width).astype(np.int64) @ (1 << np.arange(width))
        planes.append(digits)
    codes = code.joined(planes)
    assert len(np.unique(codes)) == codes.size
    assert all(code.place(int(codes[r, c])) == (r, c) for r, c in np.ndindex(codes.shape))
    assert codes.max() < (1 << (code.planes * width)) - 1, "all bits set is kept for padding"


def test_selection_finds_what_is_missing() -> None:
    """Rows 8 to 15 never read, rows 0 to 7 read twice: the sub-matrix origin was computed wrongly."""
    meant = [(row, 0) for row in range(16)]
    chosen = selection(meant, [(row % 8, 0) for row in range(16)])
    assert spans(row for row, _ in chosen.missing) == "8-15"
    assert spans(row for row, _ in chosen.duplicated) == "0-7"
    assert chosen.mistaken


def test_a_permutation_is_no_mistake() -> None:
    """Another order of the same rows is reported as moved, and padding as padding."""
    meant = [(0, 0), (1, 0), (2, 0)]
    swapped = selection(meant, [(1, 0), (0, 0), (2, 0)])
    assert not swapped.mistaken
    assert swapped.moved == [(0, (0, 0), (1, 0)), (1, (1, 0), (0, 0))]
    assert selection(meant, [(0, 0), None, (2, 0)]).padding == [1]


def test_spans() -> None:
    """Ranges read as people write them."""
    assert spans([3, 1, 2, 7, 9, 10]) == "1-3, 7, 9-10"
    assert spans([]) == ""
