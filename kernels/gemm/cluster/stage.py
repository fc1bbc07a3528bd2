"""persistent blocks in clusters that share what they copy: TMA writes a tile into both.

kernel.cu says the idea, what limits it, and what the next rung changes.
"""

from __future__ import annotations

from ptxlab.experiments.base import Case, Macros, option
from ptxlab.experiments.gemm.wgmma import ClusterStage

REGISTERS = (40, 232)
"""Of a producer's thread and of a consumer's; all 384 start with 168, which is what they share."""


class ClusterMulticast(ClusterStage):
    """persistent blocks in clusters that share what they copy: TMA writes a tile into both."""

    below = "persistent"
    ceiling = "wgmma"
    stages = option(4, choices=(2, 3, 4), help="tiles that are on their way or being multiplied")

    def ring(self, case: Case) -> int:
        """Return what was chosen."""
        return int(case.stages)

    def macros(self, case: Case) -> Macros:
        """Return the stages, and who has how many registers."""
        producer, consumer = REGISTERS
        registers: Macros = {"PRODUCER_REGISTERS": producer, "CONSUMER_REGISTERS": consumer}
        return {**super().macros(case), "STAGES": self.ring(case), **registers}
