"""On a device: 8-bit floats are summed as the model of the instruction says, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from gemm_jobs import check_job, loaded, problem, rounded, stage_job, stored

from ptxlab.device.client import Worker
from ptxlab.experiments.gemm import Problem
from ptxlab.experiments.gemm.check import Check
from ptxlab.experiments.gemm.reference import chained, fill
from ptxlab.experiments.registry import find_stage

pytestmark = pytest.mark.gpu

POINTS = [
    ("hopper", {"splits": 1}),
    ("hopper-fp8", {"accumulate": "fast"}),
    ("hopper-fp8", {"accumulate": "promoted"}),
    ("hopper-fp8", {"accumulate": "promoted", "block": "128x256"}),
]


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    """Yield a worker for the tests of this file."""
    with Worker(timeout=60) as each:
        yield each


@pytest.mark.parametrize("out", ["f32", "bf16"])
@pytest.mark.parametrize("dtype", ["e4m3", "e5m2"])
@pytest.mark.parametrize(("name", "options"), POINTS)
def test_sums_are_those_of_the_instruction(
    worker: Worker, name: str, options: dict[str, str | int], dtype: str, out: str
) -> None:
    """Over normal values, with k in ascending order, and a last stage that is not full."""
    stage = find_stage(name)
    case = stage.case(worker.info().arch, m=130, n=136, k=1040, dtype=dtype, out=out, **options)
    arrays = worker.run(stage_job(stage, case, "normal", 3)).arrays
    p = Problem.of(case)
    a = loaded(arrays["a"], p.m, p.k, by_columns=False, dtype=dtype)
    b = loaded(arrays["b"], p.k, p.n, by_columns=True, dtype=dtype)
    expected = stored(rounded(chained(p, a, b), out), by_columns=False, dtype=out)
    assert np.array_equal(arrays["c"], expected)
    assert Check(p, "normal", 3).read(arrays, "c").verified == p.m * p.n


@pytest.mark.parametrize("promoted", [False, True])
@pytest.mark.parametrize("dtype", ["e4m3", "e5m2"])
def test_the_last_bit_of_a_chain_is_checked(worker: Worker, dtype: str, promoted: bool) -> None:
    """Every sum passes that the model makes; one that is off by its last bit does not, nor the exact one."""
    p = problem(70, 80, 2000, dtype=dtype, out="f32", promoted=promoted)
    a, b = (fill(p, "naturals", 0, which) for which in "ab")
    sums = chained(p, a, b).astype(np.float32)
    check, arch = Check(p, "naturals", 0), worker.info().arch

    def wrong(c: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> int:
        return check.read(worker.run(check_job(check, arch, c, one_chain=True)).arrays, "c").wrong

    assert wrong(sums) == 0
    off = sums.copy()
    off[69, 79] = np.nextafter(off[69, 79], np.float32(0))
    assert wrong(off) == 1
    assert wrong((a @ b).astype(np.float32)) == (sums != a @ b).sum()
