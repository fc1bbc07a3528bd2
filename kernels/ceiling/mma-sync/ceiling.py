"""The ceiling of mma.sync: m16n8k16 on random fragments in registers, with nothing to wait for."""

from __future__ import annotations

from ptxlab.experiments.base import Case, Macros
from ptxlab.experiments.gemm import TYPES
from ptxlab.experiments.gemm.ceiling import Ceiling

CHAINS = 4  # accumulators of a warp, in turn: with 8 warps the fastest (H200, 2026-11-30)
WARPS = 8


class MmaSync(Ceiling):
    """m16n8k16 on random fragments in registers, with nothing to wait for."""

    threads = 32 * WARPS
    rounds = 16384  # a millisecond
    nbytes = 32 * 12 * 4

    def macros(self, case: Case) -> Macros:
        """Return the type and the chains."""
        return {"TYPE": TYPES[case.dtype].cuda, "CHAINS": CHAINS}

    def claims(self, case: Case) -> dict[str, int]:
        """Say that it multiplies and reads no memory while it does; the loop may be unrolled."""
        del case
        return {"LDSM": 0}

    def flop(self, case: Case) -> int:
        """Return those of all warps."""
        del case
        return WARPS * CHAINS * 2 * 16 * 8 * 16
