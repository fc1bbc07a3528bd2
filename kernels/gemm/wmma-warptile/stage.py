"""Warps own large tiles of C, so that a fragment is multiplied with several others; cp.async, nvcuda::wmma.

kernel.cu says the idea, what limits it, and what the next rung changes.

Measured (NVIDIA H200, 2026-11-30; tn, normal values, cold, all rungs in turn in one run): 226, 236 and 242
TFLOP/s with bf16 at 2048, 4096 and 8192 cubed, 303 and 288 with f16 at 4096 and 8192. Over wmma-dbuf that is
+204, +203 and +211 %, +207 and +181 %. The tensor cores, the limit that is predicted, are used to 42, 47 and
48 % of their ceiling, with f16 to 62 and 59 %: it is waiting that holds this rung. bf16 takes 64 small loads
and their addresses in a step where f16 takes 16 ldmatrix.x4: 290 instructions for 64 HMMA instead of 195
(NVRTC 13.0).
"""

from __future__ import annotations

from ptxlab.errors import UsageError
from ptxlab.experiments.base import Case, Macros, option, sizes
from ptxlab.experiments.gemm import TYPES
from ptxlab.experiments.gemm.tiled import (
    CHUNK,
    ELEMENT,
    FRAGMENT,
    PAST_REGISTERS,
    TiledStage,
    padded_elements,
    wmma_macros,
)

MOST_WARPS = 16  # more would leave a thread fewer registers than these tiles need
DEEPEST = 64


class WmmaWarptile(TiledStage):
    """Warps own large tiles of C, so that a fragment is multiplied with several others; nvcuda::wmma."""

    below = "wmma-dbuf"
    ceiling = "mma-sync"
    copies = PAST_REGISTERS

    block = option("128x128", choices=("128x128", "128x256", "256x128"), help="rows and columns of a block")
    warp = option("64x64", choices=("32x32", "32x64", "64x32", "64x64"), help="rows and columns of a warp")
    tile_k = option(32, choices=(16, 32, 64), help="depth in k of one step")
    stages = option(4, choices=(2, 3, 4), help="tiles of A and B that are in flight or being read")

    def tile(self, case: Case) -> tuple[int, int, int]:
        """Return what was chosen."""
        rows, cols = sizes(case.block, parts=2, what="block")
        return rows, cols, int(case.tile_k)

    def warp_tile(self, case: Case) -> tuple[int, int]:
        """Return what was chosen."""
        rows, cols = sizes(case.warp, parts=2, what="warp")
        return rows, cols

    def ring(self, case: Case) -> int:
        """Return what was chosen."""
        return int(case.stages)

    def check(self, case: Case) -> None:
        """Refuse what does not fit into registers, and tiles that are no chunk for each thread.

        Raises:
            UsageError: the options do not go together.

        """
        super().check(case)
        rows, cols, depth = self.tile(case)
        threads = self.threads(case)
        if threads > 32 * MOST_WARPS:
            raise UsageError(
                f"block {case.block} has {threads // 32} warps of {case.warp}; legal: at most {MOST_WARPS}"
            )
        if threads * CHUNK > min(rows, cols) * depth:
            legal = threads * CHUNK // min(rows, cols)
            raise UsageError(f"tile_k {depth} leaves threads without a chunk to copy; legal: {legal} or more")
        if depth == DEEPEST and case.warp == "64x64" and case.dtype == "bf16":  # ptxas 13.0 spills
            raise UsageError(
                f"tile_k {depth} with warp {case.warp} and bf16 takes more registers than there are; "
                "legal: tile_k 16 or 32"
            )

    def shared(self, case: Case) -> dict[str, int]:
        """Return the places for the tiles of A and of B, and what the sums need beyond them."""
        rows, cols, depth = self.tile(case)
        a, b = case.layout
        places = int(case.stages) * ELEMENT
        a_bytes = places * padded_elements(rows, depth, k_contiguous=a == "t")
        b_bytes = places * padded_elements(cols, depth, k_contiguous=b == "n")
        strip = FRAGMENT * (self.warp_tile(case)[1] + CHUNK) * TYPES[case.acc].nbytes
        sums = self.threads(case) // 32 * strip
        return {
            f"{case.stages} tiles of A": a_bytes,
            f"{case.stages} tiles of B": b_bytes,
            "sums, beyond the tiles": max(0, sums - a_bytes - b_bytes),
        }

    def dynamic_shared_bytes(self, case: Case) -> int:
        """Return all of it: it may be more than the 48 KB that a kernel can declare."""
        return sum(self.shared(case).values())

    def place(self, case: Case, line: int, chunk: int) -> int:
        """Return the place in lines that are padded by 16 bytes; the model is of k-contiguous operands."""
        return (line * (int(case.tile_k) // CHUNK + 1) + chunk) * 16

    def macros(self, case: Case) -> Macros:
        """Return the types, layouts and tiles, and whether chunks can be copied."""
        rows, cols, depth = self.tile(case)
        warp_rows, warp_cols = self.warp_tile(case)
        tiles: Macros = {"BM": rows, "BN": cols, "BK": depth, "WM": warp_rows, "WN": warp_cols}
        return {**super().macros(case), **wmma_macros(case), **tiles, "STAGES": int(case.stages)}

    def claims(self, case: Case) -> dict[str, int]:
        """Return the products and loads of one step; wmma's loads of bf16 do not become LDSM (NVRTC 13.0)."""
        return super().claims(case) | ({"LDSM": 0} if case.dtype == "bf16" else {})
