"""Sums that leave by an image of the tile, in shared memory where the stages were: who lays and who reads it.

Where the blocks of a cluster have parts of k, each reads its share of every image, and adds them up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ptxlab.experiments.gemm.pipeline import TILE, Act, Barrier, Pipeline, Role

READ, LAID, ADDED = "read", "laid", "added"


def by_image(line: Pipeline, blocks: int) -> Pipeline:
    """Return a pipeline whose sums leave that way.

    Args:
        line: what is done besides; consumers write at the end of a tile.
        blocks: that meet to add up parts; 1 where there is nothing to add.

    """
    writers = [role for role in line.roles if role.does("write")]
    barriers = [
        _barrier(READ, writers, 1, "all consumers have read the last stage"),
        _barrier(LAID, line.roles if blocks > 1 else writers, blocks, "the sums lie where the stages were"),
    ]
    if blocks > 1:
        barriers.append(_barrier(ADDED, line.roles, blocks, "no block reads sums of another any more"))
    roles = tuple(replace(role, end=_ending(role, blocks)) for role in line.roles)
    return replace(line, roles=roles, barriers=(*line.barriers, *barriers))


def _barrier(name: str, roles: Sequence[Role], blocks: int, means: str) -> Barrier:
    """Return a barrier at which all threads of some roles meet."""
    threads = blocks * sum(role.threads for role in roles)
    return Barrier(name, 1, threads, 0, TILE, means, blocks)


def _ending(role: Role, blocks: int) -> tuple[Act, ...]:
    """Return what a role does at the end of a tile: it fetches parts, arrives, and only then writes C."""
    laid, (arrive, wait) = _meeting(LAID, role, blocks), _meeting(ADDED, role, blocks)
    if not role.does("write"):
        return (*role.end, *laid, arrive, wait) if blocks > 1 else role.end
    *before, write = role.end
    before += [*_meeting(READ, role, 1), Act("lay"), *laid]
    if blocks == 1:
        return *before, write
    fetch = Act("fetch", by=f"ld.shared::cluster from {blocks} blocks")
    return *before, fetch, arrive, replace(write, by="st.global"), wait


def _meeting(barrier: str, role: Role, blocks: int) -> tuple[Act, ...]:
    """Return that the threads of a role, in all blocks, arrive at a barrier and wait for the others."""
    return Act("arrive", barrier, count=blocks * role.threads), Act("wait", barrier)
