"""Swizzles: the XOR, its units, and the solver's answers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxlab.errors import UsageError
from ptxlab.layout.banks import access
from ptxlab.layout.solver import Pass, Traffic, candidates, fitting_mode, least_padding, plain, solve
from ptxlab.layout.swizzle import MODES, Swizzle, parse_swizzle

swizzles = st.builds(
    lambda bits, base, extra: Swizzle(bits, base, bits + extra),
    st.integers(0, 4),
    st.integers(0, 6),
    st.integers(0, 3),
)


@given(swizzles)
def test_is_its_own_inverse(swizzle: Swizzle) -> None:
    """An XOR applied twice moves nothing, and one period maps onto itself."""
    offsets = np.arange(4 * swizzle.period, dtype=np.int64)
    assert np.array_equal(swizzle(swizzle(offsets)), offsets)
    assert np.array_equal(np.sort(swizzle(offsets[: swizzle.period])), offsets[: swizzle.period])


@pytest.mark.parametrize(("mode", "mask"), [("32B", 0x10), ("64B", 0x30), ("128B", 0x70)])
def test_modes_are_the_hardware_xor(mode: str, mask: int) -> None:
    """A TMA mode XORs address bits 4 and up with the bits three above, for every offset of 8 KB."""
    swizzle = Swizzle(*MODES[mode])
    for offset in range(8192):
        assert swizzle(offset) == offset ^ ((offset >> 3) & mask)


def test_32_byte_mode_looks_unswizzled_at_first() -> None:
    """Rows of 32 bytes: 0 to 3 stay as they are, 4 to 7 exchange their two chunks."""
    swizzle = Swizzle(*MODES["32B"])
    chunks = [[swizzle(row * 32 + chunk * 16) % 32 // 16 for chunk in (0, 1)] for row in range(8)]
    assert chunks == [[0, 1]] * 4 + [[1, 0]] * 4


@pytest.mark.parametrize(
    ("bits", "elements"), [(16, (3, 3, 3)), (32, (3, 2, 3)), (8, (3, 4, 3)), (1, (3, 7, 3))]
)
def test_units(bits: int, elements: tuple[int, int, int]) -> None:
    """The 128-byte mode in elements of each size, and back."""
    assert Swizzle(*MODES["128B"]).rescaled(8, bits).parameters == elements
    assert parse_swizzle(",".join(map(str, elements)), bits) == Swizzle(*MODES["128B"])


@pytest.mark.parametrize(
    "text",
    ["3,3", "a,b,c", "256B", "", "3,3,3,3", "-1,3,3", "\u00b2,3,3", "9999,3,3", "<<<3,3,3>", "<3,3,3",
     "3,3,3>", "Sw3,3,3", "Sw<3,3,3", "swizzle<3,3,3>"],
)  # fmt: skip
def test_nonsense_is_refused(text: str) -> None:
    """The refusal holds the modes."""
    with pytest.raises(UsageError, match="legal: none, 32B, 64B, 128B"):
        parse_swizzle(text, 16)


@pytest.mark.parametrize("text", ["3,3,3", " 3, 3, 3 ", "<3,3,3>", "Sw<3,3,3>", "Swizzle<3,3,3>"])
def test_the_tool_s_own_spellings_are_read(text: str) -> None:
    """As answers and CuTe write them; brackets come in pairs."""
    assert parse_swizzle(text, 16) == Swizzle(*MODES["128B"])


@pytest.mark.parametrize("numbers", [(60, 60, 60), (3, 62, 3), (1, 3, 40)])
def test_bits_that_no_offset_has_are_refused(numbers: tuple[int, int, int]) -> None:
    """Numpy's integers would overflow; the largest legal sums are named."""
    with pytest.raises(UsageError, match=r"legal: B \+ M and M \+ S up to 40"):
        Swizzle(*numbers)
    assert Swizzle(3, 30, 10)(np.array([1 << 40]))[0] == (1 << 40) + (1 << 30)


def test_bits_must_not_overlap() -> None:
    """S below B would read the bits that the XOR changes."""
    with pytest.raises(UsageError, match="S >= B"):
        Swizzle(3, 3, 2)


def ldmatrix_reads(columns: int, rows: int = 16) -> Traffic:
    """One ldmatrix.x1 for each 8x8 matrix of a row-major tile of halves."""
    row_bytes = 2 * columns
    instructions = tuple(
        tuple((row + q) * row_bytes + col for q in range(8))
        for row in range(0, rows, 8)
        for col in range(0, row_bytes, 16)
    )
    return Traffic(rows, row_bytes, (Pass(access("ldmatrix.x1"), np.array(instructions)),))


@pytest.mark.parametrize(
    ("columns", "elements"),
    [
        (8, (0, 0, 0)),
        (16, (1, 3, 3)),
        (32, (2, 3, 3)),
        (64, (3, 3, 3)),
        (72, (0, 0, 0)),
        (128, (3, 3, 4)),
    ],
)
def test_smallest_clean_swizzle(columns: int, elements: tuple[int, int, int]) -> None:
    """Least B, then M, then S."""
    reads = ldmatrix_reads(columns)
    found = solve(reads)
    assert found is not None
    assert reads.cost(found) == reads.ideal
    assert (found.rescaled(8, 16) if found.bits else found).parameters == elements


@pytest.mark.parametrize(
    ("elements", "per_matrix"),
    [("1,3,3", (1, 2, 4, 8)), ("2,3,3", (1, 1, 2, 4)), ("3,3,3", (1, 1, 1, 2)), ("3,3,4", (2, 2, 2, 1)),
     ("2,3,4", (2, 2, 2, 2))],
)  # fmt: skip
def test_cost_of_given_swizzles(elements: str, per_matrix: tuple[int, ...]) -> None:
    """Wavefronts of each 8x8 matrix on tiles of 16, 32, 64 and 128 columns of halves."""
    swizzle = parse_swizzle(elements, 16)
    for columns, expected in zip((16, 32, 64, 128), per_matrix, strict=True):
        reads = ldmatrix_reads(columns)
        assert reads.cost(swizzle) == expected * reads.ideal


def test_the_tile_of_the_tutorials() -> None:
    """16x64 halves read by ldmatrix: 112 conflicts as they lie, none with the solved swizzle."""
    reads = ldmatrix_reads(64)
    found = solve(reads)
    assert found is not None
    assert reads.cost(plain) - reads.ideal == 112
    assert reads.cost(found) - reads.ideal == 0


def test_padding_of_one_vector() -> None:
    """One 16-byte vector after each row cleans a tile whose rows are a multiple of 128 bytes."""
    assert least_padding(ldmatrix_reads(64), 16) == 16


def test_no_instruction_makes_up_for_another() -> None:
    """Two loads of 64 bits whose phases are joined save two wavefronts, and a third has its conflicts."""
    lane = np.arange(32)
    joined, meeting = lane // 2 * 8, lane % 16 * 8 + lane % 16 // 15 * 8
    loads = Pass(access("64"), np.stack([joined, joined, meeting]))
    assert (loads.cost(plain), loads.ideal) == (1 + 1 + 4, 2 + 2 + 2)
    assert loads.conflicts(plain).tolist() == [0, 0, 2]
    assert not loads.is_clean(plain)
    apart = Pass(access("128"), ((lane >= 16) * (lane % 8) * (16 + 16 * (lane < 24)))[None])
    assert (apart.cost(plain), apart.ideal, apart.conflicts(plain).tolist()) == (4, 4, [1])
    assert not apart.is_clean(plain)


@pytest.mark.parametrize(("mode", "span"), [("32B", 32), ("64B", 64), ("128B", 128)])
def test_rows_of_a_mode_are_as_long_as_its_span(mode: str, span: int) -> None:
    """Wider rows do not fit its box, and narrower ones would lie a span apart."""
    swizzle = Swizzle(*MODES[mode])
    assert [row for row in range(16, 272, 16) if fitting_mode(swizzle, row) == mode] == [span]


@pytest.mark.parametrize("mode", ["32B", "64B", "128B"])
def test_panels_hold_the_tile(mode: str) -> None:
    """Every byte once, a span of all rows in each panel, 16 bytes together, and swizzled inside it."""
    tile = Traffic(12, 256, ())
    span, size = int(mode.removesuffix("B")), tile.panel_bytes(mode)
    assert size % Swizzle(*MODES[mode]).period == 0
    placed = tile.panelled(mode)(np.arange(tile.nbytes))
    assert len(np.unique(placed)) == tile.nbytes
    for row, byte in ((0, 0), (5, 100), (11, 255), (8, 64)):
        panel, inner = divmod(byte, span)
        at = row * span + inner
        assert placed[row * 256 + byte] == panel * size + Swizzle(*MODES[mode])(at)


def test_candidates_keep_vectors_whole_and_inside() -> None:
    """No candidate splits 16 bytes or leaves the tile."""
    reads = ldmatrix_reads(24)
    for swizzle in candidates(reads):
        assert swizzle.base >= 4
        assert {swizzle(offset) for offset in range(reads.nbytes)} == set(range(reads.nbytes))


@pytest.mark.parametrize(
    ("mode", "base", "moved"),
    [("128B", 128, 64), ("128B", 256, 64), ("128B", 512, 64), ("128B", 1024, 0), ("64B", 128, 32),
     ("64B", 256, 32), ("64B", 512, 0), ("32B", 128, 16), ("32B", 256, 0)],
)  # fmt: skip
def test_the_base_must_be_a_multiple_of_the_period(mode: str, base: int, moved: int) -> None:
    """The XOR uses address bits: from another base, chunks of an atom of 8 rows lie elsewhere."""
    swizzle = Swizzle(*MODES[mode])
    assert (base % swizzle.period == 0) == (moved == 0)
    chunks = np.arange(0, 8 * int(mode.removesuffix("B")), 16, dtype=np.int64)
    assert int((swizzle(base + chunks) - base != swizzle(chunks)).sum()) == moved


@given(swizzles)
def test_the_expression_in_c_is_the_swizzle(swizzle: Swizzle) -> None:
    """What --emit prints, evaluated: the same offsets, over four periods."""
    offset = np.arange(4 * swizzle.period, dtype=np.int64)
    text = swizzle.expression.replace("u)", ")")
    assert np.array_equal(eval(text, {"offset": offset}), swizzle(offset))  # noqa: S307 - made above
