"""Warps own large tiles of C, so that a fragment is multiplied with several others; cp.async, nvcuda::wmma.

kernel.cu says the idea, what limits it, what was measured, and what the next rung changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from ptxlab.errors import UsageError
from ptxlab.experiments.base import Case, Macros, Value, option, sizes
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

BLOCKS = ("64x128", "128x128", "128x256", "256x128")
WARPS = ("32x32", "32x64", "64x32", "64x64")
SMALL = 32 * 32  # of this warp tile, the sums and two sets of fragments fit into 128 registers of a thread
MOST_WARPS, MOST_SMALL_WARPS = 8, 16  # of a block: more would leave a thread fewer registers than it needs


class WmmaWarptile(TiledStage):
    """Warps own large tiles of C, so that a fragment is multiplied with several others; nvcuda::wmma."""

    below = "wmma-dbuf"
    ceiling = "mma-sync"
    copies = PAST_REGISTERS

    block = option("128x256", choices=BLOCKS, help="rows and columns of a block")
    warp = option("64x64", choices=WARPS, help="rows and columns of a warp")
    tile_k = option(64, choices=(16, 32, 64), help="depth in k of one step")
    stages = option(3, choices=(2, 3, 4), help="tiles of A and B that are in flight or being read")

    def _choices(self) -> Iterator[dict[str, Value]]:
        """Yield what every stage yields, and each block with each tile of a warp."""
        yield from super()._choices()
        for block, warp in product(BLOCKS, WARPS):
            yield {"block": block, "warp": warp}

    def tile(self, case: Case) -> tuple[int, int, int]:
        """Return what was chosen."""
        rows, cols = sizes(case.block, parts=2, what="block")
        return rows, cols, int(case.tile_k)

    def warp_tile(self, case: Case) -> tuple[int, int]:
        """Return what was chosen."""
        rows, cols = sizes(case.warp, parts=2, what="warp")
        return rows, cols

    def check(self, case: Case) -> None:
        """Refuse what does not fit into registers, and tiles that are no chunk for each thread.

        Raises:
            UsageError: the options do not go together.

        """
        super().check(case)
        rows, cols, depth = self.tile(case)
        threads = self.threads(case)
        warp_rows, warp_cols = self.warp_tile(case)
        most = MOST_SMALL_WARPS if warp_rows * warp_cols <= SMALL else MOST_WARPS
        if threads > 32 * most:
            raise UsageError(
                f"block {case.block} has {threads // 32} warps of {case.warp}; legal: at most {most}"
            )
        if threads * CHUNK > min(rows, cols) * depth:
            legal = threads * CHUNK // min(rows, cols)
            raise UsageError(f"tile_k {depth} leaves threads without a chunk to copy; legal: {legal} or more")

    def ring(self, case: Case) -> int:
        """Return what was chosen."""
        return int(case.stages)

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
        """Return the products and loads of one step, and the loads before the first: 16 rows, all columns."""
        first = (FRAGMENT + self.warp_tile(case)[1]) // FRAGMENT
        return super().claims(case) | {"LDSM": self.fragment_loads(case) + first}
