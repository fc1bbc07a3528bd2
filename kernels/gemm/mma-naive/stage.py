"""ldmatrix and mma.sync in person, with lines in shared memory as they come: full of bank conflicts.

kernel.cu says the idea, what limits it, and what the next rung changes.

Measured (NVIDIA H200, 2026-11-30; tn, normal values, cold, all rungs in turn in one run): 95, 96 and 99
TFLOP/s with bf16 at 2048, 4096 and 8192 cubed, 95 and 93 with f16 at 4096 and 8192: 80 to 90 % of what the
shared-memory port permits with these conflicts, which is the limit that is predicted. It is slower than
wmma-warptile, by 58 to 60 % with bf16, by 69 and 68 % with f16: that rung pads its lines. This one begins a
branch of its own, of kernels that say themselves where each byte lies; its lines are left as they come, so
that the two rungs above show what the order of bytes alone is worth.
"""

from __future__ import annotations

from typing import ClassVar

from ptxlab.experiments.base import Case, option
from ptxlab.experiments.gemm.tiled import TiledStage

TILE = (128, 256, 64)
WARP = (64, 64)
LINE_BYTES = 128


class MmaNaive(TiledStage):
    """ldmatrix and mma.sync in person, with lines in shared memory as they come: full of bank conflicts."""

    below = "wmma-warptile"
    ceiling = "mma-sync"

    acc = option("f32", choices=("f32",), help="type that sums are kept in")
    layout = option("tn", choices=("tn",), help="A and B k-contiguous, as ldmatrix wants them untransposed")

    reasons: ClassVar = {
        "shared wavefronts": "the 8 rows that ldmatrix reads at once lie 128 bytes apart, in the same four "
        "banks, and come one after the other",
    }

    def tile(self, case: Case) -> tuple[int, int, int]:
        """Return the tile of a block of 8 warps."""
        del case
        return TILE

    def warp_tile(self, case: Case) -> tuple[int, int]:
        """Return the tile of a warp."""
        del case
        return WARP

    def shared(self, case: Case) -> dict[str, int]:
        """Return two places for the tiles of A and of B."""
        del case
        rows, cols, _ = TILE
        return {"two tiles of A": 2 * rows * LINE_BYTES, "two tiles of B": 2 * cols * LINE_BYTES}

    def dynamic_shared_bytes(self, case: Case) -> int:
        """Return all of it: it is more than the 48 KB that a kernel can declare."""
        return sum(self.shared(case).values())

    def place(self, case: Case, line: int, chunk: int) -> int:
        """Return the place that place_of() says in kernel.cu."""
        del case
        return line * LINE_BYTES + chunk * 16
