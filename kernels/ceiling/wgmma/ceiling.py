"""The ceiling of wgmma: m64n256k16 on random data in shared memory, from two warpgroups, and nothing else."""

from __future__ import annotations

from ptxlab.experiments.base import Case, Macros
from ptxlab.experiments.gemm.ceiling import Ceiling

GROUPS, ROWS, COLS, DEPTH = 2, 64, 256, 64
ELEMENTS = (GROUPS * ROWS + COLS) * DEPTH


class Wgmma(Ceiling):
    """m64n256k16 on random data in shared memory, from two warpgroups."""

    only = "sm_90a"
    threads = 128 * GROUPS
    rounds = 2000  # a millisecond
    elements = ELEMENTS
    shared_bytes = 2 * ELEMENTS + 1024  # as the tiles begin at a multiple of 1024

    def macros(self, case: Case) -> Macros:
        """Return the type, as ptxlab/wgmma.cuh calls it."""
        return {"TYPE": case.dtype}

    def claims(self, case: Case) -> dict[str, int]:
        """Return one instruction for each 16 of the depth."""
        del case
        return {"HGMMA.64x256x16": DEPTH // 16}

    def flop(self, case: Case) -> int:
        """Return those of both warpgroups."""
        del case
        return 2 * GROUPS * ROWS * COLS * DEPTH
