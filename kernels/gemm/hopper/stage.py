"""Everything together: a persistent, warp-specialized kernel in clusters that writes C by TMA.

kernel.cu says how it works.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from ptxlab.device.job import Argument, Buffer
from ptxlab.errors import UsageError
from ptxlab.experiments.base import Case, Macros, Value, option, sizes
from ptxlab.experiments.gemm import TYPES
from ptxlab.experiments.gemm.machine import LIMITS
from ptxlab.experiments.gemm.plan import SPLITS, Plan, plans
from ptxlab.experiments.gemm.wgmma import (
    BARRIER,
    DEPTH,
    ELEMENT,
    INSTRUCTION_ROWS,
    LARGEST_BOX,
    WARPGROUP,
    ClusterStage,
)

CONSUMERS = 2  # warpgroups
REGISTERS = {
    "64x128": (40, 232),
    "64x256": (40, 232),
    "128x128": (40, 232),
    "128x192": (40, 232),
    "128x256": (40, 232),
    "128x320": (24, 240),
    "256x128": (40, 232),
    "256x192": (24, 240),
}
"""By block: of a producer's thread and of a consumer's; all 384 start with 168, which is what they share."""
MOST_SUMS = 192
"""Registers for them that leave a thread enough for everything else."""
AUTO = "auto"
ROLES = ("cooperative", "ping-pong")


class Hopper(ClusterStage):
    """Persistent and warp-specialized, in clusters that share tiles, with C written by TMA."""

    block = option(AUTO, choices=(AUTO, *REGISTERS), help="rows and columns of a block")
    roles = option(AUTO, choices=(AUTO, *ROLES), help="consumers share a tile, or have one each")
    cluster_shape = option(
        AUTO, choices=(AUTO, "1x1", "1x2", "2x1"), help="blocks that share tiles, down and across"
    )
    splits = option(
        0, choices=(0, *SPLITS), help="parts of k, each for another block, added in their order; 0: auto"
    )
    stages = option(0, choices=(0, 2, 3, 4, 5, 6), help="of the ring of tiles; 0: all that fit")
    early = option("yes", choices=("yes", "no"), help="starts while the kernel ahead runs, if it may")

    def complete(self, params: dict[str, Value]) -> None:
        """Fill in what was left to the model: the plan that it takes for the fastest."""
        given = {name: value for name, value in params.items() if name in FALLBACK and value not in (AUTO, 0)}
        chosen = min(self._ways(params, given), key=lambda way: way[0], default=(0.0, FALLBACK | given))[1]
        params.update(chosen)

    def _ways(
        self, params: dict[str, Value], given: dict[str, Value]
    ) -> Iterator[tuple[float, dict[str, Value]]]:
        """Yield for each plan that agrees with what was given the cycles it takes, and its options."""
        m, n, k = (max(1, int(params[name] or 1)) for name in ("m", "n", "k"))
        size = (m, n, k)
        blocks = max(1, int(params["blocks"] or 1))
        for plan in plans(TILES, size, blocks):
            options: dict[str, Value] = {
                "block": f"{plan.rows}x{plan.cols}",
                "roles": ROLES[plan.alone],
                "cluster_shape": f"{plan.down}x{plan.across}",
                "splits": plan.splits,
            }
            if given.items() <= options.items() and _legal(plan, str(params["layout"])):
                yield plan.cycles(size, blocks), options

    def variants(self, arch: str) -> Iterator[Case]:
        """Yield what every stage yields, nothing twice: what the model chooses is one of the choices."""
        seen = set()
        for case in super().variants(arch):
            if case.key not in seen:
                seen.add(case.key)
                yield case

    def ping_pong(self, case: Case) -> bool:
        """Return whether each consumer has tiles of its own, and one writes while the other multiplies."""
        return str(case.roles) == "ping-pong"

    def consumers(self, case: Case) -> int:
        """Return the warpgroups that multiply a tile together."""
        return 1 if self.ping_pong(case) else CONSUMERS

    def threads(self, case: Case) -> int:
        """Return the threads of the producer and of both consumers."""
        del case
        return WARPGROUP * (1 + CONSUMERS)

    def pieces(self, case: Case) -> int:
        """Return what was chosen."""
        return int(case.splits)

    def ring(self, case: Case) -> int:
        """Return what was chosen, or as many stages as fit beside what C passes through."""
        if case.stages:
            return int(case.stages)
        rows, cols, _ = self.tile(case)
        stage = (rows + cols) * DEPTH * ELEMENT + 2 * BARRIER
        return (LIMITS[90].shared_of_block - self.staging(case) - 2 * BARRIER) // stage

    def shared(self, case: Case) -> dict[str, int]:
        """Return, beside the rest, the barriers by which consumers take turns."""
        buffers = super().shared(case)
        return buffers | {"barriers": buffers["barriers"] + 2 * BARRIER}

    def programmatic(self, case: Case) -> bool:
        """Return whether it may start while the kernel ahead still runs."""
        return str(case.early) == "yes"

    def check(self, case: Case) -> None:
        """Refuse, beside what no such stage takes, what does not go together.

        Raises:
            UsageError: consumers cannot share the block, sums are too many, or splits more than steps.

        """
        super().check(case)
        rows, cols, _ = self.tile(case)
        if rows % (INSTRUCTION_ROWS * self.consumers(case)):
            raise UsageError(f"block {case.block} is too low for two consumers; legal: --set roles=ping-pong")
        if (sums := _sums(rows, cols, alone=self.ping_pong(case))) > MOST_SUMS:
            raise UsageError(
                f"block {case.block} with {case.roles} consumers: {sums} sums a thread; legal: {MOST_SUMS}"
            )
        if int(case.splits) > self.steps(case):
            raise UsageError(f"-k {case.k} is {self.steps(case)} steps; legal: at most as many splits")

    def macros(self, case: Case) -> Macros:
        """Return all that the kernel must know."""
        producer, consumer = REGISTERS[case.block]
        return {
            **super().macros(case),
            "STAGES": self.ring(case),
            "CONSUMERS": CONSUMERS,
            "PRODUCER_REGISTERS": producer,
            "CONSUMER_REGISTERS": consumer,
            "PINGPONG": int(self.ping_pong(case)),
            "SPLITS": int(case.splits),
            "DEPENDENT": int(self.programmatic(case)),
        }

    def arguments(self, case: Case) -> tuple[Argument, ...]:
        """Return, beside the rest, what sums of split tiles pass through; where there are none, anything."""
        scratch = ("partials", "arrived") if int(case.splits) > 1 else ("c", "c")
        return (*super().arguments(case), *scratch)

    def scratch(self, case: Case) -> tuple[Buffer, ...]:
        """Return what the sums of split tiles pass through, and how many warps have left theirs there."""
        if int(case.splits) == 1:
            return ()
        rows, cols, _ = self.tile(case)
        tiles = math.prod(self.padded_tiles(case))
        arrived = np.zeros(tiles * 4 * self.consumers(case), np.uint32)
        return (
            Buffer("partials", tiles * int(case.splits) * rows * cols * TYPES[case.acc].nbytes),
            Buffer("arrived", arrived.nbytes, data=arrived),
        )


def _sums(rows: int, cols: int, *, alone: bool) -> int:
    """Return the registers of a thread that hold sums."""
    return rows * cols // WARPGROUP // (1 if alone else CONSUMERS)


def _tiles() -> Iterator[tuple[int, int, bool]]:
    """Yield rows and columns of each block, and whether a consumer has it for itself, as far as it can."""
    for block in REGISTERS:
        rows, cols = sizes(block, parts=2, what="block")
        for alone in (False, True):
            shared = rows // (1 if alone else CONSUMERS)
            if shared >= INSTRUCTION_ROWS and _sums(rows, cols, alone=alone) <= MOST_SUMS:
                yield rows, cols, alone


TILES = tuple(_tiles())
FALLBACK: dict[str, Value] = {"block": "128x256", "roles": ROLES[0], "cluster_shape": "1x1", "splits": 1}


def _legal(plan: Plan, layout: str) -> bool:
    """Say whether what each block of a cluster copies are whole boxes."""
    shares = ((plan.rows // plan.across, layout[0] == "t"), (plan.cols // plan.down, layout[1] == "n"))
    return all(
        lines <= LARGEST_BOX and (along_k or lines % INSTRUCTION_ROWS == 0) for lines, along_k in shares
    )
