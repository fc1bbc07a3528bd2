"""A stand-in for the device: it answers the jobs of the GEMM bench from numpy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gemm_jobs import rounded
from numpy.typing import NDArray

from ptxlab.device.job import (
    LT,
    Buffer,
    CublasGemm,
    DeviceInfo,
    Job,
    JobResult,
    Launch,
    Progress,
    Report,
    Samples,
    Step,
    Timing,
)
from ptxlab.experiments.gemm import Problem
from ptxlab.experiments.gemm.activation import activated
from ptxlab.experiments.gemm.check import ELEMENT, LISTED, SUMMARY, Check
from ptxlab.experiments.gemm.measure import Method
from ptxlab.experiments.gemm.reference import (
    TILE,
    Comparison,
    Element,
    compare,
    fill,
    sums,
)
from ptxlab.experiments.gemm.run import Request
from ptxlab.experiments.gemm.stage import MODULE

H200 = DeviceInfo("NVIDIA H200", "sm_90a", 132, 50 << 20, 232448, 141 << 30, "580.159", "13.0")
STAGE_MS, LIBRARY_MS, CEILING_MS = 2.0, 0.5, 1.0


@dataclass
class StandIn:
    """Answers like a worker: right, but for ``change``, which is added to a side's result.

    Attributes:
        request: what runs.
        change: (row, col, value) added to a side's result; row and col may be slices.
        changed: the buffer of that side.
        changed_runs: which jobs it is added in, counted from 0; in all if empty.
        library: whether cuBLAS is there.
        damaged: what the canaries say.
        fault: what happens instead.
        faulty: to which stages; to all if empty.
        faulty_runs: in which jobs, counted from 0; in all if empty.
        clock: of a stage by NVML.
        sm_mhz: the one that the SMs counted, or 0 where they cannot.

    """

    request: Request
    change: tuple[int | slice, int | slice, float] | None = None
    changed: str = "c"
    changed_runs: tuple[int, ...] = ()
    library: bool = True
    damaged: list[str] = field(default_factory=list)
    fault: BaseException | None = None
    faulty: tuple[str, ...] = ()
    faulty_runs: tuple[int, ...] = ()
    timeout: float = 20.0
    clock: int = 1830
    sm_mhz: float = 0.0
    timeouts: list[float | None] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)

    def close(self) -> None:
        """Nothing to end."""

    def run(self, job: Job, *, timeout: float | None = None, report: Report = lambda _: None) -> JobResult:
        """Return what the check would find, and times of 2 ms (less for each further point) and 0.5 ms."""
        self.timeouts.append(timeout)
        self.jobs.append(job)
        launches = [each for step in job.steps for each in _calls(step) if isinstance(each, Launch)]
        for launch in launches:
            assert launch.kernel.encode() in job.modules[launch.module], "a kernel that its cubin has not"
        stages = {each.module.split()[1] for each in launches if each.module.startswith(f"{MODULE} ")}
        now = not self.faulty_runs or len(self.jobs) - 1 in self.faulty_runs
        if self.fault and now and (not self.faulty or stages & set(self.faulty)):
            raise self.fault
        report(Progress("sampling", 1, 20, {"stage 0": STAGE_MS, "cublas": LIBRARY_MS}))
        problem = self._problem(job)
        results = [buffer.name for buffer in job.buffers if f"{buffer.name}.summaries" in _names(job)]
        arrays: dict[str, NDArray[np.uint8]] = {}
        for name in results:
            hit = not self.changed_runs or len(self.jobs) - 1 in self.changed_runs
            arrays |= self._result(problem, name, self.change if hit and name == self.changed else None)
        arrays["infinite_inputs"] = np.zeros(1, np.uint64).view(np.uint8)
        timings = {step.name: self._timed(step) for step in job.steps if isinstance(step, Timing)}
        for buffer in job.buffers:
            if buffer.name.startswith("ceiling"):
                arrays[buffer.name] = _looped(buffer)
        return JobResult(arrays, self.damaged, timings)

    def _timed(self, timing: Timing) -> dict[str, Samples]:
        samples = {}
        for name, call in timing.sides:
            if isinstance(call, CublasGemm):
                samples[name] = self._library(call)
            elif name.startswith("ceiling"):
                samples[name] = _samples(CEILING_MS)
            else:
                index = int(name.split()[1]) if name != "self" else 0
                samples[name] = _samples(STAGE_MS * (1 - 0.1 * index), clock=self.clock)
                samples[name].sm_mhz.extend(20 * [self.sm_mhz] if self.sm_mhz else [])
        return samples

    def _library(self, call: CublasGemm) -> Samples:
        """Return the times of cuBLASLt, or torch's, which is a little slower; or why it is not there."""
        if not self.library:
            return Samples([], [], [], [], 0, note=f"{call.library} is not installed")
        if call.library == LT:
            return _samples(LIBRARY_MS, "cuBLAS 13.1")
        return _samples(1.1 * LIBRARY_MS, "torch 2.11")

    def _problem(self, job: Job) -> Problem:
        """Return the problem: sizes from a launch of the stage, types from the request."""
        steps = [call for step in job.steps for call in _calls(step)]
        launch = next(
            each for each in steps if isinstance(each, Launch) and each.module.startswith(f"{MODULE} ")
        )
        scalars = [each.item() for each in launch.arguments if isinstance(each, np.generic)]
        m, n, k, alpha, beta = scalars[:5]
        types = {name: self.request.options[name] for name in ("dtype", "acc", "out", "layout")}
        settings = dict(each.split("=") for each in self.request.settings)
        more = {"bias": settings.get("bias") == "yes", "activation": settings.get("activation", "none")}
        return Problem(m, n, k, **types, alpha=alpha, beta=beta, **more)  # type: ignore[arg-type]

    def _result(
        self, p: Problem, name: str, change: tuple[int | slice, int | slice, float] | None
    ) -> dict[str, NDArray[np.uint8]]:
        init = self.request.init
        total = sums(fill(p, init, 0, "a"), fill(p, init, 0, "b"))
        before = fill(p, init, 0, "c")
        bias = fill(p, init, 0, "bias")
        c = rounded(total.reference, p.acc) * p.alpha + p.beta * before + p.bias * bias
        c = rounded(rounded(activated(p.activation, c), "f32"), p.out)
        if change:
            c[change[0], change[1]] += change[2]
        limit = Check(p, init, 0).bound
        return _packed(p, name, compare(p, total, c, limit, before, bias))


def _looped(buffer: Buffer) -> NDArray[np.uint8]:
    """Return what a ceiling writes: sums, or a million cycles in 600 us (1667 MHz) of each block."""
    if buffer.name.endswith(".clocks"):
        return np.tile(np.array([1_000_000, 600_000], np.uint64), buffer.nbytes // 16).view(np.uint8)
    return np.ones(buffer.nbytes // 4, np.float32).view(np.uint8)


def _names(job: Job) -> set[str]:
    return {buffer.name for buffer in job.buffers}


def _calls(step: Step) -> tuple[Launch | CublasGemm, ...]:
    return tuple(call for _, call in step.sides) if isinstance(step, Timing) else (step,)


def _samples(milliseconds: float, baseline: str = "", clock: int = 1830) -> Samples:
    times = [milliseconds * (1 + 1e-5 * (i % 3)) for i in range(20)]
    return Samples(times, [clock] * 20, [500.0] * 20, [""] * 20, 1, baseline)


def _packed(p: Problem, name: str, found: Comparison) -> dict[str, NDArray[np.uint8]]:
    """Return a comparison as the device writes it, all but the wrong elements in its last block."""
    across = -(-p.n // TILE)
    summaries = np.zeros(-(-p.m // TILE) * across, SUMMARY)
    for key in ("verified", "overflow", "infinite", "nan"):
        summaries[-1][key] = getattr(found, key)
    for (row, col), wrong in found.wrong_blocks.items():
        summaries[row // TILE * across + col // TILE]["wrong"] = wrong
    if found.worst:
        summaries[-1]["has_worst"], summaries[-1]["worst"] = 1, _tuple(found.worst)
    listed = np.zeros(LISTED, ELEMENT)
    for i, each in enumerate(found.first_wrong[LISTED - 1 :: -1]):
        listed[i] = _tuple(each)
    count = np.array([found.wrong], np.uint32)
    arrays = {"summaries": summaries, "list": listed, "listed": count}
    return {f"{name}.{key}": np.frombuffer(each.tobytes(), np.uint8) for key, each in arrays.items()}


def _tuple(each: Element) -> tuple[float, ...]:
    return (each.row, each.col, each.result, each.reference, each.low, each.high)


def request(m: int, n: int, k: int, init: str = "normal", **more: Any) -> Request:
    """Return the request for wmma-naive with f16 out, f32 sums, tn; ``method`` holds what differs there."""
    options = {"m": m, "n": n, "k": k, "dtype": "f16", "acc": "f32", "out": "f16", "layout": "tn"}
    options |= more.pop("options", {})
    method = Method(**more.pop("method", {}))
    return Request(stage=more.pop("stage", "wmma-naive"), options=options, init=init, method=method, **more)
