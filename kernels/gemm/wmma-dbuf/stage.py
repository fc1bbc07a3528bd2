"""wmma-tiled with two buffers, so that the next tiles can come while these are multiplied.

kernel.cu says the idea, what limits it, and what the next rung changes.

Measured (NVIDIA H200, 2026-11-30; tn, normal values, cold, all rungs in turn in one run): 75, 79 and 80
TFLOP/s with bf16 at 2048, 4096 and 8192 cubed, 99 and 102 with f16 at 4096 and 8192. It is slower than
wmma-tiled: by 9, 10 and 12 % with bf16, by 5.4 and 2.5 % with f16. The shared-memory port, the limit that is
predicted, would permit 200.

Why, as the SASS of NVRTC 13.0, which made the recorded kernels, tells:
  - The source asks for the next chunk before the products; the compiler puts the load (LDG) behind the last
    ldmatrix, right before the store that waits for it. So little of the copy passes while tensor cores work.
  - Which of the two places is read is worked out in each step: 52 instructions a warp instead of 35 (bf16:
    98 instead of 47) for the same four HMMA.
  - f16: 40 registers instead of 32, so an SM holds three blocks, not four. With bf16 both have three; so
    occupancy alone is not the reason. The other blocks of an SM covered part of the wait before, too.

It is here because two buffers are the step from which all later rungs go on; where tiles are larger, in
mma-padded, the same source order survives the compiler: its 12 loads stand before all products.
"""

from __future__ import annotations

from ptxlab.experiments.base import Case, Macros
from ptxlab.experiments.gemm import TYPES
from ptxlab.experiments.gemm.tiled import CHUNK, ELEMENT, FRAGMENT, TiledStage, padded_elements, wmma_macros

TILE = (64, 64, 32)


class WmmaDbuf(TiledStage):
    """wmma-tiled with two buffers, so that the next tiles can come while these are multiplied."""

    below = "wmma-tiled"
    ceiling = "mma-sync"

    def tile(self, case: Case) -> tuple[int, int, int]:
        """Return the tile of a block of 16 warps."""
        del case
        return TILE

    def warp_tile(self, case: Case) -> tuple[int, int]:
        """Return what wmma multiplies at once."""
        del case
        return FRAGMENT, FRAGMENT

    def ring(self, case: Case) -> int:
        """Return two places."""
        del case
        return 2

    def shared(self, case: Case) -> dict[str, int]:
        """Return two places for the tiles of A and of B, and the tile of C, one fragment a warp."""
        rows, cols, depth = TILE
        a, b = case.layout
        a_bytes = padded_elements(rows, depth, k_contiguous=a == "t") * ELEMENT
        b_bytes = padded_elements(cols, depth, k_contiguous=b == "n") * ELEMENT
        c_bytes = rows * cols * TYPES[case.acc].nbytes
        return {"two tiles of A": 2 * a_bytes, "two tiles of B": 2 * b_bytes, "C before conversion": c_bytes}

    def place(self, case: Case, line: int, chunk: int) -> int:
        """Return the place in lines that are padded by 16 bytes; the model is of k-contiguous operands."""
        del case
        return (line * (TILE[2] // CHUNK + 1) + chunk) * 16

    def macros(self, case: Case) -> Macros:
        """Return the types, which way each operand is contiguous, and whether chunks can be copied."""
        return {**super().macros(case), **wmma_macros(case)}

    def claims(self, case: Case) -> dict[str, int]:
        """Return the products and loads of one step; wmma's loads of bf16 do not become LDSM (NVRTC 13.0)."""
        return super().claims(case) | ({"LDSM": 0} if case.dtype == "bf16" else {})
