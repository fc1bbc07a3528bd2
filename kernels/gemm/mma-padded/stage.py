"""mma-naive with 16 bytes between the lines: no bank conflicts, for an eighth more shared memory.

kernel.cu says the idea, what limits it, what was measured, and what the next rung changes.
"""

from __future__ import annotations

from ptxlab.experiments.base import Case
from ptxlab.experiments.gemm.machine import machine
from ptxlab.experiments.gemm.tiled import MMA_TILE, MmaStage, blocks_by_shared_memory


class MmaPadded(MmaStage):
    """mma-naive with 16 bytes between the lines: no bank conflicts, for an eighth more shared memory."""

    below = "mma-naive"
    padding = 16

    def remarks(self, case: Case) -> list[str]:
        """Return what the padding costs: bytes, and blocks that an SM has room for."""
        rows, cols, _ = MMA_TILE
        with_padding, padding = self.dynamic_shared_bytes(case), 2 * (rows + cols) * self.padding
        text = f"padding takes {padding} of {with_padding} bytes of shared memory"
        if gpu := machine(case.arch):
            held = [
                blocks_by_shared_memory(gpu, self.threads(case), size)
                for size in (with_padding - padding, with_padding)
            ]
            text += f"; that alone holds {held[0]} blocks an SM without and {held[1]} with it"
        return [*super().remarks(case), text]
