"""tma-wgmma with a ring of stages: tiles are on their way while others are multiplied.

kernel.cu says the idea, what limits it, and what the next rung changes.

Measured (NVIDIA H200, 2026-11-30; tn, normal values, cold, all rungs in turn in one run): 537, 637 and 688
TFLOP/s with bf16 at 2048, 4096 and 8192 cubed, 608 and 655 with f16 at 4096 and 8192. Over tma-wgmma that is
+47, +19 and +17 %, +17 and +13 %. The tensor cores, the limit that is predicted, are used to 66, 83 and 90 %
of the ceiling of wgmma.
"""

from __future__ import annotations

from ptxlab.experiments.base import Case, Macros, option
from ptxlab.experiments.gemm.wgmma import WgmmaStage


class WgmmaPipelined(WgmmaStage):
    """tma-wgmma with a ring of stages: tiles are on their way while others are multiplied."""

    below = "tma-wgmma"
    ceiling = "wgmma"
    stages = option(4, choices=(2, 3, 4), help="tiles that are on their way or being multiplied")

    def ring(self, case: Case) -> int:
        """Return what was chosen."""
        return int(case.stages)

    def macros(self, case: Case) -> Macros:
        """Return the stages too."""
        return {**super().macros(case), "STAGES": self.ring(case)}
