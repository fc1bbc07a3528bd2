"""On a device: 8-bit floats are summed as the model of the instruction says, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from gemm_float8 import summed
from gemm_jobs import loaded, rounded, stage_job, stored

from ptxlab.device.client import Worker
from ptxlab.experiments.gemm import Problem
from ptxlab.experiments.registry import find_stage

pytestmark = pytest.mark.gpu

SUMS = [
    ("hopper", "e4m3", {}),
    ("hopper", "e5m2", {}),
    *(
        ("hopper-fp8", dtype, {"accumulate": accumulate})
        for dtype in ("e4m3", "e5m2")
        for accumulate in ("fast", "promoted")
    ),
]


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    """Yield a worker for the tests of this file."""
    with Worker(timeout=60) as each:
        yield each


@pytest.mark.parametrize("out", ["f32", "bf16"])
@pytest.mark.parametrize(("name", "dtype", "options"), SUMS)
def test_sums_are_those_of_the_instruction(
    worker: Worker, name: str, dtype: str, options: dict[str, str], out: str
) -> None:
    """Over normal values, with k in ascending order, and a last stage that is not full."""
    stage = find_stage(name)
    whole = {"splits": 1} if "splits" in stage.options() else {}
    arch = worker.info().arch
    case = stage.case(arch, m=130, n=136, k=1040, dtype=dtype, out=out, **whole, **options)
    arrays = worker.run(stage_job(stage, case, "normal", 3)).arrays
    p = Problem.of(case)
    a = loaded(arrays["a"], p.m, p.k, by_columns=False, dtype=dtype)
    b = loaded(arrays["b"], p.k, p.n, by_columns=True, dtype=dtype)
    expected = stored(rounded(summed(p, a, b), out), by_columns=False, dtype=out)
    assert np.array_equal(arrays["c"], expected)
