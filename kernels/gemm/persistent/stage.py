"""warp-specialized blocks that stay on their SM, and take one tile of C after the other.

kernel.cu says the idea, what limits it, what was measured, and what the next rung changes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ptxlab.device.job import Argument, Buffer, Dim3
from ptxlab.errors import UsageError
from ptxlab.experiments.base import Case, Macros, option
from ptxlab.experiments.gemm.pipeline import TILE, Act, Barrier, Pipeline
from ptxlab.experiments.gemm.wgmma import BARRIER, StoringStage

REGISTERS = (40, 232)
"""Of a producer's thread and of a consumer's; all 384 start with 168, which is what they share."""

SCHEDULES = ("static", "counter")
ORDERS = ("rows", "grouped", "serpentine", "hilbert")
QUEUE = 2
NUMBER = 4  # bytes of the number of a tile
MOST_LISTED = 2**20


class Persistent(StoringStage):
    """warp-specialized blocks that stay on their SM, and take one tile of C after the other."""

    below = "warp-specialized"
    ceiling = "wgmma"
    stages = option(4, choices=(2, 3, 4), help="tiles that are on their way or being multiplied")
    schedule = option("static", choices=SCHEDULES, help="tiles in steps of the grid, or drawn from a counter")
    order = option("serpentine", choices=ORDERS, help="how the tiles follow each other over C")
    blocks = option(132, help="blocks that stay: one for each SM", metavar="BLOCKS")

    def ring(self, case: Case) -> int:
        """Return what was chosen."""
        return int(case.stages)

    def pipeline(self, case: Case) -> Pipeline:
        """Return, where tiles are drawn, also by what their numbers get to the consumers."""
        line = super().pipeline(case)
        if case.schedule != "counter":
            return line
        producer, *consumers = line.roles
        taking = (Act("wait", "numbers"), Act("arrive", "taken", 0, 4))
        roles = (
            replace(producer, begin=(Act("wait", "taken"), Act("arrive", "numbers"))),
            *(replace(role, begin=taking) for role in consumers),
        )
        warps = self.math_warps(case)
        barriers = (
            Barrier("numbers", QUEUE, 1, 0, TILE, "the number of a tile is there"),
            Barrier("taken", QUEUE, warps, QUEUE, TILE, "all warps have taken it"),
        )
        return replace(line, roles=roles, barriers=(*line.barriers, *barriers))

    def shared(self, case: Case) -> dict[str, int]:
        """Return the stages, the barriers, and the queue of drawn tiles with its own."""
        return super().shared(case) | {"queue of tiles": QUEUE * (2 * BARRIER + NUMBER)}

    def grid(self, case: Case) -> Dim3:
        """Return the blocks that stay, or fewer where there are not so many tiles."""
        return min(self.tiles(case), int(case.blocks)), 1, 1

    def check(self, case: Case) -> None:
        """Refuse, beside what no such stage takes, no blocks, and a list that is too long.

        Raises:
            UsageError: there are no blocks, or too many tiles for a list.

        """
        super().check(case)
        if int(case.blocks) < 1:
            raise UsageError(f"--set blocks={case.blocks}; legal: 1 and more")
        if case.order == "hilbert" and self.tiles(case) > MOST_LISTED:
            raise UsageError(f"{self.tiles(case)} tiles are more than a list may have; legal: {MOST_LISTED}")

    def macros(self, case: Case) -> Macros:
        """Return the stages, who has how many registers, and which tile comes next."""
        producer, consumer = REGISTERS
        return {
            **super().macros(case),
            "STAGES": self.ring(case),
            "SCHEDULE": SCHEDULES.index(case.schedule),
            "ORDER": ORDERS.index(case.order),
            "PRODUCER_REGISTERS": producer,
            "CONSUMER_REGISTERS": consumer,
        }

    def scratch(self, case: Case) -> tuple[Buffer, ...]:
        """Return the counters of drawn tiles and of blocks that are done, and the list where there is one."""
        counters = np.zeros(2, np.uint32)
        buffers = (Buffer("counters", counters.nbytes, data=counters),)
        if case.order != "hilbert":
            return buffers
        rows, cols, _ = self.tile(case)
        listed = hilbert(-(-int(case.m) // rows), -(-int(case.n) // cols))
        return (*buffers, Buffer("hilbert", listed.nbytes, data=listed))

    def arguments(self, case: Case) -> tuple[Argument, ...]:
        """Return the list and the counters too; without a list its place is not looked at."""
        listed = "hilbert" if case.order == "hilbert" else "counters"
        return (*super().arguments(case), listed, "counters")


def hilbert(down: int, across: int) -> NDArray[np.int32]:
    """Return row and column of each tile along a Hilbert curve; what lies outside of C is left out."""
    side = 1 << (max(down, across) - 1).bit_length()
    index = np.arange(side * side, dtype=np.int64)
    row, col = np.zeros_like(index), np.zeros_like(index)
    rest, size = index.copy(), 1
    while size < side:
        right = 1 & (rest // 2)
        up = 1 & (rest ^ right)
        flip = (up == 0) & (right == 1)
        row, col = np.where(flip, size - 1 - row, row), np.where(flip, size - 1 - col, col)
        row, col = np.where(up == 0, col, row), np.where(up == 0, row, col)
        row, col = row + size * right, col + size * up
        rest //= 4
        size *= 2
    inside = (row < down) & (col < across)
    return np.stack([row[inside], col[inside]], axis=1).astype(np.int32)
