"""wmma-tiled with two buffers, so that the next tiles can come while these are multiplied.

kernel.cu says the idea, what limits it, what was measured, and what the next rung changes.
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
