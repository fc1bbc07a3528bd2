"""mma-naive with the chunks of a line in XOR order: no bank conflicts, and no byte lost.

kernel.cu says the idea, what limits it, what was measured, and what the next rung changes.
"""

from __future__ import annotations

from ptxlab.experiments.base import Case
from ptxlab.experiments.gemm.tiled import MmaStage, swizzled


class MmaSwizzle(MmaStage):
    """mma-naive with the chunks of a line in XOR order: no bank conflicts, and no byte lost."""

    below = "mma-padded"

    def place(self, case: Case, line: int, chunk: int) -> int:
        """Return the place that place_of() says in kernel.cu."""
        del case
        return swizzled(line, chunk)
