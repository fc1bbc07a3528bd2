"""What can be said of a GEMM before it runs: tiles, waves, occupancy, bytes, FLOP, and what limits it."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from ptxlab.experiments.base import Case
from ptxlab.experiments.gemm.machine import SHARED_RESERVED, Machine, Occupancy, occupancy
from ptxlab.experiments.gemm.problem import Problem
from ptxlab.experiments.gemm.stage import MMA_MACS, GemmStage


def explain(
    stage: GemmStage, case: Case, machine: Machine | None, kernel: dict[str, Any] | None
) -> dict[str, Any]:
    """Return the explanation as a JSON value.

    Args:
        stage: the stage.
        case: the problem.
        machine: the GPU to speak of; None leaves out what needs one.
        kernel: the kernel as ``sass`` reports it, for its registers; None leaves out the occupancy.

    """
    result: dict[str, Any] = {
        "stage": stage.name,
        "problem": str(Problem.of(case)),
        "machine": machine.name if machine else None,
        "tiles": _tiles(stage, case),
        "shared": _shared(stage, case),
        "work": _work(stage, case),
        "occupancy": None,
        "waves": None,
        "bounds": [],
        "limiter": None,
    }
    if machine is None:
        return result
    if kernel is not None and kernel["registers"] is not None:
        held = occupancy(
            machine.limits,
            threads=stage.threads(case),
            registers=kernel["registers"],
            shared_bytes=sum(stage.shared(case).values()),
        )
        result["occupancy"] = asdict(held) | {"registers": kernel["registers"]}
        result["waves"] = waves(stage.tiles(case), machine, held)
    result["bounds"] = bounds(stage, case, machine)
    if result["bounds"]:
        result["limiter"] = _limiter(stage, result["bounds"], result["waves"])
    return result


def _tiles(stage: GemmStage, case: Case) -> dict[str, Any]:
    return {
        "tile": list(stage.tile(case)),
        "threads": stage.threads(case),
        "blocks": stage.tiles(case),
        "steps": stage.steps(case),
    }


def _shared(stage: GemmStage, case: Case) -> dict[str, Any]:
    """Return the shared-memory budget of a block, buffer by buffer."""
    buffers = stage.shared(case)
    return {"buffers": buffers, "bytes": sum(buffers.values()), "reserved": SHARED_RESERVED}


def _work(stage: GemmStage, case: Case) -> dict[str, Any]:
    """Return operations and bytes. ``mma`` counts m16n8k16 instructions that run, per warp."""
    problem = Problem.of(case)
    count = stage.mma_count(case)
    return {
        "flop": problem.flop,
        "bytes": problem.nbytes,
        "flop_per_byte": problem.flop / problem.nbytes,
        "mma": count,
        "mma_of_whole_tiles": problem.macs / MMA_MACS,
        "useful_percent": 100 * problem.macs / (count * MMA_MACS),
    }


def waves(tiles: int, machine: Machine, held: Occupancy) -> dict[str, Any]:
    """Return how often the GPU is filled with blocks, and what the last, partial filling costs.

    ``percent`` is the mean filling of the waves: 100 when the last one is full.
    """
    slots = machine.multiprocessors * held.blocks
    count = tiles / slots
    return {
        "slots": slots,
        "waves": count,
        "percent": 100 * count / math.ceil(count),
        "busy_multiprocessors": min(tiles, machine.multiprocessors),
    }


def bounds(stage: GemmStage, case: Case, machine: Machine) -> list[dict[str, Any]]:
    """Return for each resource the least time that it needs, the slowest first.

    No overlap is lost and no latency counted: a kernel takes at least the longest of these.
    """
    flop = Problem.of(case).flop
    rows = []
    for key, amount in stage.demands(case).items():
        rate = machine.rates.get(key)
        if rate is None:
            continue
        seconds = amount / rate.per_second
        rows.append(
            {
                "key": key,
                "resource": rate.what,
                "amount": amount,
                "unit": rate.unit,
                "per_second": rate.per_second,
                "milliseconds": 1e3 * seconds,
                "tflops": flop / seconds / 1e12,
                "source": rate.source,
            }
        )
    return sorted(rows, key=lambda row: -float(row["milliseconds"]))


def _limiter(stage: GemmStage, rows: list[dict[str, Any]], filled: dict[str, Any] | None) -> dict[str, Any]:
    """Return what is expected to limit the stage, in words and as the time it implies."""
    first = rows[0]
    sentence = f"{first['resource']}"
    reason = stage.reasons.get(first["key"], "")
    if filled and filled["waves"] < 1:
        reason = f"and {filled['percent']:.0f} % of the block slots are filled; " + reason
    return {
        "resource": sentence,
        "reason": reason,
        "milliseconds": first["milliseconds"],
        "tflops": first["tflops"],
    }
