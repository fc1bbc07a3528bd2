"""mma-naive with the chunks of a line in XOR order: no bank conflicts, and no byte lost.

kernel.cu says the idea, what limits it, and what the next rung changes.

Measured (NVIDIA H200, 2026-11-30; tn, normal values, cold, all rungs in turn in one run): 283, 318 and 333
TFLOP/s with bf16 at 2048, 4096 and 8192 cubed, 313 and 326 with f16 at 4096 and 8192. It gains no time over
mma-padded: -0.7, -0.8 and -0.5 %, -0.8 and +0.2 %; its places take six instructions more a step (263 instead
of 257, NVRTC 13.0). Both have no conflict left, and one block an SM whose registers, not its memory, keep a
second one out. What it gains are 12 KB of 108 KB, and lines of 128 bytes in the order that TMA and wgmma
read: the rungs above lay their tiles out so. The tensor cores are used to 53, 63 and 66 % of their ceiling.
"""

from __future__ import annotations

from ptxlab.experiments.base import Case, option
from ptxlab.experiments.gemm.tiled import TiledStage

TILE = (128, 256, 64)
WARP = (64, 64)
LINE_BYTES = 128


class MmaSwizzle(TiledStage):
    """mma-naive with the chunks of a line in XOR order: no bank conflicts, and no byte lost."""

    below = "mma-padded"
    ceiling = "mma-sync"

    acc = option("f32", choices=("f32",), help="type that sums are kept in")
    layout = option("tn", choices=("tn",), help="A and B k-contiguous, as ldmatrix wants them untransposed")

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
        return line * LINE_BYTES + (chunk ^ line % 8) * 16
