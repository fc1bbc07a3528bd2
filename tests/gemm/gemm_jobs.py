"""Jobs that the tests of the GEMM bench send to a device, and what they hold them against."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxlab.assets import kernels_folder
from ptxlab.cli.gemm import Init
from ptxlab.device.job import Argument, Buffer, Job, JobResult, Launch, MapArgument, Step
from ptxlab.errors import UsageError
from ptxlab.experiments.base import Case
from ptxlab.experiments.gemm import TYPES, GemmStage, Problem
from ptxlab.experiments.gemm.activation import activated
from ptxlab.experiments.gemm.check import Check
from ptxlab.experiments.gemm.measure import Entrant
from ptxlab.experiments.gemm.reference import fill
from ptxlab.experiments.gemm.stage import MODULE
from ptxlab.experiments.unit import build_unit, kernel_name
from ptxlab.isa.numbers import decode, encode

NUMPY = {"f16": np.float16, "f32": np.float32}
INITS = tuple(each.value for each in Init)
LAYOUTS = ("nn", "nt", "tn", "tt")
TAILS = ((1, 1, 1), (17, 33, 5), (85, 85, 85), (128, 128, 128), (257, 129, 65), (40, 70, 1600))
"""Shapes (m, n, k): one element, odd tails in every dimension, whole tiles, and one that is deep."""


_BUILT: dict[tuple[object, ...], dict[str, bytes]] = {}
"""Cubins of this process: to find one in the cache takes as long as to launch it. No test changes a kernel
whose job it has made before.
"""


def copied_kernels(folder: Path) -> Path:
    """Copy the kernels there, of the stages wmma-naive alone: a test may damage them."""
    shutil.copytree(kernels_folder(), folder / "kernels")
    for stage in (folder / "kernels" / "gemm").iterdir():
        if stage.is_dir() and stage.name != "wmma-naive":
            shutil.rmtree(stage)
    return folder / "kernels"


def problem(m: int, n: int, k: int, **parts: Any) -> Problem:
    """Return a problem: f16 tn, f32 accumulate, f16 out unless given."""
    return Problem(m, n, k, **({"dtype": "f16", "acc": "f32", "out": "f16", "layout": "tn"} | parts))


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
    modules, launches = {MODULE: _cubin(stage, case)}, (stage.launch(case),)
    job = _job(check, case.arch, modules, launches, None, one_chain=stage.one_chain(case))
    return dataclasses.replace(job, buffers=(*job.buffers, *stage.scratch(case)))


def _cubin(stage: GemmStage, case: Case) -> bytes:
    key = (case.arch, stage.source, kernel_name(stage, stage.macros(case)))
    if key not in _BUILT:
        _BUILT[key] = {MODULE: build_unit(stage, [case], case.arch).cubin}
    return _BUILT[key][MODULE]


def _modules(check: Check, arch: str) -> dict[str, bytes]:
    key = (arch, check.init, checked(check.problem))
    if key not in _BUILT:
        _BUILT[key] = check.modules(arch)
    return _BUILT[key]


def checked(p: Problem) -> tuple[str, str, str, bool, bool, str]:
    """Return what the check's kernels depend on, beside the fill."""
    return p.dtype, p.acc, p.out, p.beta != 0, p.bias, p.activation


def repeated_job(stage: GemmStage, case: Case, init: str, runs: int) -> Job:
    """Return the job that launches so many times over the same A and B, into "c", "c.1", "c.2", ..."""
    job = stage_job(stage, case, init)
    again = [f"c.{run}" for run in range(1, runs)]
    nbytes = Problem.of(case).c.nbytes
    entrant = Entrant(stage, case, job.modules[MODULE])
    launches = [dataclasses.replace(entrant.launch(name), module=MODULE) for name in again]
    buffers = [Buffer(name, nbytes, download=True) for name in again]
    return Job(job.modules, (*job.buffers, *buffers), (*job.steps, *launches))


def together(jobs: Sequence[Job]) -> Job:
    """Return one job that does them all, each on buffers of its own; equal cubins are loaded once."""
    modules: dict[str, bytes] = {}
    buffers: list[Buffer] = []
    steps: list[Step] = []
    for number, job in enumerate(jobs):
        places = {name: _place(cubin) for name, cubin in job.modules.items()}
        modules |= {places[name]: cubin for name, cubin in job.modules.items()}
        buffers += [dataclasses.replace(each, name=f"{number}:{each.name}") for each in job.buffers]
        steps += [_moved(each, places, number) for each in job.steps if isinstance(each, Launch)]
    return Job(modules, tuple(buffers), tuple(steps))


def apart(result: JobResult, count: int) -> list[JobResult]:
    """Return the results of the jobs that one did together."""

    def of(number: int) -> JobResult:
        start = f"{number}:"
        arrays = {name[len(start) :]: each for name, each in result.arrays.items() if name.startswith(start)}
        return JobResult(arrays, [each for each in result.damaged_canaries if each.startswith(start)])

    return [of(number) for number in range(count)]


def _place(cubin: bytes) -> str:
    return hashlib.sha256(cubin).hexdigest()


def _moved(launch: Launch, modules: dict[str, str], number: int) -> Launch:
    def moved(each: Argument) -> Argument:
        if isinstance(each, MapArgument):
            return dataclasses.replace(each, buffer=f"{number}:{each.buffer}")
        return f"{number}:{each}" if isinstance(each, str) else each

    arguments = tuple(map(moved, launch.arguments))
    return dataclasses.replace(launch, module=modules[launch.module], arguments=arguments)


def by_numpy(p: Problem, init: str, seed: int = 0) -> NDArray[np.float64]:
    """Return what the result of a problem with these inputs is before it is rounded."""
    a, b, c, bias = (fill(p, init, seed, which) for which in ("a", "b", "c", "bias"))
    return activated(p.activation, p.alpha * (a @ b) + p.beta * c + (bias if p.bias else 0.0))


def check_job(check: Check, arch: str, c: NDArray[Any], *, one_chain: bool = False) -> Job:
    """Return the job that checks a result made by hand."""
    return _job(check, arch, {}, (), c, one_chain=one_chain)


def _job(
    check: Check,
    arch: str,
    modules: dict[str, bytes],
    launches: Sequence[Launch],
    c: NDArray[Any] | None,
    *,
    one_chain: bool = False,
) -> Job:
    buffers = [
        dataclasses.replace(each, download=True, data=c if each.name == "c" else each.data)
        for each in (*check.inputs(), *check.outputs("c"))
    ]
    compares = check.compares("c", one_chain=one_chain)
    steps = (*check.fills(), *check.refills("c"), *launches, *compares)
    return Job(modules | _modules(check, arch), tuple(buffers), steps)


def rounded(values: NDArray[np.float64], dtype: str) -> NDArray[np.float64]:
    """Return the nearest numbers of a type."""
    return TYPES[dtype].rounded(values)


def stored(logical: NDArray[np.float64], *, by_columns: bool, dtype: str) -> NDArray[np.uint8]:
    """Return the bytes of a logical matrix as they lie in memory."""
    order = "F" if by_columns else "C"
    flat = logical.ravel(order=order)
    if dtype in NUMPY:  # which infinities and NaN are numbers of, too
        return flat.astype(NUMPY[dtype]).view(np.uint8)
    return encode(flat, dtype).astype(f"<u{TYPES[dtype].nbytes}").view(np.uint8)


def loaded(data: NDArray[np.uint8], rows: int, cols: int, *, by_columns: bool, dtype: str) -> NDArray[Any]:
    """Return the logical matrix, as float64, that lies in memory as these bytes."""
    flat = decode(data.view(f"<u{TYPES[dtype].nbytes}").astype(np.uint64), dtype).astype(np.float64)
    return flat.reshape((rows, cols), order="F" if by_columns else "C")
