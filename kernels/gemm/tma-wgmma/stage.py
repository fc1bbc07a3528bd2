"""One warpgroup that takes turns: TMA brings a tile, wgmma multiplies it from shared memory.

kernel.cu says the idea, what limits it, and what the next rung changes.

Measured (NVIDIA H200, 2026-11-30; tn, normal values, cold, all rungs in turn in one run): 377, 532 and 592
TFLOP/s with bf16 at 2048, 4096 and 8192 cubed, 526 and 581 with f16 at 4096 and 8192. Over ampere that is
-15, +21 and +33 %, +22 and +35 %, with wide intervals (+20 to +44 % at 8192 with bf16), for the power limit
moves the clock. The tensor cores, the limit that is predicted, are used to 46, 70 and 77 % of the ceiling of
wgmma: copies and products take turns, and at 2048 an SM has two blocks at most of the three that it holds,
and so fewer to take turns with.
"""

from __future__ import annotations

from ptxlab.experiments.base import Case, option
from ptxlab.experiments.gemm.wgmma import WgmmaStage


class TmaWgmma(WgmmaStage):
    """One warpgroup that takes turns: TMA brings a tile, wgmma multiplies it from shared memory."""

    below = "ampere"
    ceiling = "wgmma"
    block = option("128x128", choices=("64x128", "64x256", "128x128"), help="rows and columns of a block")

    def ring(self, case: Case) -> int:
        """Return the one place that there is."""
        del case
        return 1

    def consumers(self, case: Case) -> int:
        """Return one warpgroup, whatever the block."""
        del case
        return 1

    def barriers(self, case: Case) -> int:
        """Return the one that says that the bytes have landed."""
        del case
        return 1
