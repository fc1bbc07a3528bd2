"""Everything together: a persistent, warp-specialized kernel in clusters that writes C by TMA.

kernel.cu says how it works.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product

import numpy as np

from ptxlab.device.job import Argument, Buffer, Dim3
from ptxlab.errors import UsageError
from ptxlab.experiments.base import Case, Macros, Value, option, sizes
from ptxlab.experiments.gemm import TYPES
from ptxlab.experiments.gemm.machine import LIMITS, SHARED_RESERVED
from ptxlab.experiments.gemm.plan import PING_PONG, ROLES, SINGLE, SPLITS, Plan, plans
from ptxlab.experiments.gemm.wgmma import (
    BARRIER,
    DEPTH,
    ELEMENT,
    INSTRUCTION_ROWS,
    LARGEST_BOX,
    WARPGROUP,
    ClusterStage,
)

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
MOST_SUMS = {1: 64, 2: 192}
"""By consumers: registers for sums that leave a thread enough for everything else. One has half of an SM."""
AUTO = "auto"


class Hopper(ClusterStage):
    """Persistent and warp-specialized, in clusters that share tiles, with C written by TMA."""

    below = "cluster"
    ceiling = "wgmma"
    block = option(AUTO, choices=(AUTO, *REGISTERS), help="rows and columns of a block")
    roles = option(AUTO, choices=(AUTO, *ROLES), help="consumers share a tile, have one each, or are one")
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
                "roles": plan.role,
                "cluster_shape": f"{plan.down}x{plan.across}",
                "splits": plan.splits,
            }
            if given.items() <= options.items() and _legal(plan, str(params["layout"])):
                yield plan.cycles(size, blocks), options

    def claims(self, case: Case) -> dict[str, int]:
        """Return the products and the copies, and that registers change hands where there are too few."""
        return {**super().claims(case), "USETMAXREG": 0 if str(case.roles) == SINGLE else 2}

    def variants(self, arch: str) -> Iterator[Case]:
        """Yield what every stage yields, nothing twice: what the model chooses is one of the choices."""
        seen = set()
        for case in super().variants(arch):
            if case.key not in seen:
                seen.add(case.key)
                yield case

    def consumers(self, case: Case) -> int:
        """Return the warpgroups that multiply a tile together."""
        return _sharing(str(case.roles))

    def threads(self, case: Case) -> int:
        """Return the threads of the producer and of the consumers."""
        return WARPGROUP * (1 + _consumers(str(case.roles)))

    def of_an_sm(self, case: Case) -> int:
        """Return how many blocks an SM has room for: of those with one consumer two."""
        return 2 if str(case.roles) == SINGLE else 1

    def grid(self, case: Case) -> Dim3:
        """Return whole clusters, as many as there is work for, or as many as the SMs have room for."""
        size = math.prod(self.cluster_tiles(case))
        work = math.prod(self.padded_tiles(case)) // size * self.pieces(case)
        return min(work, int(case.blocks) * self.of_an_sm(case) // size) * size, 1, 1

    def pieces(self, case: Case) -> int:
        """Return what was chosen."""
        return int(case.splits)

    def ring(self, case: Case) -> int:
        """Return what was chosen, or as many stages as fit beside what C passes through."""
        if case.stages:
            return int(case.stages)
        rows, cols, _ = self.tile(case)
        stage = (rows + cols) * DEPTH * ELEMENT + 2 * BARRIER
        room = LIMITS[90].shared_bytes // self.of_an_sm(case) - SHARED_RESERVED
        return (room - self.staging(case) - 2 * BARRIER) // stage

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
        role, most = str(case.roles), MOST_SUMS[_consumers(str(case.roles))]
        if rows % (INSTRUCTION_ROWS * self.consumers(case)):
            raise UsageError(f"block {case.block} is too low for two consumers; legal: --set roles=ping-pong")
        if (sums := _sums(rows, cols, role)) > most:
            raise UsageError(f"block {case.block}, {role}: {sums} sums a thread; legal: at most {most}")
        if int(case.splits) > self.steps(case):
            raise UsageError(f"-k {case.k} is {self.steps(case)} steps; legal: at most as many splits")

    def macros(self, case: Case) -> Macros:
        """Return all that the kernel must know."""
        producer, consumer = REGISTERS[case.block]
        return {
            **super().macros(case),
            "STAGES": self.ring(case),
            "CONSUMERS": _consumers(str(case.roles)),
            "PRODUCER_REGISTERS": producer,
            "CONSUMER_REGISTERS": consumer,
            "PINGPONG": int(str(case.roles) == PING_PONG),
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


def _consumers(role: str) -> int:
    """Return the warpgroups of a block that multiply."""
    return 1 if role == SINGLE else 2


def _sharing(role: str) -> int:
    """Return those of them that multiply a tile together."""
    return 1 if role == PING_PONG else _consumers(role)


def _sums(rows: int, cols: int, role: str) -> int:
    """Return the registers of a thread that hold sums."""
    return rows * cols // WARPGROUP // _sharing(role)


def _tiles() -> Iterator[tuple[int, int, str]]:
    """Yield rows and columns of each block, and each role that its consumers can have."""
    for block, role in product(REGISTERS, ROLES):
        rows, cols = sizes(block, parts=2, what="block")
        fits = _sums(rows, cols, role) <= MOST_SUMS[_consumers(role)]
        if fits and rows // _sharing(role) >= INSTRUCTION_ROWS:
            yield rows, cols, role


TILES = tuple(_tiles())
FALLBACK: dict[str, Value] = {"block": "128x256", "roles": ROLES[0], "cluster_shape": "1x1", "splits": 1}


def _legal(plan: Plan, layout: str) -> bool:
    """Say whether what each block of a cluster copies are whole boxes."""
    shares = ((plan.rows // plan.across, layout[0] == "t"), (plan.cols // plan.down, layout[1] == "n"))
    return all(
        lines <= LARGEST_BOX and (along_k or lines % INSTRUCTION_ROWS == 0) for lines, along_k in shares
    )
