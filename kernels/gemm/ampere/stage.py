"""cp.async in several stages, tall tiles, blocks that stay, a barrier in two halves: all mma.sync can have.

kernel.cu says the idea, what limits it, and what the next rung changes.

Measured (NVIDIA H200, 2026-11-30; tn, normal values, cold, all rungs in turn in one run): 428, 438 and 441
TFLOP/s with bf16 at 2048, 4096 and 8192 cubed, 425 and 427 with f16 at 4096 and 8192. Over mma-raster that
is +48, +43 and +41 %, +41 and +38 %. The tensor cores, the limit that is predicted, are used to 79, 86 and
87 % of what mma.sync alone reached in the same run, with f16 to 88 %. That ceiling itself would be 69 % of
the faster library at 4096, of which this rung has 60: two thirds of what wgmma can do.
"""

from __future__ import annotations

from ptxlab.device.job import Dim3
from ptxlab.experiments.base import Case, Macros, option, sizes
from ptxlab.experiments.gemm import Problem
from ptxlab.experiments.gemm.machine import machine
from ptxlab.experiments.gemm.tiled import CHUNK, ELEMENT, FRAGMENT, PAST_REGISTERS, TiledStage
from ptxlab.toolchain.arch import base_number

TALL, SHORT = 192, 128  # rows of a tile
TALL_SINCE = 90  # ptxas 13.0 spills 8 bytes of them for sm_80
WARPS_DOWN, WARP_COLS = 2, 64  # a warp has half of a tile's rows
BARRIER_BYTES = 8
MOST_SPLITS = 1024  # that are looked at; matrices of millions of rows have more, which differ little
FIRST_ROWS = 32  # of A, whose fragments come before a tile's first step


class Ampere(TiledStage):
    """cp.async in several stages, tall tiles, blocks that stay, a barrier in two halves, all four layouts."""

    below = "mma-raster"
    ceiling = "mma-sync"
    copies = PAST_REGISTERS

    acc = option("f32", choices=("f32",), help="type that sums are kept in")
    block = option(
        "192x256",
        choices=("128x128", "128x256", "192x256"),
        help="rows and columns of a tile; beside those of 192 rows there may be some of 128",
    )
    tile_k = option(64, choices=(32, 64), help="depth in k of one stage (64: from sm_90 on)")
    stages = option(4, choices=(4, 5, 6, 8), help="tiles of A and B that are in flight or being read")
    group = option(8, choices=(1, 2, 4, 8, 16), help="bands of tiles that blocks walk through together")
    barrier = option("split", choices=("split", "block"), help="say and ask apart, or __syncthreads()")

    def ring(self, case: Case) -> int:
        """Return what was chosen."""
        return int(case.stages)

    def ahead(self, case: Case) -> int:
        """Return one step less than there is room for: warps that are behind still read the tiles before."""
        return self.ring(case) - 2

    def bands(self, case: Case) -> tuple[int, int]:
        """Return how many bands of 192 rows C has, and how many of 128 below them.

        It is the split that leaves the busiest block the least to do, of those the one with the most tall
        bands. All are short where tiles reach past an end of a matrix, where A is m-contiguous, and before
        Hopper: that takes registers, of which tall tiles leave none.
        """
        rows, cols = sizes(case.block, parts=2, what="block")
        short = -(-int(case.m) // SHORT)
        old = base_number(case.arch) < TALL_SINCE
        if rows == SHORT or old or case.layout[0] == "n" or not self._whole(case):
            return 0, short
        across, most = -(-int(case.n) // cols), int(case.m) // TALL
        splits = (
            (tall, (int(case.m) - tall * TALL) // SHORT)
            for tall in range(most, max(most - MOST_SPLITS, -1), -1)
            if (int(case.m) - tall * TALL) % SHORT == 0
        )
        return min(splits, key=lambda split: self._rows_of_busiest(case, across, *split))

    def _rows_of_busiest(self, case: Case, across: int, tall: int, short: int) -> int:
        """Return the rows of all tiles of the first block. Tall tiles are dealt out first."""
        slots = self._slots(case)
        most_tall, most = (-(-bands * across // slots) for bands in (tall, tall + short))
        return most_tall * TALL + (most - most_tall) * SHORT

    def _slots(self, case: Case) -> int:
        """Return how many blocks there are at once; where the GPU is not known, as many as can be."""
        known, warps = machine(case.arch), self.threads(case) // 32
        return known.multiprocessors * (1 if warps > WARPS_DOWN * 2 else 2) if known else 2**31 - 1

    def tile_kinds(self, case: Case) -> dict[tuple[int, int], int]:
        """Return the tall tiles and the short ones."""
        cols = sizes(case.block, parts=2, what="block")[1]
        across = -(-int(case.n) // cols)
        bands = zip((TALL, SHORT), self.bands(case), strict=True)
        return {(rows, cols): count * across for rows, count in bands if count}

    def tiles(self, case: Case) -> int:
        """Return how many tiles cover C."""
        return sum(self.tile_kinds(case).values())

    def tile(self, case: Case) -> tuple[int, int, int]:
        """Return the tallest tile that there is."""
        rows, cols = sizes(case.block, parts=2, what="block")
        return TALL if rows == TALL and self.bands(case)[0] else SHORT, cols, int(case.tile_k)

    def warp_tile(self, case: Case) -> tuple[int, int]:
        """Return the tile of a warp."""
        return self.tile(case)[0] // WARPS_DOWN, WARP_COLS

    def threads(self, case: Case) -> int:
        """Return the threads of a block, whatever the height of its tiles."""
        return 32 * WARPS_DOWN * (sizes(case.block, parts=2, what="block")[1] // WARP_COLS)

    def shared(self, case: Case) -> dict[str, int]:
        """Return the stages of A and of B, and the barrier that is asked."""
        rows, cols, depth = self.tile(case)
        stage = int(case.stages) * depth * ELEMENT
        tiles = {f"{case.stages} tiles of A": rows * stage, f"{case.stages} tiles of B": cols * stage}
        return tiles | ({"barrier": BARRIER_BYTES} if case.barrier == "split" else {})

    def dynamic_shared_bytes(self, case: Case) -> int:
        """Return all of it: it is more than the 48 KB that a kernel can declare."""
        return sum(self.shared(case).values())

    def place(self, case: Case, line: int, chunk: int) -> int:
        """Return the place that Slab::place() says in kernel.cu for k-contiguous operands."""
        chunks = int(case.tile_k) // CHUNK
        turn = line // 2 % 4 if chunks == 4 else line % 8
        return (line * chunks + (chunk ^ turn)) * 16

    def _whole(self, case: Case) -> bool:
        """Say whether tiles cover the matrices without reaching past an end, short ones at the latest."""
        cols = sizes(case.block, parts=2, what="block")[1]
        parts = (SHORT, cols, int(case.tile_k))
        return all(size % part == 0 for size, part in zip((case.m, case.n, case.k), parts, strict=True))

    def guard(self, case: Case) -> int:
        """Return what the kernel must look out for: 0 nothing, 1 the ends of lines, 2 every element."""
        if self._whole(case):
            return 0
        return 1 if self.aligned(case) else 2

    def macros(self, case: Case) -> Macros:
        """Return the types, layouts, tiles and stages, and what to look out for."""
        tall, short = self.bands(case)
        problem = Problem.of(case)
        return {
            **self.types(case),
            "A_K": int(not problem.a.by_columns),
            "B_K": int(problem.b.by_columns),
            "BN": self.tile(case)[1],
            "BK": int(case.tile_k),
            "TALL_BANDS": tall,
            "SHORT_BANDS": int(short > 0),
            "STAGES": int(case.stages),
            "GROUP": int(case.group),
            "SPLIT": int(case.barrier == "split"),
            "GUARD": self.guard(case),
        }

    def grid(self, case: Case) -> Dim3:
        """Return as many blocks as there are at once: each computes several tiles."""
        return min(self.tiles(case), self._slots(case)), 1, 1

    def demands(self, case: Case) -> dict[str, float]:
        """Return, beside the least, the wavefronts of tall and of short tiles."""
        depth, wavefronts = int(case.tile_k), self.fragment_wavefronts(case)
        shared = 0.0
        for (rows, cols), count in self.tile_kinds(case).items():
            written = (rows + cols) * depth * ELEMENT / 128
            read = self.threads(case) // 32 * _loads(rows, depth) * wavefronts
            shared += count * self.steps(case) * (written + read)
        return super().demands(case) | {"shared wavefronts": shared}

    def claims(self, case: Case) -> dict[str, int]:
        """Return the products and loads of a loop for each height, and the loads before it."""
        heights, depth = [rows for rows, _ in self.tile_kinds(case)], int(case.tile_k)
        kind = {"f16": "F32", "bf16": "F32.BF16"}[case.dtype]
        products = sum(rows // WARPS_DOWN // 16 * (WARP_COLS // 8) * (depth // 16) for rows in heights)
        first = (FIRST_ROWS + WARP_COLS) // FRAGMENT
        return {
            f"HMMA.16816.{kind}": products,
            "LDSM": sum(_loads(rows, depth) + first for rows in heights),
        }


def _loads(rows: int, depth: int) -> int:
    """Return the ldmatrix.x4 of a warp for one step of a tile."""
    return (rows // WARPS_DOWN + WARP_COLS) // FRAGMENT * (depth // FRAGMENT)
