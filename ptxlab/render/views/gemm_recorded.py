"""What ``ptxlab gemm`` shows where nothing ran: what recordings say of what was asked for."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ptxlab.render.blocks import Block, Cell, Table, Text
from ptxlab.render.views.gemm_rows import (
    CLOCKS_DIFFER,
    COLUMNS,
    ceilings,
    cells_of,
    clocks,
    first_word,
    held_down,
    name_among,
    options_of,
    tenths,
)

BRIEF = ("stage", "TFLOP/s", "% of cuBLAS", "gain, %", "at most TFLOP/s", "at MHz", "limited by")

MOST_POINTS = 8
"""That were recorded where none answers: of a stage there may be a hundred."""


def in_brief(result: dict[str, Any], l2: str) -> list[Block]:
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
        blocks += [Text(told, "faint"), *held_down([row for row in found if row])]
        blocks += [*ceilings(_beside([row for row in found if row])), Text(CLOCKS_DIFFER, "faint")]
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
    measured = (f"{row['tflops']:.1f}", tenths(row["percent_of_cublas"]), _gain(row)) if row else (None,) * 3
    return (name_among(asked, same), *measured, *bound)


def _gain(row: dict[str, Any]) -> str | None:
    """Return what a rung gains over the one below, if that is real."""
    gain = row["gain"]
    if not gain:
        return None
    return f"{gain['percent']:+.1f}" if gain["real"] else "in the noise"


def recorded_rows(result: dict[str, Any]) -> list[Block]:
    """Return all that recordings say of what was asked for; of other problems that they exist."""
    asked, recorded = result["explanations"], result["recorded"]
    rows = [row for row in recorded if any(_is_of(row, each) for each in asked)]
    if not recorded:
        return []
    if not rows:
        told = "None recorded for this problem and these options. Recorded are:"
        return [Text(f"{told} {_points(recorded, asked)}.", "faint")]
    title = f"recorded on {rows[0]['device']}, {rows[0]['date']}"
    blocks: list[Block] = [Table(title, COLUMNS, [cells_of(each) for each in rows])]
    blocks += held_down(rows) + clocks(rows)
    if any(each["stale"] for each in rows):
        blocks.append(Text("The kernel has changed since: record it again on a GPU.", "warning"))
    return blocks


def _points(recorded: list[dict[str, Any]], asked: list[dict[str, Any]]) -> str:
    """Return what was recorded of the same problem with other options, or else of other problems.

    Of these the ones of the same size come first, in types that can be asked for.
    """
    problems = {each["problem"] for each in asked}
    sizes = {first_word(problem) for problem in problems}
    near = [row for row in recorded if row["problem"] in problems]
    near = near or sorted(recorded, key=lambda row: first_word(row["problem"]) not in sizes)
    points = list(dict.fromkeys(_elsewhere(row, asked) for row in near))
    more = [f"and {len(points) - MOST_POINTS} more"] if len(points) > MOST_POINTS else []
    return "; ".join(points[:MOST_POINTS] + more)


def _elsewhere(row: dict[str, Any], asked: list[dict[str, Any]]) -> str:
    """Return of what a row was recorded: with which options, if its problem was asked for, or how to ask."""
    told = f"{row['problem']} on {row['device']}"
    if any(row["problem"] == each["problem"] for each in asked):
        return f"{told}, {options_of(row)}"
    problems = [each["problem"] for each in asked]
    types = {_type(each) for each in problems if first_word(each) == first_word(row["problem"])}
    return f"{told} (--dtype {row['dtype']})" if types and row["dtype"] not in types else told


def _type(problem: str) -> str:
    return problem.split()[1]
