"""What ``ptxlab gemm`` shows: the stages, what was measured, what limits them, and the verdict."""

from __future__ import annotations

from typing import Any

from ptxlab.render.blocks import Block, Cell, Table, Text

COLUMNS = (
    *("stage", "shape", "types", "layout", "init", "L2", "ms", "95 %", "TFLOP/s", "% of cuBLAS"),
    *("verdict", "% of ceiling", "MHz", "W", "verified", "max error"),
)

MOST_CHECKS = 12
"""More are told by their number: a ladder has several for each rung."""


def view(document: dict[str, Any]) -> list[Block]:
    """Return the blocks of the list, of a run, or of an explanation."""
    result = document["result"]
    if "available" in result:
        return _listed(result["available"])
    if "compared" in result:
        return _compared(result)
    blocks: list[Block] = []
    if result["stages"]:
        blocks += _swept(result["sweep"]) if result["sweep"] else []
        rows = [_row(each, brief=_stands_alone(each, result["stages"])) for each in result["stages"]]
        blocks += [Table("measured", COLUMNS, rows)]
        blocks += _ladder(result["stages"])
        blocks += _repeats(result["stages"]) + _errors(result["errors"])
        blocks += _held_down(result["stages"])
        blocks += _baselines(result["stages"]) + _ceilings(result["ceilings"]) + _wrong(result["stages"])
    if len(result["explanations"]) == 1 or not result["stages"]:
        for each in result["explanations"]:
            blocks += _explanation(each)
    if result["recorded"]:
        blocks += _recorded(result["recorded"])
    return [*blocks, *_verdict(document)]


def _compared(result: dict[str, Any]) -> list[Block]:
    """Return two sides: each point once, and what the sides are."""
    names = ("days", "device", "driver", "CUDA")
    told: list[tuple[Cell, ...]] = [
        (side, *(", ".join(values) for values in said.values()))
        for side, said in zip("AB", result["sides"], strict=True)
    ]
    columns = (
        *("stage", "shape", "types", "layout", "init", "L2", "A ms", "B ms", "A TFLOP/s", "B TFLOP/s"),
        *("B / A", "A MHz", "B MHz", "B is"),
    )
    rows: list[tuple[Cell, ...]] = [
        (
            *(_name(each), _shape(each), f"{each['dtype']} {each['acc']} {each['out']}"),
            *(each["layout"], each["init"], each["l2"]),
            *(f"{each[side]['milliseconds']['median']:.4g}" for side in "ab"),
            *(f"{each[side]['tflops']:.1f}" for side in "ab"),
            f"{each['ratio']:.3f}",
            *(_whole(each[side]["clock_mhz"]) for side in "ab"),
            each["verdict"],
        )
        for each in result["compared"]
    ]
    return [
        Table("sides", ("side", *names), told),
        Table("both measured", columns, rows),
        Text(result["conclusion"], "conclusion"),
    ]


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


def _stands_alone(row: dict[str, Any], rows: list[dict[str, Any]]) -> bool:
    """Say whether a row is the only one of its stage among several: then its options go without saying."""
    same = [each for each in rows if (each["stage"], each["problem"]) == (row["stage"], row["problem"])]
    return len(same) == 1 < len({each["stage"] for each in rows})


def _row(each: dict[str, Any], *, brief: bool = False) -> tuple[Cell, ...]:
    share, error = each["percent_of_cublas"], each["max_error"]
    return (
        *(
            each["stage"] if brief else _name(each),
            _shape(each),
            f"{each['dtype']} {each['acc']} {each['out']}",
        ),
        *(each["layout"], each["init"], each["l2"], *_time(each)),
        None if share is None else f"{share:.1f}",
        *(each["verdict"], _tenths(each.get("percent_of_measured_peak"))),
        *(_whole(each["clock_mhz"]), _whole(each["power_w"])),
        "yes" if each["verified"] else "NO",
        None if error is None else f"{error:.3g}",
    )


def _name(each: dict[str, Any]) -> str:
    return " ".join((each["stage"], *(f"{k}={v}" for k, v in each.get("options", {}).items())))


def _time(each: dict[str, Any]) -> tuple[Cell, ...]:
    """Return milliseconds, their interval, and TFLOP/s; dashes where no time was asked for."""
    time = each["milliseconds"]
    if time is None:
        return None, None, None
    tflops = each["tflops"]
    rate = f"{tflops:.1f}" if tflops >= 1 else f"{tflops:.2g}"
    return f"{time['median']:.4g}", f"{time['low']:.4g} to {time['high']:.4g}", rate


def _ladder(stages: list[dict[str, Any]]) -> list[Block]:
    """Return what each rung gains over the one below, and whether that is real."""
    rows: list[tuple[Cell, ...]] = [
        (
            *(each["stage"], _shape(each), f"{each['tflops']:.1f}", gain["over"], f"{gain['percent']:+.1f}"),
            *(f"{gain['low']:+.1f} to {gain['high']:+.1f}", f"{gain['noise_floor_percent']:.1f}"),
            "yes" if gain["real"] else "no",
        )
        for each in stages
        if (gain := each["gain"])
    ]
    columns = ("rung", "shape", "TFLOP/s", "over", "gain, %", "95 %", "noise, %", "real")
    return [Table("the ladder: what each rung gains over the one below", columns, rows)] if rows else []


def _swept(sweep: dict[str, Any]) -> list[Block]:
    """Return the points of a sweep: which differences are real."""
    columns = ("stage", *sweep["options"], "ms", "95 %", "TFLOP/s", "% of cuBLAS", "verdict", "% more time")
    rows: list[tuple[Cell, ...]] = [
        (
            *(point["stage"], *point["values"].values(), *_time(point)),
            *(_tenths(point["percent_of_cublas"]), point["verdict"]),
            _tenths(point["difference_percent"]),
        )
        for point in sweep["points"]
    ]
    return [Table("sweep: each point against the fastest of its problem", columns, rows)]


def _tenths(value: float | None) -> str | None:
    return None if value is None else f"{value:.1f}"


def _repeats(stages: list[dict[str, Any]]) -> list[Block]:
    """Return the runs of what was measured several times, and how much they spread."""
    blocks: list[Block] = []
    for each in stages:
        if not (told := each["repeats"]):
            continue
        rows: list[tuple[Cell, ...]] = [
            (i, run["order"], *_time(run), _tenths(run["percent_of_cublas"]), _whole(run["clock_mhz"]))
            for i, run in enumerate(told["runs"], 1)
        ]
        columns = ("run", "order", "ms", "95 %", "TFLOP/s", "% of cuBLAS", "MHz")
        effect = told["order_effect_percent"]
        text = f"The runs spread over {told['spread_percent']:.2f} %"
        text += "." if effect is None else f"; the opposite order makes {effect:+.2f} %."
        blocks += [Table(f"{_name(each)}: each run", columns, rows), Text(text)]
    return blocks


def _errors(errors: list[dict[str, Any]]) -> list[Block]:
    """Return what the largest errors are made of."""
    columns = ("stage", "problem", "error", "at", "ulp there", "ulps", "half an ulp", "permitted")
    rows: list[tuple[Cell, ...]] = [
        (
            *(each["stage"], each["problem"], f"{each['error']:.3g}", f"{each['reference']:.6g}"),
            *(f"{each['ulp']:.3g}", f"{each['ulps']:.2g}", f"{each['of_output']:.3g}"),
            f"{each['permitted']:.3g}",
        )
        for each in errors
    ]
    said: list[Block] = [Text(f"{each['stage']}: {each['sentence']}.") for each in errors]
    return [Table("the largest error", columns, rows), *said] if errors else []


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _held_down(stages: list[dict[str, Any]]) -> list[Block]:
    causes = sorted({cause for each in stages for cause in each["throttle"]})
    counts = [(each["throttled_samples"], each["samples"]) for each in stages if each["throttle"]]
    held, all_of_them = (sum(column) for column in zip(*counts, strict=True)) if counts else (0, 0)
    text = f"The clock was held down in {held} of {all_of_them} samples: {', '.join(causes)}. They are kept."
    return [Text(text, "warning")] if causes else []


def _baselines(stages: list[dict[str, Any]]) -> list[Block]:
    """Return the libraries' own rows, each once, or why there is none."""
    if all(each["milliseconds"] is None for each in stages):
        return []
    rows: dict[tuple[str, str], tuple[Cell, ...]] = {}
    for each in stages:
        for library in each["libraries"]:
            time = library["milliseconds"]
            rows.setdefault(
                (library["name"], each["problem"]),
                (
                    *(library["name"], _shape(each), f"{time['median']:.4g}"),
                    f"{time['low']:.4g} to {time['high']:.4g}",
                    *(f"{library['tflops']:.1f}", _whole(library["clock_mhz"])),
                    *(_whole(library["power_w"]), "yes" if library["verified"] else "no"),
                ),
            )
    columns = ("baseline", "shape", "ms", "95 %", "TFLOP/s", "MHz", "W", "verified")
    if rows:
        return [Table("timed in turn with it", columns, list(rows.values()))]
    return [Text(f"No comparison with cuBLAS: {stages[0]['baseline_note']}.", "faint")]


def _ceilings(found: list[dict[str, Any]]) -> list[Block]:
    """Return what the instructions reached that do nothing but multiply, in the same runs."""
    rows: list[tuple[Cell, ...]] = [
        (
            *(each["ceiling"], each["problem"].partition(" ")[0], each["dtype"], f"{each['tflops']:.1f}"),
            *(f"{each['flop_per_clock_and_sm']:.0f}", f"{each['sm_mhz']:.0f}"),
            *(_whole(each["clock_mhz"]), _whole(each["power_w"])),
        )
        for each in found
    ]
    columns = (
        "ceiling",
        "beside",
        "type",
        "TFLOP/s",
        "FLOP/clock/SM",
        "MHz in the kernel",
        "MHz by NVML",
        "W",
    )
    return [Table("ceilings: multiplications alone, timed in turn with it", columns, rows)] if rows else []


def _wrong(stages: list[dict[str, Any]]) -> list[Block]:
    columns = ("row", "col", "result", "reference", "low", "high")
    first: list[Block] = [
        Table(
            f"{each['stage']}: the first of {each['wrong']} wrong elements",
            columns,
            [tuple(found[name] for name in columns) for found in each["first_wrong"]],
        )
        for each in stages
        if each["first_wrong"]
    ]
    where: list[Block] = [
        Table(
            f"{each['stage']}: where the wrong elements are, told from {each['wrong_shape']['listed']}",
            ("group", "hit", "of", "the most wrong ones"),
            [_group(group) for group in each["wrong_shape"]["groups"]],
        )
        for each in stages
        if each["wrong_shape"]
    ]
    return first + where


def _group(group: dict[str, Any]) -> tuple[Cell, ...]:
    most = ", ".join(f"{','.join(map(str, each['index']))}: {each['wrong']}" for each in group["most"])
    return group["group"], group["hit"], group["of"], most


def _explanation(each: dict[str, Any]) -> list[Block]:
    """Return the explanation of one stage as small tables."""
    return [
        Table("work", ("quantity", "value"), _work(each)),
        Table("shared memory of a block", ("buffer", "bytes", "%"), _shared(each["shared"])),
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
        *_roofline(each["roofline"]),
        ("bytes of A and B that all blocks load", work["loaded_bytes"]),
        ("FLOP per byte loaded", f"{work['flop_per_loaded_byte']:.1f}"),
        ("warp instructions HMMA.16816 that run", work["mma"]),
        ("mnk / 2048, without the padding of tiles", f"{work['mma_of_whole_tiles']:.10g}"),
        ("useful part of the tiles, %", f"{work['useful_percent']:.1f}"),
    ]


def _roofline(place: dict[str, Any] | None) -> list[tuple[Cell, ...]]:
    if place is None:
        return []
    side = "right" if place["flop_per_byte"] >= place["ridge"] else "left"
    where = (
        f"{side} of the ridge at {place['ridge']:.0f}: under {place['roof']}, {place['tflops']:.1f} TFLOP/s"
    )
    return [("place under the roofline", where)]


def _shared(shared: dict[str, Any]) -> list[tuple[Cell, ...]]:
    """Return the budget, each buffer as a share of what a block can have."""
    most = shared["most"]
    named = {**shared["buffers"], "kept by CUDA": shared["reserved"]}
    named["all"] = shared["bytes"] + shared["reserved"]
    if most is not None:
        named["of an SM"] = most + shared["reserved"]
    whole = named.get("of an SM")
    return [(name, count, f"{100 * count / whole:.1f}" if whole else None) for name, count in named.items()]


def _occupancy(each: dict[str, Any]) -> list[Block]:
    held, filled = each["occupancy"], each["waves"]
    if not held or not filled:
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
        ("blocks of the last wave", filled["last_blocks"]),
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


def _checks(checks: list[dict[str, Any]]) -> list[Block]:
    """Return the checks; of many, those alone that do not hold."""
    few = len(checks) <= MOST_CHECKS
    rows: list[tuple[Cell, ...]] = [
        (check["name"], "yes" if check["ok"] else "NO", check["detail"])
        for check in checks
        if few or not check["ok"]
    ]
    blocks: list[Block] = [Table("checks", ("check", "holds", "detail"), rows)] if rows else []
    held = sum(check["ok"] for check in checks)
    return blocks if few else [*blocks, Text(f"{held} of {len(checks)} checks hold (--json lists them).")]


def _verdict(document: dict[str, Any]) -> list[Block]:
    result = document["result"]
    blocks: list[Block] = [Text(f"Note: {note}.", "warning") for note in result["notes"]]
    blocks += _checks(document["checks"])
    blocks += [Text(f"Skipped {each['case']}: {each['reason']}", "faint") for each in document["skipped"]]
    blocks += [Text(f"Recorded in {path}.", "faint") for path in result.get("recordings", ())]
    return [*blocks, Text(result["conclusion"], "conclusion")] if "conclusion" in result else blocks
