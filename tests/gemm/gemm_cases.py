"""The points of a stage that the tests on a device launch, each list for a property of its own."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import product

from gemm_jobs import TAILS, checked, resized, stage_job, taken

from ptxlab.errors import PtxlabError, UsageError
from ptxlab.experiments.base import Case, Value
from ptxlab.experiments.gemm import GemmStage, Problem
from ptxlab.experiments.unit import kernel_name

SCALES = ((2.0, -1.0), (0.5, 0.25), (0.0, 1.0), (1.0, 1.0))
"""Alpha and beta: beta is never zero, so that C is read."""

EDGES = ((0.4, 0.4, 0.4), (1, 1, 1), (2.9, 1, 4.4), (1, 2.9, 5), (3, 4.9, 9.2), (1, 1, 30.1))
"""Sizes (m, n, k) in tiles: less than one, one, odd numbers of them, and depths that no ring divides."""

FEW_BLOCKS = 4
"""Blocks of a persistent kernel that share the tiles of EDGES: some have many, and some none."""

DEEP = ((257, 260, 1000), (130, 132, 8192))
"""Shapes whose sums depend on their order; of the second one tiles may be split along k."""

LARGE = (2200, 2056, 520)
"""A shape that keeps all SMs busy, some with more tiles than others."""

ALTERNATING = ((64, 48, 80), (264, 136, 200), (48, 64, 80), (33, 47, 96), (520, 264, 72), (64, 48, 80))


@cache
def variants(stage: GemmStage, arch: str) -> tuple[Case, ...]:
    """Return the variants of a stage: to choose the plans of hundreds takes a while."""
    return tuple(stage.variants(arch))


def integer_cases(stage: GemmStage, arch: str) -> list[Case]:
    """Return every variant over tails."""
    return [
        case
        for variant in variants(stage, arch)
        for shape in TAILS
        for case in resized(stage, variant, shape)
    ]


def edge_cases(stage: GemmStage, arch: str) -> list[Case]:
    """Return every choice of the stage's own options over the edges of its tiles, with few blocks.

    C holds every bit of the sums, where a type can, so that none is lost unseen.
    """
    return [case for variant in variants(stage, arch) for case in _edges(stage, variant)]


def _edges(stage: GemmStage, variant: Case) -> Iterator[Case]:
    options = stage.options()
    if any(variant.params[name] != options[name].default for name in GemmStage.options()):
        return  # types and layouts have nothing to do with edges
    own: dict[str, Value] = {"blocks": FEW_BLOCKS} if "blocks" in options else {}
    own |= {"out": "f32"} if "f32" in options["out"].choices else {}
    tile = stage.tile(variant)
    for edges in EDGES:
        m, n, k = (int(size * times) for size, times in zip(tile, edges, strict=True))
        sizes = dict(zip("mnk", taken(stage, (m, n, k)), strict=True))
        with contextlib.suppress(UsageError):  # such as more splits than there are steps
            yield stage.case(variant.arch, **variant.params | sizes | own)


def scaled_cases(stage: GemmStage, arch: str) -> list[Case]:
    """Return every type of C with factors that need what C held before; s32 takes none."""
    m, n, k = taken(stage, (85, 70, 33))
    return [
        stage.case(arch, m=m, n=n, k=k, out=out, alpha=alpha, beta=beta)
        for out in stage.options()["out"].choices
        for alpha, beta in SCALES
        if out != "s32"
    ]


def normal_cases(stage: GemmStage, arch: str) -> list[Case]:
    """Return every type of operands and sums, deep enough that the order of these shows."""
    types = product(stage.options()["dtype"].choices, stage.options()["acc"].choices, DEEP)
    deep = [case for dtype, acc, shape in types for case in _deep(stage, arch, str(dtype), str(acc), shape)]
    return deep + (_in_other_ways(stage, arch) if stage.planned else [])


def _in_other_ways(stage: GemmStage, arch: str) -> list[Case]:
    """Return a problem cut up as the model cuts none of these: even shares, and tiles that blocks share."""
    m, n, k = taken(stage, DEEP[0])
    sizes: dict[str, Value] = {"m": m, "n": n, "k": k, "out": "f32", "blocks": FEW_BLOCKS, "block": "64x64"}
    even = [("stream-k", "1x1", role) for role in ("ping-pong", "single", "alone")]
    shared = product(("memory",), ("1x2", "2x1", "2x2"), ("ping-pong", "single"))
    return [
        stage.case(arch, **sizes, splits=1, adding=adding, cluster_shape=shape, roles=role)
        for adding, shape, role in (*even, *shared)
    ]


def _deep(stage: GemmStage, arch: str, dtype: str, acc: str, shape: tuple[int, int, int]) -> Iterator[Case]:
    m, n, k = taken(stage, shape)
    with contextlib.suppress(UsageError):  # types that do not go together
        yield stage.case(arch, m=m, n=n, k=k, dtype=dtype, acc=acc, out="f32")


def large_cases(stage: GemmStage, arch: str) -> list[Case]:
    """Return a problem that takes the whole device, and whose C holds every bit of the sums."""
    m, n, k = taken(stage, LARGE)
    return [stage.case(arch, m=m, n=n, k=k, out="f32")]


def alternating_cases(stage: GemmStage, arch: str) -> list[Case]:
    """Return shapes that follow each other, the first one twice."""
    shapes = (taken(stage, shape) for shape in ALTERNATING)
    return [stage.case(arch, m=m, n=n, k=k) for m, n, k in shapes]


def sanitized_cases(stage: GemmStage, arch: str) -> list[Case]:
    """Return a tail and whole tiles in every layout, small: a sanitizer takes its time."""
    return [
        stage.case(arch, m=m, n=n, k=k, layout=layout)
        for layout in stage.options()["layout"].choices
        for m, n, k in (taken(stage, (33, 17, 40)), (64, 64, 64))
    ]


def compile_all(stage: GemmStage, cases: Sequence[Case], init: str = "ints") -> None:
    """Put into the cache what these points need, each kernel once, in as many children as there are cores."""
    points = {(kernel_name(stage, stage.macros(case)), checked(Problem.of(case))): case for case in cases}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda case: _compile(stage, case, init), points.values()))


def _compile(stage: GemmStage, case: Case, init: str) -> None:
    with contextlib.suppress(PtxlabError):  # it fails again in the test
        stage_job(stage, case, init)
