"""The bank model: wavefronts of shared-memory accesses, against values measured or argued elsewhere."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxlab.errors import UsageError
from ptxlab.layout.banks import ACCESSES, access, wavefronts

LANES = range(32)


@pytest.mark.parametrize(
    ("name", "addresses", "expected"),
    [
        ("32", [lane * 4 for lane in LANES], (1, 1)),
        ("32", [0 for _ in LANES], (1, 1)),  # one word for all: broadcast
        ("32", [lane * 128 for lane in LANES], (32, 1)),
        ("32", [lane * 132 for lane in LANES], (1, 1)),  # a column of a tile padded by one word
        ("64", [lane * 8 for lane in LANES], (2, 2)),
        ("128", [lane * 16 for lane in LANES], (4, 4)),  # four phases are not conflicts
        ("128", [lane * 128 for lane in LANES], (32, 4)),
    ],
)
def test_known_patterns(name: str, addresses: list[int], expected: tuple[int, int]) -> None:
    """(wavefronts, ideal) of accesses whose cost is known."""
    found = wavefronts(access(name), addresses)
    assert (found.wavefronts, found.ideal) == expected
    assert found.conflicts == found.wavefronts - found.ideal


@pytest.mark.parametrize(
    ("columns", "expected"),
    [(8, 4), (16, 8), (24, 4), (32, 16), (40, 4), (48, 8), (64, 32), (72, 4), (80, 8), (96, 16), (128, 32),
     (136, 4), (256, 32), (264, 4)],
)  # fmt: skip
def test_ldmatrix_x4_by_row_length(columns: int, expected: int) -> None:
    """Wavefronts of one x4 on a row-major tile of halves: the row length decides."""
    rows = [row * columns * 2 for row in range(8)]
    assert wavefronts(access("ldmatrix.x4"), rows * 4).wavefronts == expected


def test_lanes_that_are_off_cost_nothing() -> None:
    """A phase of predicated-off lanes takes no wavefront, and one lane takes one."""
    nobody: list[int | None] = [None] * 32
    assert wavefronts(access("128"), nobody).wavefronts == 0
    assert wavefronts(access("128"), [0, *nobody[1:]]).phases == (1, 0, 0, 0)


@given(st.sampled_from(sorted(ACCESSES)), st.lists(st.integers(0, 255), min_size=32, max_size=32))
def test_bounds(name: str, slots: list[int]) -> None:
    """A phase takes one wavefront at least, one a lane at most, and the order of its lanes is nothing."""
    kind = access(name)
    addresses = [slot * kind.bytes_per_lane for slot in slots]
    found = wavefronts(kind, addresses)
    assert len(found.phases) == kind.ideal
    assert all(1 <= phase <= kind.lanes_per_phase for phase in found.phases)
    size = kind.lanes_per_phase
    reversed_phases = [a for i in range(0, 32, size) for a in reversed(addresses[i : i + size])]
    assert wavefronts(kind, reversed_phases).phases == found.phases


def test_unknown_access() -> None:
    """The refusal holds the names."""
    with pytest.raises(UsageError, match=r"legal: 32, 64, 128, ldmatrix\.x1"):
        access("ldmatrix.x3")
