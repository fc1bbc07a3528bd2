"""cp.async in several stages, two sets of fragments, blocks that stay, four layouts: all mma.sync can have.

kernel.cu says the idea, what limits it, what was measured, and what the next rung changes.
"""

from __future__ import annotations

from ptxlab.device.job import Dim3
from ptxlab.experiments.base import Case, Macros, option, sizes
from ptxlab.experiments.gemm import Problem
from ptxlab.experiments.gemm.machine import machine
from ptxlab.experiments.gemm.tiled import CHUNK, ELEMENT, FRAGMENT, PAST_REGISTERS, TiledStage

WARP = (64, 64)
LARGE_BLOCK = 256  # threads: the registers of two such blocks are more than an SM has


class Ampere(TiledStage):
    """cp.async in several stages, two sets of fragments, blocks that stay, all four layouts."""

    below = "mma-raster"
    ceiling = "mma-sync"
    copies = PAST_REGISTERS

    acc = option("f32", choices=("f32",), help="type that sums are kept in")
    block = option("128x256", choices=("128x128", "128x256"), help="rows and columns of a block")
    tile_k = option(64, choices=(32, 64), help="depth in k of one stage")
    stages = option(4, choices=(3, 4, 5, 6, 8), help="tiles of A and B that are in flight or being read")
    group = option(8, choices=(1, 2, 4, 8, 16), help="bands of tiles that blocks walk through together")

    def tile(self, case: Case) -> tuple[int, int, int]:
        """Return what was chosen."""
        rows, cols = sizes(case.block, parts=2, what="block")
        return rows, cols, int(case.tile_k)

    def warp_tile(self, case: Case) -> tuple[int, int]:
        """Return the tile of a warp."""
        del case
        return WARP

    def ring(self, case: Case) -> int:
        """Return what was chosen."""
        return int(case.stages)

    def shared(self, case: Case) -> dict[str, int]:
        """Return the stages of A and of B."""
        rows, cols, depth = self.tile(case)
        stage = int(case.stages) * depth * ELEMENT
        return {f"{case.stages} tiles of A": rows * stage, f"{case.stages} tiles of B": cols * stage}

    def dynamic_shared_bytes(self, case: Case) -> int:
        """Return all of it: it is more than the 48 KB that a kernel can declare."""
        return sum(self.shared(case).values())

    def place(self, case: Case, line: int, chunk: int) -> int:
        """Return the place that Slab::place() says in kernel.cu for k-contiguous operands."""
        chunks = int(case.tile_k) // CHUNK
        turn = line // 2 % 4 if chunks == 4 else line % 8
        return (line * chunks + (chunk ^ turn)) * 16

    def guard(self, case: Case) -> int:
        """Return what the kernel must look out for: 0 nothing, 1 the ends of lines, 2 every element."""
        parts = zip((case.m, case.n, case.k), self.tile(case), strict=True)
        if all(size % part == 0 for size, part in parts):
            return 0
        return 1 if self.aligned(case) else 2

    def macros(self, case: Case) -> Macros:
        """Return the types, layouts, tiles and stages, and what to look out for."""
        problem = Problem.of(case)
        _, cols, depth = self.tile(case)
        return {
            **self.types(case),
            "A_K": int(not problem.a.by_columns),
            "B_K": int(problem.b.by_columns),
            "BN": cols,
            "BK": depth,
            "STAGES": int(case.stages),
            "GROUP": int(case.group),
            "GUARD": self.guard(case),
        }

    def grid(self, case: Case) -> Dim3:
        """Return as many blocks as there are at once: each computes several tiles."""
        known = machine(case.arch)
        if not known:
            return self.tiles(case), 1, 1
        held = 1 if self.threads(case) >= LARGE_BLOCK else 2
        return min(self.tiles(case), known.multiprocessors * held), 1, 1

    def claims(self, case: Case) -> dict[str, int]:
        """Return the products and loads of a tile, and the loads before the first."""
        first = sum(WARP) // FRAGMENT
        return super().claims(case) | {"LDSM": self.fragment_loads(case) + first}
