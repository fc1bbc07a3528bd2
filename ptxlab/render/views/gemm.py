"""What ``ptxlab gemm`` shows: the stages, what was measured, what limits them, and the verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import prod
from typing import Any

from ptxlab.render.blocks import Block, Cell, Table, Text
from ptxlab.render.views.pipeline import pipeline_blocks
from ptxlab.render.views.profile import bar

COLUMNS = (
    *("stage", "shape", "types", "layout", "init", "L2", "ms", "95 %", "TFLOP/s", "% of cuBLAS"),
    *("verdict", "% of ceiling", "MHz", "tensor %", "W", "verified", "max error"),
)

BRIEF = ("stage", "TFLOP/s", "% of cuBLAS", "gain, %", "at most TFLOP/s", "at MHz", "limited by")

CLOCKS_DIFFER = (
    "At most: at the MHz beside it, which the SMs counted when that row was recorded, or else those of the "
    "rate. TFLOP/s of ceilings move with the clock, FLOP/clock/SM do not."
)
"""What has to be known to compare limits and ceilings of several rows."""

MOST_PLANS = 12
"""Beside the finalists that are shown of a search."""

MOST_POINTS = 8
"""That were recorded where none answers: of a stage there may be a hundred."""

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
    for each in result["tuned"]:
        blocks += _tuned(each)
    if result["stages"]:
        blocks += _swept(result["sweep"]) if result["sweep"] else []
        rows = [_row(each, _label(each, result["stages"])) for each in result["stages"]]
        blocks += [Table("measured", COLUMNS, rows)]
        blocks += _ladder(result["stages"])
        blocks += _repeats(result["stages"]) + _errors(result["errors"])
        blocks += _held_down(result["stages"]) + _clocks(result["stages"])
        blocks += _baselines(result["stages"]) + _ceilings(result["ceilings"]) + _wrong(result["stages"])
    else:
        blocks += _in_brief(result, document["params"]["l2"])
    asked = bool(document["params"].get("explain"))
    if len(result["explanations"]) == 1 or asked:
        for each in result["explanations"]:
            blocks += _explanation(each, asked=asked)
        blocks += _plans(result) + _recorded(result)
    elif not result["stages"] and result["explanations"]:
        blocks.append(Text("--explain adds the tiles, occupancy, waves and limits of each.", "faint"))
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
        *("B / A", "A MHz", "B MHz", "A verified", "B verified", "B is"),
    )
    rows: list[tuple[Cell, ...]] = [
        (
            *(_name(each), _shape(each), f"{each['dtype']} {each['acc']} {each['out']}"),
            *(each["layout"], each["init"], each["l2"]),
            *(f"{each[side]['milliseconds']['median']:.4g}" for side in "ab"),
            *(f"{each[side]['tflops']:.1f}" for side in "ab"),
            None if each["ratio"] is None else f"{each['ratio']:.3f}",
            *(_whole(each[side]["clock_mhz"]) for side in "ab"),
            *(_verified(each[side]["verified"]) for side in "ab"),
            each["verdict"],
        )
        for each in result["compared"]
    ]
    return [
        Table("sides", ("side", *names), told),
        Table("both measured", columns, rows),
        Text(result["conclusion"], "conclusion"),
    ]


def _tuned(search: dict[str, Any]) -> list[Block]:
    """Return what plans took: the finalists, which took turns, then the fastest in the heats."""
    final, others = search["plans"][: search["finalists"]], search["plans"][search["finalists"] :]
    shown = [*_by_time(final), *_by_time(others)[:MOST_PLANS]]
    columns = ("plan", "ms", "TFLOP/s", "verified")
    rows: list[tuple[Cell, ...]] = [
        (
            " ".join(map(str, each["plan"].values())),
            f"{each['milliseconds']['median']:.4g}",
            f"{each['tflops']:.1f}",
            _verified(each["verified"]),
        )
        for each in shown
    ]
    where = f"kept for {search['device']} in {search['kept']}" if search["kept"] else "not kept"
    told = f"{len(others)} of {search['of']} plans timed in {search['seconds']:.0f} s; {where}"
    title = f"plans of {search['stage']}, {search['problem']}: finalists first"
    return [Table(title, columns, rows), Text(told, "faint")]


def _by_time(plans: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(plans, key=lambda each: float(each["milliseconds"]["median"]))


def _verified(found: bool | None) -> str | None:  # noqa: FBT001 - a field of a row, as it stands there
    return None if found is None else "yes" if found else "NO"


def _listed(stages: list[dict[str, Any]]) -> list[Block]:
    """Return the rungs with what was recorded of each at one and the same problem, and their types."""
    point = _shared_point([row for each in stages for row in each["recorded"] if not row["stale"]])
    found = [[row for row in each["recorded"] if _point(row) == point] for each in stages]
    rows: list[tuple[Cell, ...]] = [
        (each["stage"], each["problem"] or each["summary"], *_best(of_stage))
        for each, of_stage in zip(stages, found, strict=True)
    ]
    known = next((row for of_stage in found for row in of_stage), None)
    on = f"recorded: {_recorded_as(known)}" if known else "none recorded yet"
    columns = ("stage", "what it does", "TFLOP/s", "% of cuBLAS")
    stale = [each["stage"] for each in stages if any(row["stale"] for row in each["recorded"])]
    blocks: list[Block] = [Table(f"stages; {on}", columns, rows), _types(stages)]
    if stale:
        told = f"Of an older kernel, to be recorded again on a GPU: {', '.join(stale)}."
        blocks.append(Text(told, "warning"))
    return blocks


def _point(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("m", "n", "k", "dtype", "out", "layout", "init", "l2"))


def _recorded_as(row: dict[str, Any]) -> str:
    return f"{row['problem']}, {row['l2']} L2, {row['device']}, {row['date']}"


def _shared_point(rows: list[dict[str, Any]]) -> tuple[Any, ...] | None:
    """Return the problem that most stages were recorded at; of several the largest, with a cold L2."""
    ran = {(row["stage"], _point(row)) for row in rows}
    counts = Counter(point for _, point in ran)
    return max(sorted(counts), key=lambda point: (counts[point], prod(point[:3])), default=None)


def _best(rows: list[dict[str, Any]]) -> tuple[Cell, ...]:
    if not rows:
        return None, None
    row = max(rows, key=lambda each: float(each["tflops"]))
    return f"{row['tflops']:.1f}", _tenths(row["percent_of_cublas"])


def _types(stages: list[dict[str, Any]]) -> Table:
    """Return who takes which types and layouts, and from which architecture on."""
    names = ("dtype", "acc", "out", "layout")
    kinds: dict[tuple[str, ...], list[str]] = {}
    for each in stages:
        if each["types"]:
            types = (" ".join(each["types"][name]) for name in names)
            kinds.setdefault((*types, each["oldest_arch"]), []).append(each["stage"])
    columns = ("A and B", "sum", "C", "layouts", "from", "stages")
    return Table("types", columns, [(*kind, ", ".join(takers)) for kind, takers in kinds.items()])


def _shape(row: dict[str, Any]) -> str:
    return f"{row['m']}x{row['n']}x{row['k']}"


def _label(row: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """Return a row's stage and what tells it apart: alone all its options, beside other stages none."""
    same = [each for each in rows if (each["stage"], each["problem"]) == (row["stage"], row["problem"])]
    alone = len(same) == len({each["stage"] for each in rows}) == 1
    return _name(row) if alone else _name_among(row, same)


def _name_among(each: dict[str, Any], same: list[dict[str, Any]]) -> str:
    """Return a stage with those of its options in which several points of it differ."""
    own = each.get("options", {})
    differ = {name: own[name] for name in own if len({row["options"].get(name) for row in same}) > 1}
    return _name({"stage": each["stage"], "options": differ})


def _row(each: dict[str, Any], name: str | None = None) -> tuple[Cell, ...]:
    share, error = each["percent_of_cublas"], each["max_error"]
    return (
        *(
            name or _name(each),
            _shape(each),
            f"{each['dtype']} {each['acc']} {each['out']}",
        ),
        *(each["layout"], each["init"], each["l2"], *_time(each)),
        None if share is None else f"{share:.1f}",
        *(each["verdict"], _tenths(each.get("percent_of_measured_peak"))),
        *(_whole(each["clock_mhz"]), _tenths(each.get("percent_of_tensor_peak_at_clock"))),
        _whole(each["power_w"]),
        "yes" if each["verified"] else "NO",
        None if error is None else f"{error:.3g}",
    )


def _name(each: dict[str, Any]) -> str:
    return " ".join(filter(None, (each["stage"], _own(each))))


def _own(each: dict[str, Any]) -> str:
    return " ".join(f"{k}={v}" for k, v in each.get("options", {}).items())


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
            *(_tenths(point["percent_of_cublas"]), point["verdict"] if point["verified"] else "NOT VERIFIED"),
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
            (
                *(i, run["order"], *_time(run), _tenths(run["percent_of_cublas"])),
                *(_whole(run["clock_mhz"]), _verified(run["verified"])),
            )
            for i, run in enumerate(told["runs"], 1)
        ]
        columns = ("run", "order", "ms", "95 %", "TFLOP/s", "% of cuBLAS", "MHz", "verified")
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


def _clocks(stages: list[dict[str, Any]]) -> list[Block]:
    """Return where the clock comes from, and how far NVML's lies from one counted in the same run."""
    counted = [each for each in stages if each.get("clock_source") == "SM"]
    if counted:
        return [Text(_counted_clocks(counted), "faint")]
    peaks = [each["peak"] for each in stages if each.get("peak") and each["peak"]["clock_mhz"]]
    if not peaks:
        return []
    worst = max(peaks, key=lambda peak: abs(float(peak["clock_mhz"]) - float(peak["sm_mhz"])))
    text = (
        f"NVML's MHz can lie above the clock in a kernel: of the {worst['ceiling']} ceiling it said "
        f"{worst['clock_mhz']:.0f}, and the kernel counted {worst['sm_mhz']:.0f}."
    )
    return [Text(text, "faint")]


def _counted_clocks(stages: list[dict[str, Any]]) -> str:
    """Return what MHz and the share of the tensor cores mean."""
    text = (
        "MHz are what the SMs counted throughout each sample; tensor % is the work of a cycle, of what the "
        "tensor cores can do in one"
    )
    both = [each for each in stages if each["nvml_mhz"]]
    if not both:
        return f"{text}."
    worst = max(both, key=lambda each: abs(float(each["nvml_mhz"]) - float(each["clock_mhz"])))
    told = f"NVML, once a sample, told {worst['nvml_mhz']:.0f} where they counted {worst['clock_mhz']:.0f}"
    return f"{text}. {told} ({worst['stage']})."


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
    where = [block for each in stages if each["wrong_shape"] for block in _wrong_shape(each)]
    return first + where


def _wrong_shape(each: dict[str, Any]) -> list[Block]:
    """Return where wrong elements are: by tile, warp and fragment, and by the blocks of a cluster."""
    shape = each["wrong_shape"]
    ranks: list[tuple[Cell, ...]] = [
        (
            *(rank["rank"], rank["wrong"], rank["elements"]),
            f"{100 * rank['wrong'] / rank['elements']:.1f}" if rank["elements"] else None,
        )
        for rank in shape["ranks"]
    ]
    columns = ("group", "hit", "of", "told from", "the most wrong ones")
    groups = [_group(group) for group in shape["groups"]]
    blocks: list[Block] = [Table(f"{each['stage']}: where the wrong elements are", columns, groups)]
    if ranks:
        title = f"{each['stage']}: wrong elements by the block of a cluster that computes them"
        blocks.append(Table(title, ("cluster rank", "wrong", "elements", "%"), ranks))
    return blocks


def _group(group: dict[str, Any]) -> tuple[Cell, ...]:
    most = ", ".join(f"{','.join(map(str, each['index']))}: {each['wrong']}" for each in group["most"])
    return group["group"], group["hit"], group["of"], group["told_from"], most


def _explanation(each: dict[str, Any], *, asked: bool) -> list[Block]:
    """Return the explanation of one stage as small tables; where it was asked for, all of it."""
    return [
        Table("work", ("quantity", "value"), _work(each)),
        Table("shared memory of a block", ("buffer", "bytes", "%", ""), _shared(each["shared"])),
        *_tensor_memory(each["tensor_memory"]),
        *(pipeline_blocks(each["pipeline"]) if asked and each["pipeline"] else []),
        *_occupancy(each),
        *_bounds(each),
        *(_legal(each) if asked else []),
    ]


def _plans(result: dict[str, Any]) -> list[Block]:
    """Return how each problem is cut up, and who says so."""
    return [
        Text(
            f"Plan of {each['stage']} for {each['problem'].partition(' ')[0]}: "
            f"{' '.join(map(str, each['plan'].values()))}, from {each['source']}.",
            "faint",
        )
        for each in result.get("plans", ())
    ]


def _legal(each: dict[str, Any]) -> list[Block]:
    """Return what else the stage can do: the options of its own."""
    rows: list[tuple[Cell, ...]] = [
        (said["option"], said["help"], ", ".join(map(str, said["values"])) or "any") for said in each["legal"]
    ]
    title = "options of its own: --set NAME=VALUE"
    return [Table(title, ("option", "what it is", "legal"), rows)] if rows else []


def _work(each: dict[str, Any]) -> list[tuple[Cell, ...]]:
    tiles, work = each["tiles"], each["work"]
    size = "x".join(map(str, tiles["tile"]))
    return [
        ("stage", each["stage"]),
        ("problem", each["problem"]),
        *_options(each),
        ("GPU", each["machine"]),
        ("tile of a block (rows x columns x depth)", size),
        ("threads of a block", tiles["threads"]),
        *_blocks(each),
        ("steps along k of a tile", tiles["steps"]),
        ("FLOP", work["flop"]),
        ("bytes, each matrix once", work["bytes"]),
        ("FLOP per byte", f"{work['flop_per_byte']:.1f}"),
        *_roofline(each["roofline"]),
        ("bytes of A and B that all blocks load", work["loaded_bytes"]),
        ("FLOP per byte loaded", f"{work['flop_per_loaded_byte']:.1f}"),
        *([("bytes that blocks send on to each other", work["sent_bytes"])] if work["sent_bytes"] else []),
        *_products(work),
        ("mnk / 2048, without the padding of tiles", f"{work['mma_of_whole_tiles']:.10g}"),
        ("useful part of the tiles, %", f"{work['useful_percent']:.1f}"),
    ]


def _options(each: dict[str, Any]) -> list[tuple[Cell, ...]]:
    """Return the options of the stage's own, and how its blocks start where that is not the plain way."""
    launch, rows = each["launch"], list[tuple[Cell, ...]]()
    if each["options"]:
        rows.append(("options", ", ".join(f"{name}={value}" for name, value in each["options"].items())))
    if launch["cluster"] > 1:
        rows.append(("blocks of a cluster", launch["cluster"]))
    if launch["programmatic"]:
        rows.append(("starts while the kernel ahead still runs", "yes"))
    return rows


def _blocks(each: dict[str, Any]) -> list[tuple[Cell, ...]]:
    """Return the blocks that are launched, and the tiles, and parts of them, where those are not as many."""
    tiles = each["tiles"]
    rows: list[tuple[Cell, ...]] = [("blocks", tiles["blocks"])]
    if tiles["tiles"] != tiles["blocks"]:
        rows.append(("tiles of C", tiles["tiles"]))
    if tiles["work"] not in (tiles["tiles"], tiles["blocks"]):
        rows.append(("pieces of work: parts of tiles along k", tiles["work"]))
    return rows


def _products(work: dict[str, Any]) -> list[tuple[Cell, ...]]:
    """Return the instructions that run, and the products that they are where each is several."""
    products: list[tuple[Cell, ...]] = [("products m16n8k16, counted per warp", work["mma"])]
    if not work["opcode"]:
        return products
    run = (f"warp instructions {work['opcode']} that run", work["instructions"])
    return [run] if work["instructions"] == work["mma"] else [*products, run]


def _roofline(place: dict[str, Any] | None) -> list[tuple[Cell, ...]]:
    if place is None:
        return []
    clock = f", at {place['at_mhz']} MHz" if place["at_mhz"] else ""
    side = "right" if place["flop_per_byte"] >= place["ridge"] else "left"
    where = (
        f"{side} of the ridge at {place['ridge']:.0f}: under {place['roof']}, {place['tflops']:.1f} TFLOP/s "
        f"({place['source']}{clock})"
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
    if not whole:
        return [(name, count, None, None) for name, count in named.items()]
    return [(name, n, f"{100 * n / whole:.1f}", bar(100 * n / whole)) for name, n in named.items()]


def _tensor_memory(held: dict[str, int]) -> list[Block]:
    rows: list[tuple[Cell, ...]] = list(held.items())
    return [Table("tensor memory of a block", ("what", "columns"), rows)] if rows else []


def _occupancy(each: dict[str, Any]) -> list[Block]:
    held, filled = each["occupancy"], each["waves"]
    if not held or not filled:
        return []
    what = "blocks"
    if filled["stay"]:
        what = "tiles" if each["tiles"]["work"] == each["tiles"]["tiles"] else "pieces of work"
    rows: list[tuple[Cell, ...]] = [(f"blocks of an SM by {k}", v) for k, v in held["by"].items()]
    rows += [
        ("registers of a thread", held["registers"]),
        ("blocks of an SM", held["blocks"]),
        ("limited by", held["limiter"]),
        ("warps of an SM", held["warps"]),
        ("of the warps it can hold, %", f"{held['percent']:.0f}"),
        ("blocks that all SMs hold at once", filled["slots"]),
        (f"waves of {what}: the blocks stay" if filled["stay"] else "waves", f"{filled['waves']:.2f}"),
        (f"{what} of the last wave{', in even shares' if filled['even'] else ''}", filled["last_blocks"]),
        ("mean filling of the waves, %", f"{filled['percent']:.0f}"),
    ]
    return [Table("occupancy and waves", ("quantity", "value"), rows)]


def _bounds(each: dict[str, Any]) -> list[Block]:
    columns = ("resource", "needs", "rate", "at MHz", "at least ms", "at most TFLOP/s", "source")
    rows = [
        (row["resource"], f"{row['amount']:.4g} {row['unit']}".rstrip(), *_rate(row))
        for row in each["bounds"]
    ]
    return [Table("limits, the tightest first", columns, rows)] if rows else []


def _rate(row: dict[str, Any]) -> tuple[Cell, ...]:
    if row["per_second"] is None:
        return "rate unknown on this GPU", None, None, None, "may be the limiter"
    rate = f"{row['per_second']:.4g} {row['unit']}/s"
    return rate, row["at_mhz"], f"{row['milliseconds']:.4g}", f"{row['tflops']:.1f}", row["source"]


def _in_brief(result: dict[str, Any], l2: str) -> list[Block]:
    """Return the answer for each problem: what was recorded of each stage, and what limits it."""
    blocks: list[Block] = []
    recorded = [row for row in result["recorded"] if row["l2"] == l2]
    for problem in dict.fromkeys(each["problem"] for each in result["explanations"]):
        asked = [each for each in result["explanations"] if each["problem"] == problem]
        found = [_answer(each, recorded) for each in asked]
        rows = [_brief(each, row, asked) for each, row in zip(asked, found, strict=True)]
        blocks.append(Table(problem, BRIEF, rows))
        cards = sorted({f"{row['device']}, {row['date']}, {l2} L2" for row in found if row})
        told = f"Recorded on {'; '.join(cards)}." if cards else "None recorded of this kernel and problem."
        blocks += [Text(told, "faint"), *_held_down([row for row in found if row])]
        blocks += [*_ceilings(_beside([row for row in found if row])), Text(CLOCKS_DIFFER, "faint")]
    return blocks + _other_type(result["explanations"], recorded)


def _other_type(asked: list[dict[str, Any]], recorded: list[dict[str, Any]]) -> list[Block]:
    """Return, for a ladder of a 16-bit type, that the other one was recorded at more sizes, and how to ask.

    Sizes of a ladder are those at which several stages were recorded.
    """
    types = {_type(each["problem"]) for each in asked} & {"f16", "bf16"}
    if len(types) != 1 or len({each["stage"] for each in asked}) == 1:
        return []
    (mine,), (other,) = types, {"f16", "bf16"} - types
    sizes = {kind: _sizes_of_several(recorded, kind) for kind in (mine, other)}
    if len(sizes[other]) <= len(sizes[mine]):
        return []
    told = f"In {other} the ladder is recorded at {', '.join(sizes[other])}: --dtype {other}."
    return [Text(told, "faint")]


def _sizes_of_several(recorded: list[dict[str, Any]], dtype: str) -> list[str]:
    """Return the sizes at which more than one stage was recorded in a type, the smallest first."""
    found = {(row["stage"], row["m"], row["n"], row["k"]) for row in recorded if row["dtype"] == dtype}
    counts = Counter(each[1:] for each in found)
    return ["x".join(map(str, size)) for size in sorted(counts) if counts[size] > 1]


def _beside(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the ceilings that were timed in the same runs as recorded rows, each once."""
    peaks = [{"problem": row["problem"], **row["peak"]} for row in rows if row.get("peak")]
    return [peak for index, peak in enumerate(peaks) if peak not in peaks[:index]]


def _is_of(row: dict[str, Any], asked: dict[str, Any]) -> bool:
    """Say whether a recorded row is of the point that was asked for, on the GPU that is spoken of."""
    same = all(row[name] == asked[name] for name in ("stage", "problem", "options"))
    return same and row["device"] == asked["machine"]


def _answer(asked: dict[str, Any], recorded: list[dict[str, Any]]) -> dict[str, Any] | None:
    return next((row for row in recorded if _is_of(row, asked) and not row["stale"]), None)


def _brief(
    asked: dict[str, Any], row: dict[str, Any] | None, points: list[dict[str, Any]]
) -> tuple[Cell, ...]:
    same = [each for each in points if each["stage"] == asked["stage"]]
    limit = asked["limiter"]
    bound = (f"{limit['tflops']:.1f}", limit["at_mhz"], limit["resource"]) if limit else (None,) * 3
    measured = (f"{row['tflops']:.1f}", _tenths(row["percent_of_cublas"]), _gain(row)) if row else (None,) * 3
    return (_name_among(asked, same), *measured, *bound)


def _gain(row: dict[str, Any]) -> str | None:
    """Return what a rung gains over the one below, if that is real."""
    gain = row["gain"]
    if not gain:
        return None
    return f"{gain['percent']:+.1f}" if gain["real"] else "in the noise"


def _recorded(result: dict[str, Any]) -> list[Block]:
    """Return all that recordings say of what was asked for; of other problems that they exist."""
    asked, recorded = result["explanations"], result["recorded"]
    rows = [row for row in recorded if any(_is_of(row, each) for each in asked)]
    if not recorded:
        return []
    if not rows:
        told = "None recorded for this problem and these options. Recorded are:"
        return [Text(f"{told} {_points(recorded, asked)}.", "faint")]
    title = f"recorded on {rows[0]['device']}, {rows[0]['date']}"
    blocks: list[Block] = [Table(title, COLUMNS, [_row(each) for each in rows])]
    blocks += _held_down(rows) + _clocks(rows)
    if any(each["stale"] for each in rows):
        blocks.append(Text("The kernel has changed since: record it again on a GPU.", "warning"))
    return blocks


def _points(recorded: list[dict[str, Any]], asked: list[dict[str, Any]]) -> str:
    """Return what was recorded of the same problem with other options, or else of other problems.

    Of these the ones of the same size come first, in types that can be asked for.
    """
    problems = {each["problem"] for each in asked}
    sizes = {_first_word(problem) for problem in problems}
    near = [row for row in recorded if row["problem"] in problems]
    near = near or sorted(recorded, key=lambda row: _first_word(row["problem"]) not in sizes)
    points = list(dict.fromkeys(_elsewhere(row, asked) for row in near))
    more = [f"and {len(points) - MOST_POINTS} more"] if len(points) > MOST_POINTS else []
    return "; ".join(points[:MOST_POINTS] + more)


def _elsewhere(row: dict[str, Any], asked: list[dict[str, Any]]) -> str:
    """Return of what a row was recorded: with which options, if its problem was asked for, or how to ask."""
    told = f"{row['problem']} on {row['device']}"
    if any(row["problem"] == each["problem"] for each in asked):
        return f"{told}, {_own(row)}"
    problems = [each["problem"] for each in asked]
    types = {_type(each) for each in problems if _first_word(each) == _first_word(row["problem"])}
    return f"{told} (--dtype {row['dtype']})" if types and row["dtype"] not in types else told


def _first_word(text: str) -> str:
    """Return the sizes of a problem, or the stage of a point that was skipped."""
    return text.partition(" ")[0]


def _type(problem: str) -> str:
    return problem.split()[1]


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


def _skipped(skipped: list[dict[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield what was skipped for each reason: where a whole stage was, none of its points beside it."""
    for reason in dict.fromkeys(each["reason"] for each in skipped):
        cases = list(dict.fromkeys(each["case"] for each in skipped if each["reason"] == reason))
        told = [case for case in cases if _first_word(case) == case or _first_word(case) not in cases]
        yield "; ".join(told), reason


def _verdict(document: dict[str, Any]) -> list[Block]:
    result = document["result"]
    blocks: list[Block] = [Text(f"Note: {note}.", "warning") for note in result["notes"]]
    blocks += _checks(document["checks"])
    blocks += [Text(f"Skipped {cases}: {reason}", "faint") for cases, reason in _skipped(document["skipped"])]
    blocks += [Text(f"Recorded in {path}.", "faint") for path in result.get("recordings", ())]
    return [*blocks, Text(result["conclusion"], "conclusion")] if "conclusion" in result else blocks
