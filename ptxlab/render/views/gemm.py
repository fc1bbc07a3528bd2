"""What ``ptxlab gemm`` shows: the stages, what was measured, what limits them, and the verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import prod
from typing import Any

from ptxlab.render.blocks import Block, Cell, Table, Text
from ptxlab.render.views.gemm_explain import explanation
from ptxlab.render.views.gemm_recorded import in_brief, recorded_rows
from ptxlab.render.views.gemm_rows import (
    COLUMNS,
    ceilings,
    cells_of,
    clocks,
    first_word,
    held_down,
    label_among,
    name_of,
    shape_of,
    tenths,
    time_cells,
    whole,
    yes_or_no,
)

MOST_PLANS = 12
"""Beside the finalists that are shown of a search."""

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
        rows = [cells_of(each, label_among(each, result["stages"])) for each in result["stages"]]
        blocks += [Table("measured", COLUMNS, rows)]
        blocks += _ladder(result["stages"])
        blocks += _repeats(result["stages"]) + _errors(result["errors"])
        blocks += held_down(result["stages"]) + clocks(result["stages"])
        blocks += _baselines(result["stages"]) + ceilings(result["ceilings"]) + _wrong(result["stages"])
    else:
        blocks += in_brief(result, document["params"]["l2"])
    asked = bool(document["params"].get("explain"))
    if len(result["explanations"]) == 1 or asked:
        for each in result["explanations"]:
            blocks += explanation(each, asked=asked)
        blocks += _plans(result) + recorded_rows(result)
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
            *(name_of(each), shape_of(each), f"{each['dtype']} {each['acc']} {each['out']}"),
            *(each["layout"], each["init"], each["l2"]),
            *(f"{each[side]['milliseconds']['median']:.4g}" for side in "ab"),
            *(f"{each[side]['tflops']:.1f}" for side in "ab"),
            None if each["ratio"] is None else f"{each['ratio']:.3f}",
            *(whole(each[side]["clock_mhz"]) for side in "ab"),
            *(yes_or_no(each[side]["verified"]) for side in "ab"),
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
            yes_or_no(each["verified"]),
        )
        for each in shown
    ]
    where = f"kept for {search['device']} in {search['kept']}" if search["kept"] else "not kept"
    told = f"{len(others)} of {search['of']} plans timed in {search['seconds']:.0f} s; {where}"
    if failed := search["failed"]:
        told += f"; {len(failed)} failed, such as: {failed[0]}"
    title = f"plans of {search['stage']}, {search['problem']}: finalists first"
    return [Table(title, columns, rows), Text(told, "faint")]


def _by_time(plans: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(plans, key=lambda each: float(each["milliseconds"]["median"]))


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
    return f"{row['tflops']:.1f}", tenths(row["percent_of_cublas"])


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


def _ladder(stages: list[dict[str, Any]]) -> list[Block]:
    """Return what each rung gains over the one below, and whether that is real."""
    rows: list[tuple[Cell, ...]] = [
        (
            *(
                each["stage"],
                shape_of(each),
                f"{each['tflops']:.1f}",
                gain["over"],
                f"{gain['percent']:+.1f}",
            ),
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
            *(point["stage"], *point["values"].values(), *time_cells(point)),
            *(tenths(point["percent_of_cublas"]), point["verdict"] if point["verified"] else "NOT VERIFIED"),
            tenths(point["difference_percent"]),
        )
        for point in sweep["points"]
    ]
    return [Table("sweep: each point against the fastest of its problem", columns, rows)]


def _repeats(stages: list[dict[str, Any]]) -> list[Block]:
    """Return the runs of what was measured several times, and how much they spread."""
    blocks: list[Block] = []
    for each in stages:
        if not (told := each["repeats"]):
            continue
        rows: list[tuple[Cell, ...]] = [
            (
                *(i, run["order"], *time_cells(run), tenths(run["percent_of_cublas"])),
                *(whole(run["clock_mhz"]), yes_or_no(run["verified"])),
            )
            for i, run in enumerate(told["runs"], 1)
        ]
        columns = ("run", "order", "ms", "95 %", "TFLOP/s", "% of cuBLAS", "MHz", "verified")
        effect = told["order_effect_percent"]
        text = f"The runs spread over {told['spread_percent']:.2f} %"
        text += "." if effect is None else f"; the opposite order makes {effect:+.2f} %."
        blocks += [Table(f"{name_of(each)}: each run", columns, rows), Text(text)]
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
                    *(library["name"], shape_of(each), f"{time['median']:.4g}"),
                    f"{time['low']:.4g} to {time['high']:.4g}",
                    *(f"{library['tflops']:.1f}", whole(library["clock_mhz"])),
                    *(whole(library["power_w"]), "yes" if library["verified"] else "no"),
                ),
            )
    columns = ("baseline", "shape", "ms", "95 %", "TFLOP/s", "MHz", "W", "verified")
    if rows:
        return [Table("timed in turn with it", columns, list(rows.values()))]
    return [Text(f"No comparison with cuBLAS: {stages[0]['baseline_note']}.", "faint")]


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
        told = [case for case in cases if first_word(case) == case or first_word(case) not in cases]
        yield "; ".join(told), reason


def _verdict(document: dict[str, Any]) -> list[Block]:
    result = document["result"]
    blocks: list[Block] = [Text(f"Note: {note}.", "warning") for note in result["notes"]]
    blocks += _checks(document["checks"])
    blocks += [Text(f"Skipped {cases}: {reason}", "faint") for cases, reason in _skipped(document["skipped"])]
    blocks += [Text(f"Recorded in {path}.", "faint") for path in result.get("recordings", ())]
    return [*blocks, Text(result["conclusion"], "conclusion")] if "conclusion" in result else blocks
