"""``ptxlab swizzle``: the smallest clean swizzle of a tile, and the judgement of a given one."""

from __future__ import annotations

import pytest

from ptxlab.errors import UsageError
from ptxlab.experiments.swizzle import check_record, padded_answer, solve_record
from ptxlab.layout.banks import access
from ptxlab.layout.solver import Reads, solve


def test_a_tile_of_tf32_read_by_words() -> None:
    """M-contiguous 32x8 tf32 as the A operand: 4 wavefronts a load, <3,2,3> 2, and <2,3,2> 1."""
    question = ("32x8", "tf32", "mma.A", "column")
    found = solve_record(*question).result
    assert found["swizzle"] == [2, 3, 2]
    assert (found["naive"]["wavefronts"], found["wavefronts"], found["ideal"]) == (32, 8, 8)
    given = check_record("3,2,3", *question)
    assert given.result["wavefronts"] == 2 * given.result["instructions"]
    assert given.exit_code == 1


def test_no_transpose_of_32_bit_elements() -> None:
    """The refusal names the way out."""
    with pytest.raises(UsageError, match="would tear 32-bit tf32 apart") as caught:
        solve_record("32x32", "tf32", "ldmatrix.x4.trans", "row")
    assert "32-bit ld.shared" in caught.value.hint


@pytest.mark.parametrize(("swizzle", "per_matrix"), [("none", 8), ("3,3,3", 2), ("3,3,4", 1), ("3,3,5", 2)])
def test_an_m_major_tile_read_with_trans(swizzle: str, per_matrix: int) -> None:
    """128x8 halves, M contiguous, ldmatrix.trans: <3,3,4> is the clean one."""
    found = check_record(swizzle, "128x8", "f16", "ldmatrix.x4.trans", "column").result
    assert found["wavefronts"] == per_matrix * found["ideal"]


@pytest.mark.parametrize(
    ("tile", "mode"),
    [("16x16", "32B"), ("16x32", "64B"), ("16x64", "128B"), ("64x48", None), ("16x128", None)],
)
def test_a_tma_mode_is_named_only_where_its_box_is_wide_enough(tile: str, mode: str | None) -> None:
    """A mode writes rows of at most 32, 64 or 128 bytes."""
    assert solve_record(tile, "f16", "ldmatrix.x4", "row").result["tma_mode"] == mode


def test_a_swizzle_that_tears_what_is_read_is_refused() -> None:
    """4,2,4 in halves moves 8 bytes at a time, and ldmatrix reads 16."""
    with pytest.raises(UsageError, match=r"tears the 16 bytes .* legal: M of at least 3 in f16 elements"):
        check_record("4,2,4", "64x128", "f16", "ldmatrix.x4", "row")
    with pytest.raises(UsageError, match="tears the 4 bytes"):
        check_record("1,0,5", "16x32", "f16", "mma.A", "row")


@pytest.mark.parametrize(("name", "padding"), [("32", 4), ("64", 8)])
def test_where_no_swizzle_helps_padding_is_the_answer(name: str, padding: int) -> None:
    """Down a column of 128-byte rows no swizzle of 16-byte vectors is clean; one element of padding is."""
    reads = Reads(access(name), (tuple(lane * 128 for lane in range(32)),), 128, 32)
    assert solve(reads) is None
    answer = padded_answer(reads)
    assert (answer["swizzle"], answer["padding"], answer["conflicts"]) == (None, padding, 0)
    assert (
        f"{padding} bytes of padding after each row do ({32 * padding} bytes in all)" in answer["conclusion"]
    )


@pytest.mark.parametrize(
    ("tile", "dtype", "how", "order", "words"),
    [("16x12", "f16", "ldmatrix.x4", "row", "multiples of 8 rows and of 16 bytes"),
     ("16x64", "f17", "ldmatrix.x4", "row", "unknown type 'f17'"),
     ("16x64", "f16", "ldmatrix", "row", "unknown access"),
     ("16x64", "f16", "ldmatrix.x4", "diagonal", "legal: row, column"),
     ("16", "f16", "mma.A", "row", "of the form RxC"),
     ("100000000x8", "f16", "ldmatrix.x4", "row", "legal: up to 232448 bytes"),
     ("64x64", "f16", "mma.B", "row", "narrower ones with k contiguous"),
     ("24x16", "f16", "mma.A", "row", "whole fragments")],
)  # fmt: skip
def test_bad_questions_name_the_legal_ones(tile: str, dtype: str, how: str, order: str, words: str) -> None:
    """One line, with the value and what would be legal."""
    with pytest.raises(UsageError, match=words):
        solve_record(tile, dtype, how, order)
