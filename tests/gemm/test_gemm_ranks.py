"""Wrong elements by the block of a cluster that computes them: which of the blocks fails."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gemm_stand_in import request

from ptxlab import assets
from ptxlab.errors import ExitCode
from ptxlab.experiments.gemm.check import LISTED
from ptxlab.experiments.gemm.reference import Comparison, Element
from ptxlab.experiments.gemm.run import run_gemm
from ptxlab.experiments.gemm.wrong import shape_of_wrong
from ptxlab.experiments.registry import find_stage
from ptxlab.render.show import blocks
from ptxlab.render.terminal import to_terminal

RELEASE = "place.release(ring.empty({}), threadIdx.x % 32);"
EARLY = f"if (place.row + place.col) {{ {RELEASE.format('turn.stage')} __nanosleep(5000); }}\n"
"""Blocks but that of rank 0 say that they have read a stage before they have: it is overwritten."""


def told(wrong: dict[tuple[int, int], int], listed: list[tuple[int, int]], **options: Any) -> dict[str, Any]:
    """Return what is told of wrong elements of the stage cluster, 512 x 512 unless told otherwise."""
    stage = find_stage("cluster")
    case = stage.case("sm_90a", **({"m": 512, "n": 512, "k": 64} | options))
    elements = [Element(row, col, 1, 0, 0, 0) for row, col in listed]
    found = Comparison(0, sum(wrong.values()) or len(listed), 0, 0, 0, None, elements, wrong)
    shape = shape_of_wrong(stage, case, found)
    assert shape is not None
    return shape


def test_each_rank_is_told_with_its_wrong_elements(gemm: Any) -> None:
    """Rank 1 of a cluster of two, one below the other, has the second 128 rows: all are there."""
    wrong = request(512, 256, 64, "ints", stage="cluster")
    record, _ = gemm(wrong, change=(slice(128, 256), slice(0, 256), 1.0))
    assert record.exit_code == ExitCode.CHECK_FAILED
    (row,) = record.result["stages"]
    assert row["wrong_shape"]["ranks"] == [
        {"rank": 0, "wrong": 0, "elements": 256 * 256},
        {"rank": 1, "wrong": 128 * 256, "elements": 256 * 256},
    ]
    assert "by cluster rank: 0 in rank 0, 32768 in rank 1; " in record.checks[-1]["detail"]
    assert "cluster rank 1 (of 2)" in row["wrong_shape"]["common"]
    record.command = ["gemm"]
    assert "computes them\n cluster rank" in to_terminal(blocks(record.document()))


def test_ranks_count_all_wrong_elements_not_those_listed() -> None:
    """The list is cut; what each block of the check found is not, and tiles consist of such blocks."""
    listed = [(128, col) for col in range(LISTED)]
    shape = told({(128, 0): 4096, (192, 64): 4096}, listed)
    assert [each["wrong"] for each in shape["ranks"]] == [0, 8192]
    tile, rank, warp, *_ = shape["groups"]
    assert (tile["told_from"], rank["told_from"], warp["told_from"]) == (8192, 8192, LISTED)
    assert shape["common"].startswith(
        "all wrong elements are in tile (1, 0) (of 8), cluster rank 1 (of 2); the 256 that are listed are in"
    )


@pytest.mark.parametrize(
    ("cluster", "ranks"),
    [("2x1", (0, 0, 1, 1)), ("1x2", (0, 1, 0, 1)), ("2x2", (0, 1, 2, 3)), ("4x1", (0, 0, 1, 1))],
)
def test_ranks_go_along_the_rows_of_a_clusters_tiles(cluster: str, ranks: tuple[int, ...]) -> None:
    """As ClusterPlace counts them, by rank / COLS and rank % COLS."""
    for (row, col), rank in zip(((0, 0), (0, 256), (128, 0), (128, 256)), ranks, strict=True):
        shape = told({(row, col): 7}, [(row, col)], cluster_shape=cluster)
        assert [each["rank"] for each in shape["ranks"] if each["wrong"]] == [rank]


def test_blocks_that_stand_alone_have_no_ranks() -> None:
    """Neither in the groups nor in the sentence."""
    shape = told({(0, 0): 7}, [(0, 0)], cluster_shape="1x1")
    assert shape["ranks"] == []
    assert not any("rank" in group["group"] for group in shape["groups"])


def test_blocks_that_share_a_tile_have_no_ranks() -> None:
    """A cluster along k adds up one tile: no element is one block's own."""
    stage = find_stage("hopper")
    parts = {"block": "128x128", "roles": "cooperative", "splits": 2, "adding": "cluster"}
    case = stage.case("sm_90a", m=512, n=512, k=4096, cluster_shape="1x1", **parts)
    assert stage.cluster(case) == (2, 1, 1)
    shape = shape_of_wrong(stage, case, Comparison(0, 1, 0, 0, 0, None, [Element(0, 0, 1, 0, 0, 0)]))
    assert shape is not None
    assert shape["ranks"] == []


def test_the_elements_of_the_ranks_are_those_of_c() -> None:
    """Three bands of tiles: rank 0 has two of them, the last one cut off; a peer may have none at all."""
    shape = told({(0, 0): 1}, [(0, 0)], m=300, n=264)
    assert [each["elements"] for each in shape["ranks"]] == [(128 + 44) * 264, 128 * 264]
    shape = told({(0, 0): 1}, [(0, 0)], m=100, n=264)
    assert [each["elements"] for each in shape["ranks"]] == [100 * 264, 0]


def damaged_kernels(folder: Path) -> Path:
    """Copy the kernels, with a loop over k in which rank 1 gives back each stage before it has read it."""
    shutil.copytree(assets.kernels_folder(), folder / "kernels")
    source = folder / "kernels" / "include" / "ptxlab" / "gemm_multiply.cuh"
    text = source.read_text(encoding="utf-8")
    wait, release = "        ring.wait_full(turn);\n", RELEASE.format("read")
    assert wait in text
    assert text.count(release) == 2
    text = text.replace(release, f"if (place.row + place.col == 0) {release}")
    source.write_text(text.replace(wait, wait + EARLY), encoding="utf-8")
    return folder / "kernels"


@pytest.mark.gpu
@pytest.mark.parametrize("cluster", ["2x1", "1x2"])
def test_a_block_that_gives_back_its_stages_too_early_is_named(
    cluster: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its peer copies over what it is still multiplying: all wrong elements are its own."""
    folder = damaged_kernels(tmp_path)
    monkeypatch.setattr(assets, "kernels_folder", lambda: folder)
    shape = (f"cluster_shape={cluster}",)
    planted = request(2048, 2048, 2048, stage="cluster", method={"samples": 0}, settings=shape)
    record = run_gemm(planted, lambda *_: None)
    (row,) = record.result["stages"]
    first, second = row["wrong_shape"]["ranks"]
    assert (first["rank"], first["wrong"]) == (0, 0)
    assert (second["rank"], second["wrong"]) == (1, row["wrong"])
    assert row["wrong"] > 0.01 * second["elements"]
    assert np.isfinite(row["max_error"])
    assert record.exit_code == ExitCode.CHECK_FAILED
