"""persistent blocks in clusters that share what they copy: TMA writes a tile into both.

kernel.cu says the idea, what limits it, and what the next rung changes.

Measured (NVIDIA H200, 2026-11-30; tn, normal values, cold, all rungs in turn in one run): 642, 700 and 708
TFLOP/s with bf16 at 2048, 4096 and 8192 cubed, 681 and 676 with f16 at 4096 and 8192. It gains nothing over
persistent that can be told: +0.5, -0.1 and -0.4 %, -0.3 and +0.7 %. The L2 of this card brings what single
blocks ask for, which must be known; a card whose L2 brings less may gain. The tensor cores are used to 79,
92 and 92 % of the ceiling of wgmma.
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
