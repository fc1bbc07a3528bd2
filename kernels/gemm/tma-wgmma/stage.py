"""One warpgroup that takes turns: TMA brings a tile, wgmma multiplies it from shared memory.

kernel.cu says the idea, what limits it, what was measured, and what the next rung changes.
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
