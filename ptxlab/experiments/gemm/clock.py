"""Which clock a side ran at, and how much of what the tensor cores can do at that clock it did."""

from __future__ import annotations

from typing import Any

import numpy as np

from ptxlab.device.job import Samples
from ptxlab.experiments.gemm.machine import Machine
from ptxlab.experiments.gemm.problem import Problem

COUNTED, BY_NVML = "SM", "NVML"
"""Where a clock comes from: the SMs counted cycles throughout each sample, or NVML told it once for each."""

SHARE = "percent_of_tensor_peak_at_clock"


def clocks(samples: Samples) -> dict[str, Any]:
    """Return the clock of a side: the one that the SMs counted where they did; and NVML's beside it."""
    told = samples.sm_mhz or samples.clock_mhz
    return {
        "clock_mhz": float(np.median(told)) if told else None,
        "clock_source": (COUNTED if samples.sm_mhz else BY_NVML) if told else None,
        "nvml_mhz": float(np.median(samples.clock_mhz)) if samples.clock_mhz else None,
    }


def with_share(row: dict[str, Any], problem: Problem, gpu: Machine | None) -> dict[str, Any]:
    """Return the row of a stage with what it did per cycle, in percent of the tensor cores' best.

    None where the SMs' own clock is not known: by NVML's it could be more than there is.
    """
    peak = gpu.peak_at(problem.tensor, row["clock_mhz"]) if gpu and row["clock_source"] == COUNTED else None
    return row | {SHARE: 1e14 * row["tflops"] / peak if peak else None}
