"""What wrong elements have in common: a mistake of layout shows its shape in where they are."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate
from typing import Any

from ptxlab.experiments.base import Case
from ptxlab.experiments.gemm.reference import Comparison, Element
from ptxlab.experiments.gemm.stage import GemmStage

FRAGMENT_ROWS, FRAGMENT_COLS = 16, 8
"""Of an m16n8 fragment, in which an instruction leaves its part of C."""

Place = Callable[[Element], tuple[int, ...]]


def shape_of_wrong(stage: GemmStage, case: Case, found: Comparison) -> dict[str, Any] | None:
    """Return the wrong elements that were listed, grouped; None where there is none.

    ``groups`` holds for each kind of group (tile of a block, warp within the tile, row and column of a
    fragment) how many groups are hit, of how many that there are;
    ``common`` is a sentence on what all have in common, or "".
    """
    if not found.first_wrong:
        return None
    groups = []
    for name, place, count in _places(stage, case):
        hit: dict[tuple[int, ...], int] = {}
        for element in found.first_wrong:
            hit[place(element)] = hit.get(place(element), 0) + 1
        most = sorted(hit.items(), key=lambda item: (-item[1], item[0]))
        groups.append(
            {
                "group": name,
                "hit": len(hit),
                "of": count,
                "most": [{"index": list(index), "wrong": wrong} for index, wrong in most[:4]],
            }
        )
    return {"listed": len(found.first_wrong), "groups": groups, "common": _common(groups)}


def _places(stage: GemmStage, case: Case) -> list[tuple[str, Place, int]]:
    """Return for each kind of group its name, where an element lies, and how many groups there are."""
    rows, cols, _ = stage.tile(case)
    warp_rows, warp_cols = stage.warp_tile(case)
    m, n = min(int(case.m), rows), min(int(case.n), cols)  # of a tile, as far as C goes
    across, down = -(-int(case.n) // cols), rows // warp_rows
    warps = -(-m // warp_rows) * -(-n // warp_cols)
    bands = _bands(stage, case, across)
    tops = [top for top, _ in bands]

    def tile(element: Element) -> tuple[int, int]:
        return bisect_right(tops, element.row) - 1, element.col // cols

    def warp(element: Element) -> tuple[int, int]:
        top, height = bands[tile(element)[0]]
        return (element.row - top) // (height // down), element.col % cols // warp_cols

    return [
        ("tile", tile, len(bands) * across),
        ("warp of its tile", warp, warps),
        ("row of its fragment", lambda e: (e.row % FRAGMENT_ROWS,), min(FRAGMENT_ROWS, int(case.m))),
        ("column of its fragment", lambda e: (e.col % FRAGMENT_COLS,), min(FRAGMENT_COLS, int(case.n))),
    ]


def _bands(stage: GemmStage, case: Case, across: int) -> list[tuple[int, int]]:
    """Return the first row and the height of each band of tiles, from the top: not all need be as tall."""
    heights = [rows for (rows, _), tiles in stage.tile_kinds(case).items() for _ in range(tiles // across)]
    tops = accumulate(heights, initial=0)
    return list(zip(tops, heights, strict=False))  # the last of the tops is the end


def _common(groups: list[dict[str, Any]]) -> str:
    """Return a sentence that names the groups in which all are, where those are at most half of them."""
    parts = [
        f"{group['group']} {_indices(group)} (of {group['of']})"
        for group in groups
        if 2 * group["hit"] <= group["of"] and group["hit"] <= len(group["most"])
    ]
    return f"all wrong elements are in {', '.join(parts)}" if parts else ""


def _indices(group: dict[str, Any]) -> str:
    found = sorted(each["index"] for each in group["most"])
    return " and ".join(str(index[0]) if len(index) == 1 else f"({index[0]}, {index[1]})" for index in found)
