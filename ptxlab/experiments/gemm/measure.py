"""Runs points of stages on the device: fills, times all sides in turn, checks every element."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from ptxlab.bench import stats
from ptxlab.device.client import Worker
from ptxlab.device.job import (
    LT,
    TORCH,
    Argument,
    Buffer,
    CublasGemm,
    DeviceInfo,
    Job,
    JobResult,
    Launch,
    MapArgument,
    Report,
    Samples,
    Step,
    Timing,
)
from ptxlab.errors import MissingError
from ptxlab.experiments.base import Case
from ptxlab.experiments.gemm.ceiling import Loop
from ptxlab.experiments.gemm.check import BIAS, Check
from ptxlab.experiments.gemm.clock import clocks, with_share
from ptxlab.experiments.gemm.machine import machine
from ptxlab.experiments.gemm.problem import TYPES, Problem
from ptxlab.experiments.gemm.reference import Comparison, Element
from ptxlab.experiments.gemm.stage import MODULE, GemmStage
from ptxlab.experiments.gemm.wrong import shape_of_wrong

Call = Launch | CublasGemm

TIMING = "gemm"
ITSELF = "self"
LIBRARIES = {"cublas": LT, "torch": TORCH}
"""The sides that are the baseline, and which library each is; the faster one counts."""

SLOWEST_FLOP_PER_SECOND = 1e12
"""What any stage is expected to reach; a time limit is made of it, no estimate."""

SIDE_SECONDS = 3.0
"""Of a side for what does not grow with the problem: graphs, the choice of an algorithm, short samples."""

MOST_COPIES = 1000
"""Of the matrices of a cold run: a graph must hold a call for each."""

FIRST_FEW = 8  # wrong elements that are shown


@dataclass(frozen=True)
class Method:
    """How stages are timed.

    Attributes:
        versus: "cublas", "self" (the first stage once more: whatever differs is noise), or "none".
        cold: take copies of the matrices in turn, so that none lies in the L2 when its turn comes.
        warmup_ms: how long all sides run before the first sample.
        samples: of each side; 0 leaves timing out, and each side is called once.
        backwards: take the sides in the opposite order.

    """

    versus: str = "cublas"
    cold: bool = True
    warmup_ms: float = 3000.0
    samples: int = 20
    backwards: bool = False

    def copies(self, nbytes: int, l2_bytes: int) -> int:
        """Return how many copies of matrices of so many bytes fill the L2 twice."""
        return min(MOST_COPIES, max(1, -(-2 * l2_bytes // nbytes))) if self.cold else 1


@dataclass(frozen=True)
class Entrant:
    """A point of a stage, compiled: its SASS is what the stage claims."""

    stage: GemmStage
    case: Case
    cubin: bytes

    @property
    def module(self) -> str:
        """Its cubin's name in a job: points of one stage may be compiled apart."""
        return f"{MODULE} {self.stage.name} {hashlib.sha256(self.cubin).hexdigest()[:8]}"

    def launch(self, result: str) -> Launch:
        """Return the launch that writes the result matrix of that name."""
        launch = self.stage.launch(self.case)
        return replace(launch, module=self.module, arguments=_written_to(result, launch.arguments))


@dataclass(frozen=True)
class Trial:
    """Points that all solve one problem, timed in one run, with libraries and ceilings beside them."""

    entrants: tuple[Entrant, ...]
    check: Check
    method: Method
    loops: tuple[Loop, ...] = ()

    @property
    def results(self) -> dict[str, str]:
        """What multiplies the matrices: the name of each side, and of the buffer that it writes."""
        stages = {side(i): f"c.{i}" if i else "c" for i in range(len(self.entrants))}
        beside = {"cublas": LIBRARIES, ITSELF: (ITSELF,)}.get(self.method.versus, ())
        return stages | {name: f"c.{name}" for name in beside}

    def found(self, result: JobResult, side: str) -> Comparison:
        """Return what the check found in what a side wrote."""
        return self.check.read(result.arrays, self.results[side])

    @property
    def seconds(self) -> float:
        """How long the job may take on a slow card, beyond the user's own limit."""
        once = self.check.problem.flop / SLOWEST_FLOP_PER_SECOND
        calls = 2 * self.method.samples + 3
        sides = len(self.results) * (self.check.seconds + calls * once)
        if self.method.samples:
            sides += (len(self.results) + len(self.loops)) * SIDE_SECONDS
        return self.method.warmup_ms / 1000 + sides

    def job(self, l2_bytes: int) -> Job:
        """Return the job: fill the operands, time the sides, check what each wrote last.

        The check comes last, so that a stage that is right only the first time, such as one that adds
        to what C held, is found out. Where it is to be added, one more call follows on a fresh C.
        """
        calls = self._calls()
        buffers = (*self.check.inputs(), *self._scratch())
        checks: tuple[Step, ...] = ()
        chains = {side(i): each.stage.one_chain(each.case) for i, each in enumerate(self.entrants)}
        for name, result in self.results.items():
            buffers += self.check.outputs(result)
            checks += self._once_more(calls[name], result)
            checks += self.check.compares(
                result, by_library=name in LIBRARIES, one_chain=chains.get(name, False)
            )
        copies = self.method.copies(self.check.problem.nbytes, l2_bytes)
        rotated = ("a", "b", *self.results.values())
        buffers = tuple(replace(each, copies=copies) if each.name in rotated else each for each in buffers)
        stages = {each.module: each.cubin for each in self.entrants}
        ceilings = {loop.side: loop.cubin for loop in self.loops}
        return Job(
            stages | ceilings | self.check.modules(self.entrants[0].case.arch),
            (*buffers, *(buffer for loop in self.loops for buffer in loop.buffers())),
            (*self.check.fills(), *self._timing(calls, copies), *checks),
        )

    def rehearsal(self, entrant: Entrant) -> Job:
        """Return the job that launches one of the points once, to see whether the device survives it."""
        outputs = self.check.outputs("c")
        steps = (*self.check.fills(), *self.check.refills("c"), entrant.launch("c"))
        modules = {entrant.module: entrant.cubin, **self.check.modules(entrant.case.arch)}
        return Job(modules, (*self.check.inputs(), *outputs[:1], *entrant.stage.scratch(entrant.case)), steps)

    def _scratch(self) -> tuple[Buffer, ...]:
        """Return what the kernels work with, once for all points: the largest of each name."""
        found = [each for entrant in self.entrants for each in entrant.stage.scratch(entrant.case)]
        return tuple({each.name: each for each in sorted(found, key=lambda each: each.nbytes)}.values())

    def _timing(self, calls: dict[str, Call], copies: int) -> tuple[Step, ...]:
        """Return the timing, or one call of each side where no time is asked for."""
        if not self.method.samples:
            return tuple(calls.values())
        sides = (*calls.items(), *((loop.side, loop.launch()) for loop in self.loops))
        sides = sides[:: -1 if self.method.backwards else 1]
        return (Timing(TIMING, sides, self.method.samples, self.method.warmup_ms, copies),)

    def _once_more(self, call: Call, result: str) -> tuple[Step, ...]:
        """Return a call on what C held before: none where beta is zero, and every call gives the same."""
        refills = self.check.refills(result)
        return (*refills, call) if refills else ()

    def _calls(self) -> dict[str, Call]:
        """Return one call of each side."""
        p, entrants = self.check.problem, (*self.entrants, self.entrants[0])  # the first one once more
        launched = [name for name in self.results if name not in LIBRARIES]
        calls: dict[str, Call] = {
            name: each.launch(self.results[name]) for name, each in zip(launched, entrants, strict=False)
        }
        types = (p.dtype, p.acc, p.out, p.layout)
        for name in self.results.keys() & LIBRARIES.keys():
            calls[name] = CublasGemm(
                *(p.m, p.n, p.k, *types, "a", "b", self.results[name]),
                alpha=p.alpha,
                beta=p.beta,
                bias=BIAS if p.bias else "",
                activation=p.activation,
                promoted=p.promoted,
                library=LIBRARIES[name],
            )
        return {name: calls[name] for name in self.results}


def side(index: int) -> str:
    """Return the name of a stage's side."""
    return f"stage {index}"


def _written_to(result: str, arguments: tuple[Argument, ...]) -> tuple[Argument, ...]:
    """Return the arguments of a launch with another result matrix."""

    def renamed(each: Argument) -> Argument:
        if isinstance(each, MapArgument) and each.buffer == "c":
            return replace(each, buffer=result)
        return result if isinstance(each, str) and each == "c" else each

    return tuple(map(renamed, arguments))


def measure(trial: Trial, worker: Worker, device: DeviceInfo, report: Report = lambda _: None) -> JobResult:
    """Run the trial.

    Raises:
        MissingError: the device has less memory than the matrices take.
        DeviceError: the device timed out or faulted.

    """
    job = trial.job(device.l2_bytes)
    needed = sum(buffer.nbytes * buffer.copies for buffer in job.buffers)
    if needed > device.memory_bytes:
        raise MissingError(
            f"{trial.check.problem.shape} takes {needed / 2**30:.1f} GiB; "
            f"{device.name} has {device.memory_bytes / 2**30:.1f} GiB",
            "choose smaller -m, -n or -k",
        )
    return worker.run(job, timeout=worker.timeout + trial.seconds, report=report)


def rows(trial: Trial, result: JobResult, device: DeviceInfo) -> list[dict[str, Any]]:
    """Return the entries of ``result.stages`` for a trial that ran. Times are milliseconds a call."""
    copies = trial.method.copies(trial.check.problem.nbytes, device.l2_bytes)
    peaks = {row["ceiling"]: row for row in ceilings(trial, result)}
    gpu = machine(device.arch, device.name, device.multiprocessors)
    found = [_row(trial, i, result, copies, peaks) for i in range(len(trial.entrants))]
    return [with_share(row, trial.check.problem, gpu) for row in found]


def ceilings(trial: Trial, result: JobResult) -> list[dict[str, Any]]:
    """Return what the ceilings reached in the same run."""
    timings = result.timings.get(TIMING, {})
    return [loop.read(result, timings[loop.side]) for loop in trial.loops if loop.side in timings]


def _row(
    trial: Trial, index: int, result: JobResult, copies: int, peaks: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    problem, entrant = trial.check.problem, trial.entrants[index]
    timings = result.timings.get(TIMING, {})
    own = timings.get(side(index))
    libraries = _libraries(trial, result)
    row = {
        "stage": entrant.stage.name,
        "problem": str(problem),
        **problem.told(),
        "options": entrant.stage.own_options(entrant.case),
        "init": trial.check.init,
        "seed": trial.check.seed,
        **(_times(own, problem) if own else UNTIMED),
        "l2": "cold" if trial.method.cold else "hot",
        "copies": copies,
        "bytes_per_second": _memory_rate(problem, own) if own else None,
        **_against(trial, result, index, libraries),
        "gain": None,
        "repeats": None,
        **_verification(trial, result, side(index)),
        "wrong_shape": shape_of_wrong(entrant.stage, entrant.case, trial.found(result, side(index))),
        "infinite_inputs": trial.check.infinite_inputs(result),
        "cublas": libraries[0] if libraries else None,
        "libraries": libraries,
    }
    return row | _of_peak(row["tflops"], entrant.stage, peaks)


def _of_peak(tflops: float | None, stage: GemmStage, peaks: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return how much of the ceiling of its instruction a stage reached, or why that is not known."""
    peak = peaks.get(stage.ceiling)
    if tflops is None or peak is None:
        told = f"no ceiling '{stage.ceiling}' has run on this device" if stage.ceiling else "it names none"
        note = "not timed" if tflops is None else told
        return {"percent_of_measured_peak": None, "peak": None, "peak_note": note}
    percent = 100 * tflops / peak["tflops"]
    return {"percent_of_measured_peak": percent, "peak": peak, "peak_note": ""}


def _memory_rate(problem: Problem, samples: Samples) -> float:
    """Return bytes that had to move at least, by the time."""
    return 1e3 * problem.nbytes / stats.median(samples.milliseconds)


UNTIMED = dict.fromkeys(
    (
        *("milliseconds", "tflops", "clock_mhz", "clock_source", "nvml_mhz", "power_w"),
        *("samples", "calls_per_sample", "throttled_samples"),
    )
) | {"throttle": []}
"""What a row says of its time where none was asked for."""

UNCOMPARED: dict[str, Any] = dict.fromkeys(
    (
        "percent_of_cublas",
        "percent_of_itself",
        "percent_interval",
        "baseline",
        "verdict",
        "noise_floor_percent",
    )
)
"""What a row says of a baseline where there is none."""


def _times(samples: Samples, problem: Problem) -> dict[str, Any]:
    """Return the time of a side, and the conditions under which it was taken."""
    middle = stats.median(samples.milliseconds)
    interval = stats.median_interval(samples.milliseconds)
    return {
        "milliseconds": {"median": middle, "low": interval.low, "high": interval.high},
        "tflops": problem.flop / middle / 1e9,
        **clocks(samples),
        "power_w": _middle(samples.power_w),
        "throttle": sorted({each for each in samples.throttle if each}),
        "throttled_samples": sum(map(bool, samples.throttle)),
        "samples": len(samples.milliseconds),
        "calls_per_sample": samples.calls_per_sample,
    }


def _middle(values: Sequence[float]) -> float | None:
    return float(np.median(values)) if values else None


def _against(trial: Trial, result: JobResult, index: int, libraries: list[dict[str, Any]]) -> dict[str, Any]:
    """Return how the stage's time compares with the faster library's, or with its own of the same run.

    What is not verified is not compared: a wrong result may take any time.
    """
    timings = result.timings.get(TIMING, {})
    if not timings:
        return UNCOMPARED | {"baseline_note": "not timed"}
    if not _verification(trial, result, side(index))["verified"]:
        return UNCOMPARED | {"baseline_note": "not compared: its result is not verified"}
    right = [each["side"] for each in libraries if each["verified"]]
    right += [ITSELF] if index == 0 and ITSELF in timings else []
    if not right:
        notes = [timings[name].note for name in LIBRARIES if name in timings and timings[name].note]
        notes += [f"the result of {each['name']} is not verified" for each in libraries]
        notes += ["the first point alone is timed once more"] if ITSELF in timings else []
        return UNCOMPARED | {"baseline_note": "; ".join(notes) or "not asked for (--vs cublas)"}
    other = right[0]
    compared = stats.compare(timings[side(index)].milliseconds, timings[other].milliseconds)
    return {
        "percent_of_cublas": None if other == ITSELF else 100 / compared.ratio,
        "percent_of_itself": 100 / compared.ratio if other == ITSELF else None,
        "percent_interval": {"low": 100 / compared.interval.high, "high": 100 / compared.interval.low},
        "baseline": timings[other].baseline or f"{trial.entrants[0].stage.name}, timed once more",
        "baseline_note": "",
        "verdict": compared.verdict,
        "noise_floor_percent": 100 * compared.noise_floor,
    }


def _libraries(trial: Trial, result: JobResult) -> list[dict[str, Any]]:
    """Return each library's own time and correctness, the fastest first: both sides must do the same."""
    timings = result.timings.get(TIMING, {})
    ran = {name: timings[name] for name in LIBRARIES if name in timings and timings[name].milliseconds}
    found = [
        {
            "name": samples.baseline,
            "side": name,
            **_times(samples, trial.check.problem),
            **_verification(trial, result, name),
        }
        for name, samples in ran.items()
    ]
    return sorted(found, key=lambda each: float(each["milliseconds"]["median"]))


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
