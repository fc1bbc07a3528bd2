"""What the metrics of one profiled launch mean: ``result.kernels[]`` of ``ptxlab profile``.

Counts are executed warp instructions of the whole launch. A value that the report does not hold is
None, never 0. Metric names and their meaning: Nsight Compute's kernel profiling guide, and the
names that its metrics library lists for each chip.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

Launch = Mapping[str, Any]
"""One entry of toolchain.ncu.read_report."""

OPCODES = "sass__inst_executed_per_opcode"
OPCODE_THREADS = "sass__thread_inst_executed_true_per_opcode_with_modifier_all"
WAVEFRONTS = "memory_l1_wavefronts_shared"
IDEAL = "memory_l1_wavefronts_shared_ideal"
EXECUTED = "inst_executed"
TRUE_THREADS = "thread_inst_executed_true"

INSTANCES = (OPCODES, OPCODE_THREADS, WAVEFRONTS, IDEAL, EXECUTED, TRUE_THREADS)
"""Metrics that are read opcode by opcode, or instruction by instruction."""

TENSOR_FAMILIES = ("hmma", "imma", "dmma", "bmma", "hgmma", "igmma", "qgmma", "bgmma")
FAMILIES = ("ldsm", "stsm", "ldgsts", *TENSOR_FAMILIES)
"""Opcodes whose count is always given, also when it is 0."""

_COUNTERS = {
    "ldsm": "smsp__sass_inst_executed_op_ldsm.sum",
    "stsm": "smsp__sass_inst_executed_op_shared_stsm.sum",
    "ldgsts": "smsp__sass_inst_executed_op_ldgsts.sum",
    "imma": "sm__inst_executed_pipe_tensor_op_imma.sum",
    "dmma": "sm__inst_executed_pipe_tensor_op_dmma.sum",
}
"""Counters that stand in where a report has no counts by opcode. None counts HMMA alone: the one
called op_hmma also counts HGMMA, QGMMA and the FMAs that run on the tensor pipe."""

SHARED_CLASSES = {"ld": "LDS", "st": "STS", "ldsm": "LDSM", "stsm": "STSM", "ldgsts": "LDGSTS"}
"""Classes of warp instructions on shared memory, and the opcode of each."""

WAVEFRONT_BYTES = 128
"""What all 32 banks give at once."""

_CLASS_WAVEFRONTS = "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_{}.sum"
RAW_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"
RAW_WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"

_STALL = re.compile(r"smsp__average_warps_issue_stalled_(\w+)_per_issue_active\.ratio")
STALLS = {
    "barrier": "for other warps of its block, at a barrier",
    "branch_resolving": "for the target of a branch",
    "dispatch_stall": "for the dispatcher, which was held up",
    "drain": "for its stores to leave, so that it can end",
    "gmma": "for its warpgroup: a wgmma fence, or operations in flight",
    "imc_miss": "for a constant that was not in the constant cache",
    "lg_throttle": "for room in the queue of global and local memory",
    "long_scoreboard": "for data from global, local or texture memory",
    "math_pipe_throttle": "for an arithmetic pipe that was busy",
    "membar": "at a memory fence",
    "mio_throttle": "for room in the queue of shared memory and special functions",
    "misc": "for something else",
    "no_instruction": "for its next instruction to be fetched",
    "not_selected": "ready, while another warp issued",
    "selected": "issuing",
    "short_scoreboard": "for data from shared memory or special functions",
    "sleeping": "asleep by its own wish",
    "tex_throttle": "for room in the queue of the texture unit",
    "wait": "for a fixed latency between two of its instructions",
}
"""Why a warp may not issue, and what that means. Source: Nsight Compute's kernel profiling guide, "Warp
Stall Reasons", for GH100 and the chips before it."""

_BUSY = "avg.pct_of_peak_sustained_active"

_TENSOR_PIPE = (
    # Hopper: every type but HFMA2.MMA, which compilers also use to move constants.
    (
        f"sm__pipe_tensor_type_hmma_hgmma_qgmma_imma_igmma_bmma_bgmma_cycles_active.{_BUSY}",
        f"sm__pipe_tensor_op_dmma_cycles_active.{_BUSY}",
    ),
    (f"sm__pipe_tensor_cycles_active.{_BUSY}",),
)
"""Ways to get the tensor pipe's use, the best first: the sum of these metrics, if all are there."""

_TMA = {
    "instructions": "smsp__inst_executed_pipe_tma.sum",
    "loads": "smsp__inst_executed_op_tma_ld.sum",
    "stores": "smsp__inst_executed_op_tma_st.sum",
    "load_bytes": "l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum",
    "store_bytes": "l1tex__m_l1tex2xbar_write_bytes_mem_global_op_tma_st.sum",
}

_LIMITS = {
    "issue slots": "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "L1 and shared memory": "l1tex__throughput.avg.pct_of_peak_sustained_active",
    "L2": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "DRAM": "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
}
"""How busy each part of the chip was, in percent of its peak; the tensor pipe is added."""

_LAUNCH = (
    *(f"launch__grid_dim_{axis}" for axis in "xyz"),
    *(f"launch__block_dim_{axis}" for axis in "xyz"),
    "launch__function_pcs",
)

GROUPS: dict[str, tuple[str, ...]] = {
    "counts": (
        *(OPCODES, EXECUTED, TRUE_THREADS, "smsp__inst_executed.sum"),
        *_COUNTERS.values(),
    ),
    "stalls": tuple(f"smsp__average_warps_issue_stalled_{r}_per_issue_active.ratio" for r in STALLS),
    "shared": (
        *(EXECUTED, TRUE_THREADS, OPCODE_THREADS, WAVEFRONTS, IDEAL, RAW_CONFLICTS, RAW_WAVEFRONTS),
        *(_CLASS_WAVEFRONTS.format(name) for name in SHARED_CLASSES),
    ),
    "tensor": tuple(name for way in _TENSOR_PIPE for name in way),
    "tma": tuple(_TMA.values()),
    "memory": ("dram__bytes.sum", "lts__t_bytes.sum"),
    "limits": tuple(_LIMITS.values()),
}
"""What --metrics names: each group and the metrics it collects."""


def metrics_of(groups: list[str]) -> tuple[str, ...]:
    """Return the metrics of these groups and what every row needs, each once."""
    wanted = [*_LAUNCH, "gpu__time_duration.sum"]
    wanted += [metric for group in groups for metric in GROUPS[group]]
    return tuple(dict.fromkeys(wanted))


def kernel_row(launch: Launch) -> dict[str, Any]:
    """Return one entry of ``result.kernels[]`` for a launch."""
    metrics = launch["metrics"]
    tensor, classes = tensor_percent(metrics), shared(launch)
    row = {
        "launch_id": launch["launch_id"],
        "name": launch["name"],
        "demangled": launch["demangled"],
        "grid": _dim3(metrics, "grid"),
        "block": _dim3(metrics, "block"),
        "duration_ns": metrics.get("gpu__time_duration.sum"),
        "counts": counts(launch),
        "switched_off": switched_off_by_opcode(launch),
        "instructions": _whole(metrics.get("smsp__inst_executed.sum")),
        "stalls": stalls(metrics),
        "shared": classes,
        "shared_raw": shared_raw(metrics, classes),
        "tensor_pipe_percent": tensor,
        "tma": {name: _whole(metrics.get(metric)) for name, metric in _TMA.items()},
        "dram_bytes": _whole(metrics.get("dram__bytes.sum")),
        "l2_bytes": _whole(metrics.get("lts__t_bytes.sum")),
        "limits": [{"unit": "tensor pipe", "percent": tensor}]
        + [{"unit": unit, "percent": metrics.get(metric)} for unit, metric in _LIMITS.items()],
    }
    return row | {"conclusion": conclusion(row)}


def _dim3(metrics: Mapping[str, Any], what: str) -> list[int] | None:
    sizes = [metrics.get(f"launch__{what}_dim_{axis}") for axis in "xyz"]
    return None if None in sizes else [int(size) for size in sizes if size is not None]


def counts(launch: Launch) -> dict[str, int | None]:
    """Return executed warp instructions by opcode in lower case, FAMILIES first and always."""
    executed = _per_key(launch, OPCODES)
    if executed is None:
        metrics = launch["metrics"]
        return {name: _whole(metrics.get(_COUNTERS.get(name, ""))) for name in FAMILIES}
    found: dict[str, int] = defaultdict(int)
    for opcode, number in executed.items():
        found[opcode.lower()] += int(number)
    always: dict[str, int | None] = {name: found.pop(name, 0) for name in FAMILIES}
    return always | dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _per_key(launch: Launch, metric: str) -> dict[Any, float] | None:
    """Return the metric's values by opcode or program counter; None where the report has none."""
    values = launch["instances"].get(metric)
    return None if values is None else dict(values)


def stalls(metrics: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return why warps waited, the largest first.

    ``per_issue`` is how many warps of a scheduler were in that state, on average, for each
    instruction that it issued; so it also is the cycles that one instruction of one warp spent
    there. ``percent`` is the share of all of them, ``selected`` (issuing) included.
    """
    found = {}
    for name, value in metrics.items():
        match = _STALL.fullmatch(name)
        if match and value is not None:
            found[match[1]] = float(value)
    total = sum(found.values())
    return [
        {
            "reason": reason,
            "per_issue": value,
            "percent": 100 * value / total if total else 0.0,
            "meaning": STALLS.get(reason, ""),
        }
        for reason, value in sorted(found.items(), key=lambda item: (-item[1], item[0]))
    ]


def shared(launch: Launch) -> dict[str, dict[str, Any]]:
    """Return for each class of shared-memory instruction what it cost.

    ``instructions`` (warp instructions that ran in at least one thread), ``wavefronts``, ``ideal``
    and ``conflicts``, which is wavefronts above the ideal. They are attributed to instructions, so
    nothing but the class itself is in them. ``source`` says how the ideal was got: "per
    instruction" as ncu computes it from the addresses, or "per opcode": the least that a full warp
    of that opcode takes.
    """
    rows = _per_instruction(launch)
    return rows if rows is not None else _per_class(launch)


def _per_instruction(launch: Launch) -> dict[str, dict[str, Any]] | None:
    wavefronts, ideal = _per_key(launch, WAVEFRONTS), _per_key(launch, IDEAL)
    if wavefronts is None or ideal is None:
        return None
    executed, off = _per_key(launch, EXECUTED) or {}, switched_off(launch) or {}
    totals = dict.fromkeys(SHARED_CLASSES, (0, 0, 0))
    for pc, text in launch["sass"].items():
        opcode = opcode_of(text)
        if opcode.partition(".")[0] in SHARED_CLASSES.values() or wavefronts.get(pc):
            name = shared_class(opcode)
            ran, cost, least = totals.get(name, (0, 0, 0))
            ran += int(executed.get(pc, 0) - off.get(pc, 0))
            totals[name] = ran, cost + int(wavefronts.get(pc, 0)), least + int(ideal.get(pc, 0))
    return {name: _row(n, cost, least, "per instruction") for name, (n, cost, least) in totals.items()}


def switched_off(launch: Launch) -> dict[Any, float] | None:
    """Return by program counter how often an instruction ran with its predicate false in every thread.

    Compilers insert such instructions: on Hopper three ``@!PT LDS RZ, [RZ]`` before each cp.async.
    """
    executed, threads = _per_key(launch, EXECUTED), _per_key(launch, TRUE_THREADS)
    if executed is None or threads is None:
        return None
    return {pc: number for pc, number in executed.items() if number and not threads.get(pc)}


def switched_off_by_opcode(launch: Launch) -> dict[str, int] | None:
    """Return the counts of switched_off by opcode in lower case, as counts() has them."""
    off = switched_off(launch)
    if off is None:
        return None
    found: dict[str, int] = defaultdict(int)
    for pc, number in off.items():
        found[opcode_of(launch["sass"][pc]).partition(".")[0].lower()] += int(number)
    return dict(found)


def _per_class(launch: Launch) -> dict[str, dict[str, Any]]:
    """Return the rows from counters by class. The ideal is that of full warps: their threads over 32."""
    threads = _per_key(launch, OPCODE_THREADS)
    rows = {}
    for name in SHARED_CLASSES:
        wavefronts = _whole(launch["metrics"].get(_CLASS_WAVEFRONTS.format(name)))
        if threads is None:
            rows[name] = _row(None, wavefronts, None, "per opcode")
            continue
        warps = {op: math.ceil(n / 32) for op, n in threads.items() if shared_class(op) == name}
        ideal = sum(number * ideal_wavefronts(op) for op, number in warps.items())
        rows[name] = _row(sum(warps.values()), wavefronts, ideal, "per opcode")
    return rows


def _row(instructions: int | None, wavefronts: int | None, ideal: int | None, source: str) -> dict[str, Any]:
    return {
        "instructions": instructions,
        "wavefronts": wavefronts,
        "ideal": ideal,
        "conflicts": _excess(wavefronts, ideal),
        "source": source,
    }


def _excess(value: int | None, floor: int | None) -> int | None:
    """Return how far the value lies above the floor: 0 below it, None where one of them is unknown."""
    return None if value is None or floor is None else max(0, value - floor)


def shared_raw(metrics: Mapping[str, Any], classes: Mapping[str, Any]) -> dict[str, int | None]:
    """Return the L1's own counters for shared memory, and how many of its conflicts are not the banks'.

    The conflict counter also counts waits for other traffic on the same path, such as data that
    cp.async brings past the L1 (tests/profile/data/busy.cu; NVIDIA H200, 2026-11-29); what no
    instruction's own wavefronts account for is of that kind.
    """
    conflicts = _whole(metrics.get(RAW_CONFLICTS))
    own = [each["conflicts"] for each in classes.values()]
    return {
        "wavefronts": _whole(metrics.get(RAW_WAVEFRONTS)),
        "conflicts": conflicts,
        "not_bank_conflicts": _excess(conflicts, None if None in own else sum(own)),
    }


def explain_shared(classes: Mapping[str, Any], raw: Mapping[str, int | None]) -> list[str]:
    """Return in sentences what the counts of shared-memory instructions mean: which are conflicts, and why.

    Args:
        classes: what shared() returns.
        raw: what shared_raw() returns.

    """
    told = [
        explain_class(SHARED_CLASSES.get(name, name.upper()), each)
        for name, each in classes.items()
        if each["instructions"] and each["wavefronts"] is not None and each["ideal"] is not None
    ]
    if raw["conflicts"] and raw["not_bank_conflicts"] is not None:
        told.append(
            f"The raw counter of the L1 reads {raw['conflicts']} conflicts, of which "
            f"{raw['not_bank_conflicts']} belong to no instruction: those are waits for other traffic on the "
            "same path, and no bank conflicts."
        )
    return told or ["No instruction on shared memory was counted."]


def explain_class(name: str, counted: Mapping[str, int]) -> str:
    """Return what the wavefronts of one class of instructions are: the least they can be, and conflicts."""
    number, wavefronts, ideal = (counted[key] for key in ("instructions", "wavefronts", "ideal"))
    each, least = wavefronts / number, ideal / number
    instructions = "instruction" if number == 1 else "instructions"
    told = (
        f"{name}: {number} warp {instructions} took {wavefronts} wavefronts, {each:.4g} for each. The least "
    )
    if wavefronts < ideal:
        return f"{told}of a full warp is {least:.4g}: loads of the same words were served together."
    told += f"is {least:.4g}, for a wavefront moves up to {WAVEFRONT_BYTES} bytes"
    if wavefronts == ideal:
        return f"{told}: none of them is a bank conflict."
    return (
        f"{told}. The {each - least:.4g} above it, {wavefronts - ideal} in all, are bank conflicts: lanes "
        "that are served together want different words of one bank."
    )


def opcode_of(text: str) -> str:
    """Return the full opcode of an instruction's text: LDSM.16.M88.4 of "@P0 LDSM.16.M88.4 R4, [R2]"."""
    words = [word for word in text.split() if not word.startswith(("@", "{"))]
    return words[0].rstrip(";") if words else ""


def shared_class(opcode: str) -> str:
    """Return the class of an opcode: one of SHARED_CLASSES, or its family in lower case."""
    family = opcode.partition(".")[0]
    return next((name for name, op in SHARED_CLASSES.items() if op == family), family.lower())


def ideal_wavefronts(opcode: str) -> int:
    """Return the wavefronts that a full warp takes without conflicts: 128 bytes go in one."""
    family, *parts = opcode.split(".")
    if family in ("LDSM", "STSM"):
        return int(parts[-1]) if parts[-1] in ("2", "4") else 1
    return 4 if "128" in parts else 2 if "64" in parts else 1


def tensor_percent(metrics: Mapping[str, Any]) -> float | None:
    """Return in which share of its active cycles an SM's tensor pipe was busy, in percent."""
    for way in _TENSOR_PIPE:
        values = [metrics.get(name) for name in way]
        if None not in values:
            return float(sum(value for value in values if value is not None))
    return None


def conclusion(row: Mapping[str, Any]) -> str:
    """Return one sentence: what was busiest, what warps waited for, what shared memory lost."""
    parts = []
    busy = [limit for limit in row["limits"] if limit["percent"] is not None]
    if busy:
        top = max(busy, key=lambda limit: limit["percent"])
        parts.append(f"the busiest part was {top['unit']} at {top['percent']:.1f} % of its peak")
    waits = [each for each in row["stalls"] if each["reason"] != "selected"]
    if waits:
        parts.append(f"warps mostly waited on {waits[0]['reason']} ({waits[0]['percent']:.0f} %)")
    lost = {name: each["conflicts"] for name, each in row["shared"].items() if each["conflicts"]}
    if lost:
        worst = max(lost, key=lambda name: lost[name])
        parts.append(f"{worst} lost {lost[worst]} wavefronts to bank conflicts")
    elif all(each["conflicts"] == 0 for each in row["shared"].values()):
        parts.append("no instruction had a bank conflict")
    return f"{row['name']}: {'; '.join(parts)}." if parts else ""
