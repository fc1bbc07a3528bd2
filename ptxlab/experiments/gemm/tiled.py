"""A GEMM stage whose blocks bring tiles to shared memory, where their warps take fragments of 16x16 from."""

from __future__ import annotations

from typing import ClassVar

from ptxlab.experiments.base import Case, Macros, option
from ptxlab.experiments.gemm.machine import Machine, occupancy
from ptxlab.experiments.gemm.pipeline import Pipeline, pipeline_of, taking_turns
from ptxlab.experiments.gemm.problem import TYPES, Problem
from ptxlab.experiments.gemm.stage import GemmStage
from ptxlab.layout.banks import access, wavefronts

FRAGMENT = 16
"""Rows, columns or depth of what one ldmatrix.x4 brings to registers."""

CHUNK = 8
"""Elements in 16 bytes: what a thread copies at once."""

LAYOUTS = {True: "row_major", False: "col_major"}
"""What nvcuda::wmma calls a matrix whose rows are contiguous, or are not."""

ELEMENT = TYPES["f16"].nbytes  # of bf16 too

MMA_TILE, MMA_WARP = (128, 256, 64), (64, 64)
"""What the rungs compute that all have the same block: rows, columns and depth, of a block and of a warp."""

THROUGH_REGISTERS, PAST_REGISTERS = "ld.global, st.shared", "cp.async"
"""What copies to shared memory."""


class TiledStage(GemmStage):
    """Base of such a stage. A subclass says its tiles, and where the chunks of a line lie."""

    reasons: ClassVar = {
        "shared wavefronts": "tiles are written once, and each warp reads all its fragments there",
    }

    copies: ClassVar[str] = THROUGH_REGISTERS
    """What brings tiles to shared memory where lines are aligned."""

    def threads(self, case: Case) -> int:
        """Return the threads of as many warps as it takes to cover the block's tile."""
        rows, cols, _ = self.tile(case)
        warp_rows, warp_cols = self.warp_tile(case)
        return 32 * (rows // warp_rows) * (cols // warp_cols)

    def place(self, case: Case, line: int, chunk: int) -> int:
        """Return where 16 bytes of a line in shared memory lie, in bytes from the tile's start."""
        raise NotImplementedError("place() is missing")

    def fragment_wavefronts(self, case: Case) -> int:
        """Return the wavefronts of the ldmatrix.x4 that brings 16x16 elements, by the bank model."""
        lanes = [self.place(case, lane % 16, lane // 16) for lane in range(32)]
        return wavefronts(access("ldmatrix.x4"), lanes).wavefronts

    def fragment_loads(self, case: Case) -> int:
        """Return how many ldmatrix.x4 a warp executes per step."""
        rows, cols = self.warp_tile(case)
        return (rows + cols) // FRAGMENT * (self.tile(case)[2] // FRAGMENT)

    def fragment_products(self, case: Case) -> int:
        """Return how many m16n8k16 a warp executes per step."""
        rows, cols = self.warp_tile(case)
        return rows // 16 * (cols // 8) * (self.tile(case)[2] // 16)

    def ring(self, case: Case) -> int:
        """Return how many places there are for the tiles of a step."""
        del case
        return 1

    def ahead(self, case: Case) -> int:
        """Return how many steps before they are multiplied tiles are asked for."""
        return self.ring(case) - 1

    def pipeline(self, case: Case) -> Pipeline:
        """Return what all warps do: they copy and multiply."""
        warps, stages = self.threads(case) // 32, self.ring(case)
        parties = taking_turns(f"{warps} warps", 32 * warps, stages=stages, ahead=self.ahead(case))
        copies = self.copies if self.aligned(case) else THROUGH_REGISTERS
        return pipeline_of(self, case, stages, parties, (copies, "mma.sync", "st.global"))

    def aligned(self, case: Case) -> bool:
        """Say whether the lines of A and B start at multiples of 16 bytes."""
        problem = Problem.of(case)
        return all(each.leading_dimension % CHUNK == 0 for each in (problem.a, problem.b))

    def macros(self, case: Case) -> Macros:
        """Return the types, and whether lines can be copied 16 bytes at a time."""
        return {**self.types(case), "ALIGNED": int(self.aligned(case))}

    def claims(self, case: Case) -> dict[str, int]:
        """Return the products and the loads of fragments of one step: the loop over k is not unrolled."""
        kind = {"f16": case.acc.upper(), "bf16": "F32.BF16"}[case.dtype]
        return {f"HMMA.16816.{kind}": self.fragment_products(case), "LDSM": self.fragment_loads(case)}

    def demands(self, case: Case) -> dict[str, float]:
        """Return, beside the least, the wavefronts that shared memory takes to be written and read."""
        rows, cols, depth = self.tile(case)
        written = (rows + cols) * depth * ELEMENT / 128
        read = self.threads(case) // 32 * self.fragment_loads(case) * self.fragment_wavefronts(case)
        steps = self.tiles(case) * self.steps(case)
        return super().demands(case) | {"shared wavefronts": float(steps * (written + read))}

    def remarks(self, case: Case) -> list[str]:
        """Return that elements come one by one where lines do not start at multiples of 16 bytes."""
        if self.aligned(case):
            return []
        return [f"a leading dimension is no multiple of {CHUNK}: A and B are copied element by element"]


class MmaStage(TiledStage):
    """Base of a stage whose block of 8 warps has two places for its tiles, with lines of 64 elements.

    Lines stand one after the other, ``padding`` bytes between them; a subclass may say another order.
    """

    padding: ClassVar[int] = 0

    ceiling = "mma-sync"

    acc = option("f32", choices=("f32",), help="type that sums are kept in")
    layout = option("tn", choices=("tn",), help="A and B k-contiguous, as ldmatrix wants them untransposed")

    def tile(self, case: Case) -> tuple[int, int, int]:
        """Return the tile of a block."""
        del case
        return MMA_TILE

    def warp_tile(self, case: Case) -> tuple[int, int]:
        """Return the tile of a warp."""
        del case
        return MMA_WARP

    def ring(self, case: Case) -> int:
        """Return two places."""
        del case
        return 2

    def line_bytes(self) -> int:
        """Return how far one line lies from the next."""
        return MMA_TILE[2] * ELEMENT + self.padding

    def shared(self, case: Case) -> dict[str, int]:
        """Return two places for the tiles of A and of B."""
        del case
        a, b = (2 * lines * self.line_bytes() for lines in MMA_TILE[:2])
        return {"two tiles of A": a, "two tiles of B": b}

    def dynamic_shared_bytes(self, case: Case) -> int:
        """Return all of it: it is more than the 48 KB that a kernel can declare."""
        return sum(self.shared(case).values())

    def place(self, case: Case, line: int, chunk: int) -> int:
        """Return the place that place_of() says in kernel.cu."""
        del case
        return line * self.line_bytes() + chunk * 16


def swizzled(line: int, chunk: int) -> int:
    """Return where a chunk lies whose line, of 128 bytes, is in XOR order: that of SWIZZLE_128B."""
    return line * 128 + (chunk ^ line % 8) * 16


def wmma_macros(case: Case) -> Macros:
    """Return which way each operand is contiguous, in the words of nvcuda::wmma."""
    a, b = case.layout
    return {"A_LAYOUT": LAYOUTS[a == "t"], "B_LAYOUT": LAYOUTS[b == "t"]}


def padded_elements(size: int, depth: int, *, k_contiguous: bool) -> int:
    """Return the elements of a tile, size x depth, whose lines are padded by 16 bytes."""
    lines, width = (size, depth) if k_contiguous else (depth, size)
    return lines * (width + CHUNK)


def blocks_by_shared_memory(machine: Machine, threads: int, shared_bytes: int) -> int:
    """Return how many blocks an SM holds as far as its shared memory goes."""
    held = occupancy(machine.limits, threads=threads, registers=1, shared_bytes=shared_bytes)
    return held.by["shared memory"]
