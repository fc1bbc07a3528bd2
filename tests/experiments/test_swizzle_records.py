"""``ptxlab swizzle``: the smallest clean swizzle of a tile, and the judgement of a given one."""

from __future__ import annotations

import time

import pytest

from ptxlab.errors import UsageError
from ptxlab.experiments.swizzle import check_record, convert_record, pad_record, question, solve_record
from ptxlab.toolchain.build import build_cuda


def test_a_tile_of_tf32_read_by_words() -> None:
    """M-contiguous 32x8 tf32 as the A operand: 4 wavefronts a load, <3,2,3> 2, and <2,3,2> 1."""
    asked = ("32x8", "tf32", ["mma.A"], "column")
    found = solve_record(*asked).result
    assert found["swizzle"] == [2, 3, 2]
    assert (found["naive"]["wavefronts"], found["wavefronts"], found["ideal"]) == (32, 8, 8)
    given = check_record("3,2,3", *asked)
    assert given.result["wavefronts"] == 2 * given.result["instructions"]
    assert given.exit_code == 1


def test_no_transpose_of_32_bit_elements() -> None:
    """The refusal names the way out."""
    with pytest.raises(UsageError, match="would tear 32-bit tf32 apart") as caught:
        solve_record("32x32", "tf32", ["ldmatrix.x4.trans"], "row")
    assert "32-bit ld.shared" in caught.value.hint


@pytest.mark.parametrize(("swizzle", "per_matrix"), [("none", 8), ("3,3,3", 2), ("3,3,4", 1), ("3,3,5", 2)])
def test_an_m_major_tile_read_with_trans(swizzle: str, per_matrix: int) -> None:
    """128x8 halves, M contiguous, ldmatrix.trans: <3,3,4> is the clean one."""
    found = check_record(swizzle, "128x8", "f16", ["ldmatrix.x4.trans"], "column").result
    assert found["wavefronts"] == per_matrix * found["ideal"]


@pytest.mark.parametrize(
    ("tile", "mode"),
    [("16x16", "32B"), ("16x32", "64B"), ("16x64", "128B"), ("64x48", None), ("16x128", None)],
)
def test_a_tma_mode_is_named_only_where_its_box_is_wide_enough(tile: str, mode: str | None) -> None:
    """A mode writes rows of at most 32, 64 or 128 bytes."""
    assert solve_record(tile, "f16", ["ldmatrix.x4"], "row").result["tma_mode"] == mode


def test_a_swizzle_that_tears_what_is_read_is_refused() -> None:
    """4,2,4 in halves moves 8 bytes at a time, and ldmatrix reads 16."""
    with pytest.raises(UsageError, match=r"tears the 16 bytes .* legal: M of at least 3 in f16 elements"):
        check_record("4,2,4", "64x128", "f16", ["ldmatrix.x4"], "row")
    with pytest.raises(UsageError, match="tears the 4 bytes"):
        check_record("1,0,5", "16x32", "f16", ["mma.A"], "row")


def test_where_no_swizzle_of_vectors_helps_padding_is_the_answer() -> None:
    """Down a column of 32x32 f32: 128B leaves 4-way conflicts, a row of 33 none, nor does <5,0,5>."""
    given = check_record("128B", "32x32", "f32", ["column"], "row").result
    assert (given["naive"]["wavefronts"], given["wavefronts"], given["ideal"]) == (32 * 32, 32 * 4, 32)
    answer = solve_record("32x32", "f32", ["column"], "row").result
    assert (answer["swizzle"], answer["padding"], answer["conflicts"]) == (None, 4, 0)
    assert (answer["padding_bytes"], answer["finer"]) == (128, [5, 0, 5])
    assert "No swizzle of whole 16-byte vectors" in answer["conclusion"]


def test_padding_by_one_is_not_universal() -> None:
    """Transposing 16x32 needs 2 (with 1, reading is 2-way); for 32x16 no padding fixes both."""
    found = pad_record("16x32", "f32", "(l%16, l//16)", "row", "row").result
    assert found["padding_elements"] == 2
    assert [row["(l%16, l//16)"] for row in found["tried"]] == [16, 2, 1, 2]
    none = pad_record("32x16", "f32", "(l%32, l//32)", "row", "row")
    assert none.result["padding"] is None
    assert none.exit_code == 1
    assert "No padding fixes both" in none.result["conclusion"]
    assert [row["(l%32, l//32)"] for row in none.result["tried"]][1] == 1
    assert [row["row"] for row in none.result["tried"]][1:] == [2, 2, 2]


def test_one_swizzle_in_several_units() -> None:
    """<3,3,3> of halves is <3,2,3> of floats, <3,4,3> of bytes and <3,7,3> of bits."""
    found = convert_record("128B", "f16,f32,u8,b1", "").result
    forms = {row["offsets of"]: (row["B"], row["M"], row["S"]) for row in found["converted"]}
    assert forms == {
        "f16": (3, 3, 3), "f32": (3, 2, 3), "u8": (3, 4, 3), "b1": (3, 7, 3),
        "bits": (3, 7, 3), "bytes": (3, 4, 3),
    }  # fmt: skip
    assert convert_record("3,7,3", "f16", "bits").result["swizzle_bytes"] == [3, 4, 3]
    with pytest.raises(UsageError, match="splits a 32-bit element"):
        convert_record("1,0,3", "f16,f32", "f16")


def test_a_tile_smaller_than_a_period_is_refused() -> None:
    """8x128 bits are 128 bytes, and <3,7,3> of bits repeats every 1024."""
    with pytest.raises(UsageError, match=r"128 bytes is smaller than one period .* 1024 bytes"):
        check_record("3,7,3", "8x128", "b1", ["ldmatrix.x4"], "row")


@pytest.mark.parametrize(("columns", "conflicts"), [(16, 4), (32, 24), (64, 112)])
def test_the_tiles_of_the_tutorials(columns: int, conflicts: int) -> None:
    """16 rows of halves read by ldmatrix.x4: the conflicts as they lie, and none when solved."""
    found = solve_record(f"16x{columns}", "f16", ["ldmatrix"], "row").result
    assert (found["naive"]["conflicts"], found["conflicts"]) == (conflicts, 0)


@pytest.mark.parametrize(
    ("swizzle", "costs"),
    [("1,3,3", (4, 8, 16, 32)), ("2,3,3", (4, 4, 8, 16)), ("3,3,3", (4, 4, 4, 8)), ("3,3,4", (8, 8, 8, 4)),
     ("2,3,4", (8, 8, 8, 8))],
)  # fmt: skip
def test_wavefronts_of_given_swizzles(swizzle: str, costs: tuple[int, ...]) -> None:
    """Of each ldmatrix.x4 and stmatrix.x4 on 16, 32, 64 and 128 columns of halves."""
    for columns, cost in zip((16, 32, 64, 128), costs, strict=True):
        for how in ("ldmatrix.x4", "stmatrix.x4"):
            found = check_record(swizzle, f"64x{columns}", "f16", [how], "row").result
            assert found["wavefronts"] == cost * found["instructions"]


@pytest.mark.parametrize(("columns", "cost"), [(32, 8), (64, 16), (128, 32)])
def test_wavefronts_of_8_bit_rows(columns: int, cost: int) -> None:
    """ldmatrix.x4 on rows of 32, 64 and 128 bytes, as they lie."""
    found = check_record("none", f"32x{columns}", "u8", ["ldmatrix.x4"], "row").result
    assert found["wavefronts"] == cost * found["instructions"]


@pytest.mark.parametrize(
    ("how", "tile", "costs"),
    [("mma.B", "32x128", {0: 4, 16: 2, 32: 1}), ("mma.A", "32x32", {0: 8, 16: 1})],
)
def test_tf32_fragments_by_padding(how: str, tile: str, costs: dict[int, int]) -> None:
    """B from [k][n] at a pitch of 128 floats, A from [m][k] at 32: wavefronts by bytes of padding."""
    traffic = question(tile, "tf32", [how], "row").traffic
    (only,) = traffic.passes
    assert {padding: only.worst(traffic.padded(padding)) for padding in costs} == costs


def test_one_swizzle_for_several_accesses() -> None:
    """Written by TMA, read with .trans, stored by stmatrix: the mode 128B serves all."""
    found = solve_record("64x64", "f16", ["ldmatrix.x4.trans", "tma", "stmatrix", "cp.async"], "row").result
    assert (found["swizzle"], found["tma_mode"], found["conflicts"]) == ([3, 3, 3], "128B", 0)
    assert [row["wavefronts"] for row in found["accesses"]] == [64, 0, 64, 64]


def test_tma_and_wgmma_have_modes_and_no_padding() -> None:
    """A row of 256 bytes is wider than any box with a swizzle."""
    found = solve_record("64x128", "f16", ["ldmatrix.x4", "tma"], "row")
    assert (found.result["swizzle"], found.result["padding"]) == (None, None)
    assert found.exit_code == 1
    assert "cannot be padded" in found.result["conclusion"]
    with pytest.raises(UsageError, match="none that TMA and wgmma have"):
        check_record("3,3,4", "64x128", "f16", ["wgmma"], "row")
    assert solve_record("64x64", "f16", ["wgmma"], "row").result["modelled"] == ["wgmma"]


def test_the_emitted_function_compiles() -> None:
    """Its text, with NVRTC, for an access with a swizzle and one with padding."""
    for record in (
        solve_record("16x64", "f16", ["ldmatrix.x4"], "row", "cuda"),
        solve_record("32x32", "f32", ["column"], "row", "cuda"),
    ):
        text = record.result["cuda"]
        kernel = f'{text}\nextern "C" __global__ void k(unsigned *p) {{ *p = tile_offset(p[1], p[2]); }}\n'
        assert build_cuda(kernel, name="emitted.cu", arch="sm_90a").cubin
    with pytest.raises(UsageError, match="legal: cuda"):
        solve_record("16x64", "f16", ["ldmatrix.x4"], "row", "hip")


@pytest.mark.parametrize("how", ["ldmatrix.x4", "stmatrix.x2", "column", "row", "mma.A", "cp.async.16"])
@pytest.mark.parametrize("extent", ["256x256", "256x208", "16x64"])
def test_solving_takes_a_second(extent: str, how: str) -> None:
    """Four times the limit, for machines that are busy."""
    start = time.perf_counter()
    solve_record(extent, "f16", [how], "row")
    assert time.perf_counter() - start < 4 * 1.0


def test_faults_name_their_place() -> None:
    """The column in the text, and the legal words."""
    for tile, how, words in (
        ("16x64:x-major", "ldmatrix", "tile '16x64:x-major', column 7: unknown order 'x-major'"),
        ("16x64", "(lane, foo)", r"column 8: 'foo' is not in the language"),
        ("16x64", "(lane)", "a pair .row, column. is expected"),
        ("16x64", "(lane, 0)", "lane 16 of warp 0 the element .16, 0.; legal: inside the tile of 16x64"),
    ):
        with pytest.raises(UsageError, match=words):
            solve_record(tile, "f16", [how], "row")


@pytest.mark.parametrize(
    ("tile", "dtype", "how", "order", "words"),
    [("16x12", "f16", "ldmatrix.x4", "row", "multiples of 8 rows and of 16 bytes"),
     ("16x64", "f17", "ldmatrix.x4", "row", "unknown type 'f17'"),
     ("16x64", "f16", "ldmatrix.x3", "row", "unknown access"),
     ("16x64", "f16", "ldmatrix.x4", "diagonal", "legal: row, column"),
     ("16", "f16", "mma.A", "row", "of the form RxC"),
     ("100000000x8", "f16", "ldmatrix.x4", "row", "legal: up to 232448 bytes"),
     ("64x64", "f16", "mma.B", "row", "narrower ones with k contiguous"),
     ("24x16", "f16", "mma.A", "row", "whole fragments")],
)  # fmt: skip
def test_bad_questions_name_the_legal_ones(tile: str, dtype: str, how: str, order: str, words: str) -> None:
    """One line, with the value and what would be legal."""
    with pytest.raises(UsageError, match=words):
        solve_record(tile, dtype, [how], order)
