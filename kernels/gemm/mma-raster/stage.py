"""mma-swizzle with blocks in an order that suits the L2: plain, grouped, or in strips of a split grid.

kernel.cu says the idea, what limits it, what was measured, and what the next rung changes.
"""

from __future__ import annotations

from ptxlab.device.job import Dim3
from ptxlab.errors import UsageError
from ptxlab.experiments.base import Case, Macros, option
from ptxlab.experiments.gemm.tiled import MMA_TILE, MmaStage, swizzled

MOST_STRIPS = 65535  # blocks of a grid in z
ORDERS = ("plain", "grouped", "split")


class MmaRaster(MmaStage):
    """mma-swizzle with blocks in an order that suits the L2: plain, grouped, or in strips of a split grid."""

    below = "mma-swizzle"

    order = option("grouped", choices=ORDERS, help="how blocks walk over C")
    group = option(8, choices=(2, 4, 8, 16, 32), help="tile rows of a group, or tile columns of a strip")

    def place(self, case: Case, line: int, chunk: int) -> int:
        """Return the place that place_of() says in kernel.cu."""
        del case
        return swizzled(line, chunk)

    def check(self, case: Case) -> None:
        """Refuse, beside what no stage takes, more strips than a grid has in z.

        Raises:
            UsageError: there are that many.

        """
        super().check(case)
        if case.order == "split" and self.strips(case) > MOST_STRIPS:
            raise UsageError(f"-n {case.n} is {self.strips(case)} strips; legal: at most {MOST_STRIPS}")

    def strips(self, case: Case) -> int:
        """Return how many strips of tile columns there are in a split grid."""
        return -(-int(case.n) // (MMA_TILE[1] * int(case.group)))

    def macros(self, case: Case) -> Macros:
        """Return the types, the order, and whether chunks can be copied."""
        return {**super().macros(case), "ORDER": ORDERS.index(case.order), "GROUP": int(case.group)}

    def grid(self, case: Case) -> Dim3:
        """Return one block a tile; in a split grid each z is a strip of tile columns, the last padded."""
        if case.order != "split":
            return super().grid(case)
        return -(-int(case.m) // MMA_TILE[0]) * int(case.group), 1, self.strips(case)
