"""8-bit floats in persistent clusters, their sums kept in the tensor cores or promoted to float32.

kernel.cu says how it works.
"""

from __future__ import annotations

from dataclasses import replace

from ptxlab.errors import UsageError
from ptxlab.experiments.base import Case, Macros, Value, option
from ptxlab.experiments.gemm.fused import FusedStage
from ptxlab.experiments.gemm.machine import LIMITS
from ptxlab.experiments.gemm.pipeline import Warpgroups
from ptxlab.experiments.gemm.wgmma import BARRIER, INSTRUCTION_ROWS, LINE, WARPGROUP, WIDEST, ClusterStage

FAST, PROMOTED = "fast", "promoted"
COOPERATIVE, PING_PONG = "cooperative", "ping-pong"
CONSUMERS = 2

AUTO = "auto"
BEST = {FAST: ("128x256", COOPERATIVE), PROMOTED: ("128x192", COOPERATIVE)}
"""By accumulation: the block, and what consumers do."""

BLOCKS = ("128x128", "128x192", "128x256", "256x128")
REGISTERS = (24, 240)
"""Of a producer's thread and of a consumer's; all 384 start with 168, which is what they share."""

MOST_SUMS = 192
"""Registers of a thread that hold sums, and parts of sums, beside everything else."""


class HopperFp8(FusedStage, ClusterStage):
    """8-bit floats in persistent clusters, their sums kept in the tensor cores or promoted to float32."""

    below = "hopper"
    ceiling = "wgmma"
    granule = 16
    dtype = option("e4m3", choices=("e4m3", "e5m2"), help="type of A and B")
    out = option("bf16", choices=("bf16", "f16", "f32"), help="type of C")
    layout = option("tn", choices=("tn",), help="A then B; wgmma reads 8 bits contiguous in k alone")
    accumulate = option(
        FAST, choices=(FAST, PROMOTED), help="in the tensor cores, or every 128 of k in float32"
    )
    block = option(AUTO, choices=(AUTO, *BLOCKS), help="rows and columns of a block")
    roles = option(
        AUTO, choices=(AUTO, COOPERATIVE, PING_PONG), help="consumers share a tile, or have one each"
    )
    cluster_shape = option("2x1", choices=("1x1", "1x2", "2x1"), help="tiles of a cluster, down and across")

    turns = option("yes", choices=("yes", "no"), help="of two that promote, one adds, the other multiplies")

    def complete(self, params: dict[str, Value]) -> None:
        """Fill in the block and the roles that were left open."""
        block, role = BEST[str(params["accumulate"])]
        params["block"] = block if params["block"] == AUTO else params["block"]
        params["roles"] = role if params["roles"] == AUTO else params["roles"]

    def consumers(self, case: Case) -> int:
        """Return the warpgroups that multiply a tile together."""
        return 1 if str(case.roles) == PING_PONG else CONSUMERS

    def threads(self, case: Case) -> int:
        """Return the threads of the producer and of the consumers."""
        del case
        return WARPGROUP * (1 + CONSUMERS)

    def ring(self, case: Case) -> int:
        """Return as many stages as fit beside the panels of C."""
        rows, cols, _ = self.tile(case)
        room = LIMITS[90].shared_of_block - self.staging(case) - 2 * BARRIER
        return int(room // ((rows + cols) * LINE + 2 * BARRIER))

    def barriers(self, case: Case) -> int:
        """Return, beside the ring's, those by which consumers take turns."""
        return super().barriers(case) + 2

    def parts(self, case: Case) -> int:
        """Return how many instructions beside each other cover the columns of a tile."""
        cols = self.tile(case)[1]
        return -(-cols // (WIDEST // 2 if self._narrow(case) else WIDEST))

    def _narrow(self, case: Case) -> bool:
        """Return whether a whole line of instructions would have too many parts of sums."""
        return str(case.accumulate) == PROMOTED and 2 * self._sums(case) > MOST_SUMS

    def _sums(self, case: Case) -> int:
        """Return the registers of a thread that hold sums."""
        rows, cols, _ = self.tile(case)
        return rows * cols // WARPGROUP // self.consumers(case)

    def instruction(self, case: Case) -> tuple[int, int]:
        """Return the n of a wgmma, and how many of them cover a warpgroup's part of a tile."""
        rows, cols, _ = self.tile(case)
        high, parts = rows // self.consumers(case) // INSTRUCTION_ROWS, self.parts(case)
        return cols // parts, high * parts

    def check(self, case: Case) -> None:
        """Refuse, beside what no such stage takes, what does not go together.

        Raises:
            UsageError: sums are too many, or consumers that take turns have tiles of their own.

        """
        super().check(case)
        promoted = str(case.accumulate) == PROMOTED
        if promoted and str(case.roles) == PING_PONG:
            raise UsageError(
                f"accumulate={PROMOTED}: consumers take turns in one tile; legal: --set roles={COOPERATIVE}"
            )
        sums = self._sums(case)
        held = sums + (self.instruction(case)[0] // 2 if promoted else 0)
        if held > MOST_SUMS:
            raise UsageError(
                f"block {case.block}, {case.roles}: {held} sums a thread leave too few registers for the rest"
                f"; legal: at most {MOST_SUMS}"
            )

    def groups(self, case: Case) -> Warpgroups:
        """Return, beside how many warpgroups do what, whether they promote, and by turns."""
        promotes, turns = str(case.accumulate) == PROMOTED, str(case.turns) == "yes"
        return replace(super().groups(case), promotes=promotes, turns=turns)

    def programmatic(self, case: Case) -> bool:
        """Return that it may start while the kernel ahead still runs."""
        del case
        return True

    def macros(self, case: Case) -> Macros:
        """Return all that the kernel must know; operands are always contiguous in k."""
        of_any = super().macros(case)
        producer, consumer = REGISTERS
        return {name: value for name, value in of_any.items() if name not in ("A_K", "B_K")} | {
            "STAGES": self.ring(case),
            "PARTS": self.parts(case),
            "TURNS": int(str(case.turns) == "yes"),
            "PROMOTED": int(str(case.accumulate) == PROMOTED),
            "PINGPONG": int(str(case.roles) == PING_PONG),
            "PRODUCER_REGISTERS": producer,
            "CONSUMER_REGISTERS": consumer,
        }
