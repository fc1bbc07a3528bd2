"""Jobs that the tests of the GEMM bench send to a device, and what they hold them against."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxlab.assets import kernels_folder
from ptxlab.cli.gemm import Init
from ptxlab.device.job import Job, Launch
from ptxlab.errors import UsageError
from ptxlab.experiments.base import Case
from ptxlab.experiments.gemm import TYPES, GemmStage, Problem
from ptxlab.experiments.gemm.check import Check
from ptxlab.experiments.gemm.stage import MODULE
from ptxlab.experiments.unit import build_unit

NUMPY = {"f16": np.float16, "f32": np.float32}
INITS = tuple(each.value for each in Init)
LAYOUTS = ("nn", "nt", "tn", "tt")
TAILS = ((1, 1, 1), (17, 33, 5), (85, 85, 85), (128, 128, 128), (257, 129, 65), (40, 70, 1600))
"""Shapes (m, n, k): one element, odd tails in every dimension, whole tiles, and one that is deep."""


def copied_kernels(folder: Path) -> Path:
    """Copy the kernels there, of the stages wmma-naive alone: a test may damage them."""
    shutil.copytree(kernels_folder(), folder / "kernels")
    for stage in (folder / "kernels" / "gemm").iterdir():
        if stage.name != "wmma-naive":
            shutil.rmtree(stage)
    return folder / "kernels"


def problem(m: int, n: int, k: int, **types: str) -> Problem:
    """Return a problem; types are f16 tn, f32 accumulate, f16 out unless given."""
    return Problem(m, n, k, **({"dtype": "f16", "acc": "f32", "out": "f16", "layout": "tn"} | types))


def taken(stage: GemmStage, shape: tuple[int, int, int]) -> tuple[int, int, int]:
    """Return a shape (m, n, k), or the next larger one of the granules that the stage takes."""
    m, n, k = (-(-size // stage.granule) * stage.granule for size in shape)
    return m, n, k


def resized(stage: GemmStage, variant: Case, shape: tuple[int, int, int]) -> Iterator[Case]:
    """Yield a variant of that shape, or nothing where its own options do not go with it."""
    sizes = dict(zip("mnk", taken(stage, shape), strict=True))
    with contextlib.suppress(UsageError):
        yield stage.case(variant.arch, **variant.params | sizes)


def stage_job(stage: GemmStage, case: Case, init: str = "ints", seed: int = 0) -> Job:
    """Return the job: fill, one launch of the stage, check; A, B and C come back too."""
    check = Check(Problem.of(case), init, seed)
    cubin = build_unit(stage, [case], case.arch).cubin
    job = _job(check, case.arch, {MODULE: cubin}, (stage.launch(case),), None)
    return dataclasses.replace(job, buffers=(*job.buffers, *stage.scratch(case)))


def check_job(check: Check, arch: str, c: NDArray[Any]) -> Job:
    """Return the job that checks a result made by hand."""
    return _job(check, arch, {}, (), c)


def _job(
    check: Check,
    arch: str,
    modules: dict[str, bytes],
    launches: Sequence[Launch],
    c: NDArray[Any] | None,
) -> Job:
    buffers = [
        dataclasses.replace(each, download=True, data=c if each.name == "c" else each.data)
        for each in (*check.inputs(), *check.outputs("c"))
    ]
    steps = (*check.fills(), *check.refills("c"), *launches, *check.compares("c"))
    return Job(modules | check.modules(arch), tuple(buffers), steps)


def rounded(values: NDArray[np.float64], dtype: str) -> NDArray[np.float64]:
    """Return the nearest numbers of a type."""
    return TYPES[dtype].rounded(values)


def stored(logical: NDArray[np.float64], *, by_columns: bool, dtype: str) -> NDArray[np.uint8]:
    """Return the bytes of a logical matrix as they lie in memory."""
    order = "F" if by_columns else "C"
    flat = logical.ravel(order=order)
    if dtype == "bf16":  # the upper half of a float32
        return (flat.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    return flat.astype(NUMPY[dtype]).view(np.uint8)


def loaded(data: NDArray[np.uint8], rows: int, cols: int, *, by_columns: bool, dtype: str) -> NDArray[Any]:
    """Return the logical matrix, as float64, that lies in memory as these bytes."""
    if dtype == "bf16":
        flat = (data.view(np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    else:
        flat = data.view(NUMPY[dtype]).astype(np.float64)
    return flat.reshape((rows, cols), order="F" if by_columns else "C")
