"""What each rung of the ladder says of itself, without a GPU: bank conflicts, budgets, what goes together."""

from __future__ import annotations

import pytest

from ptxlab.errors import UsageError
from ptxlab.experiments.gemm.explain import explain
from ptxlab.experiments.gemm.machine import MACHINES
from ptxlab.experiments.gemm.stage import GemmStage
from ptxlab.experiments.gemm.tiled import TiledStage
from ptxlab.experiments.registry import find_stage

MMA = ("mma-naive", "mma-padded", "mma-swizzle", "mma-raster")
WMMA = ("wmma-tiled", "wmma-dbuf", "wmma-warptile")
CLEAN = ("mma-padded", "mma-swizzle", "mma-raster", "ampere", *WMMA)


def tiled(name: str) -> TiledStage:
    """Return a rung that reads its fragments from shared memory."""
    stage = find_stage(name)
    assert isinstance(stage, TiledStage)
    return stage


def test_unswizzled_rows_conflict_as_ncu_counted() -> None:
    """The four ldmatrix.x4 of 16x64: 128 wavefronts instead of 16, so 112 conflicts (H200, 2026-11-29)."""
    stage = tiled("mma-naive")
    per_load = stage.fragment_wavefronts(stage.case("sm_90a"))
    assert 4 * per_load == 128
    assert 4 * (per_load - 4) == 112


@pytest.mark.parametrize("name", CLEAN)
def test_the_other_rungs_read_without_a_conflict(name: str) -> None:
    """Four wavefronts for four matrices, with every choice of an option."""
    stage = tiled(name)
    for case in stage.variants("sm_90a"):
        assert stage.fragment_wavefronts(case) == 4, case.key


@pytest.mark.parametrize("name", [*CLEAN, "mma-naive"])
def test_no_two_chunks_of_a_tile_share_a_place(name: str) -> None:
    """And all lie inside the tiles of A and B that shared() counts."""
    stage = tiled(name)
    case = stage.case("sm_90a")
    rows, cols, depth = stage.tile(case)
    places = {stage.place(case, line, chunk) for line in range(rows + cols) for chunk in range(depth // 8)}
    assert len(places) == (rows + cols) * depth // 8
    assert max(places) + 16 <= sum(stage.shared(case).values())
    assert all(place % 16 == 0 for place in places)


def test_bank_conflicts_are_what_limits_mma_naive() -> None:
    """8192 wavefronts of ldmatrix a step and block, 384 to write the tiles."""
    stage = tiled("mma-naive")
    case = stage.case("sm_90a")
    blocks_and_steps = stage.tiles(case) * stage.steps(case)
    assert stage.demands(case)["shared wavefronts"] == blocks_and_steps * (8192 + 384)
    said = explain(stage, case, MACHINES[90], {"registers": 252})
    assert said["limiter"]["resource"] == "shared-memory port"
    assert "come one after the other" in said["limiter"]["reason"]


def test_what_padding_costs_is_said() -> None:
    """16 bytes for each of 384 lines in two places."""
    stage = find_stage("mma-padded")
    (remark,) = stage.remarks(stage.case("sm_90a"))
    assert "padding takes 12288 of 110592 bytes of shared memory" in remark
    assert "that alone holds 2 blocks an SM without and 2 with it" in remark
    assert sum(find_stage("mma-swizzle").shared(stage.case("sm_90a")).values()) == 110592 - 12288


@pytest.mark.parametrize("name", MMA)
def test_rungs_of_mma_take_k_contiguous_operands_alone(name: str) -> None:
    """And keep their sums in float32."""
    for wrong in ({"layout": "nn"}, {"acc": "f16"}):
        with pytest.raises(UsageError, match="legal: "):
            find_stage(name).case("sm_90a", **wrong)


@pytest.mark.parametrize("name", [*MMA, *WMMA])
def test_lines_that_are_not_aligned_are_copied_by_elements(name: str) -> None:
    """A leading dimension that is no multiple of 8 chooses the other kernel, and the explanation says so."""
    stage = find_stage(name)
    for k, aligned in ((40, 1), (36, 0)):
        case = stage.case("sm_90a", m=64, n=64, k=k)
        assert stage.macros(case)["ALIGNED"] == aligned
        assert any("element by element" in each for each in stage.remarks(case)) == (not aligned)


@pytest.mark.parametrize(
    ("sizes", "layout", "guard"),
    [
        ((4096, 4096, 4096), "tn", 0),
        ((4096, 4096, 4104), "tn", 1),
        ((4095, 4096, 4096), "tn", 1),
        ((4095, 4096, 4096), "nn", 2),
        ((4096, 4097, 4096), "tt", 2),
        ((4096, 4096, 4095), "tn", 2),
    ],
)
def test_ampere_guards_what_it_must(sizes: tuple[int, int, int], layout: str, guard: int) -> None:
    """Nothing for whole tiles; the ends of lines where they are aligned; else every element."""
    stage = find_stage("ampere")
    m, n, k = sizes
    assert stage.macros(stage.case("sm_90a", m=m, n=n, k=k, layout=layout))["GUARD"] == guard


@pytest.mark.parametrize(
    ("sizes", "block", "blocks"),
    [((4096, 4096), "128x256", 132), ((2048, 2048), "128x256", 128), ((4096, 4096), "128x128", 2 * 132)],
)
def test_blocks_of_ampere_stay(sizes: tuple[int, int], block: str, blocks: int) -> None:
    """As many as 132 SMs hold at once, one of 8 warps or two of 4; fewer where there are fewer tiles."""
    stage = find_stage("ampere")
    m, n = sizes
    assert stage.launch(stage.case("sm_90a", m=m, n=n, block=block)).grid == (blocks, 1, 1)


def refused(stage: GemmStage, **options: str | int) -> str:
    """Return why a point is not taken."""
    with pytest.raises(UsageError) as error:
        stage.case("sm_90a", **options)
    return error.value.message


def test_options_that_do_not_go_together_say_what_is_legal() -> None:
    """Too much shared memory, too many warps, too little to copy."""
    ampere, warptile = find_stage("ampere"), find_stage("wmma-warptile")
    assert "a block on sm_90a can have 232448" in refused(ampere, tile_k=64, stages=5)
    assert "legal: at most 16" in refused(warptile, block="128x256", warp="32x32")
    assert "legal: 32 or more" in refused(warptile, block="128x128", warp="32x32", tile_k=16)
    assert "legal: at most 8" in refused(warptile, block="256x128", warp="32x64")


@pytest.mark.parametrize(
    ("arch", "fits"), [("sm_80", ["block=128x128", "tile_k=32", "stages=3"]), ("sm_89", ["tile_k=32"])]
)
def test_where_buffers_do_not_fit_it_says_which_option_makes_them(arch: str, fits: list[str]) -> None:
    """The defaults are those of an H100; on a smaller SM each named option alone is enough, and no other."""
    stage = find_stage("ampere")
    with pytest.raises(UsageError) as caught:
        stage.case(arch)
    legal = str(caught.value).partition("legal: ")[2]
    assert legal == ", ".join(f"--set {each}" for each in fits)
    for each in fits:
        name, value = each.split("=")
        assert stage.case(arch, **{name: int(value) if value.isdigit() else value})


def test_where_no_option_alone_makes_buffers_fit_it_says_so() -> None:
    """An error never leaves open what would be legal."""
    with pytest.raises(UsageError, match=r"can have 101376; no option alone makes it fit$"):
        find_stage("mma-padded").case("sm_120")


@pytest.mark.parametrize(
    ("order", "grid"), [("plain", (6, 1, 1)), ("grouped", (6, 1, 1)), ("split", (4, 1, 2))]
)
def test_a_split_grid_has_whole_strips(order: str, grid: tuple[int, int, int]) -> None:
    """2 x 3 tiles: two strips, two tiles wide, of which the last has one that is outside."""
    stage = find_stage("mma-raster")
    case = stage.case("sm_90a", m=200, n=700, k=64, order=order, group=2)
    assert stage.launch(case).grid == grid
    far = {"order": "split", "group": 2, "m": 1, "n": 2**25 - 512}
    stage.case("sm_90a", **far, k=1)
    assert "legal: at most 65535" in refused(stage, **(far | {"n": 2**25}), k=1)
