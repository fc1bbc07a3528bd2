"""``ptxlab swizzle``: the smallest clean swizzle of a tile, and the judgement of a given one."""

from __future__ import annotations

import time
from typing import Any

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


def test_a_scalar_is_not_torn_by_what_keeps_it_whole() -> None:
    """Halves down a column may be moved one by one; a fragment's 32-bit loads may not."""
    assert check_record("5,1,5", "32x64", "f16", ["column"], "row").exit_code == 0
    assert check_record("1,0,5", "32x64", "f16", ["column"], "row").exit_code == 1
    with pytest.raises(UsageError, match=r"tears the 16 bytes that ldmatrix.x4 moves"):
        check_record("1,0,5", "32x64", "f16", ["column", "ldmatrix.x4"], "row")


@pytest.mark.parametrize("dtype", ["f32", "f16", "e4m3"])
@pytest.mark.parametrize("extent", ["24x16", "32x31", "128x65", "12x80", "33x48", "32x128", "40x12"])
def test_padding_is_the_least(extent: str, dtype: str) -> None:
    """Against a loop that anyone can read: words of each bank, of 32 elements down the columns at a time."""
    rows, columns = map(int, extent.split("x"))
    size = {"f32": 4, "f16": 2, "e4m3": 1}[dtype]
    elements = [(row, column) for column in range(columns) for row in range(rows)]

    def clean(padding: int) -> bool:
        words = [(row * (columns * size + padding) + column * size) // 4 for row, column in elements]
        warps = [set(words[first : first + 32]) for first in range(0, len(words), 32)]
        return all(len({word % 32 for word in warp}) == len(warp) for warp in warps)

    least = next((padding for padding in range(0, 129, size) if clean(padding)), None)
    assert pad_record(extent, dtype, "column", "", "row").result["padding"] == least


@pytest.mark.parametrize(
    ("extent", "dtype", "padding"),
    [("32x31", "f16", 6), ("128x65", "f16", 2), ("12x80", "e4m3", 1), ("32x32", "f32", 4)],
)
def test_padding_is_counted_in_elements(extent: str, dtype: str, padding: int) -> None:
    """A lane that moves less than a word needs no address that is a multiple of a word."""
    found = pad_record(extent, dtype, "column", "row", "row").result
    assert found["padding"] == padding
    assert [row["bytes"] for row in found["tried"]][1] == found["padding"] // found["padding_elements"]


def test_padding_must_fit_shared_memory() -> None:
    """896x64 floats would need 232960 bytes, and a block has 232448; 864 rows fit."""
    for found in (
        solve_record("896x64", "f32", ["column"], "row"),
        pad_record("896x64", "f32", "column", "row", "row"),
    ):
        assert (found.result["padding"], found.exit_code) == (None, 1)
        assert "the tile has 232960 bytes, and a block may have 232448" in found.result["conclusion"]
    assert pad_record("864x64", "f32", "column", "row", "row").result["padding"] == 4


def test_the_reason_for_no_padding_is_who_meets() -> None:
    """A warp that wraps into the next column; or accesses that each want another padding."""
    wraps = solve_record("908x64", "f32", ["column"], "row").result
    assert (wraps["swizzle"], wraps["padding"]) == (None, None)
    assert (
        "2 different words of bank 1 in one phase of a warp that goes on in the next column"
        in (wraps["conclusion"])
    )
    both = pad_record("32x16", "f32", "(l%32, l//32)", "row", "row").result["conclusion"]
    assert "brings lanes of another together" in both
    alone = pad_record("908x64", "f32", "column", "row", "row").result["conclusion"]
    assert "a warp that goes on in the next column" in alone


@pytest.mark.parametrize(
    ("swizzle", "extent", "access"),
    [("128B", "64x16", "wgmma"), ("128B", "64x16", "tma"), ("64B", "64x16", "tma"), ("128B", "64x128", "tma"),
     ("32B", "64x64", "wgmma")],
)  # fmt: skip
def test_rows_of_a_box_are_as_long_as_the_span(swizzle: str, extent: str, access: str) -> None:
    """TMA puts shorter rows a span apart, and longer ones are several boxes."""
    with pytest.raises(UsageError, match=r"none that TMA and wgmma have for rows of \d+ bytes"):
        check_record(swizzle, extent, "f16", ["ldmatrix.x4", access], "row")
    assert solve_record("64x16", "f16", ["ldmatrix.x4", access], "row").result["tma_mode"] == "32B"


@pytest.mark.parametrize(
    ("extent", "order", "accesses", "panels"),
    [("64x128", "row", ["wgmma"], (2, "64x64", "128B")),
     ("64x128", "row", ["ldmatrix.x4", "tma"], (2, "64x64", "128B")),
     ("128x64", "column", ["wgmma"], (2, "64x64", "128B")),
     ("64x48", "row", ["ldmatrix.x4", "tma"], (3, "64x16", "32B")),
     ("64x32", "row", ["column", "tma"], None)],
)  # fmt: skip
def test_a_wide_tile_is_cut_into_panels(
    extent: str, order: str, accesses: list[str], panels: tuple[int, str, str] | None
) -> None:
    """Boxes as wide as a mode, side by side, which the mode then cleans."""
    found = solve_record(extent, "f16", accesses, order).result
    assert found["swizzle"] is None
    assert (tuple(found["panels"].values()) if found["panels"] else None) == panels
    if panels:
        told = f"as {panels[0]} panels of {panels[1]} side by side, in boxes of the mode {panels[2]}"
        assert told in found["conclusion"]
        cut = solve_record(panels[1], "f16", accesses, order).result
        assert cut["tma_mode"] == panels[2]


def test_what_is_summed_is_said() -> None:
    """An expression may leave elements out; with all warps it may use each once."""
    for how, whole in (
        ("column", True), ("ldmatrix.x4", True), ("mma.A", True), ("cp.async.16", True), ("wgmma", True),
        ("(lane, 0)", False), ("(lane, warp)", True), ("(lane, warp // 2)", False),
    ):  # fmt: skip
        found = check_record("none", "32x32", "f16", [how], "row").result
        assert found["whole_tile"] == whole


def test_only_a_whole_tile_is_called_so(run_here: Any) -> None:
    """What a person reads."""
    one = run_here("swizzle", "check", "none", "--tile", "32x33", "--access", "(lane,0)").stdout
    assert "Summed over 1 warp instruction." in one
    all_of_them = run_here("swizzle", "check", "none", "--tile", "32x32", "--access", "(warp, lane)").stdout
    assert "Summed over 32 warp instructions, which use the whole tile once." in all_of_them


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
    with pytest.raises(
        UsageError, match=r"swizzle 1,0,3 of f16 moves 2 bytes .* splits a 32-bit element, f32"
    ):
        convert_record("1,0,3", "f16,f32", "f16")
    with pytest.raises(UsageError, match=r"swizzle 3,0,3 of f16 .* legal: types of at most 16 bits"):
        convert_record("3,0,3", "f32", "f16")
    with pytest.raises(UsageError, match="<3,0,3> of 1-bit elements splits an 8-bit element"):
        convert_record("3,0,3", "b1", "")


def test_a_tile_smaller_than_a_period_is_refused() -> None:
    """8x128 bits are 128 bytes, and <3,7,3> of bits repeats every 1024."""
    with pytest.raises(UsageError, match=r"tile '8x128' of 128 bytes is smaller than .* 1024 bytes"):
        check_record("3,7,3", "8x128", "b1", ["ldmatrix.x4"], "row")
    with pytest.raises(UsageError, match="nothing in it would move; legal: a tile of more than 128 bytes"):
        check_record("128B", "1x64", "f16", ["row"], "row")
    part = check_record("128B", "4x64", "f16", ["row"], "row").result["conclusion"]
    assert part.endswith("The tile of 512 bytes is only part of a period, which is 1024.")


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


@pytest.mark.parametrize(
    ("extent", "dtype", "how"),
    [("256x256", "f16", "(warp // 8, warp % 8 * 32 + lane)"), ("256x256", "e4m3", "column"),
     ("250x255", "u8", "column"), ("256x256", "f16", "wgmma")],
)  # fmt: skip
def test_solving_hard_tiles_takes_a_second(extent: str, dtype: str, how: str) -> None:
    """Expressions of each lane, bytes down a column, and tiles that neither swizzle nor padding cleans."""
    start = time.perf_counter()
    solve_record(extent, dtype, [how], "row")
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


@pytest.mark.parametrize("text", ["3,3,3", "<3,3,3>", "Sw<3,3,3>", "Swizzle<3,3,3>"])
def test_a_swizzle_may_be_typed_as_it_is_printed(text: str) -> None:
    """With the name in front, or without."""
    assert check_record(text, "16x64", "f16", ["ldmatrix.x4"], "row").result["swizzle_bytes"] == [3, 4, 3]


def test_answers_name_the_unit_of_a_swizzle() -> None:
    """And say so where another unit would make it a mode of TMA."""
    told = check_record("3,4,3", "16x64", "f16", ["ldmatrix.x4"], "row").result["conclusion"]
    assert "Swizzle<3,4,3> of f16 elements takes" in told
    assert "of bytes they would be the mode 128B, which is <3,3,3> of f16" in told
    assert "of bytes they would be the mode 128B" in convert_record("3,4,3", "f16", "").result["conclusion"]
    assert "they would be" not in convert_record("3,3,3", "f16", "").result["conclusion"]
    assert "they would be" not in convert_record("2,2,3", "f16", "").result["conclusion"]


def test_the_pictures_are_before_and_after() -> None:
    """The tile by bank, then the instruction that conflicts most: 32 wavefronts become 4."""
    tile, swizzled, before, after = solve_record("16x64", "f16", ["ldmatrix.x4"], "row").result["pictures"]
    assert {line[0] for line in tile["cells"]} == {"0"}
    assert [line[0] for line in swizzled["cells"][:8]] == ["0", "4", "8", "12", "16", "20", "24", "28"]
    assert (len(before["cells"]), len(after["cells"])) == (32, 4)
    assert all(all(line) for line in after["cells"])
    assert len(solve_record("16x8", "f16", ["row"], "row").result["pictures"]) == 2
