"""What wrong elements have in common: a mistake of layout shows its shape in where they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import prod
from typing import Any

from ptxlab.experiments.base import Case
from ptxlab.experiments.gemm.reference import TILE, Comparison
from ptxlab.experiments.gemm.stage import GemmStage

FRAGMENT_ROWS, FRAGMENT_COLS = 16, 8
"""Of an m16n8 fragment, in which an instruction leaves its part of C."""

RANK = "cluster rank"

Sample = tuple[int, int, int]
"""A row, a column, and how many wrong elements it stands for."""


@dataclass(frozen=True)
class _Kind:
    """A kind of group: its name, where an element lies, how many there are, and whether blocks tell it.

    They do where no block of the check lies in two of them: then all wrong elements are counted, not only
    those that were listed.
    """

    name: str
    place: Callable[[int, int], tuple[int, ...]]
    count: int
    by_block: bool = False


def shape_of_wrong(stage: GemmStage, case: Case, found: Comparison) -> dict[str, Any] | None:
    """Return where the wrong elements are, grouped; None where there is none.

    ``groups`` holds for each kind of group (tile of a block, rank in the cluster, warp within the tile, row
    and column of a fragment) how many groups are hit, of how many that there are, and how many elements tell
    it; ``ranks`` each rank of the cluster that computes some of C, with its wrong elements, be there any or
    not; ``common`` is a sentence on what all have in common, or "".
    """
    if not found.first_wrong:
        return None
    listed = [(each.row, each.col, 1) for each in found.first_wrong]
    blocks = [(row, col, wrong) for (row, col), wrong in found.wrong_blocks.items()]
    kinds = _kinds(stage, case)
    hits = [_hits(kind, blocks if kind.by_block and blocks else listed) for kind in kinds]
    groups = [_group(kind, hit) for kind, hit in zip(kinds, hits, strict=True)]
    by_rank = next((hit for kind, hit in zip(kinds, hits, strict=True) if kind.name == RANK), {})
    return {
        "listed": len(listed),
        "groups": groups,
        "ranks": _ranks(stage, case, by_rank) if by_rank else [],
        "common": _common(groups, found.wrong),
    }


def _hits(kind: _Kind, samples: Iterable[Sample]) -> dict[tuple[int, ...], int]:
    hit: dict[tuple[int, ...], int] = {}
    for row, col, wrong in samples:
        index = kind.place(row, col)
        hit[index] = hit.get(index, 0) + wrong
    return hit


def _group(kind: _Kind, hit: dict[tuple[int, ...], int]) -> dict[str, Any]:
    most = sorted(hit.items(), key=lambda item: (-item[1], item[0]))
    return {
        "group": kind.name,
        "hit": len(hit),
        "of": kind.count,
        "told_from": sum(hit.values()),
        "most": [{"index": list(index), "wrong": wrong} for index, wrong in most[:4]],
    }


def _kinds(stage: GemmStage, case: Case) -> list[_Kind]:
    """Return the kinds of groups that C has."""
    rows, cols, _ = stage.tile(case)
    warp_rows, warp_cols = stage.warp_tile(case)
    m, n = min(int(case.m), rows), min(int(case.n), cols)  # of a tile, as far as C goes
    warps = -(-m // warp_rows) * -(-n // warp_cols)
    whole = rows % TILE == cols % TILE == 0

    def tile(row: int, col: int) -> tuple[int, int]:
        return row // rows, col // cols

    def rank(row: int, col: int) -> tuple[int]:
        return (_rank(stage, case, *tile(row, col)),)

    def warp(row: int, col: int) -> tuple[int, int]:
        return row % rows // warp_rows, col % cols // warp_cols

    size = _ranks_of(stage, case)
    return [
        _Kind("tile", tile, stage.tiles(case), whole),
        *([_Kind(RANK, rank, size, whole)] if size > 1 else []),
        _Kind("warp of its tile", warp, warps),
        _Kind("row of its fragment", lambda row, _: (row % FRAGMENT_ROWS,), min(FRAGMENT_ROWS, int(case.m))),
        _Kind(
            "column of its fragment", lambda _, col: (col % FRAGMENT_COLS,), min(FRAGMENT_COLS, int(case.n))
        ),
    ]


def _ranks_of(stage: GemmStage, case: Case) -> int:
    """Return how many blocks of a cluster have tiles of their own; 1 where several share a tile."""
    size = prod(stage.cluster_tiles(case))
    return size if size == prod(stage.cluster(case) or (1,)) else 1


def _rank(stage: GemmStage, case: Case, tile_row: int, tile_col: int) -> int:
    """Return the rank in its cluster of the block that computes a tile: ranks go along the rows."""
    down, across = stage.cluster_tiles(case)
    return tile_row % down * across + tile_col % across


def _ranks(stage: GemmStage, case: Case, hit: dict[tuple[int, ...], int]) -> list[dict[str, int]]:
    """Return each rank with its wrong elements, 0 too, and how many elements of C it computes."""
    rows, cols, _ = stage.tile(case)
    elements = [0] * prod(stage.cluster_tiles(case))
    for top in range(0, int(case.m), rows):
        for left in range(0, int(case.n), cols):
            inside = min(rows, int(case.m) - top) * min(cols, int(case.n) - left)
            elements[_rank(stage, case, top // rows, left // cols)] += inside
    return [
        {"rank": rank, "wrong": hit.get((rank,), 0), "elements": count} for rank, count in enumerate(elements)
    ]


def _common(groups: list[dict[str, Any]], wrong: int) -> str:
    """Return a sentence that names the groups in which all are, where those are at most half of them."""
    told = [
        group for group in groups if 2 * group["hit"] <= group["of"] and group["hit"] <= len(group["most"])
    ]
    of_all = [group for group in told if group["told_from"] >= wrong]
    of_listed = [group for group in told if group["told_from"] < wrong]
    parts = [f"all wrong elements are in {_names(of_all)}"] if of_all else []
    if of_listed:
        parts.append(f"the {of_listed[0]['told_from']} that are listed are in {_names(of_listed)}")
    return "; ".join(parts)


def _names(groups: list[dict[str, Any]]) -> str:
    return ", ".join(f"{group['group']} {_indices(group)} (of {group['of']})" for group in groups)


def _indices(group: dict[str, Any]) -> str:
    found = sorted(each["index"] for each in group["most"])
    return " and ".join(str(index[0]) if len(index) == 1 else f"({index[0]}, {index[1]})" for index in found)
