"""What limits a GEMM: the least time that each resource needs, and what was recorded beside that.

All limits of a problem hold at one clock of the SMs. Under a power cap each kernel runs at a clock of its
own, so that is the one that the SMs counted where this very kernel was recorded: else a recorded row could
exceed its limit. Where there is none it is the clock of the recorded ceiling, or that of the data sheet.
"""

from __future__ import annotations

from typing import Any

from ptxlab.experiments import recording
from ptxlab.experiments.base import Case
from ptxlab.experiments.gemm.ceiling import recorded_peak
from ptxlab.experiments.gemm.clock import COUNTED
from ptxlab.experiments.gemm.fields import as_damage, wrong_in_recorded
from ptxlab.experiments.gemm.machine import RESOURCES, Machine, Rate, Resource
from ptxlab.experiments.gemm.problem import Problem
from ptxlab.experiments.gemm.stage import GemmStage

HOT = {
    "l2": "hot inputs: what fits into it does not come from device memory",
    "memory": "hot inputs: what does not fit into the L2",
}
"""Why a resource is there where the L2 holds the inputs."""


def roofline(case: Case, machine: Machine, *, hot: bool = False) -> dict[str, Any] | None:
    """Return where the problem lies under the roof of tensor cores and memory; None without rates.

    ``ridge`` is the intensity, in FLOP a byte, from which on the tensor cores are the roof. The rates are the
    GPU's own, of its data sheet; a ceiling that was recorded is among the bounds. Hot inputs come from the
    L2, as far as they fit: then its rate is the other side of the roof.
    """
    problem = Problem.of(case)
    side = "l2" if hot else "memory"
    tensor, memory = (machine.rates.get(key) for key in (problem.tensor, side))
    if tensor is None or memory is None:
        return None
    intensity, ridge = problem.flop / problem.nbytes, tensor.per_second / memory.per_second
    roof = tensor if intensity >= ridge else memory
    return {
        "flop_per_byte": intensity,
        "ridge": ridge,
        "roof": RESOURCES[problem.tensor if intensity >= ridge else side].name,
        "source": roof.source,
        "at_mhz": roof.at_mhz,
        "tflops": min(tensor.per_second, intensity * memory.per_second) / 1e12,
    }


def bounds(
    stage: GemmStage, case: Case, machine: Machine, mhz: int | None = None, *, hot: bool = False
) -> list[dict[str, Any]]:
    """Return for each resource the least time that it needs, the slowest first.

    No overlap is lost and no latency counted: a kernel takes at least the longest of these. What the GPU's
    rate is not known of comes last, with None for all that the rate would tell: it may be the slowest.

    Args:
        stage: the stage.
        case: the problem.
        machine: the GPU.
        mhz: the clock of the SMs; None takes that of the rate of the tensor cores.
        hot: whether the L2 holds the inputs, as far as they fit.

    """
    flop = Problem.of(case).flop
    if mhz is None:
        tensor = rate_of(stage, case, machine, Problem.of(case).tensor)
        mhz = tensor.at_mhz if tensor else None
    rows = []
    for key, amount in _demands(stage, case, machine, hot=hot).items():
        resource = RESOURCES.get(key, Resource(key, ""))
        told: dict[str, Any] = dict.fromkeys(("per_second", "milliseconds", "tflops", "at_mhz", "source"))
        if known := rate_of(stage, case, machine, key):
            rate = known.at(mhz)
            seconds = amount / rate.per_second
            told = {"per_second": rate.per_second, "at_mhz": rate.at_mhz, "source": rate.source}
            told |= {"milliseconds": 1e3 * seconds, "tflops": flop / seconds / 1e12}
        rows.append(
            {
                "key": key,
                "resource": resource.name,
                "amount": amount,
                "unit": resource.unit,
                "reason": stage.reasons.get(key, "") or (HOT.get(key, "") if hot else ""),
                **told,
            }
        )
    return sorted(rows, key=lambda row: -(row["milliseconds"] or 0.0))


def _demands(stage: GemmStage, case: Case, machine: Machine, *, hot: bool) -> dict[str, float]:
    """Return what a stage needs; with hot inputs all passes the L2, and memory brings what does not fit."""
    needs = stage.demands(case)
    if not hot:
        return needs
    nbytes = needs.pop("memory")
    beyond = max(0.0, nbytes - machine.l2_bytes)
    return needs | {"l2": nbytes} | ({"memory": beyond} if beyond else {})


def rate_of(stage: GemmStage, case: Case, machine: Machine, key: str) -> Rate | None:
    """Return how much of a resource the GPU offers: where the stage's ceiling was recorded on it, that.

    Of a ceiling that is its work per cycle: its TFLOP/s are of many launches, its clock of the last one.
    """
    measured = None
    if key == Problem.of(case).tensor and case.acc != "f16":  # in which no ceiling sums
        measured = recorded_peak(stage.ceiling, case.dtype, machine.name)
    if measured is None:
        return machine.rates.get(key)
    per_cycle, mhz = measured["flop_per_clock_and_sm"], round(measured["sm_mhz"])
    of = f"{per_cycle:.0f} {RESOURCES[key].unit} a cycle and SM"
    source = f"ceiling {stage.ceiling}, {of}, measured on an {measured['device']}, {measured['date']}"
    return Rate(per_cycle * machine.multiprocessors * mhz * 1e6, source, mhz, per_cycle=True)


def recorded_row(stage: GemmStage, case: Case, machine: Machine, *, hot: bool) -> dict[str, Any] | None:
    """Return what this kernel reached at this very point on this GPU: what was kept, and the date.

    ``mhz`` is the clock that the SMs counted, or None: NVML's lies above the one inside the kernel.

    Raises:
        ToolError: a recording is damaged.

    """
    for kept in recording.recordings(stage):
        own = kept.device == machine.name
        variant = kept.find(stage, case, condition="hot" if hot else "") if own else None
        if variant is None or recording.is_stale(stage, case, variant):
            continue
        row = variant["result"]
        if field := wrong_in_recorded(row):
            raise recording.damaged(kept.file, f"'{case.key}' {as_damage(field)}")
        mhz = round(row["clock_mhz"]) if row.get("clock_source") == COUNTED else None
        return {"tflops": row["tflops"], "mhz": mhz, "device": kept.device, "date": kept.date}
    return None


def beside(row: dict[str, Any] | None, limit: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return a recorded row and how much of the limit it is; None for that where their clocks may differ."""
    if row is None:
        return None
    same = limit and limit["at_mhz"] in (None, row["mhz"])
    return row | {"percent": 100 * row["tflops"] / limit["tflops"] if limit and same else None}
