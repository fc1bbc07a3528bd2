"""ldmatrix and mma.sync in person, with lines in shared memory as they come: full of bank conflicts.

kernel.cu says the idea, what limits it, what was measured, and what the next rung changes.
"""

from __future__ import annotations

from typing import ClassVar

from ptxlab.experiments.gemm.tiled import MmaStage


class MmaNaive(MmaStage):
    """ldmatrix and mma.sync in person, with lines in shared memory as they come: full of bank conflicts."""

    below = "wmma-warptile"

    reasons: ClassVar = {
        "shared wavefronts": "the 8 rows that ldmatrix reads at once lie 128 bytes apart, in the same four "
        "banks, and come one after the other",
    }
