"""tma-wgmma with a ring of stages: tiles are on their way while others are multiplied.

kernel.cu says the idea, what limits it, what was measured, and what the next rung changes.
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
