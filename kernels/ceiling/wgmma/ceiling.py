"""The ceiling of wgmma: m64n256 on random data in shared memory, from two warpgroups, and nothing else."""

from __future__ import annotations

from ptxlab.experiments.base import Case, Macros, option
from ptxlab.experiments.gemm.ceiling import Ceiling
from ptxlab.experiments.gemm.problem import TYPES
from ptxlab.isa.wgmma import WgmmaForm

GROUPS, ROWS, COLS = 2, 64, 256
INSTRUCTIONS = 4  # of a round in each warpgroup, which take the 128 bytes of a line
NBYTES = (GROUPS * ROWS + COLS) * 128


class Wgmma(Ceiling):
    """m64n256 on random data in shared memory, from two warpgroups."""

    only = "sm_90a"
    threads = 128 * GROUPS
    rounds = 2000  # a millisecond, two of tf32
    nbytes = NBYTES
    shared_bytes = NBYTES + 1024  # as the tiles begin at a multiple of 1024
    dtype = option("f16", choices=("f16", "bf16", "tf32", "s8", "e4m3", "e5m2"), help="type of A and B")

    def form(self, case: Case) -> WgmmaForm:
        """Return the instruction."""
        return WgmmaForm(COLS, case.dtype, case.dtype, TYPES[case.dtype].sums)

    def macros(self, case: Case) -> Macros:
        """Return the types, as ptxlab/wgmma.cuh calls them."""
        return {"TYPE": case.dtype, "SUMS": self.form(case).acc}

    def claims(self, case: Case) -> dict[str, int]:
        """Return the instructions of a round."""
        return {self.form(case).sass: INSTRUCTIONS}

    def flop(self, case: Case) -> int:
        """Return those of both warpgroups."""
        return 2 * GROUPS * ROWS * COLS * INSTRUCTIONS * self.form(case).k
