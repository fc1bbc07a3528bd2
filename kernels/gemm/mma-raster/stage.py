"""mma-swizzle with blocks in an order that suits the L2: plain, grouped, or in strips of a split grid.

kernel.cu says the idea, what limits it, and what the next rung changes.

Measured (NVIDIA H200, 2026-11-30; tn, normal values, cold, all rungs in turn in one run): 292, 313 and 322
TFLOP/s with bf16 at 2048, 4096 and 8192 cubed, 306 and 312 with f16 at 4096 and 8192, grouped by 8. Over
mma-swizzle that is +3.6 % at 2048, and nothing that can be told from 4096 on (+0.7 and -0.5 %, +0.8 and
-1.0 %), although A and B have 128 MB each at 8192: it is not the L2 that blocks wait for. Why 2048 gains,
where all 128 blocks run at once in any order, was not found out. It is here because later rungs, which ask
for more, walk over C in groups too, and for sizes beyond: 16384 cubed, where A and B have 512 MB each, is
where an order should tell, and has not been measured. The tensor cores, the limit that is predicted, are
used to 54, 62 and 64 % of their ceiling.
"""

from __future__ import annotations

from ptxlab.device.job import Dim3
from ptxlab.errors import UsageError
from ptxlab.experiments.base import Case, Macros, option
from ptxlab.experiments.gemm.tiled import TiledStage

TILE = (128, 256, 64)
WARP = (64, 64)
LINE_BYTES = 128
MOST_STRIPS = 65535  # blocks of a grid in z
ORDERS = ("plain", "grouped", "split")


class MmaRaster(TiledStage):
    """mma-swizzle with blocks in an order that suits the L2: plain, grouped, or in strips of a split grid."""

    below = "mma-swizzle"
    ceiling = "mma-sync"

    acc = option("f32", choices=("f32",), help="type that sums are kept in")
    layout = option("tn", choices=("tn",), help="A and B k-contiguous, as ldmatrix wants them untransposed")
    order = option("grouped", choices=ORDERS, help="how blocks walk over C")
    group = option(8, choices=(2, 4, 8, 16, 32), help="tile rows of a group, or tile columns of a strip")

    def tile(self, case: Case) -> tuple[int, int, int]:
        """Return the tile of a block of 8 warps."""
        del case
        return TILE

    def warp_tile(self, case: Case) -> tuple[int, int]:
        """Return the tile of a warp."""
        del case
        return WARP

    def shared(self, case: Case) -> dict[str, int]:
        """Return two places for the tiles of A and of B."""
        del case
        rows, cols, _ = TILE
        return {"two tiles of A": 2 * rows * LINE_BYTES, "two tiles of B": 2 * cols * LINE_BYTES}

    def dynamic_shared_bytes(self, case: Case) -> int:
        """Return all of it: it is more than the 48 KB that a kernel can declare."""
        return sum(self.shared(case).values())

    def place(self, case: Case, line: int, chunk: int) -> int:
        """Return the place that place_of() says in kernel.cu."""
        del case
        return line * LINE_BYTES + (chunk ^ line % 8) * 16

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
        return -(-int(case.n) // (TILE[1] * int(case.group)))

    def macros(self, case: Case) -> Macros:
        """Return the types, the order, and whether chunks can be copied."""
        return {**super().macros(case), "ORDER": ORDERS.index(case.order), "GROUP": int(case.group)}

    def grid(self, case: Case) -> Dim3:
        """Return one block a tile; in a split grid each z is a strip of tile columns, the last padded."""
        if case.order != "split":
            return super().grid(case)
        return -(-int(case.m) // TILE[0]) * int(case.group), 1, self.strips(case)
