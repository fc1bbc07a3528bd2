"""cp.async in several stages, XOR swizzle, fragments a step ahead, grouped order: all that mma.sync can have.

kernel.cu says the idea, what limits it, and what the next rung changes.
"""

from __future__ import annotations

from ptxlab.errors import UsageError
from ptxlab.experiments.base import Case, Macros, option, sizes
from ptxlab.experiments.gemm import Problem
from ptxlab.experiments.gemm.tiled import CHUNK, ELEMENT, FRAGMENT, TiledStage

WARPS = {"128x128": (64, 64), "128x256": (64, 64), "256x128": (64, 64), "192x256": (96, 64)}
"""By the block's tile, that of a warp."""

SUM_BYTES = 4


class Ampere(TiledStage):
    """cp.async in several stages, XOR swizzle, fragments a step ahead, grouped order, all four layouts."""

    acc = option("f32", choices=("f32",), help="type that sums are kept in")
    block = option("128x256", choices=tuple(WARPS), help="rows and columns of a block")
    tile_k = option(32, choices=(32, 64), help="depth in k of one stage")
    stages = option(4, choices=(3, 4, 5, 6), help="tiles of A and B that are in flight or being read")
    group = option(8, choices=(1, 2, 4, 8, 16), help="tile rows that blocks walk through together")

    def tile(self, case: Case) -> tuple[int, int, int]:
        """Return what was chosen."""
        rows, cols = sizes(case.block, parts=2, what="block")
        return rows, cols, int(case.tile_k)

    def warp_tile(self, case: Case) -> tuple[int, int]:
        """Return the tile of a warp, 8 of which (4 for 128x128) make a block."""
        return WARPS[case.block]

    def check(self, case: Case) -> None:
        """Refuse, beside too much shared memory, tiles whose lines the threads cannot share out.

        Raises:
            UsageError: a block of 192 rows meets an A that is m-contiguous.

        """
        super().check(case)
        if case.block == "192x256" and case.layout[0] == "n":
            raise UsageError(
                f"block 192x256 is not for layout {case.layout}: 256 threads do not divide into lines of 192 "
                "elements; legal: tn, tt"
            )

    def shared(self, case: Case) -> dict[str, int]:
        """Return the stages of A and of B. The sums pass through the same memory, which they never fill."""
        rows, cols, depth = self.tile(case)
        stage = int(case.stages) * depth * ELEMENT
        tiles = {f"{case.stages} tiles of A": rows * stage, f"{case.stages} tiles of B": cols * stage}
        sums = self.threads(case) // 32 * FRAGMENT * (self.warp_tile(case)[1] + CHUNK) * SUM_BYTES
        if sums > sum(tiles.values()):
            tiles["sums, beyond the tiles"] = sums - sum(tiles.values())
        return tiles

    def dynamic_shared_bytes(self, case: Case) -> int:
        """Return all of it: it is more than the 48 KB that a kernel can declare."""
        return sum(self.shared(case).values())

    def place(self, case: Case, line: int, chunk: int) -> int:
        """Return the place that Tile::place() says in kernel.cu for k-contiguous operands."""
        chunks = int(case.tile_k) // CHUNK
        turn = line // 2 % 4 if chunks == 4 else line % 8
        return (line * chunks + (chunk ^ turn)) * 16

    def guard(self, case: Case) -> int:
        """Return what the kernel must look out for: 0 nothing, 1 the ends of lines, 2 every element."""
        if all(
            size % part == 0 for size, part in zip((case.m, case.n, case.k), self.tile(case), strict=True)
        ):
            return 0
        return 1 if self.aligned(case) else 2

    def macros(self, case: Case) -> Macros:
        """Return the types, layouts, tiles and stages, and what to look out for."""
        rows, cols, depth = self.tile(case)
        warp_rows, warp_cols = self.warp_tile(case)
        problem = Problem.of(case)
        return {
            **self.types(case),
            "A_K": int(not problem.a.by_columns),
            "B_K": int(problem.b.by_columns),
            "BM": rows,
            "BN": cols,
            "BK": depth,
            "WM": warp_rows,
            "WN": warp_cols,
            "STAGES": int(case.stages),
            "GROUP": int(case.group),
            "GUARD": self.guard(case),
        }

    def claims(self, case: Case) -> dict[str, int]:
        """Return the products of one stage, and its loads: the first A fragment and B step come before it."""
        first = 1 + self.warp_tile(case)[1] // FRAGMENT
        return super().claims(case) | {"LDSM": self.fragment_loads(case) + first}
