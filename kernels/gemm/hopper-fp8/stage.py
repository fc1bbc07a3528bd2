"""8-bit floats in persistent clusters, their sums kept in the tensor cores or promoted to float32.

kernel.cu says how it works.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

from ptxlab.errors import UsageError
from ptxlab.experiments.base import Case, Macros, Value, option, sizes
from ptxlab.experiments.gemm.fused import FusedStage
from ptxlab.experiments.gemm.machine import LIMITS, SHARED_RESERVED
from ptxlab.experiments.gemm.pipeline import Warpgroups
from ptxlab.experiments.gemm.plan import COOPERATIVE, PING_PONG, SINGLE, Plan
from ptxlab.experiments.gemm.wgmma import BARRIER, INSTRUCTION_ROWS, LINE, WARPGROUP, WIDEST, ClusterStage

FAST, PROMOTED = "fast", "promoted"
ROLES = (COOPERATIVE, PING_PONG, SINGLE)

AUTO = "auto"
WAYS = {
    FAST: (("128x128", PING_PONG, "2x1"), ("128x192", PING_PONG, "2x1"), ("128x256", COOPERATIVE, "2x1")),
    PROMOTED: (("128x128", SINGLE, "1x1"), ("128x192", COOPERATIVE, "2x1"), ("128x256", COOPERATIVE, "2x1")),
}
"""By accumulation: blocks, what their consumers do, and the cluster that was the fastest with them."""

LONGER = 1.08
"""What the model adds for a consumer that waits for its products twice a step, by timings at 4096 and 8192
cubed (H200, 2026-11-30).
"""

CHOSEN = ("block", "roles", "cluster_shape")
"""The options that are one of these ways where they are left open: the model of plans takes it."""

BLOCKS = ("128x128", "128x192", "128x256", "256x128")
REGISTERS = {1: (24, 232), 2: (24, 240)}
"""By consumers: of a producer's thread and of a consumer's; all start with what they share."""

MOST_SUMS = 192
"""Registers of a thread that hold sums, and parts of sums, beside everything else."""

MOST_SCALED = 160
"""Sums beside which there is room for factors and what C held, or for a bias, as compiled."""


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
    roles = option(AUTO, choices=(AUTO, *ROLES), help="consumers share a tile, have one each, or are one")
    cluster_shape = option(
        AUTO, choices=(AUTO, "1x1", "1x2", "2x1"), help="tiles of a cluster, down and across"
    )

    def complete(self, params: dict[str, Value]) -> None:
        """Fill in what was left open: the way that the model thinks fastest."""
        m, n, k, blocks = (max(1, int(params[name] or 1)) for name in ("m", "n", "k", "blocks"))
        size = m, n, -(-k // 2)  # of a model that counts in 16-bit elements
        asked = [params[name] for name in CHOSEN]

        def cycles(way: tuple[str, str, str]) -> float:
            rows, cols = sizes(way[0], parts=2, what="block")
            plan = Plan(rows, cols, way[1], down=2, across=1, splits=1)
            return plan.cycles(size, blocks) * (LONGER if way[1] == SINGLE else 1.0)

        ways = WAYS[str(params["accumulate"])]
        fit = [way for way in ways if _agree(asked, way) and _sums(*way[:2]) <= _most_sums(way[1], params)]
        best = min(fit, key=cycles, default=(BLOCKS[0], COOPERATIVE, "2x1"))
        for name, value in zip(CHOSEN, best, strict=True):
            params[name] = value if params[name] == AUTO else params[name]

    def variants(self, arch: str) -> Iterator[Case]:
        """Yield, beside what every stage yields, each way to promote."""
        points = list(super().variants(arch))
        for block, role in product(BLOCKS, ROLES):
            points += self._legal(arch, {"accumulate": PROMOTED, "block": block, "roles": role})
        yield from {case.key: case for case in points}.values()

    def of_block(self, case: Case) -> int:
        """Return the consumers of a block."""
        return 1 if str(case.roles) == SINGLE else 2

    def of_an_sm(self, case: Case) -> int:
        """Return how many blocks an SM has room for: of those with one consumer two."""
        return 2 // self.of_block(case)

    def consumers(self, case: Case) -> int:
        """Return the warpgroups that multiply a tile together."""
        return 1 if str(case.roles) == PING_PONG else self.of_block(case)

    def threads(self, case: Case) -> int:
        """Return the threads of the producer and of the consumers."""
        return WARPGROUP * (1 + self.of_block(case))

    def ring(self, case: Case) -> int:
        """Return as many stages as fit beside the panels of C."""
        rows, cols, _ = self.tile(case)
        room = LIMITS[90].shared_bytes // self.of_an_sm(case) - SHARED_RESERVED
        return int((room - self.staging(case) - 2 * BARRIER) // ((rows + cols) * LINE + 2 * BARRIER))

    def barriers(self, case: Case) -> int:
        """Return, beside the ring's, those by which consumers take turns."""
        return super().barriers(case) + 2

    def parts(self, case: Case) -> int:
        """Return how many instructions beside each other cover the columns of a tile."""
        cols = self.tile(case)[1]
        return -(-cols // (WIDEST // 2 if self._narrow(case) else WIDEST))

    def _narrow(self, case: Case) -> bool:
        """Return whether a whole line of instructions would have too many parts of sums."""
        return str(case.accumulate) == PROMOTED and 2 * _sums(case.block, case.roles) > MOST_SUMS

    def instruction(self, case: Case) -> tuple[int, int]:
        """Return the n of a wgmma, and how many of them cover a warpgroup's part of a tile."""
        rows, cols, _ = self.tile(case)
        high, parts = rows // self.consumers(case) // INSTRUCTION_ROWS, self.parts(case)
        return cols // parts, high * parts

    def check(self, case: Case) -> None:
        """Refuse, beside what no such stage takes, what does not go together.

        Raises:
            UsageError: sums are too many, or consumers that promote would take turns.

        """
        super().check(case)
        promoted = str(case.accumulate) == PROMOTED
        if promoted and str(case.roles) == PING_PONG:
            legal = f"--set roles={COOPERATIVE}, {SINGLE}"
            raise UsageError(f"accumulate={PROMOTED}: one multiplies while the other adds; legal: {legal}")
        sums, most = _sums(case.block, case.roles), _most_sums(str(case.roles), case.params)
        held = sums + (self.instruction(case)[0] // 2 if promoted else 0)
        if sums > most or held > MOST_SUMS:
            raise UsageError(
                f"block {case.block}, {case.roles}: {held} sums a thread leave too few registers for the rest"
                f"; legal: at most {most}"
            )

    def groups(self, case: Case) -> Warpgroups:
        """Return, beside how many there are, whether they promote."""
        promotes = str(case.accumulate) == PROMOTED
        return replace(super().groups(case), promotes=promotes, turns=False)

    def programmatic(self, case: Case) -> bool:
        """Return that it may start while the kernel ahead still runs."""
        del case
        return True

    def macros(self, case: Case) -> Macros:
        """Return all that the kernel must know; operands are always contiguous in k."""
        of_any = super().macros(case)
        producer, consumer = REGISTERS[self.of_block(case)]
        return {name: value for name, value in of_any.items() if name not in ("A_K", "B_K")} | {
            "STAGES": self.ring(case),
            "PARTS": self.parts(case),
            "PROMOTED": int(str(case.accumulate) == PROMOTED),
            "CONSUMERS": self.of_block(case),
            "PINGPONG": int(str(case.roles) == PING_PONG),
            "PRODUCER_REGISTERS": producer,
            "CONSUMER_REGISTERS": consumer,
        }


def _sums(block: str, role: str) -> int:
    """Return the registers of a thread that hold sums."""
    rows, cols = sizes(block, parts=2, what="block")
    return rows * cols // WARPGROUP // (2 if role == COOPERATIVE else 1)


def _most_sums(role: str, params: Mapping[str, Value]) -> int:
    """Return the sums that leave a thread enough registers for what becomes of them, as compiled.

    Of one consumer with 192, ptxas 13.0 spills 8 to 48 bytes where a bias follows.
    """
    scaled = (params["alpha"], params["beta"]) != (1.0, 0.0)
    return MOST_SCALED if scaled or (role == SINGLE and params["bias"] == "yes") else MOST_SUMS


def _agree(asked: Sequence[Value], way: tuple[str, str, str]) -> bool:
    """Say whether block and roles are what was asked for, as far as they were; any cluster goes with them."""
    return all(each in (AUTO, own) for each, own in zip(asked[:2], way[:2], strict=True))
