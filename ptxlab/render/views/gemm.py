"""What ``ptxlab gemm`` shows: the stages, what was measured, what limits them, and the verdict."""

from __future__ import annotations

from typing import Any

from ptxlab.render.blocks import Block, Cell, Table, Text

COLUMNS = (
    *("stage", "shape", "types", "layout", "init", "ms", "95 %", "TFLOP/s", "% of cuBLAS"),
    *("verdict", "MHz", "W", "verified", "max error"),
)


def view(document: dict[str, Any]) -> list[Block]:
    """Return the blocks of the list, of a run, or of an explanation."""
    result = document["result"]
    if "available" in result:
        return _listed(result["available"])
    blocks: list[Block] = []
    if result["stages"]:
        blocks += [Table("measured", COLUMNS, [_row(each) for each in result["stages"]])]
        blocks += _held_down(result["stages"])
        blocks += _baselines(result["stages"]) + _wrong(result["stages"])
    for each in result["explanations"]:
        blocks += _explanation(each)
    if result["recorded"]:
        blocks += _recorded(result["recorded"])
    return [*blocks, *_verdict(document)]


def _listed(stages: list[dict[str, Any]]) -> list[Block]:
    columns = ("stage", "what it does", "types (A B, sum, C)", "layouts", "from", "recorded")
    rows: list[tuple[Cell, ...]] = [
        (
            *(each["stage"], each["problem"] or each["summary"], _types(each["types"])),
            *(" ".join(each["types"].get("layout", ())), each["oldest_arch"]),
            _fastest(each["recorded"]),
        )
        for each in stages
    ]
    return [Table("stages", columns, rows)]


def _types(types: dict[str, list[str]]) -> str:
    return ", ".join("|".join(types[name]) for name in ("dtype", "acc", "out") if name in types)


def _fastest(rows: list[dict[str, Any]]) -> str | None:
    if not rows:
        return None
    more = f", and {len(rows) - 1} more" if len(rows) > 1 else ""
    return _in_short(max(rows, key=lambda row: float(row["tflops"]))) + more


def _in_short(row: dict[str, Any]) -> str:
    share = row["percent_of_cublas"]
    against = f", {share:.1f} % of cuBLAS" if share is not None else ""
    stale = ", of an older kernel" if row["stale"] else ""
    return f"{row['tflops']:.1f} TFLOP/s at {_shape(row)}{against} ({row['device']}, {row['date']}{stale})"


def _shape(row: dict[str, Any]) -> str:
    return f"{row['m']}x{row['n']}x{row['k']}"


def _row(each: dict[str, Any]) -> tuple[Cell, ...]:
    time = each["milliseconds"]
    share, error = each["percent_of_cublas"], each["max_error"]
    return (
        *(each["stage"], _shape(each), f"{each['dtype']} {each['acc']} {each['out']}"),
        *(each["layout"], each["init"], f"{time['median']:.4g}"),
        f"{time['low']:.4g} to {time['high']:.4g}",
        f"{each['tflops']:.1f}",
        None if share is None else f"{share:.1f}",
        *(each["verdict"], _whole(each["clock_mhz"]), _whole(each["power_w"])),
        "yes" if each["verified"] else "NO",
        None if error is None else f"{error:.3g}",
    )


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _held_down(stages: list[dict[str, Any]]) -> list[Block]:
    causes = sorted({cause for each in stages for cause in each["throttle"]})
    text = f"The clock was held down while it was timed: {', '.join(causes)}."
    return [Text(text, "warning")] if causes else []


def _baselines(stages: list[dict[str, Any]]) -> list[Block]:
    """Return the library's own rows, or why there is none."""
    rows: list[tuple[Cell, ...]] = []
    for each in stages:
        library = each["cublas"]
        if library:
            time = library["milliseconds"]
            rows.append(
                (
                    *(library["name"], _shape(each), f"{time['median']:.4g}"),
                    f"{time['low']:.4g} to {time['high']:.4g}",
                    *(f"{library['tflops']:.1f}", _whole(library["clock_mhz"])),
                    *(_whole(library["power_w"]), "yes" if library["verified"] else "no"),
                )
            )
    columns = ("baseline", "shape", "ms", "95 %", "TFLOP/s", "MHz", "W", "verified")
    if rows:
        return [Table("timed in turn with it", columns, rows)]
    return [Text(f"No comparison with cuBLAS: {stages[0]['baseline_note']}.", "faint")]


def _wrong(stages: list[dict[str, Any]]) -> list[Block]:
    columns = ("row", "col", "result", "reference", "low", "high")
    return [
        Table(
            f"{each['stage']}: the first of {each['wrong']} wrong elements",
            columns,
            [tuple(found[name] for name in columns) for found in each["first_wrong"]],
        )
        for each in stages
        if each["first_wrong"]
    ]


def _explanation(each: dict[str, Any]) -> list[Block]:
    """Return the explanation of one stage as small tables."""
    return [
        Table("work", ("quantity", "value"), _work(each)),
        Table("shared memory of a block", ("buffer", "bytes"), _shared(each["shared"])),
        *_occupancy(each),
        *_bounds(each),
    ]


def _work(each: dict[str, Any]) -> list[tuple[Cell, ...]]:
    tiles, work = each["tiles"], each["work"]
    size = "x".join(map(str, tiles["tile"]))
    return [
        ("stage", each["stage"]),
        ("problem", each["problem"]),
        ("GPU", each["machine"]),
        ("tile of a block (rows x columns x depth)", size),
        ("threads of a block", tiles["threads"]),
        ("blocks", tiles["blocks"]),
        ("steps along k", tiles["steps"]),
        ("FLOP", work["flop"]),
        ("bytes, each matrix once", work["bytes"]),
        ("FLOP per byte", f"{work['flop_per_byte']:.1f}"),
        ("warp instructions HMMA.16816 that run", work["mma"]),
        ("mnk / 2048, without the padding of tiles", f"{work['mma_of_whole_tiles']:.10g}"),
        ("useful part of the tiles, %", f"{work['useful_percent']:.1f}"),
    ]


def _shared(shared: dict[str, Any]) -> list[tuple[Cell, ...]]:
    reserved = ("kept by CUDA", shared["reserved"])
    return [*shared["buffers"].items(), reserved, ("all", shared["bytes"] + shared["reserved"])]


def _occupancy(each: dict[str, Any]) -> list[Block]:
    held, filled = each["occupancy"], each["waves"]
    if not held:
        return []
    rows: list[tuple[Cell, ...]] = [(f"blocks of an SM by {k}", v) for k, v in held["by"].items()]
    rows += [
        ("registers of a thread", held["registers"]),
        ("blocks of an SM", held["blocks"]),
        ("limited by", held["limiter"]),
        ("warps of an SM", held["warps"]),
        ("of the warps it can hold, %", f"{held['percent']:.0f}"),
        ("blocks of a wave, on all SMs", filled["slots"]),
        ("waves", f"{filled['waves']:.2f}"),
        ("mean filling of the waves, %", f"{filled['percent']:.0f}"),
    ]
    return [Table("occupancy and waves", ("quantity", "value"), rows)]


def _bounds(each: dict[str, Any]) -> list[Block]:
    columns = ("resource", "needs", "rate", "at least ms", "at most TFLOP/s", "source")
    rows = [
        (row["resource"], f"{row['amount']:.4g} {row['unit']}".rstrip(), *_rate(row))
        for row in each["bounds"]
    ]
    return [Table("limits, the tightest first", columns, rows)] if rows else []


def _rate(row: dict[str, Any]) -> tuple[Cell, ...]:
    if row["per_second"] is None:
        return "rate unknown on this GPU", None, None, "may be the limiter"
    rate = f"{row['per_second']:.4g} {row['unit']}/s"
    return rate, f"{row['milliseconds']:.4g}", f"{row['tflops']:.1f}", row["source"]


def _recorded(rows: list[dict[str, Any]]) -> list[Block]:
    title = f"recorded on {rows[0]['device']}, {rows[0]['date']}"
    blocks: list[Block] = [Table(title, COLUMNS, [_row(each) for each in rows])]
    if any(each["stale"] for each in rows):
        blocks.append(Text("The kernel has changed since: record it again on a GPU.", "warning"))
    return blocks


def _verdict(document: dict[str, Any]) -> list[Block]:
    result = document["result"]
    blocks: list[Block] = [Text(f"Note: {note}.", "warning") for note in result["notes"]]
    if document["checks"]:
        rows: list[tuple[Cell, ...]] = [
            (check["name"], "yes" if check["ok"] else "NO", check["detail"]) for check in document["checks"]
        ]
        blocks.append(Table("checks", ("check", "holds", "detail"), rows))
    blocks += [Text(f"Skipped {each['case']}: {each['reason']}", "faint") for each in document["skipped"]]
    if "recording" in result:
        blocks.append(Text(f"Recorded in {result['recording']}.", "faint"))
    return [*blocks, Text(result["conclusion"], "conclusion")] if "conclusion" in result else blocks
