"""Runs a stage on the device: fills, times against cuBLAS, checks every element, reads the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from ptxlab.bench import stats
from ptxlab.device.client import Worker
from ptxlab.device.job import (
    Argument,
    Buffer,
    CublasGemm,
    DeviceInfo,
    Job,
    JobResult,
    Launch,
    MapArgument,
    Samples,
    Step,
    Timing,
)
from ptxlab.errors import MissingError
from ptxlab.experiments.base import Case
from ptxlab.experiments.gemm.check import Check
from ptxlab.experiments.gemm.problem import TYPES, Problem
from ptxlab.experiments.gemm.reference import Comparison, Element
from ptxlab.experiments.gemm.stage import MODULE, GemmStage
from ptxlab.experiments.gemm.wrong import shape_of_wrong
from ptxlab.toolchain.build import Build

Call = Launch | CublasGemm

TIMING = "gemm"
BASELINE, ITSELF = "cublas", "self"

SLOWEST_FLOP_PER_SECOND = 1e12
"""What any stage is expected to reach; a time limit is made of it, no estimate."""

MOST_COPIES = 1000
"""Of the matrices of a cold run: a graph must hold a call for each."""

NO_PEAK = "no tensor peak has been measured on this card"
FIRST_FEW = 8  # wrong elements that are shown


@dataclass(frozen=True)
class Method:
    """How a stage is timed.

    Attributes:
        versus: "cublas", "self" (the stage once more: whatever differs is noise), or "none".
        cold: take copies of the matrices in turn, so that none lies in the L2 when its turn comes.
        warmup_ms: how long all sides run before the first sample.
        samples: of each side; 0 leaves timing out, and each side is called once.
        backwards: take the sides in the opposite order.

    """

    versus: str = BASELINE
    cold: bool = True
    warmup_ms: float = 3000.0
    samples: int = 20
    backwards: bool = False

    def copies(self, nbytes: int, l2_bytes: int) -> int:
        """Return how many copies of matrices of so many bytes fill the L2 twice."""
        return min(MOST_COPIES, max(1, -(-2 * l2_bytes // nbytes))) if self.cold else 1


@dataclass(frozen=True)
class Trial:
    """Points of a stage that all solve one problem, timed in one run, with the library beside them."""

    stage: GemmStage
    cases: tuple[Case, ...]
    check: Check
    method: Method

    @property
    def results(self) -> dict[str, str]:
        """What is timed: the name of each side, and of the buffer that it writes."""
        stages = {f"stage {i}": f"c.{i}" if i else "c" for i in range(len(self.cases))}
        beside = {BASELINE: {BASELINE: "c.cublas"}, ITSELF: {ITSELF: "c.self"}}
        return stages | beside.get(self.method.versus, {})

    def found(self, result: JobResult, side: str) -> Comparison:
        """Return what the check found in what a side wrote."""
        return self.check.read(result.arrays, self.results[side])

    @property
    def seconds(self) -> float:
        """How long the job may take on a slow card, beyond the user's own limit."""
        once = self.check.problem.flop / SLOWEST_FLOP_PER_SECOND
        calls = 2 * self.method.samples + 3
        return self.method.warmup_ms / 1000 + len(self.results) * (self.check.seconds + calls * once)

    def job(self, build: Build, l2_bytes: int) -> Job:
        """Return the job: fill the operands, time the sides, check what each wrote last.

        The check comes last, so that a stage that is right only the first time, such as one that adds
        to what C held, is found out. Where it is to be added, one more call follows on a fresh C.
        """
        calls = self._calls()
        buffers = (*self.check.inputs(), *self._scratch())
        checks: tuple[Step, ...] = ()
        for side, result in self.results.items():
            buffers += self.check.outputs(result)
            checks += self._once_more(calls[side], result) + self.check.compares(result)
        copies = self.method.copies(self.check.problem.nbytes, l2_bytes)
        rotated = ("a", "b", *self.results.values())
        return Job(
            {MODULE: build.cubin, **self.check.modules(self.cases[0].arch)},
            tuple(replace(each, copies=copies) if each.name in rotated else each for each in buffers),
            (*self.check.fills(), *self._timing(calls, copies), *checks),
        )

    def _scratch(self) -> tuple[Buffer, ...]:
        """Return what the kernels work with, once for all points: the largest of each name."""
        found = [each for case in self.cases for each in self.stage.scratch(case)]
        return tuple({each.name: each for each in sorted(found, key=lambda each: each.nbytes)}.values())

    def _timing(self, calls: dict[str, Call], copies: int) -> tuple[Step, ...]:
        """Return the timing, or one call of each side where no time is asked for."""
        sides = tuple(calls.items())[:: -1 if self.method.backwards else 1]
        if not self.method.samples:
            return tuple(call for _, call in sides)
        return (Timing(TIMING, sides, self.method.samples, self.method.warmup_ms, copies),)

    def _once_more(self, call: Call, result: str) -> tuple[Step, ...]:
        """Return a call on what C held before: none where beta is zero, and every call gives the same."""
        refills = self.check.refills(result)
        return (*refills, call) if refills else ()

    def _calls(self) -> dict[str, Call]:
        """Return one call of each side."""
        p, cases = self.check.problem, (*self.cases, self.cases[0])  # the last one: the stage once more
        launches = {side: self.stage.launch(case) for side, case in zip(self.results, cases, strict=False)}
        calls: dict[str, Call] = {
            side: replace(each, arguments=_written_to(self.results[side], each.arguments))
            for side, each in launches.items()
        }
        if BASELINE in self.results:
            buffers = ("a", "b", self.results[BASELINE])
            types = (p.dtype, p.acc, p.out, p.layout)
            calls[BASELINE] = CublasGemm(p.m, p.n, p.k, *types, *buffers, alpha=p.alpha, beta=p.beta)
        return calls


def _written_to(result: str, arguments: tuple[Argument, ...]) -> tuple[Argument, ...]:
    """Return the arguments of a launch with another result matrix."""

    def renamed(each: Argument) -> Argument:
        if isinstance(each, MapArgument) and each.buffer == "c":
            return replace(each, buffer=result)
        return result if isinstance(each, str) and each == "c" else each

    return tuple(map(renamed, arguments))


def measure(trial: Trial, build: Build, worker: Worker, device: DeviceInfo) -> JobResult:
    """Run the trial.

    Raises:
        MissingError: the device has less memory than the matrices take.
        DeviceError: the device timed out or faulted.

    """
    job = trial.job(build, device.l2_bytes)
    needed = sum(buffer.nbytes * buffer.copies for buffer in job.buffers)
    if needed > device.memory_bytes:
        raise MissingError(
            f"{trial.check.problem.shape} takes {needed / 2**30:.1f} GiB; "
            f"{device.name} has {device.memory_bytes / 2**30:.1f} GiB",
            "choose smaller -m, -n or -k",
        )
    return worker.run(job, timeout=worker.timeout + trial.seconds)


def rows(trial: Trial, result: JobResult, device: DeviceInfo) -> list[dict[str, Any]]:
    """Return the entries of ``result.stages`` for a trial that ran. Times are milliseconds a call."""
    copies = trial.method.copies(trial.check.problem.nbytes, device.l2_bytes)
    return [_row(trial, i, result, copies) for i in range(len(trial.cases))]


def _row(trial: Trial, index: int, result: JobResult, copies: int) -> dict[str, Any]:
    problem, side = trial.check.problem, f"stage {index}"
    timings = result.timings.get(TIMING, {})
    memory_rate = _memory_rate(problem, timings[side]) if timings else None
    return {
        "stage": trial.stage.name,
        "problem": str(problem),
        **asdict(problem),
        "options": trial.stage.own_options(trial.cases[index]),
        "init": trial.check.init,
        "seed": trial.check.seed,
        **(_times(timings[side], problem) if timings else UNTIMED),
        "l2": "cold" if trial.method.cold else "hot",
        "copies": copies,
        "bytes_per_second": memory_rate,
        **_against(timings, side, trial.method.versus),
        "repeats": None,
        "percent_of_measured_peak": None,
        "peak_note": NO_PEAK,
        **_verification(trial, result, side),
        "wrong_shape": shape_of_wrong(trial.stage, trial.cases[index], trial.found(result, side)),
        "infinite_inputs": trial.check.infinite_inputs(result),
        "cublas": _library(trial, result),
    }


def _memory_rate(problem: Problem, samples: Samples) -> float:
    """Return bytes that had to move at least, by the time."""
    return 1e3 * problem.nbytes / stats.median(samples.milliseconds)


UNTIMED = dict.fromkeys(
    ("milliseconds", "tflops", "clock_mhz", "power_w", "samples", "calls_per_sample", "throttled_samples")
) | {"throttle": []}
"""What a row says of its time where none was asked for."""


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
        "throttled_samples": sum(map(bool, samples.throttle)),
        "samples": len(samples.milliseconds),
        "calls_per_sample": samples.calls_per_sample,
    }


def _middle(values: Sequence[float]) -> float | None:
    return float(np.median(values)) if values else None


def _against(timings: Mapping[str, Samples], side: str, versus: str) -> dict[str, Any]:
    """Return how the stage's time compares with the library's, or with its own of the same run."""
    other = timings.get(versus)
    if other is None or not other.milliseconds:
        note = other.note if other else "not asked for (--vs cublas)"
        missing = ("percent_of_cublas", "percent_of_itself", "baseline", "verdict", "noise_floor_percent")
        return dict.fromkeys(missing) | {"baseline_note": note}
    compared = stats.compare(timings[side].milliseconds, other.milliseconds)
    return {
        "percent_of_cublas": 100 / compared.ratio if versus == BASELINE else None,
        "percent_of_itself": 100 / compared.ratio if versus == ITSELF else None,
        "baseline": other.baseline or "itself, timed once more",
        "baseline_note": "",
        "verdict": compared.verdict,
        "noise_floor_percent": 100 * compared.noise_floor,
    }


def _library(trial: Trial, result: JobResult) -> dict[str, Any] | None:
    """Return the library's own time and correctness: a comparison needs both sides to do the same."""
    library = result.timings.get(TIMING, {}).get(BASELINE)
    if library is None or not library.milliseconds:
        return None
    times = _times(library, trial.check.problem)
    return {"name": library.baseline, **times, **_verification(trial, result, BASELINE)}


def _verification(trial: Trial, result: JobResult, side: str) -> dict[str, Any]:
    """Return what the check found in what a side wrote, and whether all of it is proven."""
    problem, buffer = trial.check.problem, trial.results[side]
    found = trial.found(result, side)
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
    ulp = float(TYPES[out].spacing(np.array(found.reference)))
    permitted = max(found.high - found.reference, found.reference - found.low)
    return asdict(found) | {"ulp": ulp, "ulps": error / ulp, "permitted": permitted}
