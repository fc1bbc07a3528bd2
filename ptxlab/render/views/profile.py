"""What ``ptxlab profile`` shows: executed counts, stalls, shared memory, use of the chip."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ptxlab.render.blocks import Block, Cell, Table, Text

_BAR = 30  # characters that stand for 100 percent
_LEAST = 0.05  # percent: a stall reason below it is left out

_SETTINGS = (
    *("target", "metrics", "section_set", "kernel", "launch_skip", "launch_count"),
    *("report", "device", "timeout", "explain", "program"),
)
"""Parameters that say how to profile; the others are those of the experiment."""

_UNITS = {
    "counts": "warp instructions",
    "banks": "wavefronts",
    "tensor f32": "FLOP",
    "tensor f16": "FLOP",
    "tensor tf32": "FLOP",
    "tensor e4m3": "FLOP",
    "tensor e5m2": "FLOP",
    "tensor s8": "OP",
    "memory": "bytes",
    "l1 wavefronts": "wavefronts",
}
"""Of what is modelled, by the name of the number or of the group that it is in."""

Rows = list[tuple[Cell, ...]]


def view(document: dict[str, Any]) -> list[Block]:
    """Return the blocks of a profile: each launch, or what can be told without one."""
    result = document["result"]
    blocks: list[Block] = _target(document["params"])
    blocks += [block for kernel in result.get("kernels", []) for block in _kernel(kernel)]
    if not result.get("kernels"):
        blocks += _without_profiler(result)
    for check in document["checks"]:
        blocks.append(Text(f"{check['name']}: {check['detail']}", "good" if check["ok"] else "bad"))
    blocks += [Text(caveat, "faint") for caveat in result.get("caveats", [])]
    missing = [skip["case"] for skip in document["skipped"]]
    if missing:
        blocks.append(Text(f"not measured here: {', '.join(missing)}", "faint"))
    return blocks


def _target(params: dict[str, Any]) -> list[Block]:
    """Return what was profiled: the experiment's name and its parameters, the sizes of a GEMM among them."""
    values = [f"{name} {value}" for name, value in params.items() if name not in _SETTINGS]
    return [Text(f"{params['target']}: {', '.join(values)}", "heading")] if values else []


def _kernel(kernel: dict[str, Any]) -> Iterator[Block]:
    title = f"{kernel['name']}  launch {kernel['launch_id']}"
    where = f"grid {_dim3(kernel['grid'])}  block {_dim3(kernel['block'])}"
    yield Text(f"{title}  {where}{_time(kernel['duration_ns'])}", "heading")
    yield Table("executed warp instructions", ("opcode", "executed", "switched off"), _counts(kernel))
    if kernel["stalls"]:
        columns = ("where warps were", "cycles per instruction", "percent", "", "waiting")
        yield Table("stalls", columns, _stalls(kernel["stalls"]))
    yield _shared(kernel)
    for told in kernel["explanation"]:
        yield Text(told)
    yield _limits(kernel)
    if kernel["metrics"]:
        yield Table("metrics", ("metric", "value"), list(kernel["metrics"].items()))
    if kernel["conclusion"]:
        yield Text(kernel["conclusion"], "conclusion")


def _counts(kernel: dict[str, Any]) -> Rows:
    """Return a row for each opcode that ran, and for those that were not measured."""
    off = kernel["switched_off"]
    return [
        (name.upper(), number, None if off is None else off.get(name, 0))
        for name, number in kernel["counts"].items()
        if number != 0
    ]


def _stalls(stalls: list[dict[str, Any]]) -> Rows:
    return [
        (
            *(each["reason"], round(each["per_issue"], 3), round(each["percent"], 1)),
            *(bar(each["percent"]), each["meaning"]),
        )
        for each in stalls
        if each["percent"] >= _LEAST
    ]


def bar(percent: float | None) -> str:
    """Return a bar whose full length means 100 percent."""
    return "█" * round((percent or 0) * _BAR / 100)


def _shared(kernel: dict[str, Any]) -> Table:
    columns = ("class", "instructions", "wavefronts", "ideal", "conflicts")
    rows: Rows = [(name.upper(), *(each[c] for c in columns[1:])) for name, each in kernel["shared"].items()]
    raw = kernel["shared_raw"]
    rows.append(("raw L1 counter", None, raw["wavefronts"], None, raw["conflicts"]))
    rows.append(("of these not bank conflicts", None, None, None, raw["not_bank_conflicts"]))
    return Table("shared memory", columns, rows)


def _limits(kernel: dict[str, Any]) -> Table:
    rows: Rows = [
        (each["unit"], None if each["percent"] is None else f"{each['percent']:.1f} %", bar(each["percent"]))
        for each in kernel["limits"]
    ]
    rows += [("DRAM bytes", kernel["dram_bytes"], ""), ("L2 bytes", kernel["l2_bytes"], "")]
    rows += [(f"TMA {name.replace('_', ' ')}", value, "") for name, value in kernel["tma"].items() if value]
    return Table("use of the chip", ("what", "percent of peak, or amount", ""), rows)


def _dim3(size: list[int] | None) -> str:
    return "?" if size is None else f"({', '.join(map(str, size))})"


def _time(nanoseconds: float | None) -> str:
    return "" if nanoseconds is None else f"  {nanoseconds / 1000:.2f} µs under ncu"


def _without_profiler(result: dict[str, Any]) -> list[Block]:
    """Return what is known of a launch that could not be profiled; each number says what it is."""
    blocks: list[Block] = []
    static = result.get("static")
    if static:
        blocks.append(Text(f"{static['name']} for {static['arch']}: not profiled", "heading"))
        blocks.append(Text("Static counts: instructions in the SASS, whether or not they run.", "warning"))
        blocks.append(
            Table("static", ("opcode", "instructions in the SASS"), list(static["families"].items()))
        )
    modelled = list(_flat(result.get("modelled", {})))
    if modelled:
        blocks.append(Text("Modelled, not measured.", "warning"))
        blocks.append(Table("modelled", ("what", "modelled", "unit"), modelled))
    blocks += [Text(told) for told in result.get("explanation", [])]
    return blocks


def _flat(values: dict[str, Any]) -> Iterator[tuple[Cell, ...]]:
    """Yield a row for each number: named by all the keys that lead to it, and with its unit."""
    for name, value in values.items():
        if isinstance(value, dict):
            for inner, number, unit in _flat(value):
                yield f"{name}: {inner}", number, _UNITS.get(name, unit)
        else:
            yield name, value, _UNITS.get(name)
