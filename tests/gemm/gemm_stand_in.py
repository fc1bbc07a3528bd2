"""A stand-in for the device: it answers the jobs of the GEMM bench from numpy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gemm_jobs import problem
from numpy.typing import NDArray

from ptxlab.device.job import DeviceInfo, Job, JobResult, Samples, Timing
from ptxlab.errors import DeviceError
from ptxlab.experiments.gemm.bound import bound
from ptxlab.experiments.gemm.check import ELEMENT, LISTED, SUMMARY
from ptxlab.experiments.gemm.reference import (
    INTEGER_INITS,
    Comparison,
    Element,
    compare,
    fill,
    rounded,
    sums,
)
from ptxlab.experiments.gemm.run import Request

H200 = DeviceInfo("NVIDIA H200", "sm_90a", 132, 50 << 20, 232448, 141 << 30, "580.159", "13.0")
STAGE_MS, LIBRARY_MS = 2.0, 0.5


@dataclass
class StandIn:
    """Answers like a worker: right, but for ``change``, which is added to the stage's result.

    Attributes:
        request: what runs.
        change: (row, col, value) added to the stage's result.
        library: whether cuBLAS is there.
        damaged: what the canaries say.
        fault: what happens instead.

    """

    request: Request
    change: tuple[int, int, float] | None = None
    library: bool = True
    damaged: list[str] = field(default_factory=list)
    fault: DeviceError | None = None
    timeout: float = 20.0
    timeouts: list[float | None] = field(default_factory=list)

    def close(self) -> None:
        """Nothing to end."""

    def run(self, job: Job, *, timeout: float | None = None) -> JobResult:
        """Return what the check would find, and times of 2 ms and 0.5 ms."""
        self.timeouts.append(timeout)
        if self.fault:
            raise self.fault
        (timing,) = (step for step in job.steps if isinstance(step, Timing))
        arrays: dict[str, NDArray[np.uint8]] = {}
        for side, name in zip(("stage", "cublas"), ("c", "c.cublas"), strict=True):
            if side in dict(timing.sides):
                arrays |= self._result(name, self.change if side == "stage" else None)
        arrays["infinite_inputs"] = np.zeros(1, np.uint64).view(np.uint8)
        samples = {"stage": _samples(STAGE_MS)}
        if "cublas" in dict(timing.sides):
            absent = Samples([], [], [], [], 0, note="cuBLAS is not installed")
            samples["cublas"] = _samples(LIBRARY_MS, "cuBLAS 13.1") if self.library else absent
        return JobResult(arrays, self.damaged, {timing.name: samples})

    def _result(self, name: str, change: tuple[int, int, float] | None) -> dict[str, NDArray[np.uint8]]:
        options: dict[str, Any] = dict(self.request.options)
        p = problem(**options)
        init = self.request.init
        total = sums(fill(p, init, 0, is_b=False), fill(p, init, 0, is_b=True))
        c = rounded(rounded(total.reference, p.acc), p.out)
        if change:
            c[change[0], change[1]] += change[2]
        limit = bound(p.k, p.acc, integers=init in INTEGER_INITS)
        return _packed(name, compare(p, total, c, limit))


def _samples(milliseconds: float, baseline: str = "") -> Samples:
    times = [milliseconds * (1 + 1e-5 * (i % 3)) for i in range(20)]
    return Samples(times, [1830] * 20, [500.0] * 20, [""] * 20, 1, baseline)


def _packed(name: str, found: Comparison) -> dict[str, NDArray[np.uint8]]:
    """Return a comparison as the device writes it, everything in its last block."""
    summaries = np.zeros(3, SUMMARY)
    for key in ("verified", "wrong", "overflow", "infinite", "nan"):
        summaries[2][key] = getattr(found, key)
    if found.worst:
        summaries[2]["has_worst"], summaries[2]["worst"] = 1, _tuple(found.worst)
    listed = np.zeros(LISTED, ELEMENT)
    for i, each in enumerate(reversed(found.first_wrong)):
        listed[i] = _tuple(each)
    count = np.array([len(found.first_wrong)], np.uint32)
    arrays = {"summaries": summaries, "list": listed, "listed": count}
    return {f"{name}.{key}": np.frombuffer(each.tobytes(), np.uint8) for key, each in arrays.items()}


def _tuple(each: Element) -> tuple[float, ...]:
    return (each.row, each.col, each.result, each.reference, each.low, each.high)


def request(m: int, n: int, k: int, init: str = "normal", **more: Any) -> Request:
    """Return the request for wmma-naive with f16 out, f32 sums, tn."""
    options = {"m": m, "n": n, "k": k, "dtype": "f16", "acc": "f32", "out": "f16", "layout": "tn"}
    return Request(stage=more.pop("stage", "wmma-naive"), options=options, init=init, **more)
