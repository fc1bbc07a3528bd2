"""The rungs on a GPU: the bank conflicts of their fragments are what the model says."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from ptxlab.experiments.gemm.tiled import TiledStage
from ptxlab.experiments.registry import find_stage, stage_entries
from ptxlab.toolchain.arch import DEFAULT_ARCH

pytestmark = pytest.mark.gpu

SIZES = ("-m", "512", "-n", "512", "-k", "256")
TILED = [each.name for each in stage_entries() if isinstance(find_stage(each.name), TiledStage)]


@pytest.mark.parametrize("name", TILED)
def test_ldmatrix_takes_the_wavefronts_of_the_bank_model(run_cli: Callable[..., Any], name: str) -> None:
    """By ncu: as many as predicted for each LDSM, and no conflict but in rows that are not swizzled."""
    stage = find_stage(name)
    assert isinstance(stage, TiledStage)
    predicted = stage.fragment_wavefronts(stage.case(DEFAULT_ARCH))
    done = run_cli("profile", "--json", f"gemm:{name}", *SIZES)
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = json.loads(done.stdout)["result"]["kernels"]
    counted = row["shared"]["ldsm"]
    assert counted["instructions"] > 0
    assert counted["wavefronts"] == predicted * counted["instructions"]
    assert counted["conflicts"] == (predicted - 4) * counted["instructions"]
