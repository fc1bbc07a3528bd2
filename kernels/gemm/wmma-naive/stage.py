"""One warp per 16x16 tile of C, operands straight from global memory through nvcuda::wmma.

kernel.cu says the idea, what limits it, and what the next rung changes.
"""

from __future__ import annotations

from typing import ClassVar

from ptxlab.experiments.base import Case, Macros
from ptxlab.experiments.gemm import TYPES, GemmStage

TILE = 16
LAYOUTS = {True: "row_major", False: "col_major"}


class WmmaNaive(GemmStage):
    """One warp per 16x16 tile of C, operands straight from global memory through nvcuda::wmma."""

    reasons: ClassVar = {
        "l2": "nothing is shared: each warp loads its own operands, 8 FLOP for every byte",
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

    def demands(self, case: Case) -> dict[str, float]:
        """Return, beside the least, what every warp loads by itself: two 16x16 tiles a step."""
        operands = 2 * TILE * TILE * TYPES[case.dtype].nbytes
        return super().demands(case) | {"l2": float(self.tiles(case) * self.steps(case) * operands)}
