"""Options of the stages that go together, on a GPU: how a cluster shares, and who takes which tile."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest
from gemm_cases import compile_all
from gemm_jobs import repeated_job, stage_job

from ptxlab.device.client import Worker
from ptxlab.experiments.base import Case, Value
from ptxlab.experiments.gemm import GemmStage, Problem
from ptxlab.experiments.gemm.check import Check
from ptxlab.experiments.registry import find_stage

pytestmark = pytest.mark.gpu

Options = dict[str, Value]
Point = tuple[GemmStage, str, Options]

SHARING: list[Options] = [
    {"share": "dsmem", "cluster_shape": shape, "layout": layout}
    for shape, layout in product(("2x1", "1x2", "2x2", "4x1"), ("tn", "nt"))
]
TAKING: list[Options] = [
    {"schedule": schedule, "order": order}
    for schedule, order in product(("counter", "static"), ("rows", "grouped", "serpentine", "hilbert"))
]
POINTS: list[tuple[str, Options]] = [
    *(("cluster", each) for each in SHARING),
    *(("persistent", each) for each in TAKING),
]
SHAPES = ((8, 8, 8), (128, 256, 64), (304, 520, 200), (256, 1032, 1608), (1000, 264, 72), (2056, 3080, 520))
RUNS = 100


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    """Yield a worker for the tests of this file."""
    with Worker(timeout=20) as each:
        yield each


@pytest.fixture(scope="module")
def arch(worker: Worker) -> str:
    """Return the device's architecture; the kernels have been compiled for it, many at once."""
    found = worker.info().arch
    for name in dict(POINTS):
        stage = find_stage(name)
        if stage.only in ("", found):
            compile_all(stage, [stage.case(found, **options) for other, options in POINTS if other == name])
    return found


@pytest.fixture(params=POINTS, ids=lambda point: " ".join(map(str, (point[0], *point[1].values()))))
def point(request: pytest.FixtureRequest, arch: str) -> Point:
    """Return a stage, the device's architecture and the options."""
    name, options = request.param
    stage = find_stage(name)
    if stage.only not in ("", arch):
        pytest.skip(f"{name} is for {stage.only}")
    return stage, arch, options


def sized(stage: GemmStage, arch: str, options: Options, shape: tuple[int, int, int]) -> Case:
    """Return the point of that shape."""
    return stage.case(arch, **options, **dict(zip("mnk", shape, strict=True)))


def test_it_is_exact_on_integers(worker: Worker, point: Point) -> None:
    """Less than a tile, odd tiles in a cluster, blocks without work, many tiles for a block."""
    stage = point[0]
    for shape in SHAPES:
        case = sized(*point, shape)
        result = worker.run(stage_job(stage, case, "ints"))
        found = Check(Problem.of(case), "ints", 0).read(result.arrays, "c")
        assert (found.verified, found.wrong) == (case.m * case.n, 0), case.key
        assert result.damaged_canaries == [], case.key


def test_it_leaves_all_as_the_next_launch_wants_it(worker: Worker, point: Point) -> None:
    """The same bits on every run, one after the other: no counter and no barrier is left over."""
    case = sized(*point, (1000, 3080, 520))
    result = worker.run(repeated_job(point[0], case, "normal", RUNS))
    assert [run for run in range(1, RUNS) if (result.arrays[f"c.{run}"] != result.arrays["c"]).any()] == []
