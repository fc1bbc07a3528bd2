"""What ``ptxlab sass`` shows: resources, counts by family and by opcode, loops, and what ptxas said."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ptxlab.render.blocks import Block, Cell, Table, Text

_CLAIMS = 8  # that hold and are spelled out
_IN_FULL = 3
"""With no more kernels than this, every opcode of each is shown; --kernel chooses one of more."""

_OF_INTEREST = (
    *("HMMA", "IMMA", "BMMA", "DMMA", "QMMA", "OMMA", "HGMMA", "IGMMA", "QGMMA", "BGMMA"),
    *("UTCHMMA", "UTCIMMA", "UTCQMMA", "UTCOMMA", "LDSM", "STSM", "MOVM", "LDTM", "STTM", "LDS", "STS"),
    *("LDG", "STG", "LDGSTS", "UTMALDG", "UTMASTG", "UBLKCP", "LDL", "STL", "BAR", "SYNCS", "WARPGROUP"),
)
"""The families of the overview: tensor operations, memory, barriers."""


def view(document: dict[str, Any]) -> list[Block]:
    """Return an overview of all kernels, then the details of each if there are few."""
    result = document["result"]
    kernels = _labelled(result["kernels"])
    blocks: list[Block] = []
    if result.get("log"):
        blocks += [
            Text("the compiler's log", "heading"),
            *(Text(line) for line in result["log"].splitlines()),
        ]
    if kernels:
        blocks += [_overview(result["target"], kernels), *_families(kernels)]
    for kernel in kernels if len(kernels) <= _IN_FULL else []:
        blocks += [_opcodes(kernel), *_loops(kernel)]
    for kernel in kernels:
        blocks += _flops(kernel)
    for kernel in kernels:
        blocks += _remarks(kernel, result["remedies"])
    blocks += [Text(f"{each['case']}: {each['reason']}", "warning") for each in document["skipped"]]
    return [*blocks, *_conclusion(document)]


def _labelled(kernels: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the kernels with what they are called here: a stage's by what tells its variants apart.

    Others have their readable name where one alone has it.
    """
    shared = Counter((each["readable_name"], each["arch"]) for each in kernels)
    return [each | {"label": each.get("variant") or _symbol(each, shared)} for each in kernels]


def _symbol(kernel: dict[str, Any], shared: Counter[tuple[str, str]]) -> str:
    several = shared[kernel["readable_name"], kernel["arch"]] > 1
    return str(kernel["name" if several else "readable_name"])


def _which(kernels: list[dict[str, Any]]) -> tuple[tuple[str, ...], list[tuple[Cell, ...]], str]:
    """Return columns that tell the kernels apart, their cells, and what the title says instead.

    Of a single architecture the title tells, which leaves the width to the names of the kernels.
    """
    archs = {each["arch"] for each in kernels}
    if len(archs) == 1:
        return ("kernel",), [(each["label"],) for each in kernels], f" ({archs.pop()})"
    return ("kernel", "arch"), [(each["label"], each["arch"]) for each in kernels], ""


def _overview(target: str, kernels: list[dict[str, Any]]) -> Table:
    values = ("instructions", "padding", "registers", "spill_bytes", "shared_bytes", "tensor_ops")
    columns, names, arch = _which(kernels)
    rows: list[tuple[Cell, ...]] = [
        (*name, *(each[value] for value in values), len(each["loops"]))
        for name, each in zip(names, kernels, strict=True)
    ]
    columns = (*columns, "instr", "pad", "regs", "spill B", "shared B", "tensor", "loops")
    return Table(f"kernels in {target}{arch}", columns, rows)


def _families(kernels: list[dict[str, Any]]) -> list[Block]:
    """Return kernels x families, without families that none of them has; the rest is one column."""
    shown = [name for name in _OF_INTEREST if any(name in each["families"] for each in kernels)]
    columns, names, arch = _which(kernels)
    rows: list[tuple[Cell, ...]] = []
    for name, each in zip(names, kernels, strict=True):
        counts = [each["families"].get(family, 0) for family in shown]
        rows.append((*name, *counts, each["instructions"] - sum(counts)))
    return [Table(f"instructions by family, static{arch}", (*columns, *shown, "other"), rows)]


def _opcodes(kernel: dict[str, Any]) -> Table:
    """Return every opcode, the largest family first."""
    families = kernel["families"]
    opcodes = sorted(
        kernel["counts"].items(),
        key=lambda item: (-families[_family(item[0])], _family(item[0]), -item[1], item[0]),
    )
    rows: list[tuple[Cell, ...]] = [
        (_family(opcode), families[_family(opcode)], opcode, count) for opcode, count in opcodes
    ]
    title = f"opcodes of {kernel['label']} ({kernel['arch']}, static; {kernel['padding']} padding left out)"
    return Table(title, ("family", "in family", "opcode", "count"), rows)


def _flops(kernel: dict[str, Any]) -> list[Block]:
    """Return what the tensor instructions compute, if it was asked for."""
    if "flops" not in kernel:
        return []
    where = f"{kernel['label']} ({kernel['arch']})"
    if not kernel["flops"]:
        return [Text(f"{where}: no tensor instructions, so no FLOP of theirs.")]
    columns = ("opcode", "count", "FLOP of one", "executed by a", "FLOP of all")
    rows: list[tuple[Cell, ...]] = [
        (each["opcode"], each["count"], each["flop"], each["by"] or None, each["total"])
        for each in kernel["flops"]
    ]
    rule = "2 FLOP for each m, n and k, the zeros of a sparse A too"
    return [Table(f"tensor instructions of {where}, static: {rule}", columns, rows)]


def _family(opcode: str) -> str:
    return opcode.partition(".")[0]


def _loops(kernel: dict[str, Any]) -> list[Block]:
    if not kernel["loops"]:
        return []
    rows: list[tuple[Cell, ...]] = []
    for each in kernel["loops"]:
        most = sorted(each["counts"].items(), key=lambda item: -item[1])[:6]
        held = ", ".join(f"{count} {opcode}" for opcode, count in most)
        place = f"{each['start']:#06x}", f"{each['end']:#06x}"
        rows.append((*place, each["depth"], each["instructions"], each["tensor_ops"], held))
    columns = ("from", "branch back at", "depth", "instructions", "tensor ops", "most of it")
    return [Table(f"loops of {kernel['label']} (static, one iteration of the unrolled body)", columns, rows)]


def _remarks(kernel: dict[str, Any], remedies: dict[str, str]) -> list[Block]:
    where = f"{kernel['label']} ({kernel['arch']})"
    blocks: list[Block] = []
    if kernel["emulated"]:
        rows: list[tuple[Cell, ...]] = [
            (each["ptx"], each["sites"], each["sass"]) for each in kernel["emulated"]
        ]
        title = f"emulated in {where}: not one native operation on {kernel['arch']}"
        blocks.append(Table(title, ("PTX", "sites", "SASS of one site"), rows))
    if kernel["advisories"]:
        rows = [(each, remedies.get(each)) for each in kernel["advisories"]]
        blocks.append(Table(f"advisories of ptxas for {where}", ("advisory", "what would help"), rows))
    if kernel["tensor_dummies"]:
        blocks.append(Text(f"{where}: {_dummies(kernel)}", "warning"))
    return blocks + [Text(f"{where}: {each}", "warning") for each in kernel["warnings"]]


def _dummies(kernel: dict[str, Any]) -> str:
    return (
        f"tensor operations: {kernel['tensor_ops']}; {kernel['tensor_dummies']} more are dummies injected by "
        "ptxas (HGMMA.64x8x16.F16 RZ, gdesc[URZ]), each to end a wgmma group whose commit_group has no wgmma "
        "right before it"
    )


def _conclusion(document: dict[str, Any]) -> list[Block]:
    kernels, checks = document["result"]["kernels"], document["checks"]
    blocks: list[Block] = []
    if checks:
        failed = [each for each in checks if not each["ok"]]
        asked = document["params"].get("check") or document["params"].get("expect")
        held = [each for each in checks if each["ok"]] if asked else []
        blocks += [Text(f"{each['name']}: {each['detail']}", "bad") for each in failed]
        blocks += [Text(f"{each['name']}: {each['detail']}", "good") for each in held[:_CLAIMS]]
        blocks.append(Text(f"{len(checks) - len(failed)} of {len(checks)} claims hold.", "conclusion"))
    if len(kernels) > _IN_FULL:
        blocks.append(Text("--kernel NAME shows every opcode and the loops of one kernel.", "faint"))
    if kernels:
        blocks.append(Text("Counts are static; ptxlab profile counts what a run executes.", "faint"))
    return blocks
