"""Runs one stage on the device: fills, times against cuBLAS, checks every element, reads the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ptxlab.bench import stats
from ptxlab.device.client import Worker
from ptxlab.device.job import CublasGemm, DeviceInfo, Job, JobResult, Launch, Samples, Timing
from ptxlab.errors import MissingError
from ptxlab.experiments.base import Case
from ptxlab.experiments.gemm.check import Check
from ptxlab.experiments.gemm.problem import TYPES, Problem
from ptxlab.experiments.gemm.reference import Element
from ptxlab.experiments.gemm.stage import MODULE, GemmStage
from ptxlab.toolchain.build import Build

TIMING = "gemm"
STAGE, BASELINE = "stage", "cublas"
RESULTS = {STAGE: "c", BASELINE: "c.cublas"}
"""The buffer that each side writes."""

SAMPLES = 20
WARMUP_MS = 300.0
SLOWEST_FLOP_PER_SECOND = 1e12
"""What any stage is expected to reach; a time limit is made of it, no estimate."""

NO_PEAK = "no tensor peak has been measured on this card"
FIRST_FEW = 8  # wrong elements that are shown


@dataclass(frozen=True)
class Trial:
    """A stage, a problem, the inputs, and whether the library runs beside it."""

    stage: GemmStage
    case: Case
    check: Check
    versus: str

    @property
    def sides(self) -> tuple[str, ...]:
        """The names of what is timed."""
        return (STAGE, BASELINE) if self.versus == BASELINE else (STAGE,)

    @property
    def seconds(self) -> float:
        """How long the job may take on a slow card, beyond the user's own limit."""
        once = self.check.problem.flop / SLOWEST_FLOP_PER_SECOND
        return len(self.sides) * (self.check.seconds + (SAMPLES + 3) * once)

    def job(self, build: Build) -> Job:
        """Return the job: fill the operands, time the sides, check what each wrote last.

        The check comes last, so that a stage that is right only the first time, such as one that adds
        to what C held, is found out.
        """
        buffers = self.check.inputs()
        compares: tuple[Launch, ...] = ()
        for side in self.sides:
            buffers += self.check.outputs(RESULTS[side])
            compares += self.check.compares(RESULTS[side])
        timing = Timing(TIMING, self._timed(), samples=SAMPLES, warmup_ms=WARMUP_MS)
        modules = {MODULE: build.cubin, **self.check.modules(self.case.arch)}
        return Job(modules, buffers, (*self.check.fills(), timing, *compares))

    def _timed(self) -> tuple[tuple[str, Launch | CublasGemm], ...]:
        p = self.check.problem
        library = CublasGemm(p.m, p.n, p.k, p.dtype, p.acc, p.out, p.layout, "a", "b", RESULTS[BASELINE])
        calls: dict[str, Launch | CublasGemm] = {STAGE: self.stage.launch(self.case), BASELINE: library}
        return tuple((side, calls[side]) for side in self.sides)


def measure(trial: Trial, build: Build, worker: Worker, device: DeviceInfo) -> JobResult:
    """Run the trial.

    Raises:
        MissingError: the device has less memory than the matrices take.
        DeviceError: the device timed out or faulted.

    """
    job = trial.job(build)
    needed = sum(buffer.nbytes for buffer in job.buffers)
    if needed > device.memory_bytes:
        raise MissingError(
            f"{trial.check.problem.shape} takes {needed / 2**30:.1f} GiB; "
            f"{device.name} has {device.memory_bytes / 2**30:.1f} GiB",
            "choose smaller -m, -n or -k",
        )
    return worker.run(job, timeout=worker.timeout + trial.seconds)


def row(trial: Trial, result: JobResult) -> dict[str, Any]:
    """Return the entry of ``result.stages`` for a trial that ran. Times are milliseconds a call."""
    problem = trial.check.problem
    timings = result.timings[TIMING]
    return {
        "stage": trial.stage.name,
        **asdict(problem),
        "init": trial.check.init,
        "seed": trial.check.seed,
        **_times(timings[STAGE], problem),
        **_against(timings),
        "percent_of_measured_peak": None,
        "peak_note": NO_PEAK,
        **_verification(trial, result, STAGE),
        "infinite_inputs": trial.check.infinite_inputs(result),
        "cublas": _library(trial, result),
    }


def _times(samples: Samples, problem: Problem) -> dict[str, Any]:
    """Return the time of a side, and the conditions under which it was taken."""
    middle = stats.median(samples.milliseconds)
    interval = stats.median_interval(samples.milliseconds)
    return {
        "milliseconds": {"median": middle, "low": interval.low, "high": interval.high},
        "tflops": problem.flop / middle / 1e9,
        "clock_mhz": _middle(samples.clock_mhz),
        "power_w": _middle(samples.power_w),
        "throttle": sorted({each for each in samples.throttle if each}),
        "samples": len(samples.milliseconds),
        "calls_per_sample": samples.calls_per_sample,
        "l2": "hot",
    }


def _middle(values: Sequence[float]) -> float | None:
    return float(np.median(values)) if values else None


def _against(timings: Mapping[str, Samples]) -> dict[str, Any]:
    """Return how the stage's time compares with the library's."""
    library = timings.get(BASELINE)
    if library is None or not library.milliseconds:
        note = library.note if library else "not asked for (--vs cublas)"
        missing = ("percent_of_cublas", "baseline", "verdict", "noise_floor_percent")
        return dict.fromkeys(missing) | {"baseline_note": note}
    compared = stats.compare(timings[STAGE].milliseconds, library.milliseconds)
    return {
        "percent_of_cublas": 100 / compared.ratio,
        "baseline": library.baseline,
        "baseline_note": "",
        "verdict": compared.verdict,
        "noise_floor_percent": 100 * compared.noise_floor,
    }


def _library(trial: Trial, result: JobResult) -> dict[str, Any] | None:
    """Return the library's own time and correctness: a comparison needs both sides to do the same."""
    library = result.timings[TIMING].get(BASELINE)
    if library is None or not library.milliseconds:
        return None
    times = _times(library, trial.check.problem)
    return {"name": library.baseline, **times, **_verification(trial, result, BASELINE)}


def _verification(trial: Trial, result: JobResult, side: str) -> dict[str, Any]:
    """Return what the check found in what a side wrote, and whether all of it is proven."""
    problem, buffer = trial.check.problem, RESULTS[side]
    found = trial.check.read(result.arrays, buffer)
    damage = [each for each in result.damaged_canaries if each.partition(":")[0] == buffer]
    return {
        "verified": found.verified == problem.m * problem.n and not damage,
        "verified_elements": found.verified,
        "wrong": found.wrong,
        "overflow": found.overflow,
        "infinite_references": found.infinite,
        "nan_references": found.nan,
        "max_error": found.max_error,
        "max_error_at": element(found.worst, problem.out) if found.worst else None,
        "first_wrong": [element(each, problem.out) for each in found.first_wrong[:FIRST_FEW]],
        "damage": damage,
    }


def element(found: Element, out: str) -> dict[str, Any]:
    """Return an element as JSON: where it is, what it is, what it should be, its error in ulps.

    ``ulp`` is the spacing of the output type at the reference, ``permitted`` the largest error that
    would still be right there.
    """
    error = abs(found.result - found.reference)
    ulp = float(np.spacing(np.abs(TYPES[out].numpy(found.reference))))
    permitted = max(found.high - found.reference, found.reference - found.low)
    return asdict(found) | {"ulp": ulp, "ulps": error / ulp, "permitted": permitted}
