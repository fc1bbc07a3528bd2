"""The ways in which the stage hopper can cut a problem up: options that make a plan, and which are legal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import product

from ptxlab.experiments.base import Value, sizes
from ptxlab.experiments.gemm.plan import (
    ADDING,
    CLUSTERS,
    COOPERATIVE,
    IN_MEMORY,
    PING_PONG,
    ROLES,
    Plan,
    plans,
)
from ptxlab.experiments.gemm.problem import TYPES
from ptxlab.experiments.gemm.sums import most_sums
from ptxlab.experiments.gemm.wgmma import INSTRUCTION_ROWS, LARGEST_BOX, SWIZZLED_LINES

BLOCKS = (
    *(f"{rows}x{cols}" for rows, cols in product((8, 16, 32), (64, 128, 192, 256))),
    *("64x32", "64x64", "64x128", "64x256"),
    *(f"128x{cols}" for cols in (32, 64, 128, 144, 160, 176, 192, 224, 256, 320)),
    *("144x128", "160x128", "176x128", "256x128", "256x192"),
)
"""Rows and columns of C. Where rows are no multiple of 64, the product is one of B and A, transposed: wgmma
makes 64 rows, which are then columns of C, and few rows of A cost little.
"""

PLANNED: dict[str, Value] = {
    "block": "128x256",
    "roles": ROLES[0],
    "cluster_shape": "1x1",
    "splits": 1,
    "adding": IN_MEMORY,
}
"""The options that make a plan, and what they are where no legal plan agrees with those that were given."""


def plan_of(options: Mapping[str, Value]) -> Plan:
    """Return the plan that options make."""
    rows, cols = sizes(str(options["block"]), parts=2, what="block")
    down, across = sizes(str(options["cluster_shape"]), parts=2, what="cluster")
    role, splits, adding = (options[name] for name in ("roles", "splits", "adding"))
    return Plan(rows, cols, str(role), down, across, int(splits or 1), str(adding))


def ways(
    params: Mapping[str, Value], given: dict[str, Value], *, sensible: bool = True
) -> Iterator[tuple[float, dict[str, Value]]]:
    """Yield for each plan that agrees with what was given the cycles that it takes, and its options.

    What was given may leave none that makes sense; without ``sensible`` all others are among them.

    Args:
        params: the options of the point, with its m, n, k, types, layout and blocks.
        given: those of PLANNED that are not open.
        sensible: whether tiles suit the rows of A, and k is split no further than SMs have nothing to do.

    """
    m, n, k, blocks = (max(1, int(params[name] or 1)) for name in ("m", "n", "k", "blocks"))
    k = -(-k * TYPES[str(params["dtype"])].nbytes // 2)  # in 16 bits: a byte takes as long in every type
    tiles = [tile for tile in TILES if not sensible or "block" in given or _covers(tile[0], m)]
    shape = str(given.get("cluster_shape", ""))
    clusters = [sizes(shape, parts=2, what="cluster")] if shape else CLUSTERS
    every = plans(tiles, (m, n, k), blocks, clusters) if sensible else _every_plan(tiles, clusters, given)
    for plan in every:
        block, cluster = f"{plan.rows}x{plan.cols}", f"{plan.down}x{plan.across}"
        values = (block, plan.role, cluster, plan.splits, plan.adding)
        options: dict[str, Value] = dict(zip(PLANNED, values, strict=True))
        if given.items() <= options.items() and _legal(plan, params):
            yield plan.cycles((m, n, k), blocks), options


def _every_plan(
    tiles: Iterable[tuple[int, int, str]], clusters: Iterable[tuple[int, ...]], given: Mapping[str, Value]
) -> Iterator[Plan]:
    """Yield each way to cut a problem up into such tiles, with no more parts of k than were asked for."""
    addings = [str(given["adding"])] if "adding" in given else ADDING
    for (rows, cols, role), (down, across), adding in product(tiles, clusters, addings):
        yield Plan(rows, cols, role, down, across, int(given.get("splits") or 1), adding)


def _covers(rows: int, m: int) -> bool:
    """Say whether tiles of so many rows suit A: low ones cover all of it, and none is twice as high."""
    return min(m, INSTRUCTION_ROWS) <= rows < 2 * max(m, 5)


def _legal(plan: Plan, params: Mapping[str, Value]) -> bool:
    """Say whether what each block of a cluster copies are whole boxes, and sums leave enough registers."""
    layout = str(params["layout"])
    shares = ((plan.rows // plan.across, layout[0] == "t"), (plan.cols // plan.down, layout[1] == "n"))
    if plan.sums > most_sums(plan, params) or (plan.image and (plan.role == PING_PONG or plan.passing > 1)):
        return False
    return all(
        lines <= LARGEST_BOX and lines % (SWIZZLED_LINES if along_k else INSTRUCTION_ROWS) == 0
        for lines, along_k in shares
    )


def misfit(plan: Plan) -> str:
    """Return why consumers cannot share a tile; "" if they can."""
    lines, shared = plan.product[0], INSTRUCTION_ROWS * plan.sharing
    if lines % shared == 0:
        return ""
    what = f"block {plan.rows}x{plan.cols}: its {lines} {'columns' if plan.swapped else 'rows'}"
    return f"{what} are no multiple of {shared}, which two consumers share"


def unshared(plan: Plan, params: Mapping[str, Value]) -> list[str]:
    """Return the roles by which each consumer has a tile of its own, as far as the plan goes with them."""
    return [role for role in ROLES if role != COOPERATIVE and _legal(replace(plan, role=role), params)]


def _tiles() -> Iterator[tuple[int, int, str]]:
    """Yield rows and columns of each block, and each role that its consumers can have."""
    for block, role in product(BLOCKS, ROLES):
        rows, cols = sizes(block, parts=2, what="block")
        plan = Plan(rows, cols, role, down=1, across=1, splits=1)
        fits = plan.sums <= most_sums(plan, {"alpha": 1.0, "beta": 0.0})
        if fits and not misfit(plan):
            yield rows, cols, role


TILES = tuple(_tiles())
