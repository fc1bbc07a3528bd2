"""mma-naive with 16 bytes between the lines: no bank conflicts, for an eighth more shared memory.

kernel.cu says the idea, what limits it, and what the next rung changes.

Measured (NVIDIA H200, 2026-11-30; tn, normal values, cold, all rungs in turn in one run): 284, 325 and 340
TFLOP/s with bf16 at 2048, 4096 and 8192 cubed, 321 and 330 with f16 at 4096 and 8192. Over mma-naive that is
+200, +239 and +254 %, +238 and +258 %, for 16 bytes a line. The tensor cores, the limit that is predicted,
are used to 53, 64 and 67 % of their ceiling, with f16 to 66 and 68 %; the port would permit 720. The rest is
what kernel.cu names, a barrier a step and one block an SM.
"""

from __future__ import annotations

from ptxlab.experiments.base import Case, option
from ptxlab.experiments.gemm.machine import machine
from ptxlab.experiments.gemm.tiled import TiledStage, blocks_by_shared_memory

TILE = (128, 256, 64)
WARP = (64, 64)
PADDING = 16
LINE_BYTES = 128 + PADDING


class MmaPadded(TiledStage):
    """mma-naive with 16 bytes between the lines: no bank conflicts, for an eighth more shared memory."""

    below = "mma-naive"
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
        return line * LINE_BYTES + chunk * 16

    def remarks(self, case: Case) -> list[str]:
        """Return what the padding costs: bytes, and blocks that an SM has room for."""
        rows, cols, _ = TILE
        with_padding, padding = self.dynamic_shared_bytes(case), 2 * (rows + cols) * PADDING
        text = f"padding takes {padding} of {with_padding} bytes of shared memory"
        if gpu := machine(case.arch):
            held = [
                blocks_by_shared_memory(gpu, self.threads(case), size)
                for size in (with_padding - padding, with_padding)
            ]
            text += f"; that alone holds {held[0]} blocks an SM without and {held[1]} with it"
        return [*super().remarks(case), text]
