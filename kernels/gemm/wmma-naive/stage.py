"""One warp per 16x16 tile of C, operands straight from global memory through nvcuda::wmma.

kernel.cu says the idea, what limits it, and what the next rung changes.
"""

from __future__ import annotations

from typing import ClassVar

from ptxlab.experiments.base import Case, Macros
from ptxlab.experiments.gemm import TYPES, GemmStage, Problem

TILE = 16
LOADS = 4  # instructions that bring a 16x16 tile of 16-bit elements into a fragment
LINES = 8  # cache lines that each of them touches
LAYOUTS = {True: "row_major", False: "col_major"}


class WmmaNaive(GemmStage):
    """One warp per 16x16 tile of C, operands straight from global memory through nvcuda::wmma."""

    reasons: ClassVar = {
        "l1 lines": "a warp gathers its tiles in pieces of 16 bytes: 8 loads a step, 8 lines each",
    }

    def tile(self, case: Case) -> tuple[int, int, int]:
        """Return the tile of a block, which is one warp: what wmma multiplies at once."""
        del case
        return TILE, TILE, TILE

    def threads(self, case: Case) -> int:
        """Return one warp."""
        del case
        return 32

    def shared(self, case: Case) -> dict[str, int]:
        """Return the tiles that tails of A and B, and every tile of C, pass through."""
        area = TILE * TILE
        operand, sums = area * TYPES[case.dtype].nbytes, area * TYPES[case.acc].nbytes
        return {"tail of A": operand, "tail of B": operand, "C before conversion": sums}

    def macros(self, case: Case) -> Macros:
        """Return the types, and which way each operand is contiguous."""
        return {
            "ACCUMULATE": TYPES[case.acc].cuda,
            "OUT": TYPES[case.out].cuda,
            "A_LAYOUT": LAYOUTS[case.layout[0] == "t"],
            "B_LAYOUT": LAYOUTS[case.layout[1] == "t"],
        }

    def claims(self, case: Case) -> dict[str, int]:
        """Return two HMMA.16816 for a 16x16x16 step, and one LDSM for each operand's tails."""
        return {f"HMMA.16816.{case.acc.upper()}": 2, "LDSM": 2}

    def remarks(self, case: Case) -> list[str]:
        """Return which operands cannot be loaded straight from global memory."""
        problem = Problem.of(case)
        leading = {"A": problem.a.leading_dimension, "B": problem.b.leading_dimension}
        return [
            f"{name}'s leading dimension {size} is no multiple of 8, so its tiles pass through shared memory"
            for name, size in leading.items()
            if size % 8
        ]

    def demands(self, case: Case) -> dict[str, float]:
        """Return, beside the least, the cache lines that the loads of all warps look up.

        A lane loads 4 bytes and 4 lanes a piece of 16, so a load of a warp touches 8 lines; a step
        takes 4 loads for each operand, in every layout. Tails are counted like whole tiles.
        """
        lines = self.tiles(case) * self.steps(case) * 2 * LOADS * LINES
        return super().demands(case) | {"l1 lines": float(lines)}
