"""Records A/A samples on this machine's GPU: python tests/gemm/record_aa.py FILE.

The highest rung that takes f16 is timed against itself, eight times over in one run, at three sizes and three
times each. Whatever differs between two of the eight is noise; tests/gemm/test_gemm_aa.py holds the verdict
against it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from ptxlab.device.client import Worker
from ptxlab.experiments.gemm.check import Check
from ptxlab.experiments.gemm.measure import TIMING, Entrant, Method, Trial, measure
from ptxlab.experiments.gemm.problem import Problem
from ptxlab.experiments.gemm.stage import climbed
from ptxlab.experiments.registry import find_stage, stage_entries
from ptxlab.experiments.unit import build_unit

SIDES = 8
SIZES = (1024, 2048, 4096)
ROUNDS = 3
WARMUP_MS = 1500.0
DIGITS = 6


def main() -> None:
    """Write the samples: per run the problem, and a list of milliseconds for each side."""
    with Worker(timeout=60) as worker:
        device = worker.info()
        stages = [find_stage(entry.name) for entry in stage_entries()]
        here = [each for each in stages if each.only in ("", device.arch)]
        stage = climbed([each for each in here if "f16" in each.options()["dtype"].choices])[-1]
        runs = [_run(worker, stage, size) for _ in range(ROUNDS) for size in SIZES]
    document = {"device": device.name, "driver": device.driver, "stage": stage.name, "runs": runs}
    Path(sys.argv[1]).write_text(json.dumps(document) + "\n", encoding="utf-8")


def _run(worker: Worker, stage: Any, size: int) -> dict[str, Any]:
    device = worker.info()
    case = stage.case(device.arch, m=size, n=size, k=size)
    entrant = Entrant(stage, case, build_unit(stage, [case], case.arch).cubin)
    check = Check(Problem.of(case), "normal", 0)
    trial = Trial((entrant,) * SIDES, check, Method(versus="none", warmup_ms=WARMUP_MS))
    timings = measure(trial, worker, device).timings[TIMING]
    sides = [[float(f"{ms:.{DIGITS}g}") for ms in each.milliseconds] for each in timings.values()]
    return {"problem": str(check.problem), "milliseconds": sides}


if __name__ == "__main__":
    main()
