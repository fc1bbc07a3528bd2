"""One warp per 16x16 tile of C, operands straight from global memory through nvcuda::wmma.

kernel.cu says the idea, what limits it, what was measured, and what the next rung changes.
"""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

from ptxlab.experiments.base import Case, Macros
from ptxlab.experiments.gemm import TYPES, GemmStage, Problem
from ptxlab.experiments.gemm.pipeline import Pipeline, pipeline_of, taking_turns

TILE = 16
PIECES = 8  # of 16 bytes, each from another line of the matrix: what one load instruction gathers
LOADS = 4  # such instructions for a 16x16 tile
LAYOUTS = {True: "row_major", False: "col_major"}


class WmmaNaive(GemmStage):
    """One warp per 16x16 tile of C, operands straight from global memory through nvcuda::wmma."""

    ceiling = "mma-sync"

    reasons: ClassVar = {
        "l1 wavefronts": "each load gathers 8 pieces of 16 bytes from 8 lines; those at the same place of "
        "their cache lines are in the same banks and come one after the other",
    }

    def tile(self, case: Case) -> tuple[int, int, int]:
        """Return the tile of a block, which is one warp: what wmma multiplies at once."""
        del case
        return TILE, TILE, TILE

    def pipeline(self, case: Case) -> Pipeline:
        """Return what the warp does with its one set of registers."""
        parties = taking_turns("warp", self.threads(case), stages=1, ahead=0)
        return pipeline_of(self, case, 1, parties, ("ld.global", "mma.sync", "st.global"))

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
            **self.types(case),
            "A_LAYOUT": LAYOUTS[case.layout[0] == "t"],
            "B_LAYOUT": LAYOUTS[case.layout[1] == "t"],
        }

    def claims(self, case: Case) -> dict[str, int]:
        """Return two HMMA.16816 for a 16x16x16 step, and one LDSM for each operand's tails.

        For bf16 the compiler makes plain loads of wmma's, from shared memory too (NVRTC 13.0).
        """
        if case.dtype == "bf16":
            return {"HMMA.16816.F32.BF16": 2, "LDSM": 0}
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
        """Return, beside the least, the wavefronts that the loads of all warps take in the L1."""
        problem = Problem.of(case)
        per_step = sum(wavefronts(each.leading_dimension) for each in (problem.a, problem.b))
        return super().demands(case) | {
            "l1 wavefronts": float(self.tiles(case) * self.steps(case) * per_step)
        }


def wavefronts(leading_dimension: int) -> int:
    """Return how many cycles the L1's data banks take to deliver one tile of an operand.

    The banks hold a 128-byte line side by side, so pieces at the same place of different lines take turns,
    as in shared memory: 8 turns when the leading dimension is a multiple of 64 elements. Where tiles pass
    through shared memory it is 8 loads and 8 stores of 2-byte elements, and 4 wavefronts of LDSM.

    Measured by ncu (l1tex__data_pipe_lsu_wavefronts over load requests, C included, H200, 2026-11-30): 8.3 a
    load at 2048, as said here; 4.4 at 2896 and 3.7 at 2904, where this says 2 and 1. So something else of the
    L1 takes about 4 a load, and away from multiples of 64 the limit told here is one that no kernel reaches.
    """
    if leading_dimension % 8:
        return 8 + 8 + 4
    places = Counter(piece * leading_dimension * 2 % 128 for piece in range(PIECES))
    return LOADS * max(places.values())
