"""wgmma-pipelined with warps of their own for the copies: a producer and two consumers.

kernel.cu says the idea, what limits it, what was measured, and what the next rung changes.
"""

from __future__ import annotations

from ptxlab.experiments.base import Case, Macros, option
from ptxlab.experiments.gemm.wgmma import WgmmaStage

REGISTERS = {2: (40, 232)}
"""By consumers: the registers of a producer's thread and of a consumer's; with 384 threads a block starts
with 168 each, which is what they share.
"""


class WarpSpecialized(WgmmaStage):
    """wgmma-pipelined with warps of their own for the copies: a producer and two consumers."""

    below = "wgmma-pipelined"
    ceiling = "wgmma"
    stages = option(4, choices=(2, 3, 4), help="tiles that are on their way or being multiplied")

    def ring(self, case: Case) -> int:
        """Return what was chosen."""
        return int(case.stages)

    def producers(self, case: Case) -> int:
        """Return the warpgroup that copies."""
        del case
        return 1

    def macros(self, case: Case) -> Macros:
        """Return the stages, and who has how many registers."""
        producer, consumer = REGISTERS[self.consumers(case)]
        registers: Macros = {"PRODUCER_REGISTERS": producer, "CONSUMER_REGISTERS": consumer}
        return {**super().macros(case), "STAGES": self.ring(case), **registers}

    def claims(self, case: Case) -> dict[str, int]:
        """Return, beside the products, that registers change hands."""
        return {**super().claims(case), "USETMAXREG": 2}
