"""What ``ptxlab profile`` shows: executed counts, stalls, shared memory, use of the chip."""

from __future__ import annotations

from typing import Any

from ptxlab.render.blocks import Block, Cell, Table, Text

_BAR = 30  # characters that stand for 100 percent
_LEAST = 0.05  # percent: stall reasons below it are summed up in one row


def view(document: dict[str, Any]) -> list[Block]:
    """Return the blocks of a profile: each launch, or what can be told without one."""
    result = document["result"]
    blocks: list[Block] = []
    for kernel in result.get("kernels", []):
        blocks += _kernel(kernel)
    if not blocks:
        blocks += _without_profiler(result)
    blocks += [Text(caveat, "faint") for caveat in result.get("caveats", [])]
    missing = [skip["case"] for skip in document["skipped"]]
    if missing:
        blocks.append(Text(f"not measured here: {', '.join(missing)}", "faint"))
    return blocks


def _kernel(kernel: dict[str, Any]) -> list[Block]:
    blocks: list[Block] = [
        Text(
            f"{kernel['name']}  launch {kernel['launch_id']}  grid {_dim3(kernel['grid'])}"
            f"  block {_dim3(kernel['block'])}  {_time(kernel['duration_ns'])}",
            "heading",
        ),
        Table("executed warp instructions", ("opcode", "executed"), _counts(kernel["counts"])),
    ]
    if kernel["stalls"]:
        columns = ("reason", "cycles per instruction", "percent", "")
        blocks.append(Table("where warps were, per issued instruction", columns, _stalls(kernel)))
    blocks.append(_shared(kernel))
    blocks.append(_limits(kernel))
    blocks += [Table("metrics", ("metric", "value"), list(kernel["metrics"].items()))] * bool(
        kernel.get("metrics")
    )
    return [*blocks, Text(kernel["conclusion"], "conclusion")] if kernel["conclusion"] else blocks


def _counts(counts: dict[str, int | None]) -> list[tuple[Cell, ...]]:
    """Return a row for each opcode that ran, and for those that nobody measured."""
    return [(name.upper(), number) for name, number in counts.items() if number != 0]


def _stalls(kernel: dict[str, Any]) -> list[tuple[Cell, ...]]:
    shown = [each for each in kernel["stalls"] if each["percent"] >= _LEAST]
    return [
        (
            each["reason"],
            round(each["per_issue"], 3),
            round(each["percent"], 1),
            bar(each["percent"]),
        )
        for each in shown
    ]


def bar(percent: float) -> str:
    """Return a bar whose full length means 100 percent."""
    return "█" * round(percent * _BAR / 100)


def _shared(kernel: dict[str, Any]) -> Table:
    columns = ("class", "instructions", "wavefronts", "ideal", "conflicts")
    rows: list[tuple[Cell, ...]] = [
        (name.upper(), each["instructions"], each["wavefronts"], each["ideal"], each["conflicts"])
        for name, each in kernel["shared"].items()
    ]
    raw = kernel["shared_raw"]
    rows.append(("raw L1 counter (all classes)", None, raw["wavefronts"], None, raw["conflicts"]))
    return Table("shared memory", columns, rows)


def _limits(kernel: dict[str, Any]) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (each["unit"], _percent(each["percent"]), bar(each["percent"] or 0)) for each in kernel["limits"]
    ]
    rows += [("DRAM bytes", kernel["dram_bytes"], ""), ("L2 bytes", kernel["l2_bytes"], "")]
    rows += [(f"TMA {name.replace('_', ' ')}", value, "") for name, value in kernel["tma"].items() if value]
    return Table("use of the chip", ("what", "percent of peak, or amount", ""), rows)


def _percent(value: float | None) -> Cell:
    return None if value is None else f"{value:.1f} %"


def _dim3(size: list[int] | None) -> str:
    return "?" if size is None else f"({', '.join(map(str, size))})"


def _time(nanoseconds: float | None) -> str:
    return "" if nanoseconds is None else f"{nanoseconds / 1000:.2f} µs under ncu"


def _without_profiler(result: dict[str, Any]) -> list[Block]:
    """Return what is known of a launch that could not be profiled; each number says what it is."""
    blocks: list[Block] = []
    static = result.get("static")
    if static:
        blocks.append(Text(f"{static['name']} for {static['arch']}, not profiled", "heading"))
        rows: list[tuple[Cell, ...]] = [(name, n) for name, n in static["families"].items()]
        blocks.append(Table("static: instructions in the SASS, not executed", ("opcode", "static"), rows))
    modelled = result.get("modelled")
    if modelled:
        rows = [(name, value) for name, value in modelled.items() if isinstance(value, Cell)]
        blocks.append(Table("modelled, not measured", ("what", "modelled"), rows))
    return blocks
