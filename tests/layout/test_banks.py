"""The bank model: wavefronts of shared-memory accesses, against values measured or argued elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxlab.errors import UsageError
from ptxlab.layout.banks import ACCESSES, OFF, Access, access, conflicts, count, wavefronts
from ptxlab.layout.patterns import patterns

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
    """A phase takes one wavefront at least, one a lane at most, and joined phases one in all."""
    kind = access(name)
    found = wavefronts(kind, [slot * kind.bytes_per_lane for slot in slots])
    assert sorted(lane for group in found.groups for lane in group) == list(range(kind.lanes))
    assert all(1 <= phase <= kind.lanes_per_phase for phase in found.phases)
    assert found.merged == (kind.joins and len(found.phases) < kind.ideal)


@pytest.mark.parametrize("name", sorted(ACCESSES))
def test_many_at_once_are_the_same_as_one_by_one(name: str) -> None:
    """The array form and the form for a single instruction agree, predicated-off lanes included."""
    kind = access(name)
    many = patterns(kind, 200, seed=1)
    one_by_one = [
        wavefronts(kind, [None if each == OFF else each for each in lanes]).wavefronts
        for lanes in many.tolist()
    ]
    assert count(kind, many).tolist() == one_by_one


@pytest.mark.parametrize("name", [name for name, kind in ACCESSES.items() if not kind.by_line])
def test_conflicts_are_those_of_the_phases(name: str) -> None:
    """All above one wavefront a phase, lanes off and phases joined included; the array form agrees."""
    kind = access(name)
    many = patterns(kind, 200, seed=2)
    for lanes, number in zip(many.tolist(), conflicts(kind, many).tolist(), strict=True):
        found = wavefronts(kind, [None if each == OFF else each for each in lanes])
        assert number == found.conflicts == sum(phase - 1 for phase in found.phases if phase)
        assert found.least == found.wavefronts - found.conflicts


@pytest.mark.parametrize(
    ("name", "addresses", "expected"),
    [
        ("128", [lane * 64 if lane < 8 else None for lane in LANES], (4, 4, 3)),  # one phase, 4-way
        ("64", [lane * 128 if lane < 2 else None for lane in LANES], (2, 2, 1)),
        ("128", [(lane >= 16) * (lane % 8) * (16 + 16 * (lane < 24)) for lane in LANES], (4, 4, 1)),
        ("128", [lane * 16 if lane < 8 else None for lane in LANES], (1, 4, 0)),
    ],
)
def test_a_phase_that_takes_none_makes_up_for_no_conflict(
    name: str, addresses: list[int | None], expected: tuple[int, int, int]
) -> None:
    """(wavefronts, those of full warps, conflicts) where lanes are off, or two phases are joined."""
    found = wavefronts(access(name), addresses)
    assert (found.wavefronts, found.ideal, found.conflicts) == expected


def plainly(kind: Access, lanes: list[int], size: int) -> int:
    """Count wavefronts as the words say it: the words of each bank, phase after phase."""
    if kind.by_line:
        return line_by_line(lanes)
    total = 0
    for first in range(0, kind.lanes, size):
        on = [address for address in lanes[first : first + size] if address != OFF]
        words = [address // 4 + i for address in on for i in range(kind.bytes_per_lane // 4)]
        distinct = set(words) if kind.shares else words
        total += max([sum(word % 32 == bank for word in distinct) for bank in range(32)])
    return total


def line_by_line(lanes: list[int]) -> int:
    """Count the kinds of sectors in each line: whole, first half alone, second half alone."""
    chunks = {address // 16 for address in lanes if address != OFF}
    kinds = {
        (sector // 4, 2 * sector in chunks, 2 * sector + 1 in chunks) for sector in {c // 2 for c in chunks}
    }
    return len(kinds)


@pytest.mark.parametrize("name", [name for name, kind in ACCESSES.items() if not kind.joins])
def test_each_class_against_plain_counting(name: str) -> None:
    """Every random pattern, of every kind, against a loop that anyone can read."""
    kind = access(name)
    many = patterns(kind, 240)
    assert count(kind, many).tolist() == [plainly(kind, each, kind.lanes_per_phase) for each in many.tolist()]


@pytest.mark.parametrize(
    ("name", "addresses", "expected"),
    [
        ("64", [lane // 2 * 8 for lane in LANES], 1),
        ("64", [lane % 16 * 8 for lane in LANES], 1),
        ("64", [(lane & ~2) * 8 for lane in LANES], 2),  # 32 lanes share, but 256 bytes apart
        ("64", [lane // 2 * 128 for lane in LANES], 16),  # not with conflicts: each half takes 8
        ("128", [lane // 2 * 16 for lane in LANES], 2),
        ("128", [0 for _ in LANES], 2),
        ("st.64", [lane // 2 * 8 for lane in LANES], 2),
        ("st.128", [0 for _ in LANES], 4),
    ],
)
def test_loads_merge_below_the_floor_and_stores_do_not(
    name: str, addresses: list[int], expected: int
) -> None:
    """64-bit loads take 1 and 128-bit loads 2 wavefronts where neighbours read the same."""
    assert wavefronts(access(name), addresses).wavefronts == expected


TILES: dict[
    str, tuple[int, Callable[[Any, Any], Any]]
] = {  # rows of 64 or 128 bytes: where chunk c of row r lies in shared memory
    "64 plain": (64, lambda r, c: 64 * r + 16 * c),
    "64 swizzled": (64, lambda r, c: 64 * r + 16 * (c ^ r // 2 % 4)),
    "64 padded": (64, lambda r, c: 80 * r + 16 * c),
    "128 plain": (128, lambda r, c: 128 * r + 16 * c),
    "128 swizzled": (128, lambda r, c: 128 * r + 16 * (c ^ r)),
    "128 padded": (128, lambda r, c: 144 * r + 16 * c),
    "a column of 16 bytes": (128, lambda r, c: 128 * (8 * r + c)),
}


@pytest.mark.parametrize(
    ("tile", "apart", "expected"),
    [
        ("64 plain", 64, 4), ("64 plain", 4096, 8), ("64 plain", 4160, 8),
        ("64 swizzled", 64, 4), ("64 swizzled", 4096, 8), ("64 swizzled", 4160, 8),
        ("64 padded", 64, 15), ("64 padded", 4096, 15), ("64 padded", 4160, 15),
        ("128 plain", 64, 6), ("128 plain", 4096, 4), ("128 plain", 4160, 6),
        ("128 swizzled", 64, 6), ("128 swizzled", 4096, 4), ("128 swizzled", 4160, 6),
        ("128 padded", 64, 13), ("128 padded", 4096, 10), ("128 padded", 4160, 13),
        ("a column of 16 bytes", 4096, 32),
    ],
)  # fmt: skip
def test_rows_of_a_matrix_that_cp_async_copies(tile: str, apart: int, expected: int) -> None:
    """Wavefronts of one cp.async.cg that an H200 counted (2026-11-30): a swizzle is free, padding is not.

    ``apart`` is the distance of two rows in global memory, in bytes.
    """
    width, place = TILES[tile]
    row, chunk = np.divmod(np.arange(32), width // 16)
    assert count(access("cp.async.16"), place(row, chunk)[None], (apart * row + 16 * chunk)[None]) == expected


@pytest.mark.parametrize("name", ["32", "64", "128", "st.128", "cp.async.16", "ldmatrix.x4"])
def test_ten_thousand_patterns_take_two_seconds(name: str) -> None:
    """No loop over lanes or patterns; four times the limit, for machines that are busy."""
    many = patterns(access(name), 10_000)
    start = time.perf_counter()
    count(access(name), many)
    assert time.perf_counter() - start < 4 * 2.0


def test_trans_and_direction_in_names() -> None:
    """.trans changes no address, --op st chooses the stores, and what contradicts is refused."""
    assert access("ldmatrix.x2.trans") == access("ldmatrix.x2")
    assert access("64", "st").name == "st.64"
    assert access("cp.async.8", "st").opcode == "LDGSTS"
    with pytest.raises(UsageError, match=r"stmatrix\.x1 stores to shared memory; legal: --op st"):
        access("stmatrix.x1", "ld")


def test_unknown_access() -> None:
    """The refusal holds the names."""
    with pytest.raises(UsageError, match=r"legal: 32, 64, 128, ldmatrix\.x1"):
        access("ldmatrix.x3")
