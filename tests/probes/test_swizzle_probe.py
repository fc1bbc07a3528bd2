"""The probe of swizzles: the tiles of the tutorials on silicon, and the function that the kernel runs."""

from __future__ import annotations

import pytest

from ptxlab.errors import UsageError
from ptxlab.experiments import recording, registry
from ptxlab.experiments.swizzle import solve_record

PROBE = registry.find_probe("swizzle")


def counted(name: str, **options: str | int) -> int:
    """Return what an H200 counted at a point."""
    (kept,) = recording.recordings(PROBE)
    variant = kept.find(PROBE, PROBE.case("sm_90a", **options))
    assert variant is not None
    return int(recording.arrays_of(variant)[name][0])


@pytest.mark.parametrize(("columns", "warps", "conflicts"), [(16, 1, 4), (32, 2, 24), (64, 4, 112)])
def test_the_tiles_of_the_tutorials_on_silicon(columns: int, warps: int, conflicts: int) -> None:
    """16 rows of halves, read by 1, 2 and 4 warps: conflicts as they lie, none with the solved swizzle."""
    tile = f"16x{columns}"
    assert counted("conflicts", tile=tile, warps=warps, swizzle="none") == conflicts
    assert counted("conflicts", tile=tile, warps=warps, swizzle="solved") == 0
    assert counted("wavefronts", tile=tile, warps=warps, swizzle="solved") == 4 * warps


@pytest.mark.parametrize(("swizzle", "per_matrix"), [("none", 8), ("3,3,3", 2), ("3,3,4", 1), ("3,3,5", 2)])
def test_an_m_major_tile_on_silicon(swizzle: str, per_matrix: int) -> None:
    """128x8 halves read with .trans: 16 matrices, and <3,3,4> is the clean one."""
    options = {"tile": "128x8:m-major", "access": "ldmatrix.x4.trans", "swizzle": swizzle}
    assert counted("wavefronts", **options) == 16 * per_matrix


def test_the_kernel_runs_the_very_text_that_solve_prints() -> None:
    """Character by character."""
    text = PROBE.macros(PROBE.case("sm_90a"))["PLACED"]
    assert str(text) in solve_record("16x64", "f16", ["ldmatrix.x4"], "row", "cuda").result["cuda"]


def test_a_swizzle_that_the_tile_cannot_have_is_refused() -> None:
    """It would tear 16 bytes, or leave the tile."""
    with pytest.raises(UsageError, match="legal: M from 4"):
        PROBE.case("sm_90a", swizzle="3,2,4")
    with pytest.raises(UsageError, match="moves elements outside the tile of 384 bytes"):
        PROBE.case("sm_90a", tile="8x24", access="ldmatrix.x1", swizzle="1,6,1")
