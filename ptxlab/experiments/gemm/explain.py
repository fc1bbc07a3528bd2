"""What can be said of a GEMM before it runs: tiles, waves, occupancy, bytes, FLOP, and what limits it."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from ptxlab.experiments.base import Case
from ptxlab.experiments.gemm.limits import beside, bounds, rate_of, recorded_row, roofline
from ptxlab.experiments.gemm.machine import (
    SENT_A_CYCLE,
    SHARED_RESERVED,
    Machine,
    Occupancy,
    at_once,
    occupancy,
)
from ptxlab.experiments.gemm.pipeline import described
from ptxlab.experiments.gemm.problem import Problem
from ptxlab.experiments.gemm.stage import MMA_MACS, GemmStage
from ptxlab.experiments.gemm.timeline import drawn

FULL_PERCENT = 90
"""Waves that are less full than this are named among what limits a stage."""


def explain(
    stage: GemmStage,
    case: Case,
    machine: Machine | None,
    kernel: dict[str, Any] | None,
    *,
    draw: bool = False,
    hot: bool = False,
) -> dict[str, Any]:
    """Return the explanation as a JSON value.

    Args:
        stage: the stage.
        case: the problem.
        machine: the GPU to speak of; None leaves out what needs one.
        kernel: the kernel as ``sass`` reports it, for its registers; None leaves out the occupancy.
        draw: whether the pipeline is drawn.
        hot: whether the L2 holds the inputs, as far as they fit; else they come from device memory.

    """
    result: dict[str, Any] = {
        "stage": stage.name,
        "problem": str(Problem.of(case)),
        "options": stage.own_options(case),
        "legal": _legal(stage, case),
        "machine": machine.name if machine else None,
        "tiles": _tiles(stage, case),
        "launch": _launch(stage, case),
        "shared": _shared(stage, case, machine),
        "tensor_memory": stage.tensor_memory(case),
        "work": _work(stage, case),
        "pipeline": _pipeline(stage, case, kernel),
        "roofline": None,
        "occupancy": None,
        "waves": None,
        "bounds": [],
        "limiter": None,
        "recorded": None,
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
        result["waves"] = _waves(stage, case, machine, held) if held.blocks else None
    if draw:
        result["pipeline"] = _drawn(stage, case, machine, result["pipeline"], result["occupancy"])
    row = recorded_row(stage, case, machine, hot=hot)
    result["roofline"] = roofline(case, machine, hot=hot)
    result["bounds"] = bounds(stage, case, machine, row["mhz"] if row else None, hot=hot)
    if result["bounds"] and all(row["per_second"] is not None for row in result["bounds"]):
        result["limiter"] = _limiter(stage, case, result["bounds"], result["waves"])
    result["recorded"] = beside(row, result["limiter"])
    return result


def mma_by_sass(stage: GemmStage, case: Case, kernel: dict[str, Any]) -> tuple[int, str]:
    """Return how many m16n8k16 instructions run in all, told from the SASS, and how that is counted.

    An iteration of the innermost loop with tensor operations is one step along k, taken by every warp.
    """
    in_loop = _mma_of_loop(stage, case, kernel)
    warps, tiles, steps = stage.math_warps(case), stage.multiplied(case), stage.steps(case)
    total = in_loop * warps * tiles * steps
    return total, f"{in_loop} in the loop x {warps} warps x {tiles} tiles x {steps} steps = {total}"


def _mma_of_loop(stage: GemmStage, case: Case, kernel: dict[str, Any]) -> int:
    """Return the m16n8k16 of the innermost loop that has some, of the one that has most."""
    loops = [loop for loop in kernel["loops"] if loop["tensor_ops"]]
    depth = max((int(loop["depth"]) for loop in loops), default=0)
    counts = [loop["counts"] for loop in loops if int(loop["depth"]) == depth]
    in_loops = (sum(n * stage.mma_of(case, opcode) for opcode, n in each.items()) for each in counts)
    return max(in_loops, default=0)


def _legal(stage: GemmStage, case: Case) -> list[dict[str, Any]]:
    """Return the options of the stage's own, each with the values that it can have, and what it is."""
    every = stage.options()
    own = ((name, every[name]) for name in stage.own_options(case))
    return [{"option": name, "values": list(each.choices), "help": each.help} for name, each in own]


def _tiles(stage: GemmStage, case: Case) -> dict[str, Any]:
    return {
        "tile": list(stage.tile(case)),
        "threads": stage.threads(case),
        "tiles": stage.tiles(case),
        "work": stage.work(case),
        "blocks": math.prod(stage.grid(case)),
        "steps": stage.steps(case),
    }


def _launch(stage: GemmStage, case: Case) -> dict[str, Any]:
    """Return how blocks are started: in clusters of so many, and maybe while the kernel ahead still runs."""
    return {"cluster": math.prod(stage.cluster(case) or (1,)), "programmatic": stage.programmatic(case)}


def _shared(stage: GemmStage, case: Case, machine: Machine | None) -> dict[str, Any]:
    """Return the shared-memory budget of a block, buffer by buffer. ``most`` is what a block can have."""
    buffers = stage.shared(case)
    return {
        "buffers": buffers,
        "bytes": sum(buffers.values()),
        "dynamic": stage.dynamic_shared_bytes(case),
        "reserved": SHARED_RESERVED,
        "most": machine.limits.shared_of_block if machine else None,
    }


def _work(stage: GemmStage, case: Case) -> dict[str, Any]:
    """Return operations and bytes.

    ``mma`` counts the m16n8k16 of all warps, ``instructions`` what executes them, per warp. ``loaded_bytes``
    is what all blocks load of A and B: the same bytes again and again, most of them from the L2;
    ``sent_bytes`` what they send on to each other.
    """
    problem = Problem.of(case)
    count, loaded = stage.mma_count(case), stage.loaded_bytes(case)
    opcode = next((name for name in stage.claims(case) if stage.mma_of(case, name)), None)
    return {
        "flop": problem.flop,
        "bytes": problem.nbytes,
        "flop_per_byte": problem.flop / problem.nbytes,
        "loaded_bytes": loaded,
        "sent_bytes": stage.sent_bytes(case),
        "flop_per_loaded_byte": problem.flop / loaded,
        "mma": count,
        "opcode": opcode,
        "instructions": count // stage.mma_of(case, opcode) if opcode else None,
        "mma_of_whole_tiles": problem.macs / MMA_MACS,
        "useful_percent": 100 * problem.macs / (count * MMA_MACS),
    }


def _pipeline(stage: GemmStage, case: Case, kernel: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return what the warps of a block do, and the registers of each; None where the stage does not say."""
    line = stage.pipeline(case)
    return described(line, kernel["registers"] if kernel else None) if line else None


def _drawn(
    stage: GemmStage,
    case: Case,
    machine: Machine,
    told: dict[str, Any] | None,
    held: dict[str, Any] | None,
) -> dict[str, Any] | None:
    """Return that and how it goes on in time, where it is known how fast the tensor cores are."""
    line, rate = stage.pipeline(case), rate_of(stage, case, machine, Problem.of(case).tensor)
    if line is None or told is None or rate is None or not rate.at_mhz:
        return told
    macs_per_cycle = rate.per_second / 2 / (rate.at_mhz * 1e6 * machine.multiprocessors)
    sent = SENT_A_CYCLE if "dsmem" in machine.rates else math.inf
    return told | drawn(line, macs_per_cycle, max(1, held["blocks"]) if held else 1, sent)


def _waves(stage: GemmStage, case: Case, machine: Machine, held: Occupancy) -> dict[str, Any]:
    """Return how often the GPU is filled with pieces of work, and what the last, partial filling costs.

    Blocks that are fewer than the pieces stay, and a wave is one piece for each of them. ``percent`` is the
    mean filling of the waves: 100 when the last one is full, and no SM is left without a block. Even shares
    of the pieces that are left (``even``) fill the last wave: it is shorter instead.
    """
    work, blocks, even = stage.work(case), math.prod(stage.grid(case)), stage.streams(case)
    slots = at_once(machine.multiprocessors, math.prod(stage.cluster(case) or (1,)), held.blocks)
    stay = even or blocks < work
    places = min(blocks, slots) if stay else slots
    count = work / places
    length = count if even else math.ceil(count)
    idle = max(0, machine.multiprocessors - places)
    return {
        "slots": slots,
        "stay": stay,
        "even": even,
        "waves": count,
        "last_blocks": (work - 1) % places + 1,
        "percent": 100 * work / (length * (places + idle)),
        "busy_multiprocessors": min(blocks, machine.multiprocessors),
    }


def _limiter(
    stage: GemmStage, case: Case, rows: list[dict[str, Any]], filled: dict[str, Any] | None
) -> dict[str, Any]:
    """Return what is expected to limit the stage: the slowest resource, why, and how fast it permits."""
    first = rows[0]
    reasons = [first["reason"], *stage.remarks(case)]
    if filled and filled["percent"] < FULL_PERCENT:
        reasons.append(f"the waves of blocks are {filled['percent']:.0f} % full")
    return {
        "resource": first["resource"],
        "reason": "; ".join(filter(None, reasons)),
        "milliseconds": first["milliseconds"],
        "tflops": first["tflops"],
        "at_mhz": first["at_mhz"],
    }
